// fathom/cache/block_pool.h
// Fixed-size pieces of memory with reference counts: the 128-token blocks, and the state slots. Bookkeeping only; the
// bytes lie in CacheMemory. Id 0 is never given out: it stands for "none" in block tables and for padding rows.
//
// A block is free, in use (it has references), or idle: nobody uses it, but it is findable through the prefix index and
// keeps its content until the space is needed. Findable blocks may be in use at the same time.
#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "fathom/base/result.h"
#include "fathom/cache/idle_blocks.h"

namespace fathom {

/// Not thread-safe: the engine's thread owns it. No operation allocates after construction.
class BlockPool {
 public:
  /// Ids 1 .. count.
  explicit BlockPool(int32_t count);

  /// A free block with one reference, or nothing when none is free (idle ones are not taken: see make_room in
  /// sequence_cache.h). Least recently freed first.
  std::optional<int32_t> take();
  /// One reference more to a block that is in use or idle; an idle one is in use again.
  void add_reference(int32_t id);
  /// Drops one reference; with the last one the block is free (at the tail of the free list), or idle if it is
  /// findable.
  void release(int32_t id);

  /// A block in use becomes findable, on this account of `idle()`.
  void keep(int32_t id, int32_t account);
  /// It is findable no more; an idle block becomes free.
  void forget(int32_t id);

  int32_t references(int32_t id) const { return references_[size_t(id)]; }
  bool findable(int32_t id) const { return account_of_[size_t(id)] >= 0; }
  /// Only its one user knows it, so it may be written.
  bool writable(int32_t id) const { return references(id) == 1 && !findable(id); }
  int32_t capacity() const { return int32_t(references_.size()) - 1; }
  int32_t free_count() const { return free_count_; }
  /// What can be had: free blocks, and idle ones that would lose their content.
  int32_t available() const { return free_count_ + idle_.size(); }

  /// Accounts, limits and time of idle blocks; who goes next.
  IdleBlocks& idle() { return idle_; }
  const IdleBlocks& idle() const { return idle_; }

  /// Checks the whole state: the free list is acyclic and holds exactly the blocks that nobody uses or finds, the idle
  /// lists those that can only be found, and the counts equal `users` (one entry for each reference that the caller
  /// knows of). Linear; for debug builds and tests. Errors: failed, naming the first block that is wrong. Source:
  /// spec/engine.md R-22.
  Result<void> verify(std::span<const int32_t> users) const;

 private:
  void make_free(int32_t id);
  void check_known(int32_t id) const;

  std::vector<int32_t> references_;
  std::vector<int32_t> next_;        // free list; 0 ends it
  std::vector<int32_t> account_of_;  // -1: not findable
  int32_t head_ = 0, tail_ = 0;
  int32_t free_count_ = 0;
  IdleBlocks idle_;
};

}  // namespace fathom
