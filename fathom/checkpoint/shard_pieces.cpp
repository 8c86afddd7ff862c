#include "fathom/checkpoint/shard_pieces.h"

#include <algorithm>
#include <string_view>
#include <utility>

namespace fathom {

std::vector<ShardPiece> cut(const ShardSpec& shard, int64_t offset) {
  constexpr int64_t kPieceBytes = int64_t(4) << 20;
  std::vector<ShardPiece> pieces;
  for (const TensorSpec& tensor : shard.tensors) {
    const Shape& shape = tensor.shape;
    const int64_t cols = shape.rank() == 0 ? 1 : shape[shape.rank() - 1];
    const int64_t rows = cols == 0 ? 0 : shape.elements() / cols;
    const int64_t row_bytes = bytes_of(tensor.dtype, cols);
    const int64_t step = std::max<int64_t>(kPieceBytes / std::max<int64_t>(row_bytes, 1) / 32, 1) * 32;
    for (int64_t row = 0; row < rows; row += step) {
      const int64_t count = std::min(step, rows - row);
      pieces.push_back({&tensor, offset + row * row_bytes, row, count, count * row_bytes});
    }
    offset += tensor.bytes();
  }
  return pieces;
}

size_t round_end(const std::vector<ShardPiece>& pieces, size_t first) {
  size_t last = first;
  for (int64_t bytes = 0; last < pieces.size() && bytes < kRoundBytes; ++last) bytes += pieces[last].bytes;
  return last;
}

std::string index_text(const std::vector<ShardSpec>& shards) {
  std::string map;
  int64_t total = 0;
  std::vector<std::pair<std::string_view, std::string_view>> places;
  for (const ShardSpec& shard : shards) {
    for (const TensorSpec& tensor : shard.tensors) places.emplace_back(tensor.name, shard.file);
    total += shard.data_bytes();
  }
  std::sort(places.begin(), places.end());
  for (const auto& [tensor, file] : places) {
    map += map.empty() ? "\n  " : ",\n  ";
    append_json_string(map, tensor);
    map += ": ";
    append_json_string(map, file);
  }
  return "{\n \"metadata\": {\"total_size\": " + std::to_string(total) + "},\n \"weight_map\": {" + map + "\n }\n}\n";
}

}  // namespace fathom
