// fathom/engine/draft_laws.h
// The laws that drafts were drawn from, kept from their proposal to their verification one step later. Rejection
// sampling is exact for any law of the drafts as long as it is the law they were drawn from (spec/engine.md 7.5); so a
// draft's law is cut to its best V/8 - 1 tokens before it is drawn, and the tokens that are left are kept as they are:
// 8 bytes a token, nothing rounded, nothing recomputed. The cut costs acceptance only where a draft's law reaches
// beyond V/8 tokens, by at most the mass behind them.
//
// Bytes, V = 129,280, 5 drafts, 257 sequences:
//                              a row            a sequence        all
//   DeepInfer, V floats       517,120 B        2,585,600 B       664 MB
//   here, at most        V - 4 = 129,276 B       646,384 B       166 MB
//   here, 500 tokens (top-p)    4,004 B           20,024 B       5.1 MB
// Greedy requests and `--sampling transparent` keep nothing.
#pragma once
#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "fathom/backend/ops.h"

namespace fathom {

/// Most tokens of a draft's law. Of small vocabularies, whose laws take no memory to speak of, 256.
constexpr int32_t most_draft_tokens(int64_t vocabulary) { return int32_t(std::max<int64_t>(vocabulary / 8 - 1, 256)); }

/// 1 - the mass of max(q - p, 0): the probability that a draft of the law p is accepted where the target's law is q
/// (spec/engine.md 7.5, 7.6). `common` is what they have in common (Accept). Both are integers out of 2^31 whose sums
/// fall short of it by less than one a token, so this falls short by less than vocabulary / 2^31: 6e-5.
inline float acceptance_of(uint64_t common) { return float(double(common) / double(uint64_t(1) << 31)); }

/// A value; the laws of one sequence's drafts, in their order. Allocates exactly what the largest round yet took.
struct DraftLaws {
  std::vector<TokenWeight> tokens;  // rising id within a row
  std::vector<int32_t> begin{0};    // [rows + 1]

  int64_t rows() const { return int64_t(begin.size()) - 1; }
  std::span<const TokenWeight> row(int64_t r) const {
    return std::span(tokens).subspan(size_t(begin[size_t(r)]), size_t(begin[size_t(r) + 1] - begin[size_t(r)]));
  }
  int64_t bytes() const {
    return int64_t(tokens.capacity() * sizeof(TokenWeight) + begin.capacity() * sizeof(int32_t));
  }
  void clear() {
    tokens.clear();
    begin.resize(1);
  }
  /// Keeps a law.
  void append(std::span<const TokenWeight> law) {
    tokens.reserve(tokens.size() + law.size());  // not doubled: the bound above holds for what is allocated
    begin.reserve(begin.size() + 1);
    tokens.insert(tokens.end(), law.begin(), law.end());
    begin.push_back(int32_t(tokens.size()));
  }
  /// The law of a draft that nobody drew: it is certain.
  void append(int32_t token) {
    tokens.push_back({token, uint32_t(1) << 31});
    begin.push_back(int32_t(tokens.size()));
  }
};

}  // namespace fathom
