#include "fathom/cache/cache_memory.h"

#include <algorithm>

namespace fathom {
namespace {

// Calls run(place, entries) for the one or two straight pieces of a ring that hold the `window` entries before
// position.
template <class Run>
void pieces_of(int capacity, int window, int64_t position, const Run& run) {
  check(window > 0 && window <= capacity && position >= window, "a ring holds the whole window");
  const int64_t first = (position - window) % capacity;
  const int64_t straight = std::min<int64_t>(window, capacity - first);
  run(first, straight);
  if (straight < window) run(int64_t(0), window - straight);
}

}  // namespace

Result<CacheMemory> CacheMemory::allocate(const Memory& memory, CacheLayout layout, int32_t blocks, int32_t slots) {
  CacheMemory out;
  out.memory_ = memory;
  auto block_bytes = memory.allocate((int64_t(blocks) + 1) * layout.block_bytes);
  if (!block_bytes) return block_bytes.error();
  auto slot_bytes = memory.allocate((int64_t(slots) + 1) * layout.slot_bytes);
  if (!slot_bytes) return slot_bytes.error();
  out.layout_ = std::move(layout);
  out.blocks_ = std::move(*block_bytes);
  out.slots_ = std::move(*slot_bytes);
  return out;
}

PagedRegion CacheMemory::paged(size_t spec, View<const int32_t, 2> blocks) const {
  const PageSpec& page = layout_.specs[spec];
  check(!page.window, "a paged region is asked for a paged spec");
  return {blocks_.data() + layout_.offset[spec], layout_.block_bytes, kBlockTokens / page.tokens_per_entry,
          page.bytes_per_entry, blocks};
}

RingRegion CacheMemory::ring(size_t spec, View<const int32_t, 1> slots) const {
  const PageSpec& page = layout_.specs[spec];
  check(page.window.has_value(), "a ring is asked for a windowed spec");
  return {slots_.data() + layout_.offset[spec], layout_.slot_bytes, *page.window, page.bytes_per_entry, slots};
}

void CacheMemory::copy_block(int32_t from, int32_t to) {
  memory_.copy(blocks_.data() + to * layout_.block_bytes, blocks_.data() + from * layout_.block_bytes,
               layout_.block_bytes);
}

void CacheMemory::copy_slot(int32_t from, int32_t to) {
  memory_.copy(slots_.data() + to * layout_.slot_bytes, slots_.data() + from * layout_.slot_bytes, layout_.slot_bytes);
}

int64_t CacheMemory::window_bytes(std::span<const size_t> rings, int window) const {
  int64_t bytes = 0;
  for (const size_t spec : rings) bytes += int64_t(window) * layout_.specs[spec].bytes_per_entry;
  return bytes;
}

void CacheMemory::save_windows(std::span<const size_t> rings, int window, int32_t slot, int64_t position,
                               std::span<uint8_t> out) const {
  check(int64_t(out.size()) == window_bytes(rings, window), "a snapshot has the bytes of its windows");
  uint8_t* to = out.data();
  for (const size_t spec : rings) {
    const int64_t bytes = layout_.specs[spec].bytes_per_entry;
    const uint8_t* ring = slots_.data() + slot * layout_.slot_bytes + layout_.offset[spec];
    pieces_of(*layout_.specs[spec].window, window, position, [&](int64_t place, int64_t entries) {
      memory_.copy(to, ring + place * bytes, entries * bytes);
      to += entries * bytes;
    });
  }
}

void CacheMemory::restore_windows(std::span<const size_t> rings, int window, int32_t slot, int64_t position,
                                  std::span<const uint8_t> in) {
  check(int64_t(in.size()) == window_bytes(rings, window), "a snapshot has the bytes of its windows");
  const uint8_t* from = in.data();
  for (const size_t spec : rings) {
    const int64_t bytes = layout_.specs[spec].bytes_per_entry;
    uint8_t* ring = slots_.data() + slot * layout_.slot_bytes + layout_.offset[spec];
    pieces_of(*layout_.specs[spec].window, window, position, [&](int64_t place, int64_t entries) {
      memory_.copy(ring + place * bytes, from, entries * bytes);
      from += entries * bytes;
    });
  }
}

}  // namespace fathom
