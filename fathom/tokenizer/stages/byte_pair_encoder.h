// fathom/tokenizer/stages/byte_pair_encoder.h
// Byte-level BPE: of all neighbours, join the pair with the lowest rank (the leftmost of equals), until none has a
// rank.
//
// Pieces are mostly short, but a run of a million letters is one legal piece, and cutting it would change ids. So there
// are two forms of the same rule: up to kShortPiece bytes every step scans all pairs (short loops, no memory); beyond,
// a queue holds the pairs, by rank and then position, and a linked list holds the tokens. A pair that has changed stays
// in the queue and is dropped when it comes up. Each join puts at most two pairs in, so n bytes cost at most 3 n queue
// operations of O(log n).
//
// Most Chinese, Cyrillic, Greek ... characters become one token whatever stands around them; such a piece begins from
// characters, with a third of the joins. What makes a character certain: see `find_certain_characters`.
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

  /// Appends the tokens of one piece (valid UTF-8, at most 2^31 - 1 bytes), and says how many queue operations that
  /// took (0 for a short piece). Memory for a long piece: 16 bytes a byte, and 8 for each pair in the queue; freed at
  /// return.
  int64_t encode(std::string_view piece, std::vector<int32_t>& out) const;

 private:
  void find_certain_characters(std::span<const TokenizerFile::Merge> merges);
  /// Calls `put(token, rank)` for the tokens that a piece begins with; `rank` is that of the pair with the one before.
  template <class Put>
  void begin(std::string_view piece, Put&& put) const;
  void encode_short(std::string_view piece, std::vector<int32_t>& out) const;
  int64_t encode_long(std::string_view piece, std::vector<int32_t>& out) const;

  /// Rank of the pair, kNoRank if it never joins.
  static constexpr int32_t kNoRank = INT32_MAX >> 8;
  int32_t rank_of(int32_t left, int32_t right) const;
  int32_t rank_of_bytes(char left, char right) const {
    return byte_ranks_[size_t(uint8_t(left)) << 8 | uint8_t(right)];
  }

  // Two look-ups follow every join, most of them find nothing, and the table of the published file (2 MB) does not fit
  // the second-level cache. So a filter of 8 bits a merge (128 KB), one bit set for each pair, says no to most of them.
  // The table is open addressing, at most half full; a slot is left (20 bits), right (20 bits), rank (24 bits).
  static constexpr uint64_t kEmpty = ~uint64_t(0);
  std::vector<uint64_t> filter_;
  std::vector<uint64_t> slots_;
  int filter_shift_ = 0, shift_ = 0;
  std::vector<int32_t> results_;     // by rank
  std::vector<int32_t> byte_ranks_;  // [256 * 256] ranks of pairs of single bytes, where every piece begins
  std::array<int32_t, 256> byte_ids_;
  std::vector<int32_t>
      certain_;  // by code point below U+10000: its token, kUncertain if it has to be joined from bytes
  static constexpr int32_t kUncertain = -1;
};

}  // namespace fathom
