// fathom/backend/cuda/decode_weights.cuh
// Codes of weights as left operands of products of bf16, in the registers from which they are multiplied: exact, a code
// has at most four significant bits and its scale is a power of two.
//
// This text has no instruction of its own: whoever includes it has those of CUDA and tensor_core.cuh
// (decode_codes.cuh), or a model of them on the processor (machine_model.h).
#pragma once
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

}  // namespace fathom::cuda
