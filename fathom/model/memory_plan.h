// fathom/model/memory_plan.h
// How much memory a configuration takes, and what fits: decided before a weight is loaded. Pure functions; the layout
// of the cache is the one that the engine uses (cache/page_spec.h). Source: spec/memory.md 1, 2, 3, 7.
#pragma once
#include <cstdint>
#include <optional>

#include "fathom/base/result.h"
#include "fathom/cache/page_spec.h"
#include "fathom/model/config.h"
#include "fathom/model/numerics.h"

namespace fathom {

struct CacheSizes {
  double bytes_per_token = 0;  // growing part without padding: 890 for Flash
  CacheLayout layout;          // blocks of 128 tokens (114,048 bytes) and state slots (3,128,928 bytes)
};
CacheSizes cache_sizes(const ModelConfig& config, const Numerics& numerics = kReferenceNumerics);

/// Most rows that a round may take back: the drafts and the token before them; 1 without draft stages.
int longest_backtrack(const ModelConfig& config);

/// Bytes of the growing caches of one sequence of `tokens`: complete entries, without padding.
int64_t growing_cache_bytes(const ModelConfig& config, int64_t tokens);
/// Smallest state of a sequence: windows without room for drafts, and one unfinished group a compressor (2,930,688).
int64_t minimum_state_bytes(const ModelConfig& config);
/// Windows of the encoder half at ring capacity: what a snapshot keeps (1,415,040).
int64_t encoder_ring_bytes(const ModelConfig& config);

/// Where weights live, and over how many ranks. What is not on the device is in RAM or mapped from disk.
struct WeightPlacement {
  bool experts_on_device = true;
  bool engram_on_device = false;
  bool embed_on_device = true;
  bool vision_on_device = true;
  int expert_ranks = 1;  // routed experts of backbone and draft stages are split
  int engram_ranks = 1;  // table rows are split
};
/// Bytes of weights on the device of one rank (the fullest, when ranks do not divide evenly).
int64_t device_weight_bytes(const ModelConfig& config, const WeightPlacement& placement);

/// Scratch of one step with `rows` rows of sequences up to `context` tokens: streams, queries, experts' intermediates,
/// and index scores in pieces of at most `score_limit_bytes`.
int64_t activation_bytes(const ModelConfig& config, int64_t rows, int64_t context,
                         int64_t score_limit_bytes = int64_t(1) << 30);

/// What a step may reach, as far as the workspace of its operations depends on it.
struct StepSizes {
  int64_t rows = 0;     // of a forward pass
  int64_t drafted = 0;  // rows of a draft pass: the block of each sequence
  int64_t drawn = 0;    // rows of logits that one operation draws from
  int64_t context = 0;  // tokens of a sequence
  bool batch_invariant = false;
};
/// Device memory that operations of such steps and of smaller ones take beside their operands: that of the greediest,
/// since they follow each other (backend/workspace.h). 625 MB for Flash and 8,192 rows, arranged for its experts. Asks
/// for some thousand numbers of rows: ten milliseconds at most.
int64_t step_workspace_bytes(const ModelConfig& config, const StepSizes& most);

/// Rows at most whose shared expert runs beside the others on a device, in a second queue. More fill it by themselves.
inline constexpr int64_t kMostRowsBeside = 512;
/// What it takes there beside its operands at most: 5.2 MB for Flash.
int64_t side_workspace_bytes(const ModelConfig& config);

/// What is left for the cache, and what is wanted of it.
struct CacheDemand {
  int64_t free_bytes = 0;   // device memory less weights, what steps compute in, and reserve
  int64_t context = 0;      // tokens of each sequence
  int64_t sequences = 1;    // each takes a slot
  int64_t block_bytes = 0;  // of block_tokens tokens
  int64_t slot_bytes = 0;
  int64_t block_tokens = kBlockTokens;
};
/// With as many free bytes; what steps compute in depends on both (cli/plan_room.h searches).
struct CacheFit {
  int64_t needed_bytes = 0;
  bool fits = false;
  int64_t largest_context = 0;    // of as many sequences; whole blocks, 0 when not even one fits
  int64_t largest_sequences = 0;  // of as long a context
};
CacheFit fit_cache(const CacheDemand& demand);

/// Error out_of_memory that states the largest context and the largest number of sequences that fit, as `fit` has them.
Result<void> check_fit(const CacheDemand& demand, const CacheFit& fit);

}  // namespace fathom
