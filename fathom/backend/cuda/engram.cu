// The compressor's pooling and the n-gram memory. Bound by memory; the gather reads rows of 64 or more bytes at random
// places and is bound by latency: every row of every column has its own warp in flight.
#include <algorithm>

#include "fathom/backend/cuda/device.cuh"
#include "fathom/backend/cuda/kernels.h"
#include "fathom/backend/cuda/launch.h"

namespace fathom::cuda {
namespace {

// ---------------------------------------------------------------------------------------------- compressor
constexpr int kMostRatio = 8;

template <class A>
__global__ void compress_kernel(View<const int64_t, 1> positions, View<const int32_t, 1> sequence,
                                View<const int32_t, 1> begin, View<const float, 2> projected, RingRegion state,
                                View<const int32_t, 1> group_row, int ratio, Rows<A> out, int channels) {
  const int64_t last = group_row.data[blockIdx.x], s = sequence.data[last], position = positions.data[last];
  const float* tokens[kMostRatio];
  for (int t = 0; t < ratio; ++t) {
    const int64_t back = ratio - 1 - t, r = last - back;
    const bool in_step = r >= begin.data[s] && positions.data[r] == position - back;
    tokens[t] = in_step ? projected.data + r * projected.stride[0]
                        : reinterpret_cast<const float*>(state.base + state.slots.data[s] * state.slot_stride +
                                                         (position - back) % state.capacity * state.entry_bytes);
  }
  for (int i = threadIdx.x; i < channels; i += blockDim.x) {
    float best = -INFINITY, sum = 0, weighted = 0;
    for (int t = 0; t < ratio; ++t) best = fmaxf(best, tokens[t][channels + i]);
    for (int t = 0; t < ratio; ++t) {
      const float weight = expf(tokens[t][channels + i] - best);
      sum += weight;
      weighted += weight * tokens[t][i];
    }
    store(out.row(blockIdx.x)[i], weighted / sum);
  }
}

// ---------------------------------------------------------------------------------------------- row numbers
constexpr int kMostOrders = 8, kMostColumns = 96;

struct HashTables {
  int64_t multipliers[kMostOrders + 1], primes[kMostColumns], offsets[kMostColumns];
  int orders, heads;
  int32_t pad;
};

// One thread a (row, column): the look-back is three tokens, cheaper than sharing it.
__global__ void hash_kernel(View<const int32_t, 1> sequence, View<const int32_t, 1> begin, View<const int32_t, 1> ids,
                            View<const int32_t, 2> history, View<const uint8_t, 1> image, const int32_t* token_map,
                            const __grid_constant__ HashTables tables, View<int64_t, 2> out, int64_t count) {
  const int64_t n = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
  const int columns = tables.orders * tables.heads;
  if (n >= count) return;
  const int64_t r = n / columns;
  const int column = int(n % columns), order = column / tables.heads + 1;
  const int64_t s = sequence.data[r], first = begin.data[s];
  bool blocked = false;  // once the look-back meets the start or an image, everything older is missing too
  int64_t hash = 0;
  for (int back = 0; back <= order; ++back) {
    const int64_t at = r - back;
    int32_t id = -1;
    if (at >= first) {
      id = image.data != nullptr && image.data[at] != 0 ? -1 : ids.data[at];
    } else {
      id = history.data[s * history.stride[0] + first - at - 1];
    }
    blocked = blocked || id < 0;
    const int64_t token = blocked ? tables.pad : token_map[id];
    hash ^= token * tables.multipliers[back];
  }
  out.data[r * out.stride[0] + column] = tables.offsets[column] + hash % tables.primes[column];
}

// One warp a table row.
__global__ void gather_table_kernel(const uint8_t* values, int64_t value_stride, const uint8_t* scales,
                                    int64_t scale_stride, View<const int64_t, 2> index, Rows<uint8_t> codes,
                                    Rows<uint8_t> out_scales, int channels, int64_t count) {
  const int64_t n = (int64_t(blockIdx.x) * blockDim.x + threadIdx.x) / 32, columns = index.shape[1];
  const int lane = threadIdx.x % 32, groups = channels / 32;
  if (n >= count) return;
  const int64_t r = n / columns, column = n % columns, row = index.data[r * index.stride[0] + column];
  const uint8_t* from = values + row * value_stride;
  uint8_t* to = codes.row(r) + column * channels;
  if ((reinterpret_cast<uintptr_t>(from) | reinterpret_cast<uintptr_t>(to)) % 4 == 0) {
    for (int i = lane; i < channels / 4; i += 32) {
      reinterpret_cast<uint32_t*>(to)[i] = reinterpret_cast<const uint32_t*>(from)[i];
    }
  } else {
    for (int i = lane; i < channels; i += 32) to[i] = from[i];
  }
  for (int i = lane; i < groups; i += 32) out_scales.row(r)[column * groups + i] = scales[row * scale_stride + i];
}

// ---------------------------------------------------------------------------------------------- mixing
// One block a row: for each stream three sums over its channels, then the gated value is added.
template <class A, int Width>
__global__ void mix_kernel(Rows<A> streams, Rows<const A> key_value, Rows<const Bf16> q_weight,
                           Rows<const Bf16> k_weight, const uint8_t* image, int count, int64_t hidden, float eps) {
  __shared__ float lanes[32];
  const int64_t r = blockIdx.x;
  if (image != nullptr && image[r] != 0) return;
  const A* value = key_value.row(r) + count * hidden;
  for (int c = 0; c < count; ++c) {
    A* x_row = streams.row(r) + c * hidden;
    const A* key_row = key_value.row(r) + c * hidden;
    float dot = 0, x_square = 0, key_square = 0;
    for (int64_t i = threadIdx.x; i < hidden / Width; i += blockDim.x) {
      float x[Width], key[Width], q[Width], k[Width];
      load_some(static_cast<const A*>(x_row), i, x);
      load_some(key_row, i, key);
      load_some(q_weight.row(c), i, q);
      load_some(k_weight.row(c), i, k);
#pragma unroll
      for (int v = 0; v < Width; ++v) {
        dot += x[v] * (q[v] * k[v]) * key[v];
        x_square += x[v] * x[v];
        key_square += key[v] * key[v];
      }
    }
    dot = block_sum(dot, lanes);
    x_square = block_sum(x_square, lanes);
    key_square = block_sum(key_square, lanes);
    const double d =
        double(dot) * inverse_rms(x_square, hidden, eps) * inverse_rms(key_square, hidden, eps) / sqrt(double(hidden));
    const float gate = float(1 / (1 + exp(-copysign(sqrt(fmax(fabs(d), 1e-6)), d))));
    for (int64_t i = threadIdx.x; i < hidden / Width; i += blockDim.x) {
      float x[Width], v[Width];
      load_some(static_cast<const A*>(x_row), i, x);
      load_some(value, i, v);
#pragma unroll
      for (int k = 0; k < Width; ++k) x[k] += gate * v[k];
      store_some(x_row, i, x);
    }
  }
}

}  // namespace

void compress(Queue& queue, const Compress& op) {
  if (op.group_row.empty()) return;
  Call call(queue, "compress");
  check(op.ratio <= kMostRatio, "at most 8 tokens in a global entry");
  const RowSet rows = call.in(op.rows);
  const auto projected = call.in(op.projected);
  const RingRegion state = call.region(op.state, false);
  const auto group_row = call.in(op.group_row);
  const AnyViewMut out = call.out(op.out);
  with_float_type(out.dtype, [&]<class A>(Type<A>) {
    compress_kernel<A><<<grid(group_row.shape[0]), row_threads(out.cols), 0, call.stream()>>>(
        rows.positions, rows.sequence, rows.begin, projected, state, group_row, op.ratio, rows_of<A>(out),
        int(out.cols));
  });
}

void engram_hash(Queue& queue, const NgramHash& op) {
  if (op.ids.empty()) return;
  Call call(queue, "engram_hash");
  check(op.multipliers.size() <= kMostOrders + 1 && op.primes.size() <= kMostColumns, "hash tables fit a launch");
  HashTables tables{};
  std::copy(op.multipliers.begin(), op.multipliers.end(), tables.multipliers);
  std::copy(op.primes.begin(), op.primes.end(), tables.primes);
  std::copy(op.offsets.begin(), op.offsets.end(), tables.offsets);
  tables.orders = int(op.multipliers.size()) - 1;
  tables.heads = int(op.primes.size()) / tables.orders;
  tables.pad = op.pad;
  const RowSet rows = call.in(op.rows);
  const auto ids = call.in(op.ids);
  const auto history = call.in(op.history);
  const auto image = op.image.empty() ? View<const uint8_t, 1>() : call.in(op.image);
  const int32_t* token_map = call.in(op.token_map);
  const auto out = call.out(op.out);
  const int64_t count = ids.shape[0] * int64_t(op.primes.size());
  hash_kernel<<<grid((count + 127) / 128), 128, 0, call.stream()>>>(rows.sequence, rows.begin, ids, history, image,
                                                                    token_map, tables, out, count);
}

void engram_gather(Queue& queue, const EngramGather& op) {
  if (op.index.empty()) return;
  Call call(queue, "engram_gather");
  const Matrix table = call.in(op.table);
  const auto index = call.in(op.index);
  const AnyViewMut codes = call.out(op.codes), scales = call.out(op.scales);
  const int64_t count = index.shape[0] * index.shape[1];
  gather_table_kernel<<<grid((count + 3) / 4), 128, 0, call.stream()>>>(
      table.values.data, table.values.row_stride, table.scales.data, table.scales.row_stride, index,
      rows_of<uint8_t>(codes), rows_of<uint8_t>(scales), int(table.cols()), count);
}

void engram_mix(Queue& queue, const EngramMix& op) {
  if (op.streams.empty()) return;
  Call call(queue, "engram_mix");
  const AnyViewMut streams = call.out(op.streams);
  const AnyView key_value = call.in(op.key_value), q_weight = call.in(op.q_weight), k_weight = call.in(op.k_weight);
  const auto image = call.in(op.image);
  const int64_t hidden = q_weight.cols;
  const int width = hidden % 8 != 0 ? 1 : common_width(hidden, streams, key_value, q_weight, k_weight);
  with_float_type(streams.dtype, [&]<class A>(Type<A>) {
    with_width(width, [&]<int Width>(std::integral_constant<int, Width>) {
      mix_kernel<A, Width><<<grid(streams.rows), row_threads(hidden / Width), 0, call.stream()>>>(
          rows_of<A>(streams), rows_of<A>(key_value), rows_of<Bf16>(q_weight), rows_of<Bf16>(k_weight),
          op.image.empty() ? nullptr : image.data, int(q_weight.rows), hidden, op.eps);
    });
  });
}

}  // namespace fathom::cuda
