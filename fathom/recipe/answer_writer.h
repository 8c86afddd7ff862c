// fathom/recipe/answer_writer.h
// What every API's writers do. A streamed answer is start, write for each delta, finish, or fail instead of finish when
// generation broke; keep_alive between them is a sign of life. A complete answer is start, write, finish on a body,
// then its text. One answer each, one thread at a time; a call after the end is a bug (check()). A steady stream
// allocates nothing. Source: spec/recipe.md 9, spec/codec-policy.md 5.
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
