// Hyper-connections: reading the residual streams with their weights, and writing them. A block has one row; where its
// streams are only collapsed or only spread, blockIdx.y cuts it. Where a norm or Q8 follows, the block keeps the
// collapsed row in shared memory until all of it is there (norm_row.cuh). A spread that is collapsed at once takes two
// kernels: in one, a row's block has all of its 80 KB to move, and 1 to 256 rows took a third longer (docs/performance/
// cuda.md). Bytes: each stream once in, once out.
#include "fathom/backend/cuda/kernels.h"
#include "fathom/backend/cuda/norm_row.cuh"
#include "fathom/backend/cuda/row_blocks.cuh"

namespace fathom::cuda {
namespace {

constexpr int kMostStreams = 8, kFewStreams = 4;

template <int Most, class A, int Width>
__device__ void collapse(const A* streams, const float* pre, int count, int64_t hidden, int64_t i,
                         float (&sum)[Width]) {
  Packed<A, Width> all[Most];
#pragma unroll
  for (int c = 0; c < Most; ++c) {
    if (c < count) all[c] = load_packed<Width>(streams + c * hidden, i);
  }
#pragma unroll
  for (int k = 0; k < Width; ++k) sum[k] = 0;
#pragma unroll
  for (int c = 0; c < Most; ++c) {
    if (c >= count) break;
    float one[Width];
    unpack(all[c], one);
    const float w = pre[c];
#pragma unroll
    for (int k = 0; k < Width; ++k) sum[k] = __fmaf_rn(w, one[k], sum[k]);
  }
}

template <class A, int Width>
__global__ void collapse_kernel(Rows<const A> streams, Rows<const float> pre, int count, Rows<A> out, int64_t hidden) {
  const int64_t r = blockIdx.x;
  for_each_some<Width>(hidden, [&](int64_t i) {
    float sum[Width];
    collapse<kMostStreams>(streams.row(r), pre.row(r), count, hidden, i, sum);
    store_some(out.row(r), i, sum);
  });
}

// A whole row: collapsed, then what `end` says.
template <class A, int Width, int Most>
__global__ void __launch_bounds__(kSiteThreads)
    collapse_site_kernel(Rows<const A> streams, Rows<const float> pre, int count, int64_t hidden,
                         const __grid_constant__ RowEnd<A> end) {
  extern __shared__ uint4 staged[];
  __shared__ float lanes[32];
  let_kernel_behind_start();
  wait_for_kernel_ahead();
  const int64_t r = blockIdx.x;
  A* row = reinterpret_cast<A*>(staged);
  for_each_some<Width>(hidden, [&](int64_t i) {
    float sum[Width];
    collapse<Most>(streams.row(r), pre.row(r), count, hidden, i, sum);
    store_some(row, i, sum);
  });
  __syncthreads();
  finish_row<Width>(row, hidden, r, end, lanes);
}

// What is spread: rows, or sums of routed rows and them.
template <class A>
struct Spread {
  Rows<const A> y, routed;
  Rows<const int32_t> place;
  int slots;  // 0: y alone
  Rows<const float> post, comb;
  int count;
  Rows<A> streams;
  int64_t hidden;
};

template <class A, int Width, int Most>
__global__ void spread_kernel(const __grid_constant__ Spread<A> s) {
  __shared__ float mixes[Most * (Most + 1)];  // of this row: comb [count, count], then post [count]
  let_kernel_behind_start();
  wait_for_kernel_ahead();
  const int64_t r = blockIdx.x, vectors = s.hidden / Width, step = int64_t(gridDim.y) * blockDim.x;
  const int count = s.count, post_at = count * count, mixed = post_at + count;
  const auto mixed_by = [&](int n) { return n < post_at ? s.comb.row(r)[n] : s.post.row(r)[n - post_at]; };
  const float own = int(threadIdx.x) < mixed ? mixed_by(threadIdx.x) : 0;
  bool first = true;
  for (int64_t base = int64_t(blockIdx.y) * blockDim.x; base < vectors || first; base += step) {
    const int64_t i = base + threadIdx.x;
    Packed<A, Width> old[Most];
    float in[Width];
    if (i < vectors) {
#pragma unroll
      for (int j = 0; j < Most; ++j) {
        if (j < count) old[j] = load_packed<Width>(s.streams.row(r) + j * s.hidden, i);
      }
      if (s.slots > 0) {
        sum_routed(s.routed, s.place, s.slots, s.y, r, i, in);
#pragma unroll
        for (int v = 0; v < Width; ++v) in[v] = rounded<A>(in[v]);
      } else {
        load_some(s.y.row(r), i, in);
      }
    }
    if (first) {  // the weights come while the streams do
      if (int(threadIdx.x) < mixed) mixes[threadIdx.x] = own;
      for (int n = threadIdx.x + blockDim.x; n < mixed; n += blockDim.x) mixes[n] = mixed_by(n);
      __syncthreads();
      first = false;
    }
    if (i >= vectors) continue;
#pragma unroll
    for (int k = 0; k < Most; ++k) {
      if (k >= count) break;
      float out[Width], one[Width];
#pragma unroll
      for (int v = 0; v < Width; ++v) out[v] = __fmul_rn(mixes[post_at + k], in[v]);
#pragma unroll
      for (int j = 0; j < Most; ++j) {
        if (j < count) {
          const float w = mixes[j * count + k];
          unpack(old[j], one);
#pragma unroll
          for (int v = 0; v < Width; ++v) out[v] = __fmaf_rn(w, one[v], out[v]);
        }
      }
      store_some(s.streams.row(r) + k * s.hidden, i, out);
    }
  }
}

template <class A, int Width>
__global__ void mean_kernel(Rows<const A> streams, int count, Rows<A> out, int64_t hidden) {
  const int64_t r = blockIdx.x;
  for_each_some<Width>(hidden, [&](int64_t i) {
    float sum[Width] = {}, one[Width];
    for (int c = 0; c < count; ++c) {
      load_some(streams.row(r) + c * hidden, i, one);
#pragma unroll
      for (int k = 0; k < Width; ++k) sum[k] += one[k];
    }
#pragma unroll
    for (int k = 0; k < Width; ++k) sum[k] /= float(count);
    store_some(out.row(r), i, sum);
  });
}

// The streams of a row as views of their own, for vector widths: a stream must start at a vector too.
template <class View>
View stream_rows(const View& streams, int64_t hidden) {
  View one = streams;
  one.cols = hidden;
  if (hidden % 8 != 0) one.row_stride = 1;  // no common vector
  return one;
}

// The views of a collapse where kernels reach them.
struct Placed {
  View<const float, 2> pre;
  AnyViewMut out;
  AnyView norm;
  float eps = 0;
  Destination q8;
  bool ends() const { return norm.data != nullptr || q8.codes != nullptr; }
};
Placed placed(Call& call, const StreamCollapse& op) {
  Placed out{call.in(op.pre), call.out(op.out), call.in(op.norm.weight), op.norm.eps, {}};
  if (op.q8.wanted()) out.q8 = q8_destination(call.out(op.q8.codes), call.out(op.q8.scales));
  return out;
}
template <class A>
RowEnd<A> row_end(const Placed& next, int64_t vectors) {
  RowEnd<A> end{{}, rows_of<A>(next.out), next.q8};
  if (next.norm.data != nullptr) end.norm = row_norm(next.norm, next.eps, vectors);
  return end;
}

void launch_collapse(const Call& call, const AnyView& streams, const Placed& to) {
  const int count = int(to.pre.shape[1]);
  const bool few = count <= kFewStreams;
  const int64_t hidden = streams.cols / count, rows = streams.rows;
  const AnyView one = stream_rows(streams, hidden);
  with_float_type(streams.dtype, [&]<class A>(Type<A>) {
    with_width(common_width(hidden, one, to.out, to.norm), [&]<int Width>(std::integral_constant<int, Width>) {
      const int64_t vectors = hidden / Width;
      if (to.ends()) {
        return launch_early(
            call, few ? collapse_site_kernel<A, Width, kFewStreams> : collapse_site_kernel<A, Width, kMostStreams>,
            grid(rows), site_threads(vectors), staged_bytes(hidden, streams.dtype), rows_of<A>(streams),
            rows_of(to.pre), count, hidden, row_end<A>(to, vectors));
      }
      collapse_kernel<A, Width><<<row_grid(rows, hidden, Width), row_block(hidden, Width), 0, call.stream()>>>(
          rows_of<A>(streams), rows_of(to.pre), count, rows_of<A>(to.out), hidden);
    });
  });
}

}  // namespace

void stream_collapse(Queue& queue, const StreamCollapse& op) {
  if (op.streams.empty()) return;
  Call call(queue, "stream_collapse");
  const AnyView streams = call.in(op.streams);
  launch_collapse(call, streams, placed(call, op));
}

void stream_spread(Queue& queue, const StreamSpread& op) {
  if (op.y.empty()) return;
  Call call(queue, "stream_spread");
  const AnyView y = call.in(op.y), routed = call.in(op.routed);
  const auto place = call.in(op.place);
  const auto post = call.in(op.post), comb = call.in(op.comb);
  const AnyViewMut streams = call.out(op.streams);
  const Placed next = placed(call, op.next);
  const int count = int(post.shape[1]), slots = op.routed.empty() ? 0 : int(place.shape[1]);
  const int64_t hidden = y.cols;
  const bool few = count <= kFewStreams;
  check(count <= kMostStreams, "at most 8 residual streams");
  with_float_type(y.dtype, [&]<class A>(Type<A>) {
    const Spread<A> s{rows_of<A>(y), rows_of<A>(routed),  rows_of(place), slots, rows_of(post), rows_of(comb),
                      count,         rows_of<A>(streams), hidden};
    const int width = common_width(hidden, y, routed, stream_rows(streams, hidden));
    with_width(width, [&]<int Width>(std::integral_constant<int, Width>) {
      launch_early(call, few ? spread_kernel<A, Width, kFewStreams> : spread_kernel<A, Width, kMostStreams>,
                   row_grid(y.rows, hidden, Width), row_block(hidden, Width), 0, s);
    });
  });
  if (next.pre.data != nullptr) launch_collapse(call, streams, next);
}

void stream_mean(Queue& queue, const StreamMean& op) {
  if (op.out.empty()) return;
  Call call(queue, "stream_mean");
  const AnyView streams = call.in(op.streams);
  const AnyViewMut out = call.out(op.out);
  const int64_t hidden = out.cols;
  with_float_type(streams.dtype, [&]<class A>(Type<A>) {
    with_width(
        common_width(hidden, stream_rows(streams, hidden), out), [&]<int Width>(std::integral_constant<int, Width>) {
          mean_kernel<A, Width><<<row_grid(out.rows, hidden, Width), row_block(hidden, Width), 0, call.stream()>>>(
              rows_of<A>(streams), op.count, rows_of<A>(out), hidden);
        });
  });
}

}  // namespace fathom::cuda
