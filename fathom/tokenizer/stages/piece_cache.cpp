#include "fathom/tokenizer/stages/piece_cache.h"

#include <cstring>

namespace fathom {
namespace {

// The last 1 to 8 bytes of `piece`, zero-padded, without a byte-wise copy: whole loads that overlap.
uint64_t load_word(const char* at, size_t bytes) {
  uint64_t word = 0;
  if (bytes >= 8) {
    std::memcpy(&word, at, 8);
  } else if (bytes >= 4) {
    uint32_t low, high;
    std::memcpy(&low, at, 4);
    std::memcpy(&high, at + bytes - 4, 4);
    word = low | uint64_t(high) << (8 * (bytes - 4));
  } else {
    // 1 to 3 bytes: first, middle, last (which may be the same byte).
    const auto byte = [at](size_t i) { return uint64_t(uint8_t(at[i])); };
    word = byte(0) | byte(bytes / 2) << (8 * (bytes / 2)) | byte(bytes - 1) << (8 * (bytes - 1));
  }
  return word;
}

constexpr size_t words_of(uint32_t bytes) { return (bytes + 7) / 8; }

}  // namespace

PieceCache::Key::Key(std::string_view piece) : length(uint32_t(piece.size())) {
  uint64_t mixed = length;
  for (size_t i = 0, word = 0; i < piece.size(); i += 8, ++word) {
    words[word] = load_word(piece.data() + i, piece.size() - i);
    mixed = (mixed ^ words[word]) * 0x9E3779B97F4A7C15u;
    mixed ^= mixed >> 32;
  }
  hash = mixed * 0xD6E8FEB86659FD93u;
}

PieceCache::PieceCache(int log2_entries)
    : mask_((uint64_t(1) << log2_entries) - 1), entries_(std::make_unique<Entry[]>(size_t(1) << log2_entries)) {}

size_t PieceCache::find(const Key& key, std::array<int32_t, kMostTokens>& ids) const {
  const Entry& e = entry(key);
  const uint64_t head = e.head.load(std::memory_order_acquire);
  if ((head >> 8 & 0xFF) != key.length || (head >> 16 & 1) != 0) return 0;
  for (size_t i = 0; i < words_of(key.length); ++i) {
    if (e.words[i].load(std::memory_order_acquire) != key.words[i]) return 0;
  }
  const size_t tokens = head & 0xFF;
  for (size_t i = 0; i < tokens; i += 2) {
    const uint64_t pair = e.ids[i / 2].load(std::memory_order_acquire);
    ids[i] = int32_t(uint32_t(pair));
    ids[i + 1] = int32_t(uint32_t(pair >> 32));
  }
  // The loads above are acquire, so this one cannot come before them.
  return e.head.load(std::memory_order_relaxed) == head ? tokens : 0;
}

void PieceCache::put(const Key& key, std::span<const int32_t> ids) {
  Entry& e = entry(key);
  uint64_t head = e.head.load(std::memory_order_relaxed);
  const uint64_t version = head >> 16;
  if ((version & 1) != 0) return;
  if (!e.head.compare_exchange_strong(head, (version + 1) << 16, std::memory_order_acq_rel)) return;
  // Release stores cannot come before the odd version above.
  for (size_t i = 0; i < words_of(key.length); ++i) e.words[i].store(key.words[i], std::memory_order_release);
  for (size_t i = 0; i < ids.size(); i += 2) {
    const uint64_t second = i + 1 < ids.size() ? uint32_t(ids[i + 1]) : 0;
    e.ids[i / 2].store(uint32_t(ids[i]) | second << 32, std::memory_order_release);
  }
  e.head.store((version + 2) << 16 | uint64_t(key.length) << 8 | ids.size(), std::memory_order_release);
}

}  // namespace fathom
