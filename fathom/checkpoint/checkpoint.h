// fathom/checkpoint/checkpoint.h
// A checkpoint folder (or the same files in memory): config.json as JSON, and every tensor by name as a view of the
// mapped shard. Opening reads headers and file sizes only, 96,085 tensors of 510 GB in well under a second, and proves
// that no view can reach beyond its file: a short shard is an error here, never zeros or a signal later. What the
// tensors should be is the model's knowledge: fathom/model/tensor_list.h. Source: spec/checkpoint.md 1.
#pragma once
#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fathom/base/json.h"
#include "fathom/base/mapped_file.h"
#include "fathom/base/result.h"
#include "fathom/checkpoint/embedded_model.h"
#include "fathom/checkpoint/tensor_spec.h"
#include "fathom/tensor/view.h"

namespace fathom {

/// Where a tensor lies. Its name has no `model.` prefix, whatever the file spells.
struct TensorInfo {
  TensorSpec spec;
  int shard = 0;       // index into Checkpoint::shards()
  int64_t offset = 0;  // bytes from the start of that file
};

struct ShardInfo {
  std::string file;                // name inside the folder
  std::span<const uint8_t> bytes;  // the whole file, mapped
};

/// Read-only once opened; any number of threads may read. Views stay valid until it dies. Moves, does not copy.
class Checkpoint {
 public:
  static constexpr const char* kEmbedded = "embedded model";

  /// Opens the shards that model.safetensors.index.json names, or model.safetensors when there is no index.
  /// Errors, each with the file and, where there is one, the tensor, expected and found:
  ///   not_found  folder, config.json, index or a shard is missing
  ///   bad_input  config.json or index is no JSON of the right form; a shard's name leaves the folder; unknown dtype
  ///   corrupt    a shard that fails read_safetensors_header(); weight_map and headers disagree; a tensor exists with
  ///   and
  ///              without the prefix `model.`
  static Result<Checkpoint> open(const std::string& folder);
  /// The same for files in memory, which must outlive it. `location` names them in messages.
  static Result<Checkpoint> open(std::span<const EmbeddedFile> files, std::string location = kEmbedded);
  /// Opens what can be opened and appends every problem instead of stopping at the first.
  static Checkpoint open_partly(const std::string& folder, std::vector<Error>& problems);
  static Checkpoint open_partly(std::span<const EmbeddedFile> files, std::vector<Error>& problems,
                                std::string location = kEmbedded);

  /// config.json of a folder, before anything else of it is looked at. Errors as open().
  static Result<Json> read_config(const std::string& folder);

  /// The folder as given, or the name of the files in memory.
  const std::string& location() const { return location_; }
  /// A file of the folder as messages name it.
  std::string path_of(std::string_view file) const;

  const Json& config() const { return config_; }
  /// Sorted by name.
  std::span<const TensorInfo> tensors() const { return tensors_; }
  std::span<const ShardInfo> shards() const { return shards_; }
  /// What does not stop the use of it, one line each: metadata.total_size differs, shards that the index does not name.
  const std::vector<std::string>& warnings() const { return warnings_; }
  /// SHA-256 of what the checkpoint is: configuration, name, dtype and shape of every tensor, and up to 256 samples of
  /// their bytes, the same places for the same tensors. Not of how it is stored: folder, shards, dates and the prefix
  /// `model.` make no difference. It tells checkpoints of different training apart, and names one on every host; it is
  /// no checksum: a single altered byte between the samples goes unseen. Below 1 MiB it reads everything. Under 50 ms
  /// for 96,085 tensors of 510 GB, plus up to 256 page faults. Source: docs/formats/prefix-keys.md.
  std::array<uint8_t, 32> identity() const;
  /// Sum over all tensors.
  int64_t tensor_bytes() const;

  const TensorInfo* find(std::string_view name) const;
  bool has(std::string_view name) const { return find(name) != nullptr; }
  /// True for a tensor that weight_map places in a shard that could not be read (open_partly only).
  bool unreadable(std::string_view name) const;
  std::span<const uint8_t> bytes_of(const TensorInfo& tensor) const;
  /// Rank 2 as it is; rank 1 as one row; a scalar as one element; above rank 2 all but the last dimension as rows.
  /// dtype is that of the file: packed FP4 weights are I8 with half as many columns as the weight. The address is a
  /// multiple of the element's size only when is_aligned() says so. Errors: not_found.
  Result<AnyView> tensor(std::string_view name) const;
  bool is_aligned(const TensorInfo& tensor) const;
  /// The mapping that these bytes of a tensor lie in, valid as long as the checkpoint; null for files in memory.
  const MappedFile* file_of(std::span<const uint8_t> bytes) const;

  /// Files beside the weights: tokenizer.json and the like.
  bool has_file(std::string_view file) const;
  /// Errors: not_found, bad_input beyond 1 GiB.
  Result<std::string> read_text(std::string_view file) const;

 private:
  friend class CheckpointReader;
  Checkpoint() = default;

  std::string location_;
  std::span<const EmbeddedFile> embedded_;
  bool in_memory_ = false;
  Json config_;
  std::vector<MappedFile> maps_;
  std::vector<ShardInfo> shards_;
  std::vector<TensorInfo> tensors_;
  std::vector<std::string> unreadable_;  // sorted
  std::vector<std::string> warnings_;
};

}  // namespace fathom
