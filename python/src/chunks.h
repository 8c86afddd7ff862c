// python/src/chunks.h
// What a backend says, as a value.
#pragma once
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "fathom/recipe/answer_reader.h"

namespace fathom::python {

struct ReadyChunk {
  recipe::PromptUsage prompt;
  std::optional<std::string> fingerprint;
};
struct TextChunk {
  std::string content;
  int64_t token_count = 0;
};
struct TokensChunk {
  std::vector<int32_t> ids;
  std::vector<recipe::TokenLogprob> logprobs;
};
using Chunk = std::variant<ReadyChunk, TextChunk, TokensChunk, recipe::BackendFinish>;

/// InferenceChunk.
struct PyChunk {
  Chunk chunk;
};

}  // namespace fathom::python
