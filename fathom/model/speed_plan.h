// fathom/model/speed_plan.h
// How fast a configuration can run on a machine that is described by a few figures: operations and bytes of a token and
// of a step, and the bound that the slowest of arithmetic, memory and links sets. Pure; nothing is loaded or run. Real
// runs are slower: these are bounds, and the figures of the machine say whether they were measured. Source:
// spec/memory.md 4, 5, 6; links: spec/parallel.md 4.3.
#pragma once
#include <cstdint>
#include <string>

#include "fathom/model/config.h"

namespace fathom {

/// Multiply-adds count two. Norms, softmax and activations are left out.
struct TokenFlops {
  double linear = 0, attention = 0, index = 0;
  double all() const { return linear + attention + index; }
};
/// One decode token with `context` tokens before it.
TokenFlops decode_flops(const ModelConfig& config, int64_t context);
/// A prompt token, averaged over a prompt of `tokens`: encoder half, and what feeds the first decoder cache.
TokenFlops prefill_flops(const ModelConfig& config, int64_t tokens);
/// All operations that the decoder half spends on the last `rows` rows of a prompt of `tokens`, with the head once.
double replay_flops(const ModelConfig& config, int64_t rows, int64_t tokens);

/// Of one routed expert, scales included: 18,800,640 for Flash.
int64_t expert_bytes(const ModelConfig& config);
/// Distinct experts of a layer that `rows` rows need when they choose uniformly.
double distinct_experts(const ModelConfig& config, double rows);

/// Bytes that one decode step reads.
struct StepBytes {
  double shared = 0;   // weights that every step reads: attention, shared experts, head and so on
  double experts = 0;  // of the experts that are chosen
  double cache = 0;    // of all sequences
  double all() const { return shared + experts + cache; }
};
StepBytes decode_bytes(const ModelConfig& config, int64_t rows, int64_t sequences, int64_t context);

/// A machine, or one of several equal devices.
struct Hardware {
  std::string name;
  int devices = 1;
  int64_t memory_bytes = 0;                                    // of a device, for weights and cache
  double bytes_per_second = 0;                                 // of a device's memory
  double flops_fp8 = 0;                                        // of a device, for FP8 and FP4 weights
  double flops_bf16 = 0;                                       // of a device, for attention and head
  double link_bytes_per_second = 0;                            // of a device, one way; 0: none
  double disk_bytes_per_second = 0;                            // reading, of the machine; 0: not known
  std::string bandwidth_from = "bound", flops_from = "bound";  // measured, scaled or bound
  double host_link_bytes_per_second = 0;                       // from host memory to a device; 0: not known
  int64_t host_memory_bytes = 0;                               // of the machine, for weights; 0: not known
  std::string kind = {};                                       // "gpu", "cpu"; empty: not said
};

/// One predicted time, what limits it, and how good the figure behind that is.
struct Prediction {
  double seconds = 0;
  std::string limit;  // "bandwidth", "compute", "links"
  std::string from;   // "measured", "scaled", "bound"
};
/// From the first prompt token to the first answer token, alone on the machine. `rows_kept`: rows of the decoder half.
Prediction predict_prefill(const ModelConfig& config, const Hardware& hardware, int64_t tokens, int64_t rows_kept);
/// One step of `sequences` sequences without drafts, experts and sequences spread evenly over the devices.
Prediction predict_decode(const ModelConfig& config, const Hardware& hardware, int64_t sequences, int64_t context);

}  // namespace fathom
