// fathom/checkpoint/checkpoint_writer.h
// Writes a checkpoint folder: shards, index, and files beside them. Every file is written beside its target and
// renamed, and config.json comes last, so a folder that was left half written does not open. Source:
// spec/checkpoint.md 1.
#pragma once
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "fathom/base/json.h"
#include "fathom/base/result.h"
#include "fathom/base/thread_pool.h"
#include "fathom/checkpoint/tensor_spec.h"

namespace fathom {

/// One file of weights, tensors in the order of their bytes. A hole is data that is declared, reads as zero and takes
/// no space.
struct ShardSpec {
  std::string file;
  std::vector<TensorSpec> tensors;
  bool hole = false;
  int64_t data_bytes() const;
};

struct TextFile {
  std::string name;
  std::string text;
};

struct CheckpointContent {
  Json config;
  std::vector<ShardSpec> shards;
  std::vector<TextFile> files;  // e.g. tokenizer.json
};

/// Fills rows [first_row, first_row + rows) of a tensor, `out` whole. A row is the last dimension; a vector is one row.
/// first_row is a multiple of 32, and so is `rows` unless the tensor ends. Called by several threads at once.
using FillRows = std::function<void(const TensorSpec& tensor, int64_t first_row, int64_t rows, std::span<uint8_t> out)>;

/// Sees the bytes of weights done and in all, several times a second; returns false to stop.
using WriteProgress = std::function<bool(int64_t bytes_done, int64_t bytes_total)>;

/// Makes `folder` (or uses an empty one) and writes everything.
/// Errors: usage when the folder is not empty; bad_input when holes are wanted and the file system has none; failed
/// with the system's reason (no space, no permission); interrupted, after removing the file it was at.
Result<void> write_checkpoint(const std::string& folder, const CheckpointContent& content, const FillRows& fill,
                              ThreadPool& pool, const WriteProgress& progress = {});

/// Tensors in the order that keeps each aligned to its element: wide types first, then by name.
void order_for_alignment(std::vector<TensorSpec>& tensors);

}  // namespace fathom
