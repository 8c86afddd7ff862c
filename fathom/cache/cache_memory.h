// fathom/cache/cache_memory.h
// The bytes of all blocks and state slots, and the regions through which operations reach them.
#pragma once
#include <span>

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

  /// Copies a whole block or slot (copy-on-write of a fork).
  void copy_block(int32_t from, int32_t to);
  void copy_slot(int32_t from, int32_t to);

  /// The last `window` entries before `position` of these ring specs, ring by ring and in order of position: it does
  /// not matter where in their rings they lie. save gathers them from a slot into `out`, restore scatters them into a
  /// slot; both have window_bytes. The rings hold them all (ring_holds). Source: spec/engine.md R-21.
  int64_t window_bytes(std::span<const size_t> rings, int window) const;
  void save_windows(std::span<const size_t> rings, int window, int32_t slot, int64_t position,
                    std::span<uint8_t> out) const;
  void restore_windows(std::span<const size_t> rings, int window, int32_t slot, int64_t position,
                       std::span<const uint8_t> in);

  int64_t bytes() const { return blocks_.bytes() + slots_.bytes(); }
  /// Where all of it begins: the same two as long as it lives, and those of no other that lives.
  const uint8_t* blocks_begin() const { return blocks_.data(); }
  const uint8_t* slots_begin() const { return slots_.data(); }
  /// Where the bytes lie: through its copy() they can be read whatever memory it is.
  const Memory& memory() const { return memory_; }

 private:
  Memory memory_;
  CacheLayout layout_;
  Buffer blocks_, slots_;
};

}  // namespace fathom
