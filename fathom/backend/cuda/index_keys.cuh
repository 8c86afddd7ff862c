// fathom/backend/cuda/index_keys.cuh
// Q4I entries of 128 channels as bf16, exactly: what the two kernels of index scores share (select_rows.cu,
// index_scores.cuh), whose results have the same bits. No instruction, so that a model of the machine runs the same
// text (index_scores_text.h).
#pragma once
#include <cstdint>

namespace fathom::cuda {

/// Eight E2M1 codes as pairs (i, i + 4) of bf16, too small by 2^126. A product puts a code's bits both where its sign
/// and where its magnitude has to be.
__device__ inline void widen_key(uint32_t codes, uint32_t (&pairs)[4]) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const uint32_t word = i < 2 ? codes : codes >> 8;
    pairs[i] = (i % 2 == 0 ? (word & 0x000f000fu) * 0x1040u : (word & 0x00f000f0u) * 0x104u) & 0x81c081c0u;
  }
}

/// What brings widened codes to value * 2^(code - 127): 2^(code - 1), nearly always one bf16. `second` is 1 up to
/// kLargestSingle; it is NaN for 255, which is no number.
struct KeyFactors {
  uint32_t first, second;
};
constexpr uint32_t kLargestSingle = 128;
__device__ inline KeyFactors key_factors(uint32_t scale) {
  const uint32_t field = scale + 126, first = min(field, 254u);
  return {first * 0x00800080u, scale == 255 ? 0x7fc07fc0u : (127 + field - first) * 0x00800080u};
}

}  // namespace fathom::cuda
