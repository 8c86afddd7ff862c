// fathom/backend/cuda/selection.cuh
// The choice of cached entries as its kernels see it: the operation, and the memory that several blocks share. No
// instruction, so that a model of the machine runs the same text (index_scores_text.h). Bf16 and its loads come before
// it (device.cuh).
#pragma once
#include "fathom/backend/cuda/select_bins.cuh"
#include "fathom/backend/ops.h"

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
}  // namespace fathom::cuda
