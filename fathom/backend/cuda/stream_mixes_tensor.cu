// [rows, C * H] . fn^T for the mixing weights of hyper-connections, on the tensor cores. fn (f32) is cut into three
// bf16 parts that hold all its 24 bits, so every product is exact and only the sums round.
//   block     one segment of 1,024 columns; a warp has 64 of them, their parts of fn in registers from before the
//             kernel ahead has ended. It walks over tiles of 16 rows; a warp copies its own columns, four tiles ahead.
//   sums      a chain of the tensor core over a warp's 64 columns, the small parts first, since what it adds it cuts
//             off; then the 16 warps in order, in float. So the order is the same for any number of rows.
// Bytes: each row once, fn once a block of rows (rows / 16 of them, at most 132 / segments), sums 100 bytes a row and
// segment.
#include <algorithm>

#include "fathom/backend/cuda/device.cuh"
#include "fathom/backend/cuda/launch.h"
#include "fathom/backend/cuda/stream_mixes.h"
#include "fathom/backend/cuda/warpgroup.cuh"

namespace fathom::cuda {
namespace {

constexpr int kWarps = 16, kThreads = 32 * kWarps, kRows = 16, kStages = 5;
constexpr int kOwn = int(kMixTensorSegment) / kWarps;  // columns of a warp
constexpr int kSteps = kOwn / 16, kTiles = int(kMostMixOutputs) / 8, kParts = 3;
constexpr int kDots = kRows * int(kMostMixOutputs), kSums = kDots + kRows;
static_assert(kOwn == 64);

struct Memory {
  uint8_t x[kWarps][kStages][kRows * kOwn * 2];  // 16-byte pieces exchanged by the row's number (swizzled())
  float sums[2][kWarps][kSums];                  // [row][output], then squares [row]; by turns
};

__device__ inline uint32_t pair_of(Bf16 low, Bf16 high) {
  const __nv_bfloat162 pair(low, high);
  return *reinterpret_cast<const uint32_t*>(&pair);
}

// Two pairs of neighbours as the three parts of a step's fragment; part 0 is the largest.
__device__ inline void cut(const float2& first, const float2& second, uint32_t (&parts)[kParts][2]) {
  float left[4] = {first.x, first.y, second.x, second.y};
#pragma unroll
  for (int p = 0; p < kParts; ++p) {
    Bf16 part[4];
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      part[k] = __float2bfloat16_rn(left[k]);
      left[k] -= __bfloat162float(part[k]);
    }
    parts[p][0] = pair_of(part[0], part[1]);
    parts[p][1] = pair_of(part[2], part[3]);
  }
}

__global__ void __launch_bounds__(kThreads, 1) mix_kernel(Rows<const Bf16> streams, Rows<const float> fn, int64_t rows,
                                                          int64_t columns, int outputs, float* partial) {
  extern __shared__ __align__(16) uint8_t raw[];
  Memory& memory = *reinterpret_cast<Memory*>(raw);
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  const int64_t begin = int64_t(blockIdx.y) * kMixTensorSegment;
  const int here = int(min(kMixTensorSegment, columns - begin)), warps = here / kOwn;
  let_kernel_behind_start();
  uint32_t w[kSteps][kTiles][kParts][2];
#pragma unroll
  for (int tile = 0; tile < kTiles; ++tile) {
    const int output = tile * 8 + g;
    const float* row = fn.row(output < outputs ? output : 0) + begin + warp * kOwn + 2 * t;
#pragma unroll
    for (int s = 0; s < kSteps; ++s) {
      float2 first = make_float2(0, 0), second = first;
      if (output < outputs && warp < warps) {
        first = __ldg(reinterpret_cast<const float2*>(row + 16 * s));
        second = __ldg(reinterpret_cast<const float2*>(row + 16 * s + 8));
      }
      cut(first, second, w[s][tile]);
    }
  }
  if (warp >= warps) {  // no columns: adds nothing
    for (int i = lane; i < kSums; i += 32) memory.sums[0][warp][i] = memory.sums[1][warp][i] = 0;
  }
  wait_for_kernel_ahead();

  const int tiles = int((rows + kRows - 1) / kRows), step = int(gridDim.x);
  const int lane_row = lane / 8;
  const Bf16* first = streams.row(lane_row) + begin + warp * kOwn + lane % 8 * 8;
  const auto fetch = [&](int tile, int stage) {  // this warp's columns; rows behind the last one become zeros
    if (tile < tiles && warp < warps) {
      const uint32_t to = shared_address(memory.x[warp][stage]);
      const Bf16* from = first + int64_t(tile) * kRows * streams.stride;
      const int here = int(min(int64_t(kRows), rows - int64_t(tile) * kRows)) - lane_row;
#pragma unroll
      for (int i = 0; i < kRows / 4; ++i, from += 4 * streams.stride) {
        copy_async<16>(to + uint32_t(swizzled(4 * i + lane_row, lane % 8)), from, 4 * i < here ? 16u : 0u);
      }
    }
    commit_copies();
  };
#pragma unroll
  for (int s = 0; s < kStages - 1; ++s) fetch(int(blockIdx.x) + s * step, s);
  int stage = 0, turn = 0;
  for (int tile = int(blockIdx.x); tile < tiles; tile += step) {
    wait_copies<kStages - 2>();
    __syncwarp();  // all lanes' copies are there, and the stage before has been read
    fetch(tile + (kStages - 1) * step, stage == 0 ? kStages - 1 : stage - 1);
    if (warp < warps) {
      uint32_t x[kSteps][4];  // row g, g + 8, then their columns eight further
      const uint32_t lines = shared_address(memory.x[warp][stage]);
#pragma unroll
      for (int s = 0; s < kSteps; ++s) load_matrices(x[s], lines + uint32_t(swizzled(lane % 16, 2 * s + lane / 16)));
      float squares[2] = {};
#pragma unroll
      for (int s = 0; s < kSteps; ++s) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const float even = __uint_as_float(x[s][i] << 16), odd = __uint_as_float(x[s][i] & 0xffff0000u);
          squares[i % 2] = __fmaf_rn(odd, odd, __fmaf_rn(even, even, squares[i % 2]));
        }
      }
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        squares[h] += __shfl_xor_sync(~0u, squares[h], 1);
        squares[h] += __shfl_xor_sync(~0u, squares[h], 2);
        if (t == 0) memory.sums[turn][warp][kDots + g + 8 * h] = squares[h];
      }
      float sum[kTiles][4] = {};
#pragma unroll
      for (int part = kParts - 1; part >= 0; --part) {
#pragma unroll
        for (int s = 0; s < kSteps; ++s) {
#pragma unroll
          for (int n = 0; n < kTiles; ++n) multiply_add(sum[n], x[s], w[s][n][part][0], w[s][n][part][1]);
        }
      }
      float* to = memory.sums[turn][warp];
#pragma unroll
      for (int n = 0; n < kTiles; ++n) {
#pragma unroll
        for (int h = 0; h < 2; ++h) {
          *reinterpret_cast<float2*>(to + (g + 8 * h) * int(kMostMixOutputs) + n * 8 + 2 * t) =
              make_float2(sum[n][2 * h], sum[n][2 * h + 1]);
        }
      }
    }
    __syncthreads();  // every sum is there
    const int n = int(threadIdx.x);
    if (n < kSums) {
      const float* from = memory.sums[turn][0] + n;
      float sum = from[0];
#pragma unroll
      for (int other = 1; other < kWarps; ++other) sum += from[other * kSums];
      const bool square = n >= kDots;
      const int o = square ? outputs : n % int(kMostMixOutputs);
      const int64_t r = int64_t(tile) * kRows + (square ? n - kDots : n / int(kMostMixOutputs));
      if (r < rows && (square || o < outputs)) partial[(blockIdx.y * rows + r) * (outputs + 1) + o] = sum;
    }
    turn ^= 1;
    stage = stage + 1 == kStages ? 0 : stage + 1;
  }
}

}  // namespace

bool fits_mix_tensor(const AnyView& streams, const AnyView& fn) {
  const auto lies = [](const AnyView& view) {
    return reinterpret_cast<uintptr_t>(view.data) % 16 == 0 && bytes_of(view.dtype, view.row_stride) % 16 == 0;
  };
  return streams.dtype == DType::bf16 && streams.cols % kOwn == 0 && fn.rows <= kMostMixOutputs && lies(streams) &&
         lies(fn);
}

void launch_mix_tensor(const Call& call, const AnyView& streams, const AnyView& fn, float* partial) {
  const int64_t rows = streams.rows, columns = streams.cols;
  const int64_t segments = (columns + kMixTensorSegment - 1) / kMixTensorSegment;
  const int64_t walkers = std::min((rows + kRows - 1) / kRows, std::max<int64_t>(1, kProcessors / segments));
  expect(cudaFuncSetAttribute(mix_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, int(sizeof(Memory))),
         "stream_mixes");
  launch_early(call, mix_kernel, dim3(grid(walkers), unsigned(segments)), kThreads, int64_t(sizeof(Memory)),
               rows_of<Bf16>(streams), rows_of<float>(fn), rows, columns, int(fn.rows), partial);
}

}  // namespace fathom::cuda
