// fathom/cache/prefix_sharing.h
// How a sequence uses the prefix cache: it finds a prefix, takes it over, and makes its own full blocks findable as
// they fill. A request's life, in calls (docs/decisions/0009-prefix-cache.md has the reasons):
//
//   submitted   account = open_account(pools, tenant)             closed when the request has ended
//               chain.root = open_root(...)                       once a tenant and replay class, or once a request
//   admitted    hit  = pools.prefixes.lookup(chain, prompt, exact_only)
//               plan = plan_prefill(shape, mode, length, hit.tokens(), snapshots.latest(...))
//               attach(pools, cache, chain, hit, plan, length)    before anything else is reserved
//   committed   publish(pools, cache, chain, ids, cached, displaced), release the displaced blocks
//   ended       free_sequence(pools, cache)                       its blocks stay findable until their space is needed
//
// Everything here belongs to the engine's thread. Source: spec/engine.md.
#pragma once
#include <span>
#include <vector>

#include "fathom/cache/sequence_cache.h"

namespace fathom {

/// Takes over the blocks of a hit that `plan` uses (plan.hit is 0 or hit.tokens()), and counts the prompt in its
/// account's statistics; called once for every admitted request that has a root, with or without a hit. `cache` holds
/// no block yet. `snapshot_seams`: of the snapshot that plan.restore_at names.
void attach(CachePools& pools, SequenceCache& cache, PrefixChain& chain, const PrefixHit& hit, const PrefillPlan& plan,
            int64_t prompt_tokens, int32_t snapshot_seams = 0);

/// Makes the blocks that [0, committed) fills findable. `committed` tokens have been run, and `ids` names them all:
/// drafts that may be taken back and tokens behind a stop are not among them. Where another sequence has published the
/// same block before, this one uses that from now on, and gives its own up into `displaced`, which still holds a
/// reference: the caller releases it when no step in flight reads it. So all users of a block use all blocks before it.
/// Publish before a fork: a block that two branches hold and that is not findable yet never will be.
void publish(CachePools& pools, SequenceCache& cache, PrefixChain& chain, std::span<const int32_t> ids,
             int64_t committed, std::vector<int32_t>& displaced);

/// The chain of a sequence that was truncated to, or forked at, `tokens`.
void truncate_chain(PrefixChain& chain, int64_t tokens);

/// Blocks that stay in the cache until unpin. A value without a destructor.
struct PrefixPin {
  std::vector<int32_t> blocks;
};
/// Pins a hit as it was looked up. Errors: out_of_memory when more than `most` blocks would be pinned; pinned blocks
/// are lost to running sequences, so admission counts with capacity - pinned_blocks().
Result<PrefixPin> pin(CachePools& pools, const PrefixHit& hit, int32_t most);
void unpin(CachePools& pools, PrefixPin& pin);

/// Every invariant of pools and index at once: `block_users` and `slot_users` have one entry for each reference
/// (sequences, pins, displaced blocks not yet released). Linear. Errors: failed. Source: R-22.
Result<void> verify(const CachePools& pools, std::span<const int32_t> block_users, std::span<const int32_t> slot_users);

}  // namespace fathom
