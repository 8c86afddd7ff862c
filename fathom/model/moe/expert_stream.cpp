#include "fathom/model/moe/expert_stream.h"

#include <algorithm>
#include <cmath>

#include "fathom/base/system_memory.h"
#include "fathom/model/tensor_list.h"

namespace fathom {
namespace {

std::span<const uint8_t> bytes_of(const AnyView& view) {
  return {view.data, size_t(bytes_of(view.dtype, view.rows * view.row_stride))};
}

// Neighbours become one range: as a rule an expert is one run of bytes.
std::vector<MappedRange> ranges_of(const Checkpoint& checkpoint, std::initializer_list<const Matrix*> matrices) {
  std::vector<MappedRange> parts;
  for (const Matrix* matrix : matrices) {
    for (const AnyView& view : {matrix->values, matrix->scales}) {
      const auto bytes = bytes_of(view);
      if (const MappedFile* file = checkpoint.file_of(bytes)) parts.push_back({file, bytes});
    }
  }
  std::sort(parts.begin(), parts.end(),
            [](const MappedRange& a, const MappedRange& b) { return a.bytes.data() < b.bytes.data(); });
  std::vector<MappedRange> ranges;
  for (const MappedRange& part : parts) {
    if (!ranges.empty() && ranges.back().file == part.file &&
        ranges.back().bytes.data() + ranges.back().bytes.size() == part.bytes.data()) {
      ranges.back().bytes = {ranges.back().bytes.data(), ranges.back().bytes.size() + part.bytes.size()};
    } else {
      ranges.push_back(part);
    }
  }
  return ranges;
}

}  // namespace

std::vector<std::vector<MappedRange>> expert_pieces(const Checkpoint& checkpoint, Weights& weights) {
  std::vector<std::vector<MappedRange>> pieces;
  for (BlockWeights& block : weights.blocks) {
    block.first_piece = int32_t(pieces.size());
    for (size_t e = 0; e < block.w1.size(); ++e) {
      pieces.push_back(ranges_of(checkpoint, {&block.w1[e], &block.w2[e], &block.w3[e]}));
    }
  }
  return pieces;
}

bool takes_nearly_all(int64_t rows, int per_token, int64_t experts) {
  return std::pow(1 - double(per_token) / double(experts), double(rows)) <= 0.1;
}

int64_t always_read_bytes(const ModelConfig& config) {
  int64_t bytes = 0;
  for (const TensorSpec& tensor : tensor_list(config)) {
    const WeightGroup group = group_of(tensor.name);
    const bool rows_only = group == WeightGroup::engram_tables || group == WeightGroup::embed;
    const bool streamed = tensor.name.find(".ffn.experts.") != std::string::npos;
    if (!rows_only && !streamed && group != WeightGroup::vision) bytes += tensor.bytes();
  }
  return bytes;
}

Result<std::unique_ptr<PieceStream>> open_expert_stream(const Checkpoint& checkpoint, const ModelConfig& config,
                                                        StreamOptions options, Weights& weights) {
  auto pieces = expert_pieces(checkpoint, weights);
  int64_t largest = 0;
  for (const auto& piece : pieces) {
    if (piece.empty()) {
      return Error{ErrorCode::usage, "the weights lie in memory already (" + checkpoint.location() + ")",
                   "--experts disk", "name a checkpoint folder, or leave the option out"};
    }
    largest = std::max(largest, piece_page_bytes(piece));
  }
  if (options.limit_bytes == 0) options.limit_bytes = available_memory_bytes() / 2 - always_read_bytes(config);
  if (options.limit_bytes < 2 * largest) {
    return Error{ErrorCode::out_of_memory,
                 with_commas(std::max<int64_t>(options.limit_bytes, 0)) +
                     " bytes for routed experts, of which one takes " + with_commas(largest),
                 "--resident-limit",
                 "give at least two of them, " + with_commas(2 * largest) +
                     " bytes; a step of one token wants those that it chooses in a layer, and one more"};
  }
  return std::make_unique<PieceStream>(std::move(pieces), options);
}

}  // namespace fathom
