// fathom/cache/cache_memory.h
// The bytes of all blocks and state slots, and the regions through which operations reach them.
#pragma once
#include "fathom/backend/backend.h"
#include "fathom/cache/page_spec.h"

namespace fathom {

/// Block id b lies at b * block_bytes, slot id s at s * slot_bytes; ids count from 1, id 0 is a dummy that padding may
/// write. Fresh memory is zero and untouched: a block costs physical memory when it is first written (host memory).
class CacheMemory {
 public:
  /// Errors: out_of_memory with the sizes.
  static Result<CacheMemory> allocate(const Memory& memory, CacheLayout layout, int32_t blocks, int32_t slots);

  const CacheLayout& layout() const { return layout_; }
  /// The paged spec number `spec`, read through these block tables [sequences, most blocks].
  PagedRegion paged(size_t spec, View<const int32_t, 2> blocks) const;
  /// The ring spec number `spec` of these slots [sequences].
  RingRegion ring(size_t spec, View<const int32_t, 1> slots) const;

  /// Copies a whole block or slot (copy-on-write of a fork). Host memory only.
  void copy_block(int32_t from, int32_t to);
  void copy_slot(int32_t from, int32_t to);

  int64_t bytes() const { return blocks_.bytes() + slots_.bytes(); }

 private:
  CacheLayout layout_;
  Buffer blocks_, slots_;
};

}  // namespace fathom
