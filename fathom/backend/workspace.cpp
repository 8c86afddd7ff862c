#include "fathom/backend/workspace.h"

#include <algorithm>

#include "fathom/backend/cuda/tiles.h"
#include "fathom/backend/cuda/workspace_sizes.h"

namespace fathom {
namespace {

// x as the kernels for many rows read it.
int64_t arranged_bytes(const ProductShape& p) {
  return cuda::arranged_rows(p.experts > 0 ? p.assignments : p.rows, p.experts) * p.columns * 2;
}

// Q8 rows as bf16, and the parts of K (product_tensor.cuh).
int64_t other_tensor_bytes(const ProductShape& p, bool widens) {
  const int64_t rows = p.experts > 0 ? p.assignments : p.rows, k = p.columns / p.groups;
  const auto tile = p.experts > 0 ? cuda::product_tile(cuda::divide_up(rows, p.experts), p.n, p.experts)
                                  : cuda::product_tile(rows, p.n / p.groups, p.groups);
  const int64_t parts = tile.split && cuda::segments(k) > 1 ? cuda::segments(k) * rows * p.n * 4 : 0;
  return (widens ? cuda::workspace_array(p.rows * p.columns * 2) : 0) + (parts > 0 ? cuda::workspace_array(parts) : 0);
}

// As run_product() chooses (cuda/product.cpp).
int64_t product_bytes(const ProductShape& p, DType x, DType weight, bool batch_invariant) {
  const int64_t rows = p.experts > 0 ? p.assignments : p.rows, k = p.columns / p.groups;
  const bool q8 = x == DType::f8_e4m3, codes = weight == DType::f8_e4m3 || weight == DType::f4_e2m1;
  if (rows == 0 || p.n == 0) return 0;
  const bool tensor = (q8 || x == DType::bf16) && weight != DType::f32 && k % 64 == 0 && p.n % p.groups == 0 &&
                      (p.groups == 1 || p.n / p.groups % 16 == 0);
  if (!tensor) return 0;
  const bool many = (codes ? k % 128 == 0 : !q8) && p.n / p.groups % 2 == 0 && p.experts <= cuda::kMostExperts &&
                    (p.experts == 0 || cuda::most_row_tiles(rows, p.experts, cuda::kRowStep) <= cuda::kMostSteps);
  if (!many) return other_tensor_bytes(p, q8);
  if (codes && q8) return device_workspace_bytes(p, batch_invariant);
  if (codes && cuda::product_plan(p, batch_invariant).rows_in_chains > 0) return 0;
  return arranged_bytes(p);
}

}  // namespace

int64_t device_workspace_bytes(const ProductShape& product, bool batch_invariant) {
  if (product.weights == WeightKind::codes) return cuda::product_workspace_bytes(product, batch_invariant);
  return product.rows == 0 ? 0 : arranged_bytes(product);
}
int64_t device_workspace_bytes(const GateShape& gate, bool batch_invariant) {
  return cuda::workspace_bytes(gate, batch_invariant);
}
int64_t device_workspace_bytes(const SelectShape& select) { return cuda::workspace_bytes(select); }
int64_t device_workspace_bytes(const MixShape& mixes) { return cuda::workspace_bytes(mixes); }
int64_t device_workspace_bytes(const SampleShape& sample) { return cuda::workspace_bytes(sample); }

int64_t device_workspace_bytes(const Linear& op, bool batch_invariant) {
  const ProductShape p{.rows = op.x.rows(), .n = op.weight.rows(), .columns = op.x.cols(), .groups = op.groups};
  return product_bytes(p, op.x.dtype(), op.weight.dtype(), batch_invariant);
}
int64_t device_workspace_bytes(const GroupedLinear& op, bool batch_invariant) {
  if (op.weights.empty()) return 0;
  const bool part = op.whole.experts > 0;  // of a whole, whose tile it takes
  const ProductShape p{.rows = op.x.rows(),
                       .assignments = part ? op.whole.rows : op.out.rows,
                       .experts = part ? op.whole.experts : int64_t(op.weights.size()),
                       .n = op.weights[0].rows(),
                       .columns = op.x.cols()};
  return op.out.rows == 0 ? 0 : product_bytes(p, op.x.dtype(), op.weights[0].dtype(), batch_invariant);
}
int64_t device_workspace_bytes(const Gate& op, bool batch_invariant) {
  const bool tensor = op.x.dtype == DType::bf16 && op.weight.dtype == DType::bf16 && op.x.cols % 64 == 0;
  return device_workspace_bytes(
      GateShape{.rows = op.x.rows, .experts = op.weight.rows, .columns = op.x.cols, .tensor = tensor}, batch_invariant);
}
int64_t device_workspace_bytes(const SelectRows& op, bool) {
  int64_t entries = op.keys.blocks.shape[1] * op.keys.entries_per_block;
  if (op.block_size > 0 && !op.candidate_source) entries = std::min(entries, int64_t(op.top_blocks) * op.block_size);
  const int64_t block = op.candidate_source ? op.block_size : 0;
  return device_workspace_bytes(SelectShape{.rows = op.rows.rows(), .entries = entries, .source_block = block});
}
int64_t device_workspace_bytes(const StreamMixes& op, bool) {
  return device_workspace_bytes(
      MixShape{.rows = op.streams.rows, .streams = op.pre.shape[1], .columns = op.streams.cols});
}
int64_t device_workspace_bytes(const Sample& op, bool) {
  return device_workspace_bytes(SampleShape{
      .rows = op.count(), .vocabulary = op.logits.shape[1], .laws = !op.laws.empty(), .lists = !op.lists.empty()});
}

}  // namespace fathom
