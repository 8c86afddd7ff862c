// fathom/engine/step_memory.h
// What an engine computes in, beside weights and caches, decided from sizes alone: by `fathom plan`, and by the engine
// when it sees what is left for caches.
#pragma once
#include <cstdint>

#include "fathom/model/config.h"

namespace fathom {

/// The largest step, as it may come.
struct LargestStep {
  int64_t prompt_rows = 0;  // beside the decode rows
  int64_t sequences = 0;    // running at once
  int64_t drafts = 0;       // verified in a round
  int64_t context = 0;      // tokens of a sequence
  bool batch_invariant = false;
  bool on_device = false;

  int64_t decode_rows() const { return sequences * (drafts + 1); }
  int64_t rows() const { return prompt_rows + decode_rows(); }
};

/// Bytes.
struct StepMemory {
  int64_t activations = 0;
  int64_t workspace = 0;  // of the greediest operation; a device's
  int64_t choosing = 0;   // logits of the step and of its drafts, and what the sampler takes beside them
  int64_t all() const { return activations + workspace + choosing; }
};
StepMemory step_memory(const ModelConfig& config, const LargestStep& step);

}  // namespace fathom
