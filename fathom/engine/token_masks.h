// fathom/engine/token_masks.h
// Which tokens may come, of every row that a step decides about one constrained answer. A value; AnswerGuide fills it,
// the sampler reads it. Source: spec/engine.md 10, R-33.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

namespace fathom {

/// Row k is about the token behind k assumed drafts.
struct TokenMasks {
  size_t words = 0;             // of a row: bit t % 32 of word t / 32 is token t
  std::vector<uint32_t> bits;   // [rows, words]; a set bit may come, tokens behind the last word may not
  std::vector<char> only_ends;  // [rows] nothing is left but tokens that end the answer

  std::span<uint32_t> row(size_t k) { return std::span(bits).subspan(k * words, words); }
  std::span<const uint32_t> row(size_t k) const { return std::span(bits).subspan(k * words, words); }
};

}  // namespace fathom
