// fathom/backend/cuda/decode_codes.cuh
// Codes as operands of products of bf16: exact, a code has at most four significant bits and its scale is a power of
// two. Weights are the left one, in the registers from which they are multiplied (decode_weights.cuh); columns of x are
// put in the order in which that leaves them. Which 16 columns a product sums, and so the bits of a chain of them, is
// decided in these two.
#pragma once
#include "fathom/backend/cuda/device.cuh"
#include "fathom/backend/cuda/tensor_core.cuh"
// The names that it needs come before it.
#include "fathom/backend/cuda/decode_weights.cuh"

namespace fathom::cuda {

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
