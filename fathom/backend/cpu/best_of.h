// fathom/backend/cpu/best_of.h
// The indices of the best of many values.
#pragma once
#include <cstdint>

namespace fathom::cpu {

/// Writes the indices of the `count` largest of n values into out [count], in rising order and -1 behind them; equal
/// values go to the lower index, -inf and NaN are never chosen. With `names` those of the indices are written.
/// Returns how many there are. n < 2^31. Allocates at most once a thread for the largest need.
int32_t best_of_avx2(const float* values, int64_t n, int64_t count, const int32_t* names, int32_t* out);
/// Only for processors with AVX-512 F, BW and VL.
int32_t best_of_avx512(const float* values, int64_t n, int64_t count, const int32_t* names, int32_t* out);

/// out[b] is the largest of values [b * block, (b + 1) * block), the last block perhaps shorter; NaN is not a largest.
void best_of_blocks_avx2(const float* values, int64_t n, int64_t block, float* out);
/// As best_of_avx512.
void best_of_blocks_avx512(const float* values, int64_t n, int64_t block, float* out);

}  // namespace fathom::cpu
