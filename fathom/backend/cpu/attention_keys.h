// fathom/backend/cpu/attention_keys.h
// Which keys a row of attention has, and where they lie.
#pragma once
#include <bit>

#include "fathom/backend/cpu/decoded_keys.h"
#include "fathom/backend/ops.h"
#include "fathom/tensor/row_format.h"

namespace fathom::cpu {

inline constexpr int64_t kLongKey = 256;  // channels

inline int64_t keys_of_row(const LatentAttention& op, int64_t r) {
  return op.window_end[r] - op.window_begin[r] + (op.entries.empty() ? 0 : op.count[r]);
}

/// The window of one row: positions below the first fresh one lie in the ring. One division finds its beginning.
class WindowPlaces {
 public:
  WindowPlaces(const LatentAttention& op, int64_t r) : origin_(op.window_begin[r]), first_fresh_(op.window_end[r]) {
    const int64_t sequence = op.rows.sequence[r], begin = op.fresh_rows.begin[sequence];
    if (begin < op.fresh_rows.begin[sequence + 1]) {
      first_fresh_ = op.fresh_rows.positions[begin];
      fresh_stride_ = op.fresh.stride[0];
      fresh_ = op.fresh.data + begin * fresh_stride_;
    }
    if (origin_ >= first_fresh_) return;
    ring_ = op.ring.base + op.ring.slots[sequence] * op.ring.slot_stride;
    capacity_ = op.ring.capacity;
    entry_bytes_ = op.ring.entry_bytes;
    place_ = origin_ % capacity_;
  }
  /// A position of the window.
  const uint8_t* operator[](int64_t position) const {
    if (position >= first_fresh_) return fresh_ + (position - first_fresh_) * fresh_stride_;
    int64_t place = place_ + (position - origin_);
    while (place >= capacity_) place -= capacity_;
    return ring_ + place * entry_bytes_;
  }

 private:
  const uint8_t *ring_ = nullptr, *fresh_ = nullptr;
  int64_t capacity_ = 0, entry_bytes_ = 0, fresh_stride_ = 0, place_ = 0;
  int64_t origin_, first_fresh_;
};

/// The pages of one sequence. Where a block has a power of two of entries, as all have, nothing is divided.
class PagePlaces {
 public:
  PagePlaces(const PagedRegion& pages, int64_t sequence)
      : pages_(pages),
        sequence_(sequence),
        shift_(std::has_single_bit(unsigned(pages.entries_per_block))
                   ? std::countr_zero(unsigned(pages.entries_per_block))
                   : -1) {}
  const uint8_t* operator[](int64_t e) const {
    if (shift_ < 0) return pages_.entry(sequence_, e);
    const int64_t within = e & (int64_t(pages_.entries_per_block) - 1);
    return pages_.base + pages_.blocks(sequence_, e >> shift_) * pages_.block_stride + within * pages_.entry_bytes;
  }

 private:
  const PagedRegion& pages_;
  int64_t sequence_;
  int shift_;
};

/// Calls for all encoded keys of row r at once. Each entry lies in a page of its own, and while one is decoded only the
/// next is in sight: a row of V4.1 Flash waited 150 us for 640 keys that no cache held.
inline void prefetch_keys(const LatentAttention& op, int64_t r) {
  const auto call_for = [](const uint8_t* key, int64_t bytes) {
    for (int64_t i = 0; i < bytes; i += 64) __builtin_prefetch(key + i, 0, 2);
    __builtin_prefetch(key + bytes - 1, 0, 2);
  };
  if (op.window_begin[r] < op.window_end[r]) {
    const WindowPlaces window(op, r);
    const int64_t bytes = row_bytes(op.window_format, op.queries.cols / op.heads);
    for (int64_t p = op.window_begin[r]; p < op.window_end[r]; ++p) call_for(window[p], bytes);
  }
  const int64_t entries = op.entries.empty() ? 0 : op.count[r];
  if (entries == 0) return;
  const PagePlaces latents(op.latents, op.rows.sequence[r]);
  for (int64_t i = 0; i < entries; ++i) call_for(latents[op.entries(r, i)], op.latents.entry_bytes);
}

/// Finds or decodes row r's keys, window first; returns their number, or -1 when there is no room for them.
template <class Tiles>
[[gnu::always_inline]] inline int64_t collect_keys(const LatentAttention& op, int64_t r, DecodedKeys<Tiles>& decoded,
                                                   const typename Tiles::Key** keys) {
  int64_t n = 0;
  if (op.window_begin[r] < op.window_end[r]) {
    const WindowPlaces window(op, r);
    for (int64_t p = op.window_begin[r]; p < op.window_end[r]; ++p) {
      keys[n] = decoded.find(0, p, op.window_format, [&] { return window[p]; });
      if (keys[n++] == nullptr) return -1;
    }
  }
  const int64_t entries = op.entries.empty() ? 0 : op.count[r];
  if (entries == 0) return n;
  const PagePlaces latents(op.latents, op.rows.sequence[r]);
  for (int64_t i = 0; i < entries; ++i) {
    const int64_t e = op.entries(r, i);
    keys[n] = decoded.find(1, e, op.entry_format, [&] { return latents[e]; });
    if (keys[n++] == nullptr) return -1;
  }
  return n;
}

/// Calls attend(r, keys, n) for the rows [begin, end), which share their decoded keys where they are of one sequence.
/// `keys` has room for as many more as a tile has.
template <class Tiles, class Attend>
[[gnu::always_inline]] inline void for_rows_with_keys(const LatentAttention& op, int64_t begin, int64_t end,
                                                      DecodedKeys<Tiles>& decoded, Scratch& memory,
                                                      const Attend& attend) {
  using Key = typename Tiles::Key;
  for (int64_t r = begin; r < end;) {
    int64_t stop = r, most = 0, origin = op.window_begin[r];
    for (; stop < end && op.rows.sequence[stop] == op.rows.sequence[r]; ++stop) {
      most = std::max(most, keys_of_row(op, stop));
      origin = std::min(origin, op.window_begin[stop]);
    }
    const Key** keys = memory.get<const Key*>(most + Tiles::kKeys);
    decoded.begin(op.queries.cols / op.heads, most, stop - r, origin);
    // Short keys, like the miniature's, come as fast as they are found.
    if (op.queries.cols / op.heads >= kLongKey) prefetch_keys(op, r);
    for (; r < stop; ++r) {
      int64_t n = collect_keys<Tiles>(op, r, decoded, keys);
      if (n < 0) {
        decoded.forget();
        n = collect_keys<Tiles>(op, r, decoded, keys);
      }
      for (int64_t k = n; n > 0 && k % Tiles::kKeys != 0; ++k) keys[k] = keys[0];  // the last tile is a whole one
      attend(r, keys, n);
    }
  }
}

}  // namespace fathom::cpu
