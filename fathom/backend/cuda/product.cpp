#include "fathom/backend/cuda/product.h"

#include "fathom/backend/cuda/expert_table.h"
#include "fathom/backend/cuda/kernels.h"
#include "fathom/backend/cuda/widen.h"

namespace fathom::cuda {
namespace {

bool aligned(const void* address, int64_t stride_bytes, int64_t to) {
  return reinterpret_cast<uintptr_t>(address) % uintptr_t(to) == 0 && stride_bytes % to == 0;
}

}  // namespace

Product product_of(const Matrix& x, const Matrix& weight, const AnyViewMut& out, int groups) {
  Product p;
  p.x = x.values.data;
  p.x_type = x.dtype();
  p.x_stride = x.values.row_stride;
  p.x_scales = x.scales.data;
  p.x_scale_stride = x.scales.row_stride;
  p.x_rows = p.rows = x.rows();
  p.weight = {weight.values.data, weight.scales.data};
  p.weight_type = weight.dtype();
  p.weight_stride = weight.values.row_stride;
  p.scale_stride = weight.scales.row_stride;
  p.scale_rows = weight.scale_rows;
  p.n = weight.rows();
  p.k = weight.cols();
  p.groups = groups;
  p.out = out.data;
  p.out_type = out.dtype;
  p.out_stride = out.row_stride;
  return p;
}

bool fits_tensor_cores(const Product& p) {
  if (p.x_type != DType::bf16 && p.x_type != DType::f8_e4m3) return false;
  if (p.weight_type == DType::f32) return false;
  if (p.k % 64 != 0 || p.n % p.groups != 0 || (p.groups > 1 && (p.n / p.groups) % 16 != 0)) return false;
  // Q8 inputs are widened into rows of their own; bf16 rows are read as they lie.
  if (p.x_type == DType::bf16 && !aligned(p.x, p.x_stride * 2, 16)) return false;
  const int64_t to = p.weight_type == DType::f4_e2m1 ? 8 : 16;
  // Experts are checked by the caller, which knows their addresses.
  return aligned(p.weight.values, p.weight_stride * bits_of(p.weight_type) / 8, to);
}

void launch_tensor_product(Call& call, const Product& p) {
  switch (p.weight_type) {
    case DType::bf16: return launch_tensor_product<DType::bf16>(call, p);
    case DType::f8_e4m3: return launch_tensor_product<DType::f8_e4m3>(call, p);
    default: return launch_tensor_product<DType::f4_e2m1>(call, p);
  }
}

bool fits_many(const Product& p) {
  const bool wide = p.x_type == DType::bf16 && aligned(p.x, p.x_stride * 2, 16);
  const bool q8 = p.x_type == DType::f8_e4m3 && aligned(p.x_scales, p.x_scale_stride, 4);
  const bool weights = aligned(p.weight.values, p.weight_stride * bits_of(p.weight_type) / 8, 16);
  const bool scales = aligned(p.weight.scales, p.scale_stride, 4) && p.k % 128 == 0;
  const bool codes = p.weight_type == DType::f8_e4m3 || p.weight_type == DType::f4_e2m1;
  const bool types = p.weight_type == DType::bf16 ? wide && p.k % 64 == 0 : codes && scales && (wide || q8);
  const bool pairs = p.out_type == DType::f32 || (aligned(p.out, p.out_stride * 2, 4) && p.n / p.groups % 2 == 0);
  const bool counted = p.begin == nullptr || (p.expert_count <= kMostExperts &&
                                              most_row_tiles(p.rows, p.expert_count, kRowStep) <= kMostSteps);
  return types && weights && pairs && p.n % p.groups == 0 && counted;
}

bool fits_few(const Product& p) {
  return p.weight_type != DType::bf16 && aligned(p.x, p.x_stride * bits_of(p.x_type) / 8, 16);
}

namespace {

template <DType Weight>
void launch_arranged(Call& call, const Product& p, RowTiling tiling, WholeProduct whole) {
  if (tiling.pairs) return launch_pair_product<Weight>(call, p, tiling.most_rows, whole);
  launch_many_product<Weight>(call, p, tiling.most_rows);
}

void run_many_product(Call& call, Product p, RowTiling tiling, WholeProduct whole) {
  const bool tensor_memory = call.instructions() == InstructionSet::sm_100a;
  check(!tensor_memory || !call.batch_invariant(), "the kernel for sm_100a adds all of K in one chain, others do not");
  const bool codes = p.x_type == DType::f8_e4m3 && p.weight_type != DType::bf16;
  if (tensor_memory && codes && call.scaled_products() && fits_few(p)) return launch_memory_product(call, p, true);
  if (tensor_memory) tiling = {};
  const int64_t columns = p.k * p.groups;
  auto* tiles = call.workspace<uint8_t>(arranged_rows(p.rows, p.begin == nullptr ? 0 : p.expert_count) * columns * 2);
  const ArrangedRows rows{p.x, p.x_row, p.begin, tiles, p.rows, columns, tiling.most_rows, int(p.weight_type)};
  const bool there = call.arranged_ahead(rows) && p.beside;
  if (!there) arrange_tiles(call, p, tiling.most_rows, tiles);
  p.beside = there && tiling.pairs && !tensor_memory;
  p.x = tiles;
  if (tensor_memory) return launch_memory_product(call, p, false);
  switch (p.weight_type) {
    case DType::bf16: return launch_arranged<DType::bf16>(call, p, tiling, whole);
    case DType::f8_e4m3: return launch_arranged<DType::f8_e4m3>(call, p, tiling, whole);
    default: return launch_arranged<DType::f4_e2m1>(call, p, tiling, whole);
  }
}

}  // namespace

// Which kernel takes a product, by its formats and addresses: those whose sums have one order (fits_many()), then the
// tensor cores in any other case that they can do, else float. Among the first the number of rows decides (tiles.h),
// which changes speed only:
//   few      FP8 or FP4 weights, up to 16 rows of a weight, on average of an expert
//   pairs    from there on; bf16 weights with any number of rows
//   many     thousands of rows, where K is in one part
// In queues that are not batch-invariant Q8 rows may take an order of their own in the first, up to 64 of a small
// weight, and several row tiles may share K otherwise.
//   tensor   bf16 or Q8 (widened first) x bf16, FP8, FP4; an order of its own
// On sm_100a sm100/product_memory.cuh is in place of `pairs` and `many`. Its order is not theirs nor that of `few`, so
// batch-invariant queues leave everything there to `tensor`.
void run_product(Call& call, Product p, WholeProduct whole) {
  if (p.rows == 0 || p.n == 0) return;
  const bool grouped = p.begin != nullptr;
  if (whole.experts == 0) whole = {p.rows, grouped ? p.expert_count : p.groups};
  if (!fits_tensor_cores(p)) return launch_float_product(call, p);
  const bool other_order = call.instructions() == InstructionSet::sm_100a && call.batch_invariant();
  if (fits_many(p) && !other_order) {
    const bool codes = p.weight_type != DType::bf16;
    const ProductPlan plan = product_plan({.rows = grouped ? 0 : p.rows,
                                           .assignments = grouped ? whole.rows : 0,
                                           .experts = grouped ? whole.experts : 0,
                                           .n = p.n,
                                           .columns = p.k * p.groups,
                                           .groups = p.groups},
                                          call.batch_invariant(), codes ? 128 : 64);
    if (codes && fits_few(p)) {
      const auto launch =
          p.weight_type == DType::f8_e4m3 ? launch_few_product<DType::f8_e4m3> : launch_few_product<DType::f4_e2m1>;
      if (p.x_type == DType::f8_e4m3 && plan.few_rows > 0 && launch(call, p, plan.few_rows, false)) return;
      p.parts = plan.weight_parts;
      if (plan.rows_in_chains > 0 && launch(call, p, plan.rows_in_chains, true)) return;
    }
    p.parts = plan.parts;
    return run_many_product(call, p, plan.tiling, whole);
  }
  if (p.x_type == DType::f8_e4m3) {
    const int64_t columns = p.k * p.groups;
    auto* wide = call.workspace<uint16_t>(p.x_rows * columns);
    widen_q8(call.stream(), {p.x, p.x_stride, p.x_scales, p.x_scale_stride, p.x_rows, columns}, wide);
    p.x = reinterpret_cast<const uint8_t*>(wide);
    p.x_type = DType::bf16;
    p.x_stride = columns;
  }
  launch_tensor_product(call, p);
}

void run_product(Call& call, Product p) { run_product(call, p, WholeProduct{}); }

void linear(Queue& queue, const Linear& op) {
  check(op.x.cols() == op.weight.cols() * op.groups, "the inputs of a product have the same columns");
  if (op.x.rows() == 0 || op.weight.rows() == 0) return;
  Call call(queue, "linear");
  Product p = product_of(call.in(op.x), call.in(op.weight), call.out(op.out), op.groups);
  p.beside = op.beside;
  run_product(call, p);
}

void grouped_linear(Queue& queue, const GroupedLinear& op) {
  if (op.out.rows == 0 || op.weights.empty()) return;
  Call call(queue, "grouped_linear");
  const Matrix x = call.in(op.x);
  const bool part = op.whole.experts > 0;
  const ExpertTable table = part ? passing_experts(call, op.weights) : expert_table(call, op.weights);
  Product p = product_of(x, op.weights[0], call.out(op.out), 1);
  p.rows = op.out.rows;
  p.weight = table.first;
  const auto x_row = call.in(op.x_row);
  p.x_row = op.x_row.empty() ? nullptr : x_row.data;
  p.begin = call.in(op.begin).data;
  p.expert_count = int(op.weights.size());
  p.experts = table.on_device;
  p.beside = op.beside;
  // A weight that lies badly sends all of them to the kernel that reads byte by byte.
  if (!table.aligned) return launch_float_product(call, p);
  run_product(call, p, op.whole);
}

}  // namespace fathom::cuda
