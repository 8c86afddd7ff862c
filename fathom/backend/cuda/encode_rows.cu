// Rounding rows into codes and scales, norm and rotation before it where they are wanted, and putting entries where
// they belong. Bytes: rows * channels * (sizeof(A) + about 1).
#include <algorithm>

#include "fathom/backend/cuda/kernels.h"
#include "fathom/backend/cuda/norm_row.cuh"
#include "fathom/backend/cuda/rotation.cuh"

namespace fathom::cuda {
namespace {

constexpr int kThreads = 128, kPreparedThreads = 256;

// Blocks that share a row: a few rows fill the GPU too, and what is done once a block stays rare.
unsigned pieces_of_rows(int64_t rows, int64_t octets, int threads) {
  const int64_t most = (octets + threads - 1) / threads, wanted = 8 * kProcessors / std::max<int64_t>(rows, 1);
  return unsigned(std::clamp<int64_t>(wanted, 1, most));
}

// blockIdx.y cuts long rows.
template <class A, RowFormat Format, int Width>
__global__ void encode_kernel(Rows<const A> x, int heads, int channels, Destination to) {
  let_kernel_behind_start();
  wait_for_kernel_ahead();
  const int64_t r = blockIdx.x;
  encode_octets<Format>(r, heads * channels / 8, channels, to, int(blockIdx.y * blockDim.x + threadIdx.x),
                        int(gridDim.y * blockDim.x), [&](int o, float(&v)[8]) { load_octet<Width>(x.row(r), o, v); });
}

// With a norm, of whole rows: the row waits in shared memory, and a block has all of it.
template <class A, RowFormat Format, int Width>
__global__ void prepare_kernel(Rows<const A> x, int heads, int channels, Destination to,
                               const __grid_constant__ RowNorm norm, const __grid_constant__ Rotation rotation) {
  extern __shared__ uint4 staged[];
  __shared__ float lanes[32];
  __shared__ Turns turns;
  let_kernel_behind_start();
  wait_for_kernel_ahead();
  const int64_t r = blockIdx.x, columns = int64_t(heads) * channels;
  A* row = reinterpret_cast<A*>(staged);
  const bool normed = norm.weight != nullptr;
  if (rotation.pairs > 0) take_turns(rotation, r, turns);
  if (normed) {
    for (int64_t i = threadIdx.x; i < columns / Width; i += blockDim.x) {
      float some[Width];
      load_some(x.row(r), i, some);
      store_some(row, i, some);
    }
    __syncthreads();
    norm_row<Width>(row, columns, norm, lanes, [](int64_t, const float(&)[Width]) {});
  }
  __syncthreads();
  encode_octets<Format>(r, int(columns / 8), channels, to, int(blockIdx.y * blockDim.x + threadIdx.x),
                        int(gridDim.y * blockDim.x), [&](int o, float(&v)[8]) {
                          if (normed) {
                            load_octet<8>(row, o, v);
                          } else {
                            load_octet<Width>(x.row(r), o, v);
                          }
                          turn_octet<A>(v, o * 8 % channels, channels, rotation.pairs, turns);
                        });
}

// Rows of `x` where kernels reach them, prepared if one of the two is wanted.
struct Preparation {
  AnyView weight;  // of the norm, where kernels reach it
  float eps = 0;
  Rotation rotation{};
};

template <class A, RowFormat Format>
void encode(Call& call, const AnyView& x, int heads, const Destination& to, const Preparation& before) {
  const int64_t octets = x.cols / 8;
  const int channels = int(x.cols / heads);
  const bool normed = before.weight.data != nullptr, prepared = normed || before.rotation.pairs > 0;
  const int threads = row_threads(octets, prepared ? kPreparedThreads : kThreads);
  const dim3 blocks(grid(x.rows), normed ? 1 : pieces_of_rows(x.rows, octets, threads));
  const int width = normed ? common_width(x.cols, x, before.weight) : common_width(x.cols, x);
  with_width(width, [&]<int Width>(std::integral_constant<int, Width>) {
    if (!prepared) {
      return launch_early(call, encode_kernel<A, Format, Width>, blocks, threads, 0, rows_of<A>(x), heads, channels,
                          to);
    }
    RowNorm norm;
    if (normed) norm = row_norm(before.weight, before.eps, x.cols / Width);
    launch_early(call, prepare_kernel<A, Format, Width>, blocks, std::max(threads, norm.threads),
                 norm.weight != nullptr ? staged_bytes(x.cols, x.dtype) : 0, rows_of<A>(x), heads, channels, to, norm,
                 before.rotation);
  });
}

Rotation placed(Call& call, const Turn& turn) {
  return turn.wanted() ? rotation_of(call.in(turn.positions), turn.frequencies, turn.inverse) : Rotation{};
}

// Bytes of entries, one block an entry.
__device__ void copy_bytes(uint8_t* to, const uint8_t* from, int bytes) {
  if ((reinterpret_cast<uintptr_t>(to) | reinterpret_cast<uintptr_t>(from) | uintptr_t(bytes)) % 8 == 0) {
    for (int i = threadIdx.x; i < bytes / 8; i += blockDim.x) {
      reinterpret_cast<uint64_t*>(to)[i] = reinterpret_cast<const uint64_t*>(from)[i];
    }
    return;
  }
  for (int i = threadIdx.x; i < bytes; i += blockDim.x) to[i] = from[i];
}

__global__ void store_ring_kernel(View<const int64_t, 1> positions, View<const int32_t, 1> sequence,
                                  View<const int32_t, 1> begin, View<const uint8_t, 2> entries, RingRegion ring) {
  let_kernel_behind_start();
  wait_for_kernel_ahead();
  const int64_t r = blockIdx.x;
  const int64_t s = sequence.data[r];
  // Only the last `capacity` rows of a sequence: older ones would race for the same places.
  if (r < begin.data[s + 1] - ring.capacity) return;
  copy_bytes(ring.base + ring.slots.data[s] * ring.slot_stride + positions.data[r] % ring.capacity * ring.entry_bytes,
             entries.data + r * entries.stride[0], ring.entry_bytes);
}

__global__ void store_paged_kernel(View<const uint8_t, 2> entries, View<const int32_t, 1> sequence,
                                   View<const int64_t, 1> entry, PagedRegion pages) {
  let_kernel_behind_start();
  wait_for_kernel_ahead();
  const int64_t i = blockIdx.x, e = entry.data[i];
  const int64_t block = pages.blocks.data[sequence.data[i] * pages.blocks.stride[0] + e / pages.entries_per_block];
  copy_bytes(pages.base + block * pages.block_stride + e % pages.entries_per_block * pages.entry_bytes,
             entries.data + i * entries.stride[0], pages.entry_bytes);
}

}  // namespace

void quantize_rows(Queue& queue, const QuantizeRows& op) {
  if (op.x.empty()) return;
  Call call(queue, "quantize_rows");
  const AnyView x = call.in(op.x);
  const Destination to = q8_destination(call.out(op.codes), call.out(op.scales), op.heads);
  const Preparation before{{}, 0, placed(call, op.turn)};
  with_float_type(x.dtype, [&]<class A>(Type<A>) { encode<A, RowFormat::q8>(call, x, op.heads, to, before); });
}

void encode_rows(Queue& queue, const EncodeRows& op) {
  if (op.x.empty()) return;
  Call call(queue, "encode_rows");
  const AnyView x = call.in(op.x);
  const Destination to = entry_destination(call.out(op.out), op.format, x.cols / op.heads);
  const Preparation before{call.in(op.norm.weight), op.norm.eps, placed(call, op.turn)};
  with_float_type(x.dtype, [&]<class A>(Type<A>) {
    switch (op.format) {
      case RowFormat::f32: return encode<A, RowFormat::f32>(call, x, op.heads, to, before);
      case RowFormat::q8: return encode<A, RowFormat::q8>(call, x, op.heads, to, before);
      case RowFormat::q4k: return encode<A, RowFormat::q4k>(call, x, op.heads, to, before);
      case RowFormat::q4i: return encode<A, RowFormat::q4i>(call, x, op.heads, to, before);
    }
  });
}

void store_ring(Queue& queue, const StoreRing& op) {
  if (op.rows.rows() == 0) return;
  Call call(queue, "store_ring");
  const RowSet rows = call.in(op.rows);
  const auto entries = call.in(op.entries);
  const RingRegion ring = call.region(op.ring, true);
  launch_early(call, store_ring_kernel, grid(rows.rows()), 64, 0, rows.positions, rows.sequence, rows.begin, entries,
               ring);
}

void store_paged(Queue& queue, const StorePaged& op) {
  if (op.entry.empty()) return;
  Call call(queue, "store_paged");
  const auto entries = call.in(op.entries);
  const auto sequence = call.in(op.sequence);
  const auto entry = call.in(op.entry);
  launch_early(call, store_paged_kernel, grid(entry.shape[0]), 64, 0, entries, sequence, entry,
               call.region(op.pages, true));
}

}  // namespace fathom::cuda
