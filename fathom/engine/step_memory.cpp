#include "fathom/engine/step_memory.h"

#include <algorithm>

#include "fathom/backend/workspace.h"
#include "fathom/engine/sampler.h"
#include "fathom/model/memory_plan.h"

namespace fathom {

StepMemory step_memory(const ModelConfig& config, const LargestStep& step) {
  StepMemory out;
  out.activations = activation_bytes(config, step.rows(), step.context);
  if (step.on_device) {
    // Tokens by groups, drafts one of each sequence at a time.
    const int64_t group = std::min(step.decode_rows(), Sampler::kDeviceGroupRows + step.drafts);
    out.workspace = std::max(
        kLeastWorkspace,
        step_workspace_bytes(
            config, {.rows = step.rows(),
                     .drafted = step.sequences * (config.num_nextn_predict_layers > 0 ? config.dspark_block_size : 0),
                     .drawn = std::max(group, step.sequences),
                     .context = step.context,
                     .batch_invariant = step.batch_invariant}));
  }
  out.choosing = (step.decode_rows() + step.sequences) * config.vocab_size * int64_t(sizeof(float)) +
                 sampler_bytes(config.vocab_size, step.sequences, step.drafts, step.on_device);
  return out;
}

}  // namespace fathom
