// Operations that move rows or combine them element by element: embedding, gathering, sums, the activation. All are
// bound by memory: each input is read once and each output written once, 16 bytes a thread where addresses allow. A
// block has one row; blockIdx.y cuts long rows.
#include "fathom/backend/cuda/kernels.h"
#include "fathom/backend/cuda/row_blocks.cuh"

namespace fathom::cuda {
namespace {

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

// silu(gate) * up * weight; a limit of 0 does not clamp.
template <int Width>
__device__ void activate(float (&g)[Width], float (&u)[Width], float limit, float w) {
#pragma unroll
  for (int k = 0; k < Width; ++k) {
    if (limit > 0) {
      g[k] = fminf(g[k], limit);
      u[k] = fminf(fmaxf(u[k], -limit), limit);
    }
    g[k] = g[k] / (1 + expf(-g[k])) * u[k] * w;
  }
}

template <class A, int Width>
__global__ void swiglu_kernel(Rows<const A> gate, Rows<const A> up, const float* weight, float limit, Rows<A> out,
                              int64_t columns) {
  let_kernel_behind_start();
  wait_for_kernel_ahead();
  const int64_t r = blockIdx.x;
  const float w = weight ? weight[r] : 1.0f;
  for_each_some<Width>(columns, [&](int64_t i) {
    float g[Width], u[Width];
    load_some(gate.row(r), i, g);
    load_some(up.row(r), i, u);
    activate(g, u, limit, w);
    store_some(out.row(r), i, g);
  });
}

// The same in Q8 too; out.data null: only so.
template <class A, int Width>
__global__ void swiglu_codes_kernel(Rows<const A> gate, Rows<const A> up, const float* weight, float limit, Rows<A> out,
                                    int64_t columns, Destination q8) {
  let_kernel_behind_start();
  wait_for_kernel_ahead();
  const int64_t r = blockIdx.x;
  const float w = weight ? weight[r] : 1.0f;
  encode_octets<RowFormat::q8>(r, int(columns / 8), int(columns), q8, int(blockIdx.y * blockDim.x + threadIdx.x),
                               int(gridDim.y * blockDim.x), [&](int o, float(&g)[8]) {
                                 float u[8];
                                 load_octet<Width>(gate.row(r), o, g);
                                 load_octet<Width>(up.row(r), o, u);
                                 activate(g, u, limit, w);
#pragma unroll
                                 for (int k = 0; k < 8; ++k) g[k] = rounded<A>(g[k]);
                                 if (out.data != nullptr) store_octet<Width>(out.row(r), o, g);
                               });
}

template <class A, int Width>
__global__ void combine_kernel(Rows<const A> routed, Rows<const int32_t> place, int slots, Rows<const A> shared,
                               Rows<A> out, int64_t columns) {
  const int64_t r = blockIdx.x;
  for_each_some<Width>(columns, [&](int64_t i) {
    float sum[Width];
    sum_routed(routed, place, slots, shared, r, i, sum);
    store_some(out.row(r), i, sum);
  });
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
  const float* weights = op.weight.empty() ? nullptr : weight.data;
  Destination q8;
  if (op.q8.wanted()) q8 = q8_destination(call.out(op.q8.codes), call.out(op.q8.scales));
  with_float_type(gate.dtype, [&]<class A>(Type<A>) {
    with_width(common_width(columns, gate, up, out), [&]<int Width>(std::integral_constant<int, Width>) {
      const Rows<const A> gates = rows_of<A>(gate), ups = rows_of<A>(up);
      if (op.q8.wanted()) {
        return launch_early(call, swiglu_codes_kernel<A, Width>, row_grid(gate.rows, columns, 8), row_block(columns, 8),
                            0, gates, ups, weights, op.limit, rows_of<A>(out), columns, q8);
      }
      launch_early(call, swiglu_kernel<A, Width>, row_grid(gate.rows, columns, Width), row_block(columns, Width), 0,
                   gates, ups, weights, op.limit, rows_of<A>(out), columns);
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

}  // namespace fathom::cuda
