#include "fathom/cache/cache_memory.h"

#include <cstring>

namespace fathom {

Result<CacheMemory> CacheMemory::allocate(const Memory& memory, CacheLayout layout, int32_t blocks, int32_t slots) {
  CacheMemory out;
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
  std::memcpy(blocks_.data() + to * layout_.block_bytes, blocks_.data() + from * layout_.block_bytes,
              size_t(layout_.block_bytes));
}

void CacheMemory::copy_slot(int32_t from, int32_t to) {
  std::memcpy(slots_.data() + to * layout_.slot_bytes, slots_.data() + from * layout_.slot_bytes,
              size_t(layout_.slot_bytes));
}

}  // namespace fathom
