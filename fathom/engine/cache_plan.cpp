#include "fathom/engine/cache_plan.h"

#include <algorithm>
#include <limits>

#include "fathom/cache/sequence_cache.h"
#include "fathom/checkpoint/tensor_spec.h"

namespace fathom {
namespace {

std::string mebibytes(int64_t bytes) {
  return with_commas((std::max<int64_t>(bytes, 0) + (1 << 20) - 1) >> 20) + " MiB";
}

std::string sequences_of(int count) { return count == 1 ? "1 sequence" : with_commas(count) + " sequences"; }

}  // namespace

Result<CachePlan> plan_cache(const CacheQuestion& q) {
  if (q.context > q.model_context) {
    return Error{ErrorCode::usage,
                 "context of " + with_commas(q.context) + " tokens exceeds the model's " + with_commas(q.model_context),
                 "--context", "pass a smaller value or leave the option out"};
  }
  // One block and one slot are dummies: id 0 stands for "none".
  const int64_t block_room = q.free_bytes - q.block_bytes - (int64_t(q.sequences) + 1) * q.slot_bytes;
  if (block_room < q.block_bytes) {
    const int64_t most = (q.free_bytes - 2 * q.block_bytes) / std::max<int64_t>(q.slot_bytes, 1) - 1;
    return Error{ErrorCode::out_of_memory,
                 sequences_of(q.sequences) + (q.sequences == 1 ? " needs " : " need ") +
                     mebibytes((int64_t(q.sequences) + 1) * q.slot_bytes + 2 * q.block_bytes) + " of state, " +
                     mebibytes(q.free_bytes) + " are free for caches",
                 "--sequences",
                 most > 0 ? "at most " + with_commas(most) + " fit; pass a smaller value"
                          : "not even one fits; free memory or raise --memory-limit"};
  }
  const int64_t fitting_blocks =
      std::min<int64_t>(block_room / std::max<int64_t>(q.block_bytes, 1), std::numeric_limits<int32_t>::max() - 1);
  const int64_t fitting_context = std::min(q.model_context, fitting_blocks * kBlockTokens);
  if (q.context > fitting_context) {
    return Error{
        ErrorCode::out_of_memory,
        "context of " + with_commas(q.context) + " tokens needs " + mebibytes(blocks_for(q.context) * q.block_bytes) +
            " of cache, " + mebibytes(block_room) + " are free beside the state of " + sequences_of(q.sequences),
        "--context",
        "the largest that fits is " + with_commas(fitting_context) + "; pass a smaller value or fewer --sequences"};
  }
  CachePlan plan;
  plan.context = q.context > 0 ? q.context : fitting_context;
  plan.blocks = int32_t(std::min(int64_t(q.sequences) * blocks_for(plan.context), fitting_blocks));
  plan.cache_bytes = (int64_t(plan.blocks) + 1) * q.block_bytes + (int64_t(q.sequences) + 1) * q.slot_bytes;
  return plan;
}

}  // namespace fathom
