// fathom/server/question.h
// From a request of an API to a question for the engine: what cannot be served is refused with the path of the value at
// fault, the conversation becomes tokens, and the settings become the engine's. Pure but for the tokenizer's cache; up
// to milliseconds for long conversations, so not for an io thread. Source: spec/recipe.md 1.1, spec/codec-policy.md 5.
#pragma once
#include <cstdint>
#include <functional>
#include <string_view>
#include <vector>

#include "fathom/engine/request.h"
#include "fathom/recipe/codec.h"
#include "fathom/server/image_data.h"
#include "fathom/server/image_parts.h"
#include "fathom/tokenizer/tokenizer.h"

namespace fathom {

struct Question {
  Request request;
  std::vector<ImageData> images;  // in the order of their tokens in request.ids, which has one for each
  recipe::Parsing parsing;
  std::vector<int32_t> end_ids;  // tokens that end the answer and are no text
};

/// Refuses what would have to be ignored: images where there is a reason why they cannot be taken (`blind`; empty: they
/// can), and constraints that cannot be kept. `parts` are those of the request's body. Errors: usage, `where` being the
/// path in the request.
Result<void> check_answerable(const recipe::CodecRequest& request, std::string_view blind, const ImageParts& parts);

/// How many tokens `text` surely has: its bytes by those of the longest token; 0 below 1 MiB, which is counted instead.
/// Encoding takes 10 to 30 times the memory of the text, so what cannot fit is not encoded to learn by how much.
int64_t least_tokens(std::string_view text, const Tokenizer& tokenizer);

/// What a model that sees images makes of those of a question: longer prompts and rows beside them. May take long.
/// Errors: the answer to the request.
using See = std::function<Result<void>(Question&)>;

/// Sets ids and images of `question`: the prompt's tokens as the model sees them. Errors: those of encode and `see`.
Result<void> read_prompt(Question& question, const recipe::Prompt& prompt, std::vector<ImageData> images,
                         const See& see, const Tokenizer& tokenizer);

/// The prompt's tokens and the settings of the request; its images, one for each image token of the prompt, go through
/// `see` before anything is counted. Errors: those of read_prompt; out_of_range when prompt and answer do not fit the
/// context.
Result<Question> question_of(const recipe::CodecRequest& request, const recipe::Prompt& prompt,
                             std::vector<ImageData> images, const See& see, const Tokenizer& tokenizer,
                             const RequestLimits& limits);

}  // namespace fathom
