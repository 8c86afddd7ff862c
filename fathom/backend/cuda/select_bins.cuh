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

/// Bins that scores are counted in, rising with the score: by sign, exponent and mantissa, of which they tell five bits
/// from 2^-16 to 2^16 and two beyond.
constexpr int kBins = 4096, kHalfBins = kBins / 2;
constexpr int kFineShift = 18, kCoarseShift = 21;
constexpr uint32_t kFirstFine = (127u - 16) << 23, kLastFine = (127u + 16) << 23;  // bits of magnitudes
constexpr int kFineBin = int(kFirstFine >> kCoarseShift);                          // that they begin in, of one sign
constexpr int kUpperBin = kFineBin + int((kLastFine - kFirstFine) >> kFineShift);
static_assert(kUpperBin + int((0x7f800000u - kLastFine) >> kCoarseShift) < kHalfBins);
__device__ inline int bin_of(float v) {
  const uint32_t magnitude = __float_as_uint(v) & 0x7fffffffu;
  int bin = int(magnitude >> kCoarseShift);
  if (magnitude >= kFirstFine) bin = int(magnitude >> kFineShift) - int(kFirstFine >> kFineShift) + kFineBin;
  if (magnitude >= kLastFine) bin = int(magnitude >> kCoarseShift) - int(kLastFine >> kCoarseShift) + kUpperBin;
  return v < 0 ? kHalfBins - 1 - bin : kHalfBins + bin;
}
/// The least magnitude of bin `bin` of one sign, as bits.
__device__ inline uint32_t magnitude_of(int bin) {
  if (bin < kFineBin) return uint32_t(bin) << kCoarseShift;
  if (bin < kUpperBin) return kFirstFine + (uint32_t(bin - kFineBin) << kFineShift);
  return kLastFine + (uint32_t(bin - kUpperBin) << kCoarseShift);
}
/// The least number of a bin that has some. -1: of all that may be chosen.
__device__ inline float least_of(int bin) {
  if (bin < 0) return __uint_as_float(0xff7fffffu);
  if (bin >= kHalfBins) return __uint_as_float(magnitude_of(bin - kHalfBins));
  // A negative one's is just before the next magnitude's.
  return __uint_as_float((magnitude_of(kHalfBins - bin) - 1) | 0x80000000u);
}
/// How many upper bits the keys (score_key) of a bin have in common, and these.
struct Known {
  int bits;
  uint32_t prefix;
};
__device__ inline Known known_of(int bin) {
  const bool negative = bin < kHalfBins;
  const int own = negative ? kHalfBins - 1 - bin : bin - kHalfBins;
  const int shift = own >= kFineBin && own < kUpperBin ? kFineShift : kCoarseShift;
  const uint32_t bits = magnitude_of(own) | 0x80000000u;
  return {32 - shift, (negative ? ~bits : bits) >> shift};
}

/// Larger for what is chosen first: by score, then the lower index.
__device__ inline uint64_t rank_of(uint32_t key, uint32_t index) { return uint64_t(key) << 32 | ~index; }

}  // namespace fathom::cuda
