// One block a row. A row is read once: up to 32 elements a thread stay in registers between the sum and the store
// (8,192 columns); what is longer is read again, from the cache. Bytes: rows * columns * 2 * sizeof(A). A row that is
// wanted in Q8 too goes through shared memory.
#include "fathom/backend/cuda/kernels.h"
#include "fathom/backend/cuda/norm_row.cuh"

namespace fathom::cuda {
namespace {

constexpr int kKept = 4;  // vectors a thread keeps

template <class A, class W, int Width>
__global__ void rms_norm_kernel(Rows<const A> x, const W* weight, Rows<A> out, int64_t columns, float eps) {
  __shared__ float lanes[32];
  let_kernel_behind_start();
  wait_for_kernel_ahead();
  const A* in = x.row(blockIdx.x);
  A* to = out.row(blockIdx.x);
  const int64_t vectors = columns / Width;
  float kept[kKept][Width];
  float squares = 0;
#pragma unroll
  for (int n = 0; n < kKept; ++n) {
    const int64_t i = threadIdx.x + int64_t(n) * blockDim.x;
    if (i >= vectors) continue;
    load_some(in, i, kept[n]);
#pragma unroll
    for (int k = 0; k < Width; ++k) squares += kept[n][k] * kept[n][k];
  }
  for (int64_t i = threadIdx.x + int64_t(kKept) * blockDim.x; i < vectors; i += blockDim.x) {
    float some[Width];
    load_some(in, i, some);
#pragma unroll
    for (int k = 0; k < Width; ++k) squares += some[k] * some[k];
  }
  const float scale = inverse_rms(block_sum(squares, lanes), columns, eps);
  const auto finish = [&](int64_t i, float(&some)[Width]) {
    float w[Width];
    load_some(weight, i, w);
#pragma unroll
    for (int k = 0; k < Width; ++k) some[k] = some[k] * scale * w[k];
    store_some(to, i, some);
  };
#pragma unroll
  for (int n = 0; n < kKept; ++n) {
    const int64_t i = threadIdx.x + int64_t(n) * blockDim.x;
    if (i < vectors) finish(i, kept[n]);
  }
  for (int64_t i = threadIdx.x + int64_t(kKept) * blockDim.x; i < vectors; i += blockDim.x) {
    float some[Width];
    load_some(in, i, some);
    finish(i, some);
  }
}

template <class A, int Width>
__global__ void norm_codes_kernel(Rows<const A> x, int64_t columns, const __grid_constant__ RowEnd<A> end) {
  extern __shared__ uint4 staged[];
  __shared__ float lanes[32];
  let_kernel_behind_start();
  wait_for_kernel_ahead();
  const int64_t r = blockIdx.x;
  A* row = reinterpret_cast<A*>(staged);
  for (int64_t i = threadIdx.x; i < columns / Width; i += blockDim.x) {
    float some[Width];
    load_some(x.row(r), i, some);
    store_some(row, i, some);
  }
  __syncthreads();
  finish_row<Width>(row, columns, r, end, lanes);
}

}  // namespace

void rms_norm(Queue& queue, const RmsNorm& op) {
  if (op.x.empty()) return;
  Call call(queue, "rms_norm");
  const AnyView x = call.in(op.x), weight = call.in(op.weight);
  const AnyViewMut out = call.out(op.out);
  if (op.q8.wanted()) {
    const Destination q8 = q8_destination(call.out(op.q8.codes), call.out(op.q8.scales));
    with_float_type(x.dtype, [&]<class A>(Type<A>) {
      with_width(common_width(x.cols, x, out, weight), [&]<int Width>(std::integral_constant<int, Width>) {
        const int64_t vectors = x.cols / Width;
        const RowEnd<A> end{row_norm(weight, op.eps, vectors), rows_of<A>(out), q8};
        launch_early(call, norm_codes_kernel<A, Width>, grid(x.rows), site_threads(vectors),
                     staged_bytes(x.cols, x.dtype), rows_of<A>(x), x.cols, end);
      });
    });
    return;
  }
  with_float_type(x.dtype, [&]<class A>(Type<A>) {
    with_float_type(weight.dtype, [&]<class W>(Type<W>) {
      with_width(common_width(x.cols, x, out, weight), [&]<int Width>(std::integral_constant<int, Width>) {
        launch_early(call, rms_norm_kernel<A, W, Width>, grid(x.rows), row_threads(x.cols / Width), 0, rows_of<A>(x),
                     reinterpret_cast<const W*>(weight.data), rows_of<A>(out), x.cols, op.eps);
      });
    });
  });
}

}  // namespace fathom::cuda
