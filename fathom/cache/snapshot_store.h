// fathom/cache/snapshot_store.h
// Copies of encoder windows at multiples of 128 tokens, in host memory. A prefix in the block cache has its global
// entries, not its windows; with a snapshot of them a prompt goes on exactly where the prefix ends, without replay.
// A snapshot of V4.1 Flash takes 20 rings x 128 entries x 528 bytes = 1,351,680 bytes, as much as 12 blocks, and is
// worth nothing after minutes: so it has a budget, an order and an age of its own, and lives or goes without regard to
// its block. It is found by the key of the block that ends at its position and confirmed by all ids before it, so it
// needs no block either.
//
// The store knows no device: whoever puts a snapshot fills its bytes, whoever finds one copies them into rings (on host
// memory: CacheMemory::save_windows, restore_windows).                                Source: spec/engine.md R-21
#pragma once
#include <chrono>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "fathom/cache/prefix_index.h"

namespace fathom {

struct SnapshotLimits {
  int64_t budget_bytes = 0;  // of all snapshots with the ids that confirm them; 0: none are kept
  std::chrono::seconds time_to_live{600};
};

struct SnapshotStatistics {
  int64_t put = 0, found = 0, missed = 0, evicted = 0, expired = 0;
};

struct SnapshotView {
  int64_t position = 0;
  int32_t seams = 0;               // bounded replays that its windows descend from
  std::span<const uint8_t> bytes;  // valid until the next call of the store that is not const
};

/// Not thread-safe: the engine's thread owns it. O(1) a call and the comparison of ids. Allocates until its budget is
/// used for the first time.
class SnapshotStore {
 public:
  SnapshotStore(int64_t snapshot_bytes, SnapshotLimits limits) : snapshot_bytes_(snapshot_bytes), limits_(limits) {
    entries_.emplace_back();  // 0 is none
  }

  /// Keeps a snapshot of the windows before `position` (a positive multiple of 128), of a sequence whose rings hold
  /// them whole (ring_holds and windows_complete in replay.h). `fill` writes all `snapshot_bytes`; it is not called
  /// when the same snapshot is there already. False when nothing is kept: no budget, or a collision.
  bool put(const PrefixIndex& index, PrefixChain& chain, std::span<const int32_t> ids, int64_t position,
           const std::function<void(std::span<uint8_t>)>& fill);

  /// The last snapshot in `range` of a prefix of these ids. `exact_only`: without seams.
  std::optional<SnapshotView> latest(const PrefixIndex& index, PrefixChain& chain, std::span<const int32_t> ids,
                                     SnapshotRange range, bool exact_only);

  /// Whatever lies there goes; a caller that wants them gone with their block calls it with the block's key.
  void drop(const PrefixKey& key);
  /// Drops what has not been used for the time to live. Time never goes back.
  void advance(std::chrono::seconds now);

  int64_t bytes() const { return bytes_; }
  int64_t size() const { return table_.size(); }
  int64_t snapshot_bytes() const { return snapshot_bytes_; }
  const SnapshotStatistics& statistics() const { return statistics_; }

  /// Within the budget, every snapshot in the list and in the table once. Linear. Errors: failed.
  Result<void> verify() const;

 private:
  struct Entry {
    PrefixKey key;
    std::vector<uint8_t> root;
    std::vector<int32_t> ids;
    std::vector<ImageSpan> images;
    std::vector<uint8_t> bytes;  // kept when the entry is free
    int32_t seams = 0;
    int32_t previous = 0, next = 0;  // least recently used first; `next` also links free entries
    std::chrono::seconds used{};
  };
  static int64_t bytes_of(const Entry& entry);
  bool confirms(const Entry& entry, const PrefixIndex& index, const PrefixChain& chain,
                std::span<const int32_t> ids) const;
  void append(int32_t at);
  void unlink(int32_t at);
  void remove(int32_t at);

  int64_t snapshot_bytes_ = 0, bytes_ = 0;
  SnapshotLimits limits_;
  std::vector<Entry> entries_;
  KeyTable table_;
  int32_t head_ = 0, tail_ = 0, free_ = 0;
  std::chrono::seconds now_{};
  SnapshotStatistics statistics_;
};

}  // namespace fathom
