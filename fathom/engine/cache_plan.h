// fathom/engine/cache_plan.h
// How much context fits. Decided from sizes alone, before anything is allocated. Source: spec/memory.md 1 and 2,
// engine.md R-17, cases mem-01.
#pragma once
#include <cstdint>

#include "fathom/base/result.h"

namespace fathom {

/// Everything in bytes and tokens.
struct CacheQuestion {
  int64_t free_bytes = 0;     // that caches may take
  int64_t block_bytes = 0;    // of 128 tokens
  int64_t slot_bytes = 0;     // of one sequence
  int64_t context = 0;        // wanted; 0: what fits
  int64_t model_context = 0;  // most that the model knows
  int sequences = 1;          // running at once
};

struct CachePlan {
  int64_t context = 0;
  int32_t blocks = 0;       // enough for one sequence of the context at least, for all of them at most
  int64_t cache_bytes = 0;  // of all blocks and slots, the dummies included
};

/// Errors: usage for a context beyond the model's; out_of_memory naming the largest context or number of sequences that
/// fits.
Result<CachePlan> plan_cache(const CacheQuestion& question);

}  // namespace fathom
