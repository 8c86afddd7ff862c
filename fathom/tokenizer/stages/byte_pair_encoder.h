// fathom/tokenizer/stages/byte_pair_encoder.h
// Byte-level BPE: of all neighbours, join the pair with the lowest rank (the leftmost of equals), until none has a
// rank.
//
// Pieces are mostly short, but a run of a million letters is one legal piece, and cutting it would change ids. So there
// are two forms of the same rule: up to kShortPiece bytes every step scans all pairs (short loops, no memory); beyond,
// a queue holds the pairs, by rank and then position, and a linked list holds the tokens. A pair that has changed stays
// in the queue and is dropped when it comes up. Each join puts at most two pairs in, so n bytes cost at most 3 n queue
// operations of O(log n).
// Source: spec/tokenizer.md 4.
#pragma once
#include <array>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "fathom/tokenizer/stages/tokenizer_file.h"

namespace fathom {

/// Immutable, shared by threads.
class BytePairEncoder {
 public:
  static constexpr size_t kShortPiece = 96;

  /// `byte_ids[b]` is the token of byte b; ids and the number of merges are below kMostTokenIds; pairs are distinct.
  BytePairEncoder(const std::array<int32_t, 256>& byte_ids, std::span<const TokenizerFile::Merge> merges);

  /// Appends the tokens of one piece, at most 2^31 - 1 bytes, and says how many queue operations that took (0 for a
  /// short piece). Memory for a long piece: 16 bytes a byte, and 8 for each pair in the queue; freed at return.
  int64_t encode(std::string_view piece, std::vector<int32_t>& out) const;

 private:
  void encode_short(std::string_view piece, std::vector<int32_t>& out) const;
  int64_t encode_long(std::string_view piece, std::vector<int32_t>& out) const;

  /// Rank of the pair, kNoRank if it never joins.
  static constexpr int32_t kNoRank = INT32_MAX >> 8;
  int32_t rank_of(int32_t left, int32_t right) const;
  int32_t rank_of_bytes(char left, char right) const {
    return byte_ranks_[size_t(uint8_t(left)) << 8 | uint8_t(right)];
  }

  // Open addressing, at most half full. A slot is left (20 bits), right (20 bits), rank (24 bits) in one word, so that
  // most look-ups, which find nothing, touch one cache line of a table of 2 MB (published file).
  static constexpr uint64_t kEmpty = ~uint64_t(0);
  std::vector<uint64_t> slots_;
  int shift_ = 0;
  std::vector<int32_t> results_;     // by rank
  std::vector<int32_t> byte_ranks_;  // [256 * 256] ranks of pairs of single bytes, where every piece begins
  std::array<int32_t, 256> byte_ids_;
};

}  // namespace fathom
