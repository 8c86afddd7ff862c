// fathom/cache/block_pool.h
// Fixed-size pieces of memory with reference counts: the 128-token blocks, and the state slots. Bookkeeping only; the
// bytes lie in CacheMemory. Id 0 is never given out: it stands for "none" in block tables and for padding rows.
#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "fathom/base/result.h"

namespace fathom {

/// Not thread-safe: the engine's thread owns it. No operation allocates after construction.
class BlockPool {
 public:
  /// Ids 1 .. count.
  explicit BlockPool(int32_t count);

  /// A block with one reference, or nothing when all are in use. Least recently freed first, so that what was freed
  /// last stays findable longest.
  std::optional<int32_t> take();
  void add_reference(int32_t id);
  /// Drops one reference; the last one frees the block (to the tail of the free list).
  void release(int32_t id);

  int32_t references(int32_t id) const { return references_[size_t(id)]; }
  int32_t capacity() const { return int32_t(references_.size()) - 1; }
  int32_t free_count() const { return free_count_; }

  /// Checks the whole state: the free list is acyclic and holds exactly the blocks without references, and the counts
  /// equal `users` (one entry for each reference that the caller knows of). Linear; for debug builds and tests.
  /// Errors: failed, naming the first block that is wrong. Source: spec/engine.md R-22.
  Result<void> verify(std::span<const int32_t> users) const;

 private:
  std::vector<int32_t> references_;
  std::vector<int32_t> next_;  // free list; 0 ends it
  int32_t head_ = 0, tail_ = 0;
  int32_t free_count_ = 0;
};

}  // namespace fathom
