#include "fathom/cache/sequence_cache.h"

namespace fathom {
namespace {

Error no_room(const char* what, int64_t missing, int64_t capacity) {
  return Error{ErrorCode::out_of_memory, std::to_string(missing) + " more " + what + " needed, none free",
               "cache of " + std::to_string(capacity) + " " + what, "wait for running sequences, or shorten --context"};
}

}  // namespace

int64_t blocks_for(int64_t tokens) { return (tokens + kBlockTokens - 1) / kBlockTokens; }

Result<void> reserve(CachePools& pools, SequenceCache& cache, int64_t tokens) {
  const int64_t missing = blocks_for(tokens) - int64_t(cache.blocks.size());
  if (missing > pools.blocks.free_count())
    return no_room("blocks", missing - pools.blocks.free_count(), pools.blocks.capacity());
  if (cache.slot == 0) {
    const auto slot = pools.slots.take();
    if (!slot) return no_room("state slots", 1, pools.slots.capacity());
    cache.slot = *slot;
  }
  for (int64_t i = 0; i < missing; ++i) cache.blocks.push_back(*pools.blocks.take());
  return {};
}

void truncate(CachePools& pools, SequenceCache& cache, int64_t tokens) {
  while (int64_t(cache.blocks.size()) > blocks_for(tokens)) {
    pools.blocks.release(cache.blocks.back());
    cache.blocks.pop_back();
  }
}

void free_sequence(CachePools& pools, SequenceCache& cache) {
  truncate(pools, cache, 0);
  if (cache.slot != 0) pools.slots.release(cache.slot);
  cache.slot = 0;
}

Result<Fork> fork(CachePools& pools, const SequenceCache& parent, int64_t tokens) {
  const int64_t full = tokens / kBlockTokens;
  const bool partial = tokens % kBlockTokens != 0;
  check(int64_t(parent.blocks.size()) >= blocks_for(tokens), "a fork lies inside its parent");
  if (partial && pools.blocks.free_count() < 1) return no_room("blocks", 1, pools.blocks.capacity());
  const auto slot = pools.slots.take();
  if (!slot) return no_room("state slots", 1, pools.slots.capacity());
  Fork out;
  out.cache.slot = *slot;
  out.slot = {parent.slot, *slot};
  for (int64_t i = 0; i < full; ++i) {
    pools.blocks.add_reference(parent.blocks[size_t(i)]);
    out.cache.blocks.push_back(parent.blocks[size_t(i)]);
  }
  if (partial) {
    const int32_t own = *pools.blocks.take();
    out.blocks.push_back({parent.blocks[size_t(full)], own});
    out.cache.blocks.push_back(own);
  }
  return out;
}

}  // namespace fathom
