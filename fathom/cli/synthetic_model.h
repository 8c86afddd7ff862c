// fathom/cli/synthetic_model.h
// --model synthetic:PRESET[,key=value...]: the checkpoint that make-checkpoint would write for that preset, in memory.
// Keys are the names of make-checkpoint's options: layers, experts, engram-vocab, rank, ep, seed.
#pragma once
#include <cstdint>
#include <string>

#include "fathom/base/result.h"
#include "fathom/checkpoint/memory_checkpoint.h"
#include "fathom/cli/option.h"
#include "fathom/model/config.h"

namespace fathom::cli {

struct SyntheticModel {
  std::string name;  // as given: "synthetic:flash-slice,layers=4+8"
  std::string preset;
  ModelConfig config;
  uint64_t seed = 0;
};

bool is_synthetic(const std::string& model);

/// Errors: usage naming the preset, key or value, what would be valid, and the closest match.
Result<SyntheticModel> parse_synthetic(const std::string& model);

/// What a command does with the weights. declared: nothing, it looks at headers and texts, which take next to no
/// memory; filled: reads them; to_run: runs them, so that the model must be whole; to_measure: runs them for their
/// time, which a rank's part has too.
enum class WeightData { declared, filled, to_run, to_measure };

/// Errors: bad_input when the experts of one rank only are there (flash-rank).
Result<void> check_whole(const ModelConfig& config, const std::string& name);

/// Makes the files, with progress on a terminal. Errors: out_of_memory, before anything is allocated, with the bytes
/// needed and the bytes available.
Result<MemoryCheckpoint> make_in_memory(const SyntheticModel& model, WeightData data, const Common& common);

}  // namespace fathom::cli
