// fathom/backend/cpu/product_avx512_bf16.h
// What the products of bf16 pairs for many rows and for few have in common: how an output is added up.
//
// Columns come in blocks of 32, in the order of code_lanes.h: two steps of eight pairs. Lane l of eight takes pair l of
// every step, in rising order, over at most kBf16Chunk columns; then
//     sum += (((lane 0 + lane 1) + lane 2) + lane 3) + (((lane 4 + lane 5) + lane 6) + lane 7).
#pragma once
#include <immintrin.h>

#include "fathom/backend/cpu/product.h"

namespace fathom::cpu {

inline constexpr int kPairLanes = 8;
inline constexpr int kStep = 16;  // columns
inline constexpr int64_t kBf16Chunk = 512;
inline constexpr int kFewRowsOfBf16 = 12;  // from where on turned panels are as fast (Zen 4)

/// ProductKernels::multiply_few.
bool multiply_few_bf16(const Panel& panel, const Tile& tile, int64_t columns);

/// Outputs 0 .. 15 and 16 .. `count` - 1 of a row.
[[gnu::target("avx512f,avx512bw,avx512bf16"), gnu::always_inline]] inline void store_outputs(__m512 low, __m512 high,
                                                                                             int count, DType dtype,
                                                                                             uint8_t* out) {
  const __mmask32 lanes = __mmask32((uint64_t(1) << count) - 1);
  if (dtype == DType::f32) {
    _mm512_mask_storeu_ps(out, __mmask16(lanes), low);
    _mm512_mask_storeu_ps(out + 64, __mmask16(lanes >> 16), high);
  } else {
    _mm512_mask_storeu_epi16(out, lanes, __m512i(_mm512_cvtne2ps_pbh(high, low)));
  }
}

}  // namespace fathom::cpu
