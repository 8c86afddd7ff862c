// fathom/server/question.h
// From a request of an API to a question for the engine: what cannot be served is refused with the path of the value at
// fault, the conversation becomes tokens, and the settings become the engine's. Pure but for the tokenizer's cache; up
// to milliseconds for long conversations, so not for an io thread. Source: spec/recipe.md 1.1, spec/codec-policy.md 5.
#pragma once
#include <cstdint>
#include <string_view>
#include <vector>

#include "fathom/engine/request.h"
#include "fathom/recipe/codec.h"
#include "fathom/tokenizer/tokenizer.h"

namespace fathom {

struct Question {
  Request request;
  recipe::Parsing parsing;
  std::vector<int32_t> end_ids;  // tokens that end the answer and are no text
};

/// Refuses what this build would have to ignore: images, and constraints that cannot be kept. Errors: usage, `where`
/// being the path in the request.
Result<void> check_answerable(const recipe::CodecRequest& request);

/// How many tokens `text` surely has: its bytes by those of the longest token; 0 below 1 MiB, which is counted instead.
/// Encoding takes 10 to 30 times the memory of the text, so what cannot fit is not encoded to learn by how much.
int64_t least_tokens(std::string_view text, const Tokenizer& tokenizer);

/// An error about too many tokens, of which only the least number is known.
Error at_least(Error too_long);

/// The prompt's tokens and the settings of the request. Errors: those of check_answerable and encode; out_of_range
/// when prompt and answer do not fit the context.
Result<Question> question_of(const recipe::CodecRequest& request, const recipe::ConversionOptions& options,
                             const Tokenizer& tokenizer, const RequestLimits& limits);

}  // namespace fathom
