#include "fathom/cache/sequence_cache.h"

namespace fathom {
namespace {

Error no_room(const char* what, int64_t missing, int64_t capacity) {
  return Error{ErrorCode::out_of_memory, std::to_string(missing) + " more " + what + " needed, none free",
               "cache of " + std::to_string(capacity) + " " + what, "wait for running sequences, or shorten --context"};
}

}  // namespace

int64_t blocks_for(int64_t tokens) { return (tokens + kBlockTokens - 1) / kBlockTokens; }

IdleBlocks::Opened open_account(CachePools& pools, std::string_view tenant) {
  const IdleBlocks::Opened opened = pools.blocks.idle().open_account(tenant);
  if (opened.fresh) pools.prefixes.restart_statistics(opened.account);
  return opened;
}

bool make_room(CachePools& pools, int64_t count) {
  if (count > pools.blocks.available()) return false;
  while (pools.blocks.free_count() < count) {
    const int32_t block = pools.blocks.idle().oldest();
    ++pools.prefixes.statistics(pools.prefixes.account_of_block(block)).evicted;
    pools.prefixes.remove(block);
    pools.blocks.forget(block);
  }
  return true;
}

int64_t drop_expired(CachePools& pools) {
  int64_t dropped = 0;
  for (int32_t account = 0; account < pools.blocks.idle().accounts(); ++account) {
    while (const int32_t block = pools.blocks.idle().expired(account)) {
      pools.prefixes.remove(block);
      pools.blocks.forget(block);
      ++pools.prefixes.statistics(account).expired;
      ++dropped;
    }
  }
  return dropped;
}

Result<void> reserve(CachePools& pools, SequenceCache& cache, int64_t tokens) {
  const int64_t missing = blocks_for(tokens) - int64_t(cache.blocks.size());
  if (missing > pools.blocks.available())
    return no_room("blocks", missing - pools.blocks.available(), pools.blocks.capacity());
  if (cache.slot == 0) {
    const auto slot = pools.slots.take();
    if (!slot) return no_room("state slots", 1, pools.slots.capacity());
    cache.slot = *slot;
  }
  if (missing > 0) make_room(pools, missing);
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
  if (partial && pools.blocks.available() < 1) return no_room("blocks", 1, pools.blocks.capacity());
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
    make_room(pools, 1);
    const int32_t own = *pools.blocks.take();
    out.blocks.push_back({parent.blocks[size_t(full)], own});
    out.cache.blocks.push_back(own);
  }
  return out;
}

Result<std::optional<BlockCopy>> make_writable(CachePools& pools, SequenceCache& cache, int64_t tokens) {
  check(int64_t(cache.blocks.size()) == blocks_for(tokens), "a sequence is truncated before it is written again");
  if (tokens % kBlockTokens == 0) return std::optional<BlockCopy>{};  // its next block is a new one
  int32_t& last = cache.blocks[size_t(tokens / kBlockTokens)];
  if (pools.blocks.writable(last)) return std::optional<BlockCopy>{};
  if (!make_room(pools, 1)) return no_room("blocks", 1, pools.blocks.capacity());
  const BlockCopy copy{last, *pools.blocks.take()};
  pools.blocks.release(last);
  last = copy.to;
  return std::optional(copy);
}

}  // namespace fathom
