// fathom/model/make_checkpoint.h
// A synthetic checkpoint from a configuration and a seed, as a folder (`fathom make-checkpoint`) or in memory (`--model
// synthetic:PRESET`).
// Source: design/cli.md 6; spec/checkpoint.md 1 and 6.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "fathom/base/result.h"
#include "fathom/base/thread_pool.h"
#include "fathom/checkpoint/checkpoint_writer.h"
#include "fathom/checkpoint/memory_checkpoint.h"
#include "fathom/model/config.h"

namespace fathom {

/// Tensors by the roles of the official shards: vision, embed, one file a layer, norm and head, one a draft stage, one
/// an Engram layer: 48 files for Flash. One file when the weights are below 1 GB.
std::vector<ShardSpec> shard_plan(const ModelConfig& config);

struct MakeOptions {
  uint64_t seed = 0;
  bool holes = false;  // preset flash-sparse: declare the data, write none of it
};

/// Bytes of all tensors.
int64_t weight_bytes(const ModelConfig& config);

/// Writes config.json, shards, index, and what text needs: the miniature's tokenizer where the vocabulary is the
/// miniature's, else engram_token_map.json alone (id modulo the compressed vocabulary), so that token ids can be run
/// while commands that need text find no tokenizer.
/// Errors: config_problems(); those of write_checkpoint().
Result<void> make_checkpoint(const std::string& folder, const ModelConfig& config, const MakeOptions& options,
                             ThreadPool& pool, const WriteProgress& progress = {});

/// The same files, byte for byte, in memory. With holes it takes next to nothing, whatever the configuration.
/// Errors: config_problems(); out_of_memory, before anything is allocated, when the weights take more than
/// `most_bytes`; those of MemoryCheckpoint::make().
Result<MemoryCheckpoint> make_checkpoint_in_memory(const ModelConfig& config, const MakeOptions& options,
                                                   int64_t most_bytes, ThreadPool& pool,
                                                   const WriteProgress& progress = {});

}  // namespace fathom
