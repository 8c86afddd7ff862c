// fathom/backend/cuda/device.cuh
// What kernels share: activations as floats, the storage formats decoded in registers, sums over warps and blocks in a
// fixed order. Formats: fathom/tensor/number_formats.h defines them; these give the same bits.
#pragma once
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cstdint>

#include "fathom/tensor/row_format.h"
#include "fathom/tensor/view.h"

namespace fathom::cuda {

using Bf16 = __nv_bfloat16;

// ------------------------------------------------------------------------------------------------ launches
/// Programmatic dependent launch: the next kernel of the stream may begin, as far as its own wait; the kernel before
/// has ended and its results are visible.
__device__ inline void let_kernel_behind_start() { asm volatile("griddepcontrol.launch_dependents;"); }
__device__ inline void wait_for_kernel_ahead() { asm volatile("griddepcontrol.wait;" ::: "memory"); }

// ------------------------------------------------------------------------------------------------ single elements
__device__ inline float load(float v) { return v; }
__device__ inline float load(Bf16 v) { return __bfloat162float(v); }
__device__ inline void store(float& at, float v) { at = v; }
__device__ inline void store(Bf16& at, float v) { at = __float2bfloat16_rn(v); }
/// What `store` leaves of a value.
template <class A>
__device__ inline float rounded(float v) {
  A at;
  store(at, v);
  return load(at);
}

/// 2^(code - 127); code 0 is the subnormal 2^-127, 255 NaN.
__device__ inline float e8m0(uint8_t code) {
  const uint32_t bits = code == 0 ? 0x00400000u : code == 255 ? 0x7fc00000u : uint32_t(code) << 23;
  return __uint_as_float(bits);
}
__device__ inline float e4m3(uint8_t code) {
  const uint32_t magnitude = code & 0x7f;
  if (magnitude == 0x7f) return __uint_as_float(0x7fc00000u | uint32_t(code & 0x80) << 24);
  // The seven bits as exponent and mantissa of a float lack 120 in the exponent; subnormals come out right.
  return __uint_as_float(uint32_t(code & 0x80) << 24 | magnitude << 20) * 0x1p120f;
}
__device__ inline float e2m1(uint8_t code) {
  return __uint_as_float(uint32_t(code & 8) << 28 | uint32_t(code & 7) << 22) * 0x1p126f;
}

/// Nearest, ties to even, saturating at 448; NaN gives 0x7f with its sign, which the instruction drops.
__device__ inline uint8_t to_e4m3(float value) {
  uint16_t pair = 0;
  asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(0.0f), "f"(value));
  return uint8_t(pair | (__float_as_uint(value) >> 24 & 0x80));
}
/// Nearest, ties to the even code, saturating at 6; NaN gives 6 with its sign.
__device__ inline uint8_t to_e2m1(float value) {
  const float m = fabsf(value);
  const int code = int(!(m <= 0.25f)) + int(!(m < 0.75f)) + int(!(m <= 1.25f)) + int(!(m < 1.75f)) + int(!(m <= 2.5f)) +
                   int(!(m < 3.5f)) + int(!(m <= 5.0f));
  return uint8_t((__float_as_uint(value) >> 28 & 8) | uint32_t(code));
}
__device__ inline float pow2_ceil(float t) { return __uint_as_float((__float_as_uint(t) + 0x007fffffu) & 0x7f800000u); }

/// Channel i of an encoded row of `channels`.
__device__ inline float decode(RowFormat format, const uint8_t* row, int channels, int i) {
  switch (format) {
    case RowFormat::f32: {
      // Entries need not be aligned to four bytes.
      uint32_t bits = 0;
      for (int b = 0; b < 4; ++b) bits |= uint32_t(row[4 * i + b]) << (8 * b);
      return __uint_as_float(bits);
    }
    case RowFormat::q8: return e4m3(row[i]) * e8m0(row[channels + i / 32]);
    case RowFormat::q4k: return e2m1(uint8_t(row[i / 2] >> (i % 2 * 4))) * e4m3(row[channels / 2 + i / 16]);
    case RowFormat::q4i: return e2m1(uint8_t(row[i / 2] >> (i % 2 * 4))) * e8m0(row[channels / 2 + i / 32]);
  }
  return 0;
}

// ------------------------------------------------------------------------------------------------ eight at a time
/// Elements [8i, 8i + 8) of a row whose address allows loads of 16 bytes; `Width` 1: one element, any address.
template <int Width>
__device__ inline void load_some(const Bf16* row, int64_t i, float (&out)[Width]) {
  if constexpr (Width == 8) {
    const uint4 raw = *reinterpret_cast<const uint4*>(row + 8 * i);
    const uint32_t words[4] = {raw.x, raw.y, raw.z, raw.w};
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      out[2 * k] = __uint_as_float(words[k] << 16);
      out[2 * k + 1] = __uint_as_float(words[k] & 0xffff0000u);
    }
  } else {
    out[0] = load(row[i]);
  }
}
template <int Width>
__device__ inline void load_some(const float* row, int64_t i, float (&out)[Width]) {
  if constexpr (Width == 8) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float4 raw = *reinterpret_cast<const float4*>(row + 8 * i + 4 * half);
      out[4 * half] = raw.x, out[4 * half + 1] = raw.y, out[4 * half + 2] = raw.z, out[4 * half + 3] = raw.w;
    }
  } else {
    out[0] = row[i];
  }
}
template <int Width>
__device__ inline void store_some(Bf16* row, int64_t i, const float (&in)[Width]) {
  if constexpr (Width == 8) {
    uint32_t words[4];
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      const __nv_bfloat162 pair = __floats2bfloat162_rn(in[2 * k], in[2 * k + 1]);
      words[k] = *reinterpret_cast<const uint32_t*>(&pair);
    }
    *reinterpret_cast<uint4*>(row + 8 * i) = make_uint4(words[0], words[1], words[2], words[3]);
  } else {
    store(row[i], in[0]);
  }
}
template <int Width>
__device__ inline void store_some(float* row, int64_t i, const float (&in)[Width]) {
  if constexpr (Width == 8) {
    *reinterpret_cast<float4*>(row + 8 * i) = make_float4(in[0], in[1], in[2], in[3]);
    *reinterpret_cast<float4*>(row + 8 * i + 4) = make_float4(in[4], in[5], in[6], in[7]);
  } else {
    row[i] = in[0];
  }
}

/// The same in two steps: loads that are on their way, and their numbers.
template <class A, int Width>
struct Packed {
  A value;
};
template <>
struct Packed<Bf16, 8> {
  uint4 value;
};
template <>
struct Packed<float, 8> {
  float4 low, high;
};
template <int Width, class A>
__device__ inline Packed<A, Width> load_packed(const A* row, int64_t i) {
  if constexpr (Width == 1) {
    return {row[i]};
  } else if constexpr (sizeof(A) == 2) {
    return {*reinterpret_cast<const uint4*>(row + 8 * i)};
  } else {
    return {*reinterpret_cast<const float4*>(row + 8 * i), *reinterpret_cast<const float4*>(row + 8 * i + 4)};
  }
}
template <class A, int Width>
__device__ inline void unpack(const Packed<A, Width>& packed, float (&out)[Width]) {
  load_some(reinterpret_cast<const A*>(&packed), 0, out);
}

// ------------------------------------------------------------------------------------------------ sums
/// The sum over the warp's lanes, in every lane; the order is fixed.
__device__ inline float warp_sum(float v) {
#pragma unroll
  for (int step = 16; step > 0; step /= 2) v += __shfl_xor_sync(~0u, v, step);
  return v;
}
__device__ inline float warp_max(float v) {
#pragma unroll
  for (int step = 16; step > 0; step /= 2) v = fmaxf(v, __shfl_xor_sync(~0u, v, step));
  return v;
}
/// The sum over all threads of a block of whole warps, in every thread. `lanes` holds a float for each warp.
__device__ inline float block_sum(float v, float* lanes) {
  v = warp_sum(v);
  __syncthreads();  // the last sum has been read
  if (threadIdx.x % 32 == 0) lanes[threadIdx.x / 32] = v;
  __syncthreads();
  float sum = 0;
  for (int w = 0; w < int(blockDim.x) / 32; ++w) sum += lanes[w];
  return sum;
}
/// 1 / sqrt(mean + eps), 0 for zeros without eps.
__device__ inline float inverse_rms(float squares, int64_t n, float eps) {
  const double mean = double(squares) / double(n) + double(eps);
  return mean > 0 ? float(1 / sqrt(mean)) : 0.0f;
}

}  // namespace fathom::cuda
