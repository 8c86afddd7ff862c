// Operations that move rows or combine them element by element: embedding, gathering, sums, the activation, the
// hyper-connections' use. All are bound by memory: each input is read once and each output written once, 16 bytes a
// thread where addresses allow. A block has one row; blockIdx.y cuts long rows.
#include <algorithm>

#include "fathom/backend/cuda/device.cuh"
#include "fathom/backend/cuda/kernels.h"
#include "fathom/backend/cuda/launch.h"

namespace fathom::cuda {
namespace {

constexpr int kThreads = 256;

// Calls body(i) for this thread's vectors (or elements) of a row.
template <int Width, class Body>
__device__ void for_each_some(int64_t columns, const Body& body) {
  const int64_t step = int64_t(gridDim.y) * blockDim.x;
  for (int64_t i = int64_t(blockIdx.y) * blockDim.x + threadIdx.x; i < columns / Width; i += step) body(i);
}

// Blocks of a row: enough rows fill the GPU alone; few rows are cut.
dim3 row_grid(int64_t rows, int64_t columns, int width) {
  const int64_t pieces = (columns / width + kThreads - 1) / kThreads;
  return dim3(grid(rows), unsigned(std::max<int64_t>(1, rows >= 1024 ? 1 : pieces)));
}
int row_block(int64_t columns, int width) { return row_threads(columns / width, kThreads); }

template <class A, int Width>
__global__ void embed_kernel(View<const int32_t, 1> ids, Rows<const Bf16> table, int64_t hidden, int streams,
                             Rows<A> out) {
  const int64_t r = blockIdx.x;
  const Bf16* in = table.row(ids.data[r * ids.stride[0]]);
  A* to = out.row(r);
  for_each_some<Width>(hidden, [&](int64_t i) {
    float values[Width];
    load_some(in, i, values);
    for (int c = 0; c < streams; ++c) store_some(to + c * hidden, i, values);
  });
}

template <class Word>
__global__ void gather_kernel(const uint8_t* source, int64_t source_stride, View<const int32_t, 1> index, uint8_t* out,
                              int64_t out_stride, int64_t words) {
  const int64_t r = blockIdx.x;
  const auto* from = reinterpret_cast<const Word*>(source + index.data[r * index.stride[0]] * source_stride);
  auto* to = reinterpret_cast<Word*>(out + r * out_stride);
  for_each_some<1>(words, [&](int64_t i) { to[i] = from[i]; });
}

template <int Width>
__global__ void add_kernel(Rows<const float> a, Rows<const float> b, Rows<float> out, int64_t columns) {
  const int64_t r = blockIdx.x;
  for_each_some<Width>(columns, [&](int64_t i) {
    float x[Width], y[Width];
    load_some(a.row(r), i, x);
    load_some(b.row(r), i, y);
#pragma unroll
    for (int k = 0; k < Width; ++k) x[k] += y[k];
    store_some(out.row(r), i, x);
  });
}

template <class A, int Width>
__global__ void swiglu_kernel(Rows<const A> gate, Rows<const A> up, const float* weight, float limit, Rows<A> out,
                              int64_t columns) {
  const int64_t r = blockIdx.x;
  const float w = weight ? weight[r] : 1.0f;
  for_each_some<Width>(columns, [&](int64_t i) {
    float g[Width], u[Width];
    load_some(gate.row(r), i, g);
    load_some(up.row(r), i, u);
#pragma unroll
    for (int k = 0; k < Width; ++k) {
      if (limit > 0) {
        g[k] = fminf(g[k], limit);
        u[k] = fminf(fmaxf(u[k], -limit), limit);
      }
      g[k] = g[k] / (1 + expf(-g[k])) * u[k] * w;
    }
    store_some(out.row(r), i, g);
  });
}

template <class A, int Width>
__global__ void combine_kernel(Rows<const A> routed, Rows<const int32_t> place, int slots, Rows<const A> shared,
                               Rows<A> out, int64_t columns) {
  const int64_t r = blockIdx.x;
  for_each_some<Width>(columns, [&](int64_t i) {
    float sum[Width] = {}, one[Width];
    for (int slot = 0; slot < slots; ++slot) {
      load_some(routed.row(place.row(r)[slot]), i, one);
#pragma unroll
      for (int k = 0; k < Width; ++k) sum[k] += one[k];
    }
    load_some(shared.row(r), i, one);
#pragma unroll
    for (int k = 0; k < Width; ++k) sum[k] += one[k];
    store_some(out.row(r), i, sum);
  });
}

template <class A, int Width>
__global__ void collapse_kernel(Rows<const A> streams, Rows<const float> pre, int count, Rows<A> out, int64_t hidden) {
  const int64_t r = blockIdx.x;
  for_each_some<Width>(hidden, [&](int64_t i) {
    float sum[Width] = {}, one[Width];
    for (int c = 0; c < count; ++c) {
      const float w = pre.row(r)[c];
      load_some(streams.row(r) + c * hidden, i, one);
#pragma unroll
      for (int k = 0; k < Width; ++k) sum[k] += w * one[k];
    }
    store_some(out.row(r), i, sum);
  });
}

constexpr int kMostStreams = 8;

template <class A, int Width>
__global__ void spread_kernel(Rows<const A> y, Rows<const float> post, Rows<const float> comb, int count,
                              Rows<A> streams, int64_t hidden) {
  const int64_t r = blockIdx.x;
  for_each_some<Width>(hidden, [&](int64_t i) {
    float in[Width], old[kMostStreams][Width];
    load_some(y.row(r), i, in);
#pragma unroll
    for (int j = 0; j < kMostStreams; ++j) {
      if (j < count) load_some(streams.row(r) + j * hidden, i, old[j]);
    }
    for (int k = 0; k < count; ++k) {
      float sum[Width];
#pragma unroll
      for (int v = 0; v < Width; ++v) sum[v] = post.row(r)[k] * in[v];
#pragma unroll
      for (int j = 0; j < kMostStreams; ++j) {
        if (j < count) {
          const float w = comb.row(r)[j * count + k];
#pragma unroll
          for (int v = 0; v < Width; ++v) sum[v] += w * old[j][v];
        }
      }
      store_some(streams.row(r) + k * hidden, i, sum);
    }
  });
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

AnyView floats(const View<const float, 2>& view) {
  return {reinterpret_cast<const uint8_t*>(view.data), DType::f32, view.shape[0], view.shape[1], view.stride[0]};
}

}  // namespace

void embed(Queue& queue, const Embed& op) {
  if (op.ids.empty()) return;
  Call call(queue, "embed");
  check(op.table.dtype == DType::bf16, "an embedding is bf16");
  const auto ids = call.in(op.ids);
  const AnyView table = call.in(op.table);
  const AnyViewMut out = call.out(op.out);
  const int64_t hidden = table.cols, rows = ids.shape[0];
  with_float_type(out.dtype, [&]<class A>(Type<A>) {
    with_width(common_width(hidden, table, out), [&]<int Width>(std::integral_constant<int, Width>) {
      embed_kernel<A, Width><<<row_grid(rows, hidden, Width), row_block(hidden, Width), 0, call.stream()>>>(
          ids, rows_of<Bf16>(table), hidden, op.streams, rows_of<A>(out));
    });
  });
}

void gather_rows(Queue& queue, const GatherRows& op) {
  if (op.index.empty() || op.source.cols == 0) return;
  Call call(queue, "gather_rows");
  const auto index = call.in(op.index);
  const AnyView source = call.in(op.source);
  const AnyViewMut out = call.out(op.out);
  const int64_t bytes = bytes_of(source.dtype, source.cols), rows = index.shape[0];
  const int64_t from = bytes_of(source.dtype, source.row_stride), to = bytes_of(out.dtype, out.row_stride);
  const auto together = reinterpret_cast<uintptr_t>(source.data) | reinterpret_cast<uintptr_t>(out.data) |
                        uintptr_t(bytes) | uintptr_t(from) | uintptr_t(to);
  const auto launch = [&]<class Word>(Type<Word>) {
    const int64_t words = bytes / int64_t(sizeof(Word));
    gather_kernel<Word><<<row_grid(rows, words, 1), row_block(words, 1), 0, call.stream()>>>(source.data, from, index,
                                                                                             out.data, to, words);
  };
  if (together % 16 == 0) {
    launch(Type<uint4>{});
  } else if (together % 4 == 0) {
    launch(Type<uint32_t>{});
  } else {
    launch(Type<uint8_t>{});
  }
}

void add_rows(Queue& queue, const AddRows& op) {
  if (op.a.empty()) return;
  Call call(queue, "add_rows");
  const auto a = call.in(op.a), b = call.in(op.b);
  const auto out = call.out(op.out);
  const int64_t columns = a.shape[1];
  with_width(common_width(columns, floats(a), floats(b), floats(out)),
             [&]<int Width>(std::integral_constant<int, Width>) {
               add_kernel<Width><<<row_grid(a.shape[0], columns, Width), row_block(columns, Width), 0, call.stream()>>>(
                   rows_of(a), rows_of(b), rows_of(out), columns);
             });
}

void swiglu(Queue& queue, const SwiGlu& op) {
  if (op.gate.empty()) return;
  Call call(queue, "swiglu");
  const AnyView gate = call.in(op.gate), up = call.in(op.up);
  const auto weight = call.in(op.weight);
  const AnyViewMut out = call.out(op.out);
  const int64_t columns = gate.cols;
  with_float_type(gate.dtype, [&]<class A>(Type<A>) {
    with_width(common_width(columns, gate, up, out), [&]<int Width>(std::integral_constant<int, Width>) {
      swiglu_kernel<A, Width><<<row_grid(gate.rows, columns, Width), row_block(columns, Width), 0, call.stream()>>>(
          rows_of<A>(gate), rows_of<A>(up), op.weight.empty() ? nullptr : weight.data, op.limit, rows_of<A>(out),
          columns);
    });
  });
}

void combine(Queue& queue, const Combine& op) {
  if (op.shared.empty()) return;
  Call call(queue, "combine");
  const AnyView routed = call.in(op.routed), shared = call.in(op.shared);
  const auto place = call.in(op.place);
  const AnyViewMut out = call.out(op.out);
  const int64_t columns = shared.cols;
  with_float_type(shared.dtype, [&]<class A>(Type<A>) {
    with_width(common_width(columns, routed, shared, out), [&]<int Width>(std::integral_constant<int, Width>) {
      combine_kernel<A, Width><<<row_grid(shared.rows, columns, Width), row_block(columns, Width), 0, call.stream()>>>(
          rows_of<A>(routed), rows_of(place), int(place.shape[1]), rows_of<A>(shared), rows_of<A>(out), columns);
    });
  });
}

void stream_collapse(Queue& queue, const StreamCollapse& op) {
  if (op.out.empty()) return;
  Call call(queue, "stream_collapse");
  const AnyView streams = call.in(op.streams);
  const auto pre = call.in(op.pre);
  const AnyViewMut out = call.out(op.out);
  const int64_t hidden = out.cols;
  with_float_type(streams.dtype, [&]<class A>(Type<A>) {
    with_width(
        common_width(hidden, stream_rows(streams, hidden), out), [&]<int Width>(std::integral_constant<int, Width>) {
          collapse_kernel<A, Width><<<row_grid(out.rows, hidden, Width), row_block(hidden, Width), 0, call.stream()>>>(
              rows_of<A>(streams), rows_of(pre), int(pre.shape[1]), rows_of<A>(out), hidden);
        });
  });
}

void stream_spread(Queue& queue, const StreamSpread& op) {
  if (op.y.empty()) return;
  Call call(queue, "stream_spread");
  const AnyView y = call.in(op.y);
  const auto post = call.in(op.post), comb = call.in(op.comb);
  const AnyViewMut streams = call.out(op.streams);
  const int64_t hidden = y.cols;
  check(post.shape[1] <= kMostStreams, "at most 8 residual streams");
  with_float_type(y.dtype, [&]<class A>(Type<A>) {
    with_width(
        common_width(hidden, y, stream_rows(streams, hidden)), [&]<int Width>(std::integral_constant<int, Width>) {
          spread_kernel<A, Width><<<row_grid(y.rows, hidden, Width), row_block(hidden, Width), 0, call.stream()>>>(
              rows_of<A>(y), rows_of(post), rows_of(comb), int(post.shape[1]), rows_of<A>(streams), hidden);
        });
  });
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
