// fathom/backend/cuda/select_bins.cuh
// The order of scores as integers, and the bins that they are counted in. No instruction, so that a model of the
// machine runs the same text (machine_model.h).
#pragma once
#include <cmath>
#include <cstdint>

namespace fathom::cuda {

/// Larger numbers have larger keys; 0: never chosen (-inf and NaN).
__device__ inline uint32_t score_key(float v) {
  if (!(v > -INFINITY)) return 0;
  const uint32_t bits = __float_as_uint(v + 0.0f);
  return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}

/// Bins that scores are counted in, rising with the score: by sign, exponent from 2^-32 to 2^32 (what lies beyond falls
/// into the last bins) and five bits of mantissa.
constexpr int kBins = 4096, kBinShift = 18, kHalfBins = kBins / 2;
constexpr uint32_t kFirstMagnitude = (127u - 32) << 23;
__device__ inline int bin_of(float v) {
  const uint32_t last = kFirstMagnitude + (uint32_t(kHalfBins) << kBinShift) - 1;
  const uint32_t magnitude = min(max(__float_as_uint(v) & 0x7fffffffu, kFirstMagnitude), last);
  const int step = int((magnitude - kFirstMagnitude) >> kBinShift);
  return v < 0 ? kHalfBins - 1 - step : kHalfBins + step;
}
/// The least number of a bin; all of them are above -inf. -1: of all bins.
__device__ inline float least_of(int bin) {
  if (bin <= 0) return __uint_as_float(0xff7fffffu);
  if (bin == kHalfBins) return 0;
  const int step = bin < kHalfBins ? kHalfBins - bin : bin - kHalfBins;  // of a negative bin: the one beyond it
  const uint32_t magnitude = kFirstMagnitude + (uint32_t(step) << kBinShift);
  return __uint_as_float(bin < kHalfBins ? (magnitude - 1) | 0x80000000u : magnitude);
}
/// The upper bits that the keys (score_key) of a bin have in common, kKnownBits of them; -1: of the bins that hold
/// more.
constexpr int kKnownBits = 32 - kBinShift;
__device__ inline int known_bits_of(int bin) {
  const int step = bin < kHalfBins ? kHalfBins - 1 - bin : bin - kHalfBins;
  if (step == 0 || step == kHalfBins - 1) return -1;
  const uint32_t bits = (kFirstMagnitude + (uint32_t(step) << kBinShift)) | 0x80000000u;
  return int((bin < kHalfBins ? ~bits : bits) >> kBinShift);
}

/// Larger for what is chosen first: by score, then the lower index.
__device__ inline uint64_t rank_of(uint32_t key, uint32_t index) { return uint64_t(key) << 32 | ~index; }

}  // namespace fathom::cuda
