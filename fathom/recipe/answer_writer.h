// fathom/recipe/answer_writer.h
// What every API's writers do. A streamed answer is start, write for each delta, finish; a complete one is the same
// calls on a body, then its text. One answer each, one thread at a time; a call after finish is a bug (check()).
// Source: spec/recipe.md 9.
#pragma once
#include <string>
#include <variant>

#include "fathom/recipe/answer.h"
#include "fathom/recipe/api/chat_completions/answer.h"
#include "fathom/recipe/api/messages/answer.h"
#include "fathom/recipe/api/responses/answer.h"

namespace fathom::recipe {

using AnswerWriter = std::variant<ChatCompletionsWriter, ResponsesWriter, MessagesWriter>;
using AnswerBody = std::variant<ChatCompletionsBody, ResponsesBody, MessagesBody>;

}  // namespace fathom::recipe
