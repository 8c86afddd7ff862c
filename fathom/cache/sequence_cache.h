// fathom/cache/sequence_cache.h
// What one sequence holds of the cache: its blocks in order, and its state slot. Positions are the address: token p
// lies in block p / 128 and in ring place p mod R, so a rejected draft needs no undo; the next token at its position
// overwrites it before anything can see it (spec/model.md 11.5, engine.md R-26).
#pragma once
#include <vector>

#include "fathom/cache/block_pool.h"
#include "fathom/cache/page_spec.h"
#include "fathom/cache/prefix_index.h"

namespace fathom {

struct BlockCopy {
  int32_t from = 0, to = 0;
  friend bool operator==(const BlockCopy&, const BlockCopy&) = default;
};

/// The pools of one engine and what is findable in them. The engine's thread owns it.
struct CachePools {
  BlockPool blocks;
  BlockPool slots;
  PrefixIndex prefixes;
  CachePools(int32_t block_count, int32_t slot_count) : blocks(block_count), slots(slot_count), prefixes(block_count) {}
};

/// A value without a destructor: whoever holds it calls free_sequence. Shared blocks are never written: see fork.
struct SequenceCache {
  std::vector<int32_t> blocks;  // block of tokens [128 i, 128 i + 128)
  int32_t slot = 0;             // 0: none yet
};

/// Blocks that `tokens` tokens take.
int64_t blocks_for(int64_t tokens);

/// The account that bears a tenant's blocks (IdleBlocks::open_account), with counts of its own; closed with
/// pools.blocks.idle().close_account. A request holds its tenant's account and that of its root until both are closed:
/// whoever shares a salt may go on with the root of somebody who has left.
IdleBlocks::Opened open_account(CachePools& pools, std::string_view tenant);

/// Makes `count` blocks free, by dropping idle ones from the prefix index, the longest unused first.
/// False, and nothing has changed, when not so many are free or idle.
bool make_room(CachePools& pools, int64_t count);
/// Drops idle blocks whose account's time to live has passed (`pools.blocks.idle().advance` says what time it is).
/// Returns how many. Call it every few seconds.
int64_t drop_expired(CachePools& pools);

/// Makes room for positions [0, tokens): takes missing blocks, and the slot. Free blocks first, then idle ones. All or
/// nothing.
/// Errors: out_of_memory naming what ran out and how many are missing.
Result<void> reserve(CachePools& pools, SequenceCache& cache, int64_t tokens);

/// Gives back the blocks that lie wholly at or above `tokens`, last one first: a prefix is shared more often than its
/// end.
void truncate(CachePools& pools, SequenceCache& cache, int64_t tokens);

/// Gives everything back.
void free_sequence(CachePools& pools, SequenceCache& cache);

/// What a fork of a sequence of `tokens` tokens needs copied before its first step: `blocks` the partly filled last
/// block (at most one), `slots` the state slot. Full blocks are shared.
struct Fork {
  SequenceCache cache;
  std::vector<BlockCopy> blocks;
  BlockCopy slot;
};

/// Blocks at or above `tokens` are not shared, so neither of the two ever writes a block of the other; one that is in
/// the prefix index stays there. Errors: out_of_memory; then nothing has changed.
Result<Fork> fork(CachePools& pools, const SequenceCache& parent, int64_t tokens);

/// After truncate(cache, tokens): makes the block that position `tokens` lies in this sequence's own, when it is shared
/// or findable. What to copy before the next write, if anything. Errors: out_of_memory; then nothing has
/// changed.
Result<std::optional<BlockCopy>> make_writable(CachePools& pools, SequenceCache& cache, int64_t tokens);

}  // namespace fathom
