// fathom/backend/cuda/attention.cuh
// Latent attention's arguments as its kernels take them, and where a row's keys lie: window by position, then the
// selected entries as listed. Pointers are the device's.
#pragma once
#include "fathom/backend/cuda/device.cuh"
#include "fathom/backend/cuda/launch.h"

namespace fathom::cuda {

struct Attention {
  const int32_t* sequence;  // [rows]
  int64_t rows;
  const uint8_t* queries;
  int64_t query_stride;  // elements
  int heads, channels;
  const int64_t* fresh_positions;
  const int32_t* fresh_begin;
  const uint8_t* fresh;
  int64_t fresh_stride;  // bytes
  RowFormat window_format, entry_format;
  RingRegion ring;
  const int64_t *window_begin, *window_end;
  PagedRegion latents;
  const int32_t* entries;  // null: window only
  int64_t entry_stride;    // elements
  int64_t most_entries;    // of a row; what lies past its count may be read, not followed
  const int32_t* count;
  const float* sink;
  float scale;
  uint8_t* out;
  int64_t out_stride;  // elements

  __device__ int64_t window_of(int64_t r) const {
    const int64_t n = window_end[r] - window_begin[r];
    return n > 0 ? n : 0;
  }
  __device__ int64_t entries_of(int64_t r) const { return entries != nullptr ? count[r] : 0; }
  /// Entry i of row r's window: computed by this step, or kept in the ring.
  __device__ const uint8_t* window_entry(int64_t r, int64_t s, int64_t i) const {
    const int64_t position = window_begin[r] + i, begin = fresh_begin[s];
    if (begin < fresh_begin[s + 1]) {
      const int64_t ahead = position - fresh_positions[begin];
      if (ahead >= 0) return fresh + (begin + ahead) * fresh_stride;
    }
    return ring.base + ring.slots.data[s] * ring.slot_stride + position % ring.capacity * ring.entry_bytes;
  }
  /// Entry number i of row r's selection.
  __device__ const uint8_t* latent_entry(int64_t r, int64_t s, int64_t i) const {
    const int64_t e = entries[r * entry_stride + i];
    const int64_t block = latents.blocks.data[s * latents.blocks.stride[0] + e / latents.entries_per_block];
    return latents.base + block * latents.block_stride + e % latents.entries_per_block * latents.entry_bytes;
  }
};

/// The largest power of two up to 16 that divides every address that a key's bytes may start at. Pure.
int64_t alignment(const Attention& op);
/// 512 channels, window Q8 or none, entries Q4K or Q8 or none, all on 8-byte addresses. Pure.
bool fits_attention_tensor_cores(const Attention& op);
/// bf16 queries and output.
void launch_attention_tensor(Call& call, const Attention& op);
/// As above with more than 16 heads, on 16-byte addresses. Pure.
bool fits_attention_warpgroups(const Attention& op);
void launch_attention_warpgroups(Call& call, const Attention& op);

}  // namespace fathom::cuda
