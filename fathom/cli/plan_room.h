// fathom/cli/plan_room.h
// The longest context and the most sequences that fit beside weights. Both decide what steps compute in
// (engine/step_memory.h) as well as what caches take, so they are searched.
#pragma once
#include <cstdint>

#include "fathom/engine/step_memory.h"
#include "fathom/model/memory_plan.h"

namespace fathom::cli {

struct PlanRoom {
  int64_t free_bytes = 0;  // of a device, beside weights and reserve
  int64_t block_bytes = 0, slot_bytes = 0;
  LargestStep step;  // as asked for

  /// What is left for caches of `of.sequences` sequences, and what they take.
  CacheDemand demand(const ModelConfig& config, const LargestStep& of) const;
};

/// Of as many sequences, in whole blocks as far as the model goes; 0: not even one block. Some ten step_memory().
int64_t largest_context(const ModelConfig& config, const PlanRoom& room);
/// Of as long a context; 0: not even one. Some twenty step_memory().
int64_t largest_sequences(const ModelConfig& config, const PlanRoom& room);

}  // namespace fathom::cli
