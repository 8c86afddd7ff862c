// fathom/backend/cuda/encode.cuh
// Rows into codes and scales, by all threads of a block. A thread has eight channels ("octet"): two (Q4K) or four (Q8,
// Q4I) neighbours share a scale, found by shuffles. The bytes are those of encode_row (tensor/row_format.h).
#pragma once
#include "fathom/backend/cuda/device.cuh"
#include "fathom/backend/cuda/launch.h"

namespace fathom::cuda {

/// Where the parts of encoded rows go.
struct Destination {
  uint8_t* codes = nullptr;
  int64_t code_stride = 0, code_head_stride = 0;  // bytes between rows, and between the heads of a row
  uint8_t* scales = nullptr;
  int64_t scale_stride = 0, scale_head_stride = 0;
};

/// Codes and scales of products: apart from each other, `heads` together one row.
inline Destination q8_destination(const AnyViewMut& codes, const AnyViewMut& scales, int heads = 1) {
  return {codes.data,  codes.row_stride,  codes.cols / heads,  //
          scales.data, scales.row_stride, scales.cols / heads};
}
/// Entries of a cache, one for each head.
inline Destination entry_destination(const View<uint8_t, 2>& out, RowFormat format, int64_t channels) {
  const int64_t stride = out.stride[0], bytes = row_bytes(format, channels);
  const int64_t codes = format == RowFormat::f32 ? 4 * channels : format == RowFormat::q8 ? channels : channels / 2;
  return {out.data, stride, bytes, out.data + codes, stride, bytes};
}

/// Largest magnitude over groups of `threads` neighbours (a power of two).
__device__ inline float group_max(float v, int threads) {
  for (int step = 1; step < threads; step *= 2) v = fmaxf(v, __shfl_xor_sync(~0u, v, step));
  return v;
}

__device__ inline void put(uint8_t* at, uint64_t bytes, int count) {
  const auto address = reinterpret_cast<uintptr_t>(at);
  if (count == 8 && address % 8 == 0) {
    *reinterpret_cast<uint64_t*>(at) = bytes;
  } else if (count == 4 && address % 4 == 0) {
    *reinterpret_cast<uint32_t*>(at) = uint32_t(bytes);
  } else {
    for (int b = 0; b < count; ++b) at[b] = uint8_t(bytes >> (8 * b));
  }
}

/// Elements [8i, 8i + 8) of a row; `Width` as load_some.
template <int Width, class A>
__device__ inline void load_octet(const A* row, int64_t i, float (&out)[8]) {
  if constexpr (Width == 8) {
    load_some(row, i, out);
  } else {
#pragma unroll
    for (int k = 0; k < 8; ++k) out[k] = load(row[8 * i + k]);
  }
}
template <int Width, class A>
__device__ inline void store_octet(A* row, int64_t i, const float (&in)[8]) {
  if constexpr (Width == 8) {
    store_some(row, i, in);
  } else {
#pragma unroll
    for (int k = 0; k < 8; ++k) store(row[8 * i + k], in[k]);
  }
}

/// Encodes the octets of row r of heads * channels numbers, `octets` in all: this thread's `first` (of a warp 32
/// neighbours), and every `step` behind it. get(octet, numbers) gives them, rounded to the activation's type. Whole
/// warps call it.
template <RowFormat Format, class Get>
__device__ void encode_octets(int64_t r, int octets, int channels, const Destination& to, int first, int step,
                              const Get& get) {
  const int padded = (octets + 31) / 32 * 32;  // whole warps shuffle
  float next[8] = {};
  if (first < octets) get(first, next);
  for (int o = first; o < padded; o += step) {
    float v[8];
#pragma unroll
    for (int k = 0; k < 8; ++k) v[k] = next[k];
    if (o + step < octets) {
      get(o + step, next);  // on its way while this one is stored
    } else if (o >= octets) {
#pragma unroll
      for (int k = 0; k < 8; ++k) v[k] = 0;
    }
    float largest = 0;
#pragma unroll
    for (int k = 0; k < 8; ++k) largest = fmaxf(largest, fabsf(v[k]));
    const float amax = Format == RowFormat::f32 ? 0 : group_max(largest, Format == RowFormat::q4k ? 2 : 4);
    if (o >= octets) continue;
    const int head = o * 8 / channels, c = o * 8 % channels;
    uint8_t* codes = to.codes + r * to.code_stride + head * to.code_head_stride;
    uint8_t* scales = to.scales + r * to.scale_stride + head * to.scale_head_stride;
    if constexpr (Format == RowFormat::f32) {
      for (int k = 0; k < 8; ++k) put(codes + 4 * (c + k), __float_as_uint(v[k]), 4);
    } else if constexpr (Format == RowFormat::q8) {
      const float scale = pow2_ceil(fmaxf(amax, 1e-4f) / 448.0f), inverse = 1 / scale;  // of a power of two: exact
      uint64_t packed = 0;
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
      uint64_t packed = 0;
#pragma unroll
      for (int k = 0; k < 8; ++k) packed |= uint64_t(to_e2m1(v[k] / scale)) << (4 * k);
      put(codes + c / 2, packed, 4);
      constexpr int kGroup = Format == RowFormat::q4k ? 16 : 32;
      if (c % kGroup == 0) scales[c / kGroup] = code;
    }
  }
}

}  // namespace fathom::cuda
