// fathom/backend/cuda/decode_codes.cuh
// Codes as operands of products of bf16: exact, a code has at most four significant bits and its scale is a power of
// two. Weights are the left one, in the registers from which they are multiplied; columns of x are put in the order in
// which that leaves them. Which 16 columns a product sums, and so the bits of a chain of them, is decided here.
#pragma once
#include "fathom/backend/cuda/device.cuh"
#include "fathom/backend/cuda/tensor_core.cuh"
#include "fathom/tensor/dtype.h"

namespace fathom::cuda {

/// Of eight E2M1 codes two pairs of bf16, too small by 2^126: (2 which, + 4) and the next. A code of four bits is put
/// at two places by one multiplication: its sign at the top of a half, the rest at the lowest bits of the exponent.
__device__ inline void pairs_of_e2m1(uint32_t codes, int which, uint32_t& first, uint32_t& second) {
  constexpr uint32_t kSignAndRest = 0x81c081c0u;
  const uint32_t own = codes >> (8 * which);
  first = ((own & 0x000f000fu) * (1u << 12 | 1u << 6)) & kSignAndRest;
  second = ((own & 0x00f000f0u) * (1u << 8 | 1u << 2)) & kSignAndRest;
}
/// Four E4M3 codes as pairs (0, 2) and (1, 3), too small by 2^120.
__device__ inline void pairs_of_e4m3(uint32_t codes, uint32_t& even, uint32_t& odd) {
  even = (codes & 0x007f007fu) * 16 + ((codes << 8) & 0x80008000u);
  odd = (codes & 0x80008000u) | ((codes >> 4) & 0x07f007f0u);
}

/// Words of a lane for 64 columns of a warp's 16 weight rows, as ldmatrix hands them over: FP4 a word for rows g and g
/// + 8 of each 32 columns, FP8 of each 16.
template <DType Type>
constexpr int kWords = Type == DType::f8_e4m3 ? 8 : 4;

/// The left operands of the two products of 32 columns, number `q` of this half. `scales`: four codes each of rows g
/// and g + 8. Large: some of them are 128 or more; a factor beyond bf16's range is two.
template <DType Type>
__device__ __forceinline__ void decode(const uint32_t (&raw)[kWords<Type>], int half, int q,
                                       const uint32_t (&scales)[2], bool large, uint32_t (&a)[2][4]) {
  constexpr uint32_t kLacking = Type == DType::f8_e4m3 ? 120 : 126, kPair = 0x00800080u;
#pragma unroll
  for (int h = 0; h < 2; ++h) {
#pragma unroll
    for (int k = 0; k < 2; ++k) {
      if constexpr (Type == DType::f8_e4m3) {
        pairs_of_e4m3(raw[4 * q + 2 * k + h], a[k][h], a[k][2 + h]);
      } else {
        pairs_of_e2m1(raw[2 * q + h], k, a[k][h], a[k][2 + h]);
      }
    }
  }
  uint32_t factor[2];
#pragma unroll
  for (int h = 0; h < 2; ++h) factor[h] = (scales[h] >> (16 * half + 8 * q) & 0xff) * kPair + kLacking * kPair;
  if (large) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const uint32_t field = (scales[h] >> (16 * half + 8 * q) & 0xff) + kLacking,
                     rest = (max(field, 254u) - 127) * kPair;
#pragma unroll
      for (int k = 0; k < 4; ++k) a[k / 2][h + k % 2 * 2] = times(a[k / 2][h + k % 2 * 2], rest);
      factor[h] = min(field, 254u) * kPair;
    }
  }
#pragma unroll
  for (int i = 0; i < 8; ++i) a[i / 4][i % 4] = times(a[i / 4][i % 4], factor[i % 2]);
}

/// What lane t of four multiplies with the weights' 32 columns, of a Q8 row: FP8 weights its words t and t + 4, FP4 2 t
/// and 2 t + 1. Pairs 0 and 1 are the first product's. `scale`: the code of all.
template <DType Weight>
__device__ inline void widen_words(uint2 words, uint32_t scale, uint32_t (&pairs)[4]) {
  uint32_t codes[4];  // in the upper byte of each half; what is in the lower does not matter
  if constexpr (Weight == DType::f4_e2m1) {
#pragma unroll
    for (int i = 0; i < 4; ++i) codes[i] = __byte_perm(words.x, words.y, uint32_t(i << 4 | (4 + i) << 12));
  } else {
    codes[0] = words.x << 8, codes[1] = words.x, codes[2] = words.y << 8, codes[3] = words.y;
  }
  const Factors factors = factors_of(scale, 120);
  uint32_t nan = 0;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const uint32_t magnitude = (codes[i] >> 4) & 0x07f007f0u;
    nan |= (magnitude + 0x00100010u) & 0x08000800u;  // 0x7f
    pairs[i] = times(times((codes[i] & 0x80008000u) | magnitude, factors.first), factors.second);
  }
  if (nan != 0 || scale == 255) {
    const float power = e8m0(uint8_t(scale));
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const __nv_bfloat162 pair =
          __floats2bfloat162_rn(e4m3(uint8_t(codes[i] >> 8)) * power, e4m3(uint8_t(codes[i] >> 24)) * power);
      pairs[i] = *reinterpret_cast<const uint32_t*>(&pair);
    }
  }
}
/// The same of eight columns of bf16, four words: FP8 weights columns 4 t ... 4 t + 3 and 16 + 4 t ... 16 + 4 t + 3,
/// FP4 8 t ... 8 t + 7.
template <DType Weight>
__device__ inline void order_words(const uint4& words, uint32_t (&pairs)[4]) {
  const uint32_t w[4] = {words.x, words.y, words.z, words.w};
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const uint32_t halves = i % 2 == 0 ? 0x5410u : 0x7632u;
    const int first = Weight == DType::f4_e2m1 ? i / 2 : i / 2 * 2, next = Weight == DType::f4_e2m1 ? 2 : 1;
    pairs[i] = __byte_perm(w[first], w[first + next], halves);
  }
}

}  // namespace fathom::cuda
