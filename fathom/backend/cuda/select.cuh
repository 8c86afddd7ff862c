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

  __device__ int64_t visible(int64_t r) const { return (positions[r] + 1) / ratio; }
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

/// Scores of `rows` rows from s.first_row on, of `sequences` sequences, over `most` entries at most, by the kernel for
/// rows that share entries. False when these do not, or it does not fit: nothing was launched. index_scores.cu
bool launch_index_scores(Call& call, const Selection& s, int64_t rows, int64_t most, int64_t sequences);

/// The best entries (and blocks, of a candidate source) of `rows` rows from s.first_row on. `looks`: whether some row
/// may have to look at its scores.
void choose_best(Call& call, const Selection& s, int64_t rows, bool looks, const View<int32_t, 2>& entries,
                 int32_t* count, const View<int32_t, 2>& blocks, int32_t* block_count);

}  // namespace fathom::cuda
