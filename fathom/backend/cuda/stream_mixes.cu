// The mixing weights of hyper-connections. Two kernels:
//   dots      [rows, C * H] . fn^T: a block has 8 rows and one segment of 1,280 columns; a warp has three of the
//             (2 + C) * C outputs for all eight rows, so a value of fn that is loaded is used eight times. fn (1.97 MB
//             for the model) stays in the L2 cache; from memory comes each row once: rows * C * H * sizeof(A).
//   finish    one warp a row adds the segments in order, then sigmoid and Sinkhorn, in double: 40 normalisations of
//             C x C values, a value a lane.
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

// One warp a row: lane o adds the segments of output o; later lane e has element e of the C x C matrix.
template <int C>
__global__ void finish_kernel(const float* partial, int64_t segments, int64_t rows, int64_t columns,
                              View<const float, 1> scale, View<const float, 1> base, int iterations, double eps,
                              float norm_eps, Rows<float> pre, Rows<float> post, Rows<float> comb) {
  constexpr int kAll = (2 + C) * C;
  static_assert(kAll < 32);
  const int lane = threadIdx.x % 32;
  const int64_t r = (int64_t(blockIdx.x) * blockDim.x + threadIdx.x) / 32;
  if (r >= rows) return;
  float sum = 0;
  if (lane <= kAll) {
#pragma unroll 8
    for (int64_t s = 0; s < segments; ++s) sum += partial[(s * rows + r) * (kAll + 1) + lane];
  }
  const float norm = inverse_rms(__shfl_sync(~0u, sum, kAll), columns, norm_eps);
  const double mix = lane < kAll ? double(sum) * norm * scale.data[lane / C < 2 ? lane / C : 2] + base.data[lane] : 0;
  if (lane < C) pre.row(r)[lane] = float(sigmoid(mix) + eps);
  if (lane >= C && lane < 2 * C) post.row(r)[lane - C] = float(2 * sigmoid(mix));
  // Lanes behind the matrix repeat its last element.
  const int element = lane < C * C ? lane : C * C - 1, j = element / C, k = element % C;
  double m = lane_of(mix, 2 * C + element);
  const auto over_row = [&](const auto& join, double start) {
    for (int i = 0; i < C; ++i) start = join(start, lane_of(m, j * C + i));
    return start;
  };
  const auto over_column = [&](double start) {
    for (int i = 0; i < C; ++i) start += lane_of(m, i * C + k);
    return start;
  };
  const auto plus = [](double a, double b) { return a + b; };
  m = exp(m - over_row([](double a, double b) { return fmax(a, b); }, -INFINITY));
  m = m / over_row(plus, 0.0) + eps;
  m /= over_column(eps);
  for (int i = 1; i < iterations; ++i) {
    m /= over_row(plus, eps);
    m /= over_column(eps);
  }
  if (lane < C * C) comb.row(r)[lane] = float(m);
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
  const int64_t pieces = (columns + kMixSegment - 1) / kMixSegment;
  float* partial = call.workspace<float>(pieces * rows * (outputs + 1));
  constexpr int kBytes = kRows * kSegment * int(sizeof(float));
  with_float_type(streams.dtype, [&]<class A>(Type<A>) {
    const dim3 blocks(grid((rows + kRows - 1) / kRows), unsigned(pieces));
    dots_kernel<A><<<blocks, 32 * kWarps, kBytes, call.stream()>>>(rows_of<A>(streams), rows_of<float>(fn), rows,
                                                                   columns, int(outputs), partial);
  });
  const auto finish = [&]<int C>(std::integral_constant<int, C>) {
    finish_kernel<C><<<grid((rows + 3) / 4), 128, 0, call.stream()>>>(
        partial, pieces, rows, columns, scale, base, op.iterations, double(op.sinkhorn_eps), op.norm_eps, rows_of(pre),
        rows_of(post), rows_of(comb));
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
