// Routing: choosing experts, and sorting the choices by expert. The gate's product is in gate_logits.cu, those of
// experts in product*.cu.
#include <algorithm>

#include "fathom/backend/cuda/block_scan.cuh"
#include "fathom/backend/cuda/device.cuh"
#include "fathom/backend/cuda/gate_logits.h"
#include "fathom/backend/cuda/kernels.h"
#include "fathom/backend/cuda/launch.h"

namespace fathom::cuda {
namespace {

// ---------------------------------------------------------------------------------------------- choosing
constexpr int kChooseThreads = 384, kFewChooseThreads = 128;  // an expert of Flash each; of blocks that are many
constexpr int64_t kManyChooseRows = 1024;

// Larger floats have larger keys; equal ones the same, -0 as +0.
__device__ uint32_t ordered(float v) {
  const uint32_t bits = __float_as_uint(v + 0.0f);
  return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}

__device__ float score_of(float logit) {
  const double x = logit;
  return float(sqrt(x > 20 ? x : log1p(exp(x))));
}

// One block a row takes the scores, its first warp chooses: the best of score + bias is found `chosen` times, the
// largest key, then the lowest expert.
__global__ void __launch_bounds__(kChooseThreads)
    choose_kernel(GateLogits logits, int64_t rows, int experts, View<const float, 1> bias,
                  View<const float, 1> bias_image, const uint8_t* image, int chosen, float scale, Rows<int32_t> out,
                  Rows<float> weights) {
  extern __shared__ float score[];  // [experts], then their keys, then the chosen
  uint32_t* key = reinterpret_cast<uint32_t*>(score + experts);
  int32_t* choice = reinterpret_cast<int32_t*>(key + experts);
  let_kernel_behind_start();
  wait_for_kernel_ahead();
  const int64_t r = blockIdx.x;
  const float* plus = image != nullptr && image[r] != 0 ? bias_image.data : bias.data;
  for (int e = threadIdx.x; e < experts; e += blockDim.x) {
    float logit = 0;
    constexpr int kAtOnce = 8;  // their loads
    for (int64_t p = 0; p < logits.count; p += kAtOnce) {
      float part[kAtOnce];
#pragma unroll
      for (int k = 0; k < kAtOnce; ++k) {
        part[k] = p + k < logits.count ? logits.parts[((p + k) * rows + r) * experts + e] : 0;
      }
#pragma unroll
      for (int k = 0; k < kAtOnce; ++k) {
        if (p + k < logits.count) logit = p + k == 0 ? part[k] : logit + part[k];
      }
    }
    const float s = score_of(logit);
    score[e] = s;
    key[e] = ordered(s + plus[e]);
  }
  __syncthreads();
  if (threadIdx.x >= 32) return;
  constexpr uint32_t kTaken = 0;  // below the key of -inf
  const int lane = threadIdx.x;
  double sum = 1e-20;
  for (int i = 0; i < chosen; ++i) {
    uint32_t best = kTaken;
    int own = experts - 1;
#pragma unroll 4
    for (int e = lane; e < experts; e += 32) {
      if (key[e] > best) best = key[e], own = e;
    }
    const uint32_t most = __reduce_max_sync(~0u, best);
    const int e = int(__reduce_min_sync(~0u, best == most ? uint32_t(own) : ~0u));
    sum += score[e];
    __syncwarp();  // every lane has looked at its keys
    if (lane == 0) choice[i] = e, key[e] = kTaken;
    __syncwarp();
  }
  for (int i = lane; i < chosen; i += 32) {
    out.row(r)[i] = choice[i];
    weights.row(r)[i] = float(score[choice[i]] / sum * scale);
  }
}

// ---------------------------------------------------------------------------------------------- sorting
constexpr int kSortWarps = 32, kSortThreads = 32 * kSortWarps, kSortSteps = 2;
constexpr int kSortBlock = kSortThreads * kSortSteps;  // assignments of a block; a warp has neighbours of them

// What an assignment's place needs: the experts' totals, the assignments of its expert in earlier blocks, in earlier
// warps, and before it in its warp. A block counts all others' assignments itself, so blocks do not wait for each
// other.
__global__ void __launch_bounds__(kSortThreads)
    sort_kernel(Rows<const int32_t> experts, const int32_t* number, Rows<const float> weights, int rows, int chosen,
                int count, int32_t* begin, int32_t* row, float* weight, Rows<int32_t> place) {
  extern __shared__ int32_t before[];  // [count] in earlier blocks, [count] in later ones, [warps, count] in this one
  __shared__ int32_t lanes[kSortWarps];
  int32_t* behind = before + count;
  uint16_t* of_warp = reinterpret_cast<uint16_t*>(behind + count);
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, all = rows * chosen;
  const bool dense = experts.stride == chosen;
  const auto expert_of = [&](int a) {
    const int32_t e = dense ? experts.data[a] : experts.row(a / chosen)[a % chosen];
    return number != nullptr ? number[e] : e;
  };
  for (int i = threadIdx.x; i < 2 * count; i += kSortThreads) before[i] = 0;
  for (int i = threadIdx.x; i < kSortWarps * count / 2; i += kSortThreads) reinterpret_cast<uint32_t*>(of_warp)[i] = 0;
  let_kernel_behind_start();
  wait_for_kernel_ahead();
  const int first = int(blockIdx.x) * kSortBlock, own = first + warp * 32 * kSortSteps + lane;
  int expert[kSortSteps], rank[kSortSteps];
#pragma unroll
  for (int s = 0; s < kSortSteps; ++s) expert[s] = own + s * 32 < all ? expert_of(own + s * 32) : -1;
  __syncthreads();
#pragma unroll 8
  for (int a = threadIdx.x; a < all; a += kSortThreads) {
    if (a < first) atomicAdd(&before[expert_of(a)], 1);
    if (a >= first + kSortBlock) atomicAdd(&behind[expert_of(a)], 1);
  }
#pragma unroll
  for (int s = 0; s < kSortSteps; ++s) {
    uint16_t* counted = of_warp + warp * count + max(expert[s], 0);
    const uint32_t same = __match_any_sync(~0u, expert[s]);
    const int ahead = __popc(same & ((1u << lane) - 1)), earlier = *counted;
    rank[s] = earlier + ahead;
    __syncwarp();
    if (expert[s] >= 0 && ahead == 0) *counted = uint16_t(earlier + __popc(same));
    __syncwarp();
  }
  __syncthreads();
  int32_t start = 0;  // of the experts that these threads have
  for (int base = 0; base < count; base += kSortThreads) {
    const int e = base + int(threadIdx.x);
    int32_t here = 0, total = 0;
    if (e < count) {
      constexpr int kAtOnce = 16;  // their loads
      for (int first_warp = 0; first_warp < kSortWarps; first_warp += kAtOnce) {
        uint16_t* at = of_warp + first_warp * count + e;
        int32_t some[kAtOnce];
#pragma unroll
        for (int w = 0; w < kAtOnce; ++w) some[w] = at[w * count];
#pragma unroll
        for (int w = 0; w < kAtOnce; ++w) {
          at[w * count] = uint16_t(here);
          here += some[w];
        }
      }
      here += before[e] + behind[e];
    }
    const int32_t at = start + before_in_block(here, lanes, total);
    if (e < count) {
      if (blockIdx.x == 0) begin[e] = at;
      before[e] += at;
    }
    start += total;
  }
  if (blockIdx.x == 0 && threadIdx.x == 0) begin[count] = all;
  __syncthreads();
#pragma unroll
  for (int s = 0; s < kSortSteps; ++s) {
    if (expert[s] < 0) continue;
    const int a = own + s * 32, r = a / chosen, slot = a % chosen;
    const int32_t at = before[expert[s]] + of_warp[warp * count + expert[s]] + rank[s];
    row[at] = r;
    weight[at] = weights.row(r)[slot];
    place.row(r)[slot] = at;
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
  const int64_t count = weight.rows, chosen = experts.shape[1];
  const int64_t bytes = (2 * count + chosen) * 4;
  check(bytes <= 48 * 1024, "at most 6,000 experts");
  check(chosen <= count, "a row has as many experts as it chooses");
  launch_early(call, choose_kernel, grid(x.rows), x.rows < kManyChooseRows ? kChooseThreads : kFewChooseThreads, bytes,
               gate_logits(call, x, weight), x.rows, int(count), bias, bias_image,
               op.image.empty() ? nullptr : image.data, int(chosen), op.scale, rows_of(experts), rows_of(weights));
}

void group_by_expert(Queue& queue, const GroupByExpert& op) {
  Call call(queue, "group_by_expert");
  const auto experts = call.in(op.experts);
  const auto weights = call.in(op.weights);
  const auto number = call.in(op.number);
  const auto begin = call.out(op.begin), row = call.out(op.row);
  const auto weight = call.out(op.weight);
  const auto place = call.out(op.place);
  const int64_t count = begin.shape[0] - 1, all = experts.shape[0] * experts.shape[1];
  const int64_t bytes = (2 * int64_t(sizeof(int32_t)) + kSortWarps * int64_t(sizeof(uint16_t))) * count;
  constexpr int kMostBytes = 216 * 1024;
  check(bytes <= kMostBytes, "at most 3,000 experts");
  check(all < (int64_t(1) << 31) - kSortBlock, "fewer than 2^31 assignments");
  expect(cudaFuncSetAttribute(sort_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kMostBytes), "group_by_expert");
  launch_early(call, sort_kernel, grid(std::max<int64_t>(1, (all + kSortBlock - 1) / kSortBlock)), kSortThreads, bytes,
               rows_of(experts), op.number.empty() ? nullptr : number.data, rows_of(weights), int(experts.shape[0]),
               int(experts.shape[1]), int(count), begin.data, row.data, weight.data, rows_of(place));
}

}  // namespace fathom::cuda
