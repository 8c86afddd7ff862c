// fathom/backend/cuda/select.cuh
// What the kernels of select_rows share: the operation as they see it, the order of scores as integers, and the choice
// of the best (select_best.cu) from scores that another kernel has written (select_rows.cu).
#pragma once
#include "fathom/backend/cuda/device.cuh"
#include "fathom/backend/cuda/kernels.h"
#include "fathom/backend/cuda/launch.h"
#include "fathom/backend/cuda/workspace_sizes.h"

namespace fathom::cuda {

// What the kernels know of the operation. Pointers are the device's.
struct Selection {
  const int64_t* positions;
  const int32_t* sequence;
  const int32_t* begin;  // of each sequence's rows, and their end
  const uint8_t* queries;
  int64_t query_stride;
  const uint8_t* head_weights;
  bool bf16_weights;
  int64_t weight_stride;
  float weight_scale;
  int heads, channels, entry_bytes;
  RowFormat format;
  PagedRegion keys;
  int ratio, top_k;
  int block_size, top_blocks;
  bool source, restricted, traced;
  const int32_t* blocks;  // [rows, top_blocks] of a restricted choice
  int64_t block_stride;
  const int32_t* block_count;
  float* scores;  // workspace [rows here, capacity]
  int64_t capacity, first_row;

  __device__ int64_t visible(int64_t r) const { return uint32_t(positions[r] + 1) / uint32_t(ratio); }
  // How many entries row r chooses from; number i of them is entry_of(r, i), in rising order.
  __device__ int64_t choices(int64_t r) const {
    const int64_t all = visible(r);
    if (!restricted) return all;
    const int64_t count = block_count[r];
    if (count == 0) return 0;
    const int64_t last = int64_t(blocks[r * block_stride + count - 1]) * block_size;
    return (count - 1) * block_size + max(int64_t(0), min(int64_t(block_size), all - last));
  }
  __device__ int64_t entry_of(int64_t r, int64_t i) const {
    if (!restricted) return i;
    return int64_t(blocks[r * block_stride + i / block_size]) * block_size + i % block_size;
  }
  // Who takes everything need not look at it.
  __device__ bool takes_all(int64_t r) const {
    const bool all_blocks = !source || visible(r) <= int64_t(top_blocks) * block_size;
    return choices(r) <= top_k && all_blocks && !traced;
  }
  __device__ const uint8_t* key(int64_t r, int64_t entry) const {
    const int64_t block = keys.blocks.data[sequence[r] * keys.blocks.stride[0] + entry / keys.entries_per_block];
    return keys.base + block * keys.block_stride + entry % keys.entries_per_block * keys.entry_bytes;
  }
  __device__ float weight(int64_t r, int h) const {
    const float w = bf16_weights ? __bfloat162float(reinterpret_cast<const Bf16*>(head_weights)[r * weight_stride + h])
                                 : reinterpret_cast<const float*>(head_weights)[r * weight_stride + h];
    return w * weight_scale;
  }
};

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

/// What is known of a row's choice before it is made: the bin that holds the last of the wanted, and how many lie above
/// it and in it. `candidates` counts those passed on, from zero.
struct alignas(16) Found {
  int bin, above, count;
  unsigned candidates;
};

/// The memory of a choice from more scores, which several blocks share.
struct Tallies {
  unsigned* bins;        // [kinds, rows, kBins]; zero between choices. None: one block chooses
  Found* found;          // [kinds, rows]
  uint64_t* candidates;  // [kinds, rows, most candidates]: rank_of()
  float* worth;          // [rows, worth_capacity]: of blocks of entries
  int64_t worth_capacity;
  int64_t rows;

  // Adds to the bins 2 * pair and the next one.
  __device__ void count(int kind, int64_t row, int pair, unsigned lower, unsigned upper) const {
    atomicAdd(reinterpret_cast<unsigned long long*>(bins + (kind * rows + row) * kBins) + pair,
              uint64_t(upper) << 32 | lower);
  }
};
/// For up to `rows` rows at a time.
Tallies tallies_of(Call& call, const Selection& s, int64_t rows);

/// Scores of `rows` rows from s.first_row on, of `sequences` sequences, over `most` entries at most, by the kernels
/// with asynchronous products; what is known of them goes to `tallies`. Neither: it does not fit, and nothing was
/// launched. index_scores.cu
struct Scored {
  bool launched = false, counted = false;
};
Scored launch_index_scores(Call& call, const Selection& s, const Tallies& tallies, int64_t rows, int64_t most,
                           int64_t sequences);

/// The best entries (and blocks, of a candidate source) of `rows` rows from s.first_row on. `looks`: whether some row
/// may have to look at its scores; `counted`: whether the kernel that made them has counted them.
void choose_best(Call& call, const Selection& s, const Tallies& tallies, int64_t rows, bool looks, bool counted,
                 const View<int32_t, 2>& entries, int32_t* count, const View<int32_t, 2>& blocks, int32_t* block_count);

}  // namespace fathom::cuda
