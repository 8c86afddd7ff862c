// Rounding rows into codes and scales, and putting entries where they belong. A thread has eight channels: two (Q4K)
// or four (Q8, Q4I) neighbours share a scale, found by shuffles. Bytes: rows * channels * (sizeof(A) + about 1).
#include "fathom/backend/cuda/device.cuh"
#include "fathom/backend/cuda/kernels.h"
#include "fathom/backend/cuda/launch.h"

namespace fathom::cuda {
namespace {

constexpr int kThreads = 128;

// Where an encoded row's parts go. Q8 rows may have codes and scales apart.
struct Destination {
  uint8_t* codes;
  int64_t code_stride;  // bytes between rows
  int64_t head_stride;  // bytes between the heads of a row
  uint8_t* scales;
  int64_t scale_stride;
};

// Largest magnitude over groups of `threads` neighbours (a power of two).
__device__ float group_max(float v, int threads) {
  for (int step = 1; step < threads; step *= 2) v = fmaxf(v, __shfl_xor_sync(~0u, v, step));
  return v;
}

__device__ void put(uint8_t* at, uint64_t bytes, int count) {
  const auto address = reinterpret_cast<uintptr_t>(at);
  if (count == 8 && address % 8 == 0) {
    *reinterpret_cast<uint64_t*>(at) = bytes;
  } else if (count == 4 && address % 4 == 0) {
    *reinterpret_cast<uint32_t*>(at) = uint32_t(bytes);
  } else {
    for (int b = 0; b < count; ++b) at[b] = uint8_t(bytes >> (8 * b));
  }
}

template <class A, RowFormat Format, int Width>
__global__ void encode_kernel(Rows<const A> x, int heads, int channels, Destination to) {
  const int64_t r = blockIdx.x;
  const int octets = heads * channels / 8, padded = (octets + 31) / 32 * 32;  // whole warps shuffle
  for (int o = threadIdx.x; o < padded; o += blockDim.x) {
    float v[8] = {};
    if (o < octets) {
      if constexpr (Width == 8) {
        load_some(x.row(r), o, v);
      } else {
        for (int k = 0; k < 8; ++k) v[k] = load(x.row(r)[8 * o + k]);
      }
    }
    float largest = 0;
#pragma unroll
    for (int k = 0; k < 8; ++k) largest = fmaxf(largest, fabsf(v[k]));
    const float amax = group_max(largest, Format == RowFormat::q4k ? 2 : 4);
    if (o >= octets) continue;
    const int head = o * 8 / channels, c = o * 8 % channels;
    uint8_t* codes = to.codes + r * to.code_stride + head * to.head_stride;
    uint8_t* scales = to.scales + r * to.scale_stride + head * to.head_stride;
    uint64_t packed = 0;
    if constexpr (Format == RowFormat::q8) {
      const float scale = pow2_ceil(fmaxf(amax, 1e-4f) / 448.0f), inverse = 1 / scale;  // of a power of two: exact
#pragma unroll
      for (int k = 0; k < 8; ++k) packed |= uint64_t(to_e4m3(v[k] * inverse)) << (8 * k);
      put(codes + c, packed, 8);
      if (c % 32 == 0) scales[c / 32] = uint8_t(__float_as_uint(scale) >> 23);
    } else {
      uint8_t code = 0;
      float scale = 0;
      if constexpr (Format == RowFormat::q4k) {
        code = to_e4m3(fminf(fmaxf(amax / 6.0f, 0x1p-9f), 448.0f));
        scale = e4m3(code);
      } else {
        scale = pow2_ceil(fmaxf(amax, 6 * 0x1p-126f) / 6.0f);
        code = uint8_t(__float_as_uint(scale) >> 23);
      }
#pragma unroll
      for (int k = 0; k < 8; ++k) packed |= uint64_t(to_e2m1(v[k] / scale)) << (4 * k);
      put(codes + c / 2, packed, 4);
      constexpr int kGroup = Format == RowFormat::q4k ? 16 : 32;
      if (c % kGroup == 0) scales[c / kGroup] = code;
    }
  }
}

// Format f32: a copy, or bf16 widened.
template <class A>
__global__ void widen_kernel(Rows<const A> x, int64_t columns, uint8_t* out, int64_t out_stride) {
  for (int64_t i = threadIdx.x; i < columns; i += blockDim.x) {
    const uint32_t bits = __float_as_uint(load(x.row(blockIdx.x)[i]));
    put(out + blockIdx.x * out_stride + 4 * i, bits, 4);
  }
}

template <class A, RowFormat Format>
void encode(Call& call, const AnyView& x, int heads, const Destination& to) {
  const int64_t octets = x.cols / 8;
  with_width(common_width(x.cols, x), [&]<int Width>(std::integral_constant<int, Width>) {
    encode_kernel<A, Format, Width><<<grid(x.rows), row_threads(octets, kThreads), 0, call.stream()>>>(
        rows_of<A>(x), heads, int(x.cols / heads), to);
  });
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
  const int64_t r = blockIdx.x;
  const int64_t s = sequence.data[r];
  // Only the last `capacity` rows of a sequence: older ones would race for the same places.
  if (r < begin.data[s + 1] - ring.capacity) return;
  copy_bytes(ring.base + ring.slots.data[s] * ring.slot_stride + positions.data[r] % ring.capacity * ring.entry_bytes,
             entries.data + r * entries.stride[0], ring.entry_bytes);
}

__global__ void store_paged_kernel(View<const uint8_t, 2> entries, View<const int32_t, 1> sequence,
                                   View<const int64_t, 1> entry, PagedRegion pages) {
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
  const AnyViewMut codes = call.out(op.codes), scales = call.out(op.scales);
  const Destination to{codes.data, codes.row_stride, 0, scales.data, scales.row_stride};
  with_float_type(x.dtype, [&]<class A>(Type<A>) { encode<A, RowFormat::q8>(call, x, 1, to); });
}

void encode_rows(Queue& queue, const EncodeRows& op) {
  if (op.x.empty()) return;
  Call call(queue, "encode_rows");
  const AnyView x = call.in(op.x);
  const auto out = call.out(op.out);
  const int64_t channels = x.cols / op.heads, bytes = row_bytes(op.format, channels), stride = out.stride[0];
  with_float_type(x.dtype, [&]<class A>(Type<A>) {
    switch (op.format) {
      case RowFormat::f32:
        widen_kernel<A>
            <<<grid(x.rows), row_threads(x.cols), 0, call.stream()>>>(rows_of<A>(x), x.cols, out.data, stride);
        return;
      case RowFormat::q8:
        return encode<A, RowFormat::q8>(call, x, op.heads, {out.data, stride, bytes, out.data + channels, stride});
      case RowFormat::q4k:
        return encode<A, RowFormat::q4k>(call, x, op.heads, {out.data, stride, bytes, out.data + channels / 2, stride});
      case RowFormat::q4i:
        return encode<A, RowFormat::q4i>(call, x, op.heads, {out.data, stride, bytes, out.data + channels / 2, stride});
    }
  });
}

void store_ring(Queue& queue, const StoreRing& op) {
  if (op.rows.rows() == 0) return;
  Call call(queue, "store_ring");
  const RowSet rows = call.in(op.rows);
  const auto entries = call.in(op.entries);
  const RingRegion ring = call.region(op.ring, true);
  store_ring_kernel<<<grid(rows.rows()), 64, 0, call.stream()>>>(rows.positions, rows.sequence, rows.begin, entries,
                                                                 ring);
}

void store_paged(Queue& queue, const StorePaged& op) {
  if (op.entry.empty()) return;
  Call call(queue, "store_paged");
  const auto entries = call.in(op.entries);
  const auto sequence = call.in(op.sequence);
  const auto entry = call.in(op.entry);
  store_paged_kernel<<<grid(entry.shape[0]), 64, 0, call.stream()>>>(entries, sequence, entry,
                                                                     call.region(op.pages, true));
}

}  // namespace fathom::cuda
