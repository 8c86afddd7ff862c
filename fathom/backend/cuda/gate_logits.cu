// A block has 64 weight rows, 16 of a warp, and 8 or 64 rows of x. A segment of 320 columns is all under way at once:
// its weights in registers, from before the kernel ahead has ended, its x in shared memory. Up to 1,024 rows a block
// has one segment, beyond that it walks through all of them and adds them itself.
// Bytes: weights rows / 64 times, x experts / 64 times (both from the L2 cache but for the first), parts 4 bytes a row,
// expert and segment.
#include "fathom/backend/cuda/gate_logits.h"

#include "fathom/backend/cuda/device.cuh"
#include "fathom/backend/cuda/launch.h"
#include "fathom/backend/cuda/product.h"
#include "fathom/backend/cuda/tensor_core.cuh"
#include "fathom/backend/cuda/workspace_sizes.h"

namespace fathom::cuda {
namespace {

constexpr int kWarps = 4, kThreads = 32 * kWarps, kWeightRows = 16 * kWarps;
constexpr int kChunk = 64, kChunks = 5, kSegment = int(kGateSegment);
static_assert(kSegment == kChunk * kChunks);
constexpr int kRowBytes = kSegment * 2 + 16;  // the next row begins four banks further

// Lane t of four has 16 neighbours of a chunk's 64 columns; step s of a chunk takes four of them.
template <int XTiles, bool Split>
__global__ void __launch_bounds__(kThreads) logits_kernel(Rows<const Bf16> x, Rows<const Bf16> weight, int64_t rows,
                                                          int experts, int64_t columns, float* parts) {
  extern __shared__ __align__(16) uint8_t staged[];  // [Split ? 1 : 2][8 * XTiles][kRowBytes]
  constexpr int kX = 8 * XTiles, kBytes = kX * kRowBytes;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  const int64_t first = int64_t(blockIdx.y) * kX;
  const int n = int(blockIdx.x) * kWeightRows + warp * 16 + g;
  const int segments = int((columns + kSegment - 1) / kSegment);
  const int from = Split ? int(blockIdx.z) : 0, to = Split ? from + 1 : segments;
  const auto chunks_of = [&](int segment) {
    return int(min(int64_t(kSegment), columns - int64_t(segment) * kSegment)) / kChunk;
  };
  let_kernel_behind_start();

  uint4 w[kChunks][2][2];  // [chunk][row g, g + 8][half]
  const auto load_weights = [&](int segment, int chunk) {
    if (segment >= to || chunk >= chunks_of(segment)) return;
#pragma unroll
    for (int h = 0; h < 2; ++h) {  // behind the last row: read again, not stored
      const auto* at = reinterpret_cast<const uint4*>(weight.row(min(n + 8 * h, experts - 1)) +
                                                      int64_t(segment) * kSegment + chunk * kChunk + 16 * t);
      w[chunk][h][0] = __ldg(at);
      w[chunk][h][1] = __ldg(at + 1);
    }
  };
#pragma unroll
  for (int c = 0; c < kChunks; ++c) load_weights(from, c);
  wait_for_kernel_ahead();

  const auto load_x = [&](int segment, int chunk, int buffer) {
    if (segment < to && chunk < chunks_of(segment)) {
      for (int i = threadIdx.x; i < kX * 8; i += kThreads) {
        const int line = i / 8, column = chunk * kChunk + i % 8 * 8;
        copy_async<16>(staged + buffer * kBytes + line * kRowBytes + column * 2,
                       x.row(min(first + line, rows - 1)) + int64_t(segment) * kSegment + column, first + line < rows);
      }
    }
    commit_copies();
  };
#pragma unroll
  for (int c = 0; c < kChunks; ++c) load_x(from, c, 0);

  float total[XTiles][4];
  for (int segment = from; segment < to; ++segment) {
    const int buffer = Split ? 0 : (segment - from) % 2, chunks = chunks_of(segment);
    float sum[XTiles][4] = {};
#pragma unroll
    for (int c = 0; c < kChunks; ++c) {
      if constexpr (Split) {
        if (c == 0) wait_copies<kChunks - 1>();
        if (c == 1) wait_copies<kChunks - 2>();
        if (c == 2) wait_copies<kChunks - 3>();
        if (c == 3) wait_copies<kChunks - 4>();
        if (c == 4) wait_copies<0>();
      } else {
        wait_copies<kChunks - 1>();  // as many chunks are under way behind this one
      }
      __syncthreads();
      if constexpr (!Split) load_x(segment + 1, c, buffer ^ 1);
      if (c >= chunks) continue;
      const uint4* lines =
          reinterpret_cast<const uint4*>(staged + buffer * kBytes + g * kRowBytes + c * kChunk * 2 + 32 * t);
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const uint32_t a[2][4] = {{w[c][0][half].x, w[c][1][half].x, w[c][0][half].y, w[c][1][half].y},
                                  {w[c][0][half].z, w[c][1][half].z, w[c][0][half].w, w[c][1][half].w}};
#pragma unroll
        for (int tile = 0; tile < XTiles; ++tile) {
          const uint4 b = lines[tile * 8 * kRowBytes / 16 + half];
          multiply_add(sum[tile], a[0], b.x, b.y);
          multiply_add(sum[tile], a[1], b.z, b.w);
        }
      }
      if constexpr (!Split) load_weights(segment + 1, c);
    }
#pragma unroll
    for (int tile = 0; tile < XTiles; ++tile) {
#pragma unroll
      for (int i = 0; i < 4; ++i) total[tile][i] = segment == from ? sum[tile][i] : total[tile][i] + sum[tile][i];
    }
  }
  float* out = parts + int64_t(from) * rows * experts;
#pragma unroll
  for (int tile = 0; tile < XTiles; ++tile) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int64_t r = first + tile * 8 + 2 * t + i % 2;
      const int e = n + 8 * (i / 2);
      if (r < rows && e < experts) out[r * experts + e] = total[tile][i];
    }
  }
}

template <int XTiles, bool Split>
void launch(Call& call, const AnyView& x, const AnyView& weight, float* parts, int64_t segments) {
  constexpr int kX = 8 * XTiles, kBytes = (Split ? 1 : 2) * kX * kRowBytes;
  const auto kernel = logits_kernel<XTiles, Split>;
  if (kBytes > 48 * 1024) {
    expect(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes), "gate");
  }
  const dim3 blocks(grid((weight.rows + kWeightRows - 1) / kWeightRows), unsigned((x.rows + kX - 1) / kX),
                    unsigned(Split ? segments : 1));
  launch_early(call, kernel, blocks, kThreads, kBytes, rows_of<Bf16>(x), rows_of<Bf16>(weight), x.rows,
               int(weight.rows), x.cols, parts);
}

}  // namespace

GateLogits gate_logits(Call& call, const AnyView& x, const AnyView& weight) {
  const auto run = [&](float* logits) {
    return product_of(Matrix(x), Matrix(weight),
                      AnyViewMut(reinterpret_cast<uint8_t*>(logits), DType::f32, x.rows, weight.rows), 1);
  };
  const bool tensor = x.dtype == DType::bf16 && weight.dtype == DType::bf16 && fits_tensor_cores(run(nullptr));
  const GatePlan plan = gate_plan(x.rows, x.cols, tensor, call.batch_invariant());
  if (!plan.own) {
    call.reserve(workspace_bytes(GateShape{.rows = x.rows, .experts = weight.rows, .columns = x.cols, .tensor = tensor},
                                 call.batch_invariant()));
    float* logits = call.workspace<float>(x.rows * weight.rows);
    run_product(call, run(logits));
    return {logits, 1};
  }
  const int64_t segments = (x.cols + kSegment - 1) / kSegment;
  float* parts = call.workspace<float>(plan.parts * x.rows * weight.rows);
  if (x.rows <= 8) {
    launch<1, true>(call, x, weight, parts, segments);
  } else if (plan.split) {
    launch<8, true>(call, x, weight, parts, segments);
  } else {
    launch<8, false>(call, x, weight, parts, segments);
  }
  return {parts, plan.parts};
}

}  // namespace fathom::cuda
