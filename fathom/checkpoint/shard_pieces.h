// fathom/checkpoint/shard_pieces.h
// What a checkpoint on disk and one in memory share: the index, and a shard's data cut into pieces that threads fill.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "fathom/checkpoint/checkpoint_writer.h"

namespace fathom {

inline constexpr int64_t kRoundBytes = int64_t(256) << 20;  // filled between two looks at WriteProgress

/// Rows of one tensor, about 4 MB: what one thread fills at a time. Rows begin and end as FillRows says.
struct ShardPiece {
  const TensorSpec* tensor = nullptr;
  int64_t file_offset = 0, first_row = 0, rows = 0, bytes = 0;
};

/// All data of a shard whose first tensor begins at `offset`, in the order of the file. Refers to shard.tensors.
std::vector<ShardPiece> cut(const ShardSpec& shard, int64_t offset);

/// The end of the round that begins with piece `first`: pieces of about kRoundBytes together.
size_t round_end(const std::vector<ShardPiece>& pieces, size_t first);

/// model.safetensors.index.json: total size, and the file of every tensor, by name.
std::string index_text(const std::vector<ShardSpec>& shards);

}  // namespace fathom
