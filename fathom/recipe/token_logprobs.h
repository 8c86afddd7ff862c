// fathom/recipe/token_logprobs.h
// Log-probabilities as Chat Completions and Responses show them. Source: spec/recipe.md 9 (logprobs).
#pragma once
#include <span>
#include <string>

#include "fathom/recipe/answer.h"
#include "fathom/tokenizer/tokenizer.h"

namespace fathom::recipe {

/// Appends `{"token":"hi","logprob":-0.125,"bytes":[104,105],"top_logprobs":[…]}` of each token, with commas between,
/// and one before when `out` holds entries already. An id without a token has an empty text.
void append_logprobs(std::string& out, std::span<const TokenLogprob> logprobs, const Tokenizer& tokenizer);

}  // namespace fathom::recipe
