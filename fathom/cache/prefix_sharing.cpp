#include "fathom/cache/prefix_sharing.h"

#include <algorithm>

namespace fathom {

void attach(CachePools& pools, SequenceCache& cache, PrefixChain& chain, const PrefixHit& hit, const PrefillPlan& plan,
            int64_t prompt_tokens, int32_t snapshot_seams) {
  check(cache.blocks.empty() && chain.published == 0, "a hit is attached before anything else");
  if (chain.root == 0) return;
  PrefixStatistics& statistics = pools.prefixes.statistics(pools.prefixes.account_of(chain.root));
  ++statistics.prompts;
  statistics.prompt_tokens += prompt_tokens;
  statistics.repeatable_prompts += prompt_tokens > 2 * kBlockTokens;
  if (plan.hit == 0) return;
  check(plan.hit == hit.tokens(), "a plan uses all of a hit, or nothing");
  ++statistics.hits;
  statistics.hit_tokens[size_t(CacheTier::device)] += plan.hit;
  for (const int32_t block : hit.blocks) pools.blocks.add_reference(block);
  cache.blocks = hit.blocks;
  chain.published = int32_t(hit.blocks.size());
  chain.seams = std::max(hit.seams, plan.restore_at ? snapshot_seams : 0) + int32_t(plan.seam);
}

void publish(CachePools& pools, SequenceCache& cache, PrefixChain& chain, std::span<const int32_t> ids,
             int64_t committed, std::vector<int32_t>& displaced) {
  if (chain.root == 0 || chain.closed) return;
  const int64_t full = std::min(committed, int64_t(ids.size())) / kBlockTokens;
  if (chain.published >= full) return;
  PrefixIndex& index = pools.prefixes;
  const int32_t account = index.account_of(chain.root);
  index.extend_keys(chain, ids, full);
  for (; chain.published < full; ++chain.published) {
    const int64_t number = chain.published;
    int32_t& own = cache.blocks[size_t(number)];
    const int32_t parent = number == 0 ? 0 : cache.blocks[size_t(number) - 1];
    const int32_t found = index.find(chain.keys[size_t(number)]);
    if (found == own) continue;  // a branch of the same parent has published it
    const bool only_ours = pools.blocks.references(own) == 1;
    if (found == 0) {
      // A branch that was forked before this was published may hold another block in front of it. Were it in the index
      // now, not all of its users would hold its parent.
      if (!only_ours) {
        chain.closed = true;
        return;
      }
      index.insert(own, parent, chain, ids, number);
      pools.blocks.keep(own, account);
      ++index.statistics(account).published;
      continue;
    }
    if (!index.matches(found, parent, chain, ids, number)) {
      ++index.statistics(account).collisions;
      chain.closed = true;
      return;
    }
    ++index.statistics(account).deduplicated;
    if (only_ours && pools.blocks.references(found) == 0 && chain.seams < index.seams_of(found) &&
        !index.has_children(found)) {
      index.replace(found, own, chain.seams);  // ours descends from fewer approximations
      pools.blocks.keep(own, account);
      pools.blocks.forget(found);
      continue;
    }
    pools.blocks.add_reference(found);
    displaced.push_back(own);
    own = found;
    chain.seams = std::max(chain.seams, index.seams_of(found));
  }
}

void truncate_chain(PrefixChain& chain, int64_t tokens) {
  const size_t full = size_t(tokens / kBlockTokens);
  if (chain.keys.size() > full) chain.keys.resize(full);
  chain.published = std::min(chain.published, int32_t(full));
}

Result<PrefixPin> pin(CachePools& pools, const PrefixHit& hit, int32_t most) {
  int64_t pinned = pools.prefixes.pinned_blocks();
  for (const int32_t block : hit.blocks) pinned += !pools.prefixes.pinned(block);
  if (pinned > most) {
    return Error{ErrorCode::out_of_memory,
                 "pinning this prefix makes " + std::to_string(pinned) + " blocks of 128 tokens that cannot be evicted",
                 "prefix cache", "at most " + std::to_string(most) + " may be; unpin another prefix first"};
  }
  for (const int32_t block : hit.blocks) {
    pools.blocks.add_reference(block);
    pools.prefixes.pin(block);
  }
  return PrefixPin{hit.blocks};
}

void unpin(CachePools& pools, PrefixPin& pin) {
  for (; !pin.blocks.empty(); pin.blocks.pop_back()) {  // children before parents
    pools.prefixes.unpin(pin.blocks.back());
    pools.blocks.release(pin.blocks.back());
  }
}

Result<void> verify(const CachePools& pools, std::span<const int32_t> block_users,
                    std::span<const int32_t> slot_users) {
  if (auto state = pools.blocks.verify(block_users); !state) return state;
  if (auto state = pools.slots.verify(slot_users); !state) return state;
  return pools.prefixes.verify(pools.blocks);
}

}  // namespace fathom
