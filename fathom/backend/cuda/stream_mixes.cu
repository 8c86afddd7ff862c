// The mixing weights of hyper-connections. Two kernels, the first in two forms:
//   dots      [rows, C * H] . fn^T: a block has 8 rows and one segment of 1,280 columns; a warp has three of the
//             (2 + C) * C outputs for all eight rows, so a value of fn that is loaded is used eight times. fn (1.97 MB
//             for the model) stays in the L2 cache; from memory comes each row once: rows * C * H * sizeof(A).
//   dots of bf16 rows: stream_mixes_tensor.cu.
//   finish    a warp a row adds the segments in order, takes sigmoids and the softmax, in double; then C lanes a row
//             run Sinkhorn's 2 * iterations normalisations. They keep the matrix as it is and the factors of its rows
//             and columns, so that one takes C products and a division a lane instead of a division of every element.
#include "fathom/backend/cuda/stream_mixes.h"

#include "fathom/backend/cuda/device.cuh"
#include "fathom/backend/cuda/kernels.h"
#include "fathom/backend/cuda/launch.h"

namespace fathom::cuda {
namespace {

constexpr int kRows = 8, kWarps = 8, kOutputs = 3;  // of a block; of a warp at once
constexpr int kSegment = int(kMixSegment);

template <class A>
__global__ void __launch_bounds__(32 * kWarps) dots_kernel(Rows<const A> streams, Rows<const float> fn, int64_t rows,
                                                           int64_t columns, int outputs, float* partial) {
  extern __shared__ float x[];  // [kRows][kSegment]
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int64_t first_row = int64_t(blockIdx.x) * kRows, segment = blockIdx.y, begin = segment * kSegment;
  const int n = int(min(int64_t(kSegment), columns - begin));
  const int here = int(min(int64_t(kRows), rows - first_row));
  for (int r = 0; r < kRows; ++r) {
    for (int i = threadIdx.x; i < kSegment; i += blockDim.x) {
      x[r * kSegment + i] = r < here && i < n ? load(streams.row(first_row + r)[begin + i]) : 0.0f;
    }
  }
  __syncthreads();
  float* out = partial + (segment * rows + first_row) * (outputs + 1);
  for (int o = warp * kOutputs; o < outputs; o += kWarps * kOutputs) {
    float sum[kOutputs][kRows] = {};
    for (int i = lane; i < n; i += 32) {
#pragma unroll
      for (int k = 0; k < kOutputs; ++k) {
        const float w = o + k < outputs ? fn.row(o + k)[begin + i] : 0.0f;
#pragma unroll
        for (int r = 0; r < kRows; ++r) sum[k][r] += w * x[r * kSegment + i];
      }
    }
#pragma unroll
    for (int k = 0; k < kOutputs; ++k) {
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
        const float total = warp_sum(sum[k][r]);
        if (lane == 0 && o + k < outputs && r < here) out[r * (outputs + 1) + o + k] = total;
      }
    }
  }
  if (warp < here) {  // the sum of squares of row `warp`
    float squares = 0;
    for (int i = lane; i < n; i += 32) squares += x[warp * kSegment + i] * x[warp * kSegment + i];
    squares = warp_sum(squares);
    if (lane == 0) out[warp * (outputs + 1) + outputs] = squares;
  }
}

__device__ double sigmoid(double v) { return 1 / (1 + exp(-v)); }

// Element i of another lane's number.
__device__ double lane_of(double v, int lane) { return __shfl_sync(~0u, v, lane); }

// a / v within 2^-52, of any finite v > 0: an instruction gives 1 / v to 2^-19, a step of third order what lacks.
__device__ double quotient(double a, double v) {
  double y;
  asm("rcp.approx.ftz.f64 %0, %1;" : "=d"(y) : "d"(v));
  const double lacks = fma(-v, y, 1.0), first = a * y;
  return fma(first, fma(lacks, lacks, lacks), first);
}

constexpr int kFinishRows = 8;  // of a block, a warp each

template <int C>
__global__ void __launch_bounds__(32 * kFinishRows)
    finish_kernel(const float* partial, int64_t segments, int64_t rows, int64_t columns, View<const float, 1> scale,
                  View<const float, 1> base, int iterations, double eps, float norm_eps, Rows<float> pre,
                  Rows<float> post, Rows<float> comb) {
  constexpr int kAll = (2 + C) * C;
  static_assert(kAll < 32 && C * kFinishRows <= 32);
  __shared__ double matrix[kFinishRows][C][C];  // row j, column k
  let_kernel_behind_start();
  wait_for_kernel_ahead();
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int64_t r = int64_t(blockIdx.x) * kFinishRows + warp;
  if (r < rows) {
    float sum = 0;
    constexpr int kAtOnce = 10;  // their loads
    for (int64_t first = 0; first < segments && lane <= kAll; first += kAtOnce) {
      float part[kAtOnce];
#pragma unroll
      for (int k = 0; k < kAtOnce; ++k) {
        part[k] = first + k < segments ? partial[((first + k) * rows + r) * (kAll + 1) + lane] : 0;
      }
#pragma unroll
      for (int k = 0; k < kAtOnce; ++k) sum += part[k];
    }
    const float norm = inverse_rms(__shfl_sync(~0u, sum, kAll), columns, norm_eps);
    const double mix = lane < kAll ? double(sum) * norm * scale.data[lane / C < 2 ? lane / C : 2] + base.data[lane] : 0;
    if (lane < C) pre.row(r)[lane] = float(sigmoid(mix) + eps);
    if (lane >= C && lane < 2 * C) post.row(r)[lane - C] = float(2 * sigmoid(mix));
    // Lanes behind the matrix repeat its last element.
    const int element = lane < C * C ? lane : C * C - 1, j = element / C;
    double m = lane_of(mix, 2 * C + element);
    double best = -INFINITY, all = 0;
    for (int i = 0; i < C; ++i) best = fmax(best, lane_of(m, j * C + i));
    m = exp(m - best);
    for (int i = 0; i < C; ++i) all += lane_of(m, j * C + i);
    if (lane < C * C) matrix[warp][j][lane % C] = m / all + eps;
  }
  __syncthreads();
  if (warp != 0) return;
  // Lane j of a row's C has row j and column j, and their factors.
  const int row = lane / C, j = lane % C;
  const bool works = row < kFinishRows && int64_t(blockIdx.x) * kFinishRows + row < rows;
  double of_row[C], of_column[C], row_factor = 1, column_factor = 1;
#pragma unroll
  for (int i = 0; i < C; ++i) {
    of_row[i] = works ? matrix[row][j][i] : 1;
    of_column[i] = works ? matrix[row][i][j] : 1;
  }
  // Brings the sum of this lane's line to 1; `other`: what the crossing lines are multiplied with.
  const auto normalize = [&](const double(&line)[C], double& own, double other) {
    double even = 0, odd = 0;  // two chains: this is all latency
#pragma unroll
    for (int i = 0; i < C; ++i) {
      double& sum = i % 2 == 0 ? even : odd;
      sum = fma(line[i], lane_of(other, row * C + i), sum);
    }
    own = quotient(own, fma(own, even + odd, eps));
  };
  normalize(of_column, column_factor, row_factor);
  for (int i = 1; i < iterations; ++i) {
    normalize(of_row, row_factor, column_factor);
    normalize(of_column, column_factor, row_factor);
  }
#pragma unroll
  for (int k = 0; k < C; ++k) {
    const double m = row_factor * of_row[k] * lane_of(column_factor, row * C + k);
    if (works) comb.row(int64_t(blockIdx.x) * kFinishRows + row)[j * C + k] = float(m);
  }
}

}  // namespace

void stream_mixes(Queue& queue, const StreamMixes& op) {
  if (op.streams.empty()) return;
  Call call(queue, "stream_mixes");
  const AnyView streams = call.in(op.streams), fn = call.in(op.fn);
  const auto scale = call.in(op.scale), base = call.in(op.base);
  const auto pre = call.out(op.pre), post = call.out(op.post), comb = call.out(op.comb);
  check(fn.dtype == DType::f32, "the mixes' weights are f32");
  const int64_t rows = streams.rows, columns = streams.cols, count = pre.shape[1], outputs = (2 + count) * count;
  const bool tensor = fits_mix_tensor(streams, fn);
  const int64_t segment = tensor ? kMixTensorSegment : kMixSegment, pieces = (columns + segment - 1) / segment;
  float* partial = call.workspace<float>(pieces * rows * (outputs + 1));
  constexpr int kBytes = kRows * kSegment * int(sizeof(float));
  if (tensor) launch_mix_tensor(call, streams, fn, partial);
  with_float_type(streams.dtype, [&]<class A>(Type<A>) {
    if (tensor) return;
    const dim3 blocks(grid((rows + kRows - 1) / kRows), unsigned(pieces));
    dots_kernel<A><<<blocks, 32 * kWarps, kBytes, call.stream()>>>(rows_of<A>(streams), rows_of<float>(fn), rows,
                                                                   columns, int(outputs), partial);
  });
  const auto finish = [&]<int C>(std::integral_constant<int, C>) {
    launch_early(call, finish_kernel<C>, grid((rows + kFinishRows - 1) / kFinishRows), 32 * kFinishRows, 0,
                 static_cast<const float*>(partial), pieces, rows, columns, scale, base, op.iterations,
                 double(op.sinkhorn_eps), op.norm_eps, rows_of(pre), rows_of(post), rows_of(comb));
  };
  switch (count) {
    case 1: return finish(std::integral_constant<int, 1>{});
    case 2: return finish(std::integral_constant<int, 2>{});
    case 3: return finish(std::integral_constant<int, 3>{});
    case 4: return finish(std::integral_constant<int, 4>{});
    default: check(false, "1 to 4 residual streams");
  }
}

}  // namespace fathom::cuda
