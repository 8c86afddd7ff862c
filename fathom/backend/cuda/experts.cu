// Routing: choosing experts, and sorting the choices by expert. The products are in product*.cu.
#include "fathom/backend/cuda/device.cuh"
#include "fathom/backend/cuda/kernels.h"
#include "fathom/backend/cuda/launch.h"
#include "fathom/backend/cuda/product.h"

namespace fathom::cuda {
namespace {

// ---------------------------------------------------------------------------------------------- choosing
constexpr int kGateWarps = 4;

// Larger floats have larger keys; equal ones the same, -0 as +0.
__device__ uint32_t ordered(float v) {
  const uint32_t bits = __float_as_uint(v + 0.0f);
  return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}

__device__ float score_of(float logit) {
  const double x = logit;
  return float(sqrt(x > 20 ? x : log1p(exp(x))));
}

// One warp a row. The best of score + bias is found `chosen` times: largest key, then lowest expert.
__global__ void choose_kernel(const float* logits, int64_t rows, int experts, View<const float, 1> bias,
                              View<const float, 1> bias_image, const uint8_t* image, int chosen, float scale,
                              Rows<int32_t> out, Rows<float> weights) {
  extern __shared__ float shared[];  // a score for each expert of each warp, then its biased score
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int64_t r = int64_t(blockIdx.x) * kGateWarps + warp;
  if (r >= rows) return;
  float* score = shared + int64_t(warp) * 2 * experts;
  float* biased = score + experts;
  const float* plus = image != nullptr && image[r] != 0 ? bias_image.data : bias.data;
  for (int e = lane; e < experts; e += 32) {
    score[e] = score_of(logits[r * experts + e]);
    biased[e] = score[e] + plus[e];
  }
  __syncwarp();
  double sum = 1e-20;
  for (int i = 0; i < chosen; ++i) {
    uint64_t best = 0;
    for (int e = lane; e < experts; e += 32) {
      const uint64_t key = uint64_t(ordered(biased[e])) << 32 | uint32_t(~e);
      best = key > best ? key : best;
    }
    for (int step = 16; step > 0; step /= 2) {
      const uint64_t other = __shfl_xor_sync(~0u, best, step);
      best = other > best ? other : best;
    }
    const int e = int(~uint32_t(best));
    sum += score[e];
    if (lane == 0) {
      out.row(r)[i] = e;
      biased[e] = -INFINITY;
    }
    __syncwarp();
  }
  for (int i = lane; i < chosen; i += 32) weights.row(r)[i] = float(score[out.row(r)[i]] / sum * scale);
}

// ---------------------------------------------------------------------------------------------- sorting
constexpr int kSortWarps = 16, kSortThreads = 32 * kSortWarps;

// One block: counts, then places chunk by chunk. Inside a chunk an assignment's rank among those of its expert is what
// earlier warps counted and earlier lanes match, so the order is that of the assignments.
__global__ void __launch_bounds__(kSortThreads)
    sort_kernel(Rows<const int32_t> experts, const int32_t* number, Rows<const float> weights, int64_t rows, int chosen,
                int count, int32_t* begin, int32_t* row, float* weight, Rows<int32_t> place) {
  extern __shared__ int32_t next[];  // [count] where an expert's next assignment goes, then [warps, count] of a chunk
  int32_t* of_warp = next + count;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int64_t all = rows * chosen;
  const auto expert_of = [&](int64_t a) {
    const int32_t e = experts.row(a / chosen)[a % chosen];
    return number != nullptr ? number[e] : e;
  };
  for (int e = threadIdx.x; e < count; e += kSortThreads) next[e] = 0;
  __syncthreads();
  for (int64_t a = threadIdx.x; a < all; a += kSortThreads) atomicAdd(&next[expert_of(a)], 1);
  __syncthreads();
  if (warp == 0) {  // counts become beginnings
    int32_t before = 0;
    for (int first = 0; first < count; first += 32) {
      const int e = first + lane;
      const int32_t own = e < count ? next[e] : 0;
      int32_t sum = own;
      for (int step = 1; step < 32; step *= 2) {
        const int32_t other = __shfl_up_sync(~0u, sum, step);
        if (lane >= step) sum += other;
      }
      if (e < count) begin[e] = next[e] = before + sum - own;
      before += __shfl_sync(~0u, sum, 31);
    }
    if (lane == 0) begin[count] = before;
  }
  for (int64_t chunk = 0; chunk < all; chunk += kSortThreads) {
    for (int i = threadIdx.x; i < kSortWarps * count; i += kSortThreads) of_warp[i] = 0;
    __syncthreads();
    const int64_t a = chunk + threadIdx.x;
    const int expert = a < all ? expert_of(a) : -1;
    const uint32_t same = __match_any_sync(~0u, expert);
    const int rank = __popc(same & ((1u << lane) - 1));
    if (expert >= 0 && rank == 0) of_warp[warp * count + expert] = __popc(same);
    __syncthreads();
    for (int e = threadIdx.x; e < count; e += kSortThreads) {
      int32_t at = next[e];
      for (int w = 0; w < kSortWarps; ++w) {
        const int32_t here = of_warp[w * count + e];
        of_warp[w * count + e] = at;
        at += here;
      }
      next[e] = at;
    }
    __syncthreads();
    if (expert >= 0) {
      const int32_t at = of_warp[warp * count + expert] + rank;
      const int64_t r = a / chosen;
      const int slot = int(a % chosen);
      row[at] = int32_t(r);
      weight[at] = weights.row(r)[slot];
      place.row(r)[slot] = at;
    }
    __syncthreads();
  }
}

}  // namespace

void gate(Queue& queue, const Gate& op) {
  if (op.x.empty()) return;
  Call call(queue, "gate");
  const AnyView x = call.in(op.x), weight = call.in(op.weight);
  const auto bias = call.in(op.bias), bias_image = call.in(op.bias_image);
  const auto image = call.in(op.image);
  const auto experts = call.out(op.experts);
  const auto weights = call.out(op.weights);
  const int64_t count = weight.rows;
  float* logits = call.workspace<float>(x.rows * count);
  run_product(call, product_of(Matrix(x), Matrix(weight),
                               AnyViewMut(reinterpret_cast<uint8_t*>(logits), DType::f32, x.rows, count), 1));
  const size_t bytes = size_t(kGateWarps * 2 * count) * sizeof(float);
  check(bytes <= 48 * 1024, "at most 1,536 experts");
  choose_kernel<<<grid((x.rows + kGateWarps - 1) / kGateWarps), 32 * kGateWarps, bytes, call.stream()>>>(
      logits, x.rows, int(count), bias, bias_image, op.image.empty() ? nullptr : image.data, int(experts.shape[1]),
      op.scale, rows_of(experts), rows_of(weights));
}

void group_by_expert(Queue& queue, const GroupByExpert& op) {
  Call call(queue, "group_by_expert");
  const auto experts = call.in(op.experts);
  const auto weights = call.in(op.weights);
  const auto number = call.in(op.number);
  const auto begin = call.out(op.begin), row = call.out(op.row);
  const auto weight = call.out(op.weight);
  const auto place = call.out(op.place);
  const int64_t count = begin.shape[0] - 1;
  const size_t bytes = size_t((1 + kSortWarps) * count) * sizeof(int32_t);
  check(bytes <= 200 * 1024, "at most 3,000 experts");
  expect(cudaFuncSetAttribute(sort_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, 200 * 1024), "group_by_expert");
  sort_kernel<<<1, kSortThreads, bytes, call.stream()>>>(rows_of(experts), op.number.empty() ? nullptr : number.data,
                                                         rows_of(weights), experts.shape[0], int(experts.shape[1]),
                                                         int(count), begin.data, row.data, weight.data, rows_of(place));
}

}  // namespace fathom::cuda
