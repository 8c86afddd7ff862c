// fathom/tokenizer/stages/piece_cache.h
// Remembers the tokens of short pieces. Words repeat, and looking one up is ten times as fast as joining its bytes; the
// result of a piece does not depend on its surroundings, so all texts and threads share one table.
//
// The table is direct-mapped: a new piece replaces what stood in its place, so memory is fixed. An entry is one cache
// line of atomic words under a sequence lock: a reader that meets a writer sees a changed or odd version and counts it
// as a miss; a writer that meets a writer gives up. Nobody waits.
#pragma once
#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

namespace fathom {

/// Any number of threads may call find and put at once.
class PieceCache {
 public:
  static constexpr size_t kLongestPiece = 32;  // bytes
  static constexpr size_t kMostTokens = 6;

  /// A piece of 1 to kLongestPiece bytes, zero-padded, and its hash.
  struct Key {
    std::array<uint64_t, 4> words{};
    uint64_t hash = 0;
    uint32_t length = 0;

    explicit Key(std::string_view piece);
  };

  /// 64 bytes an entry; at most 2^32 entries.
  explicit PieceCache(int log2_entries);

  /// Writes the tokens to `ids` and gives their number; 0 when the piece is not there.
  size_t find(const Key& key, std::array<int32_t, kMostTokens>& ids) const;

  /// `ids` are 1 to kMostTokens tokens.
  void put(const Key& key, std::span<const int32_t> ids);

 private:
  struct alignas(64) Entry {
    std::atomic<uint64_t> head{0};  // version << 16 | bytes << 8 | tokens; an odd version is being written
    std::array<std::atomic<uint64_t>, 4> words{};
    std::array<std::atomic<uint64_t>, kMostTokens / 2> ids{};
  };
  Entry& entry(const Key& key) const { return entries_[key.hash >> 32 & mask_]; }

  uint64_t mask_;
  std::unique_ptr<Entry[]> entries_;
};

}  // namespace fathom
