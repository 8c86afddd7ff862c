// fathom/backend/cuda/attention_keys.cuh
// The keys of latent attention on asynchronous products (latent_attention_warpgroup.cu): which a block has, where they
// lie, and the warpgroup that decodes them, tile by tile, into the shared memory from which two others multiply them.
//
// In shared memory the channels of each eight lie in the order 0 4 1 5 2 6 3 7, of keys and queries alike: FP4 codes
// come apart in pairs then.
#pragma once
#include "fathom/backend/cuda/attention.cuh"
#include "fathom/backend/cuda/warpgroup.cuh"

namespace fathom::cuda::attention_keys {

constexpr int kChannels = 512, kKeys = 64, kHeads = 64, kThreads = 384;
constexpr int kColumnBytes = 128 * kKeys;  // of 64 channels of a tile's keys
constexpr int kTileBytes = 8 * kColumnBytes;
constexpr int kListed = 6;  // tiles whose keys are looked up at once
// Registers of a thread: 504 for the three together, what the block begins with.
constexpr int kDecoderRegisters = 88, kProductRegisters = 208;
constexpr int kDecoders = 1, kMultipliers = 2;  // barriers of their warps
// Keys lie in shared memory as 2^-8 of their value, so that 2^126 (what FP4 codes lack) times the scale is a bf16.
// Scores and weights make up for it.
constexpr float kKeyScale = 1.0f / 256, kWeightLog2 = 8;
// The other block's sums of half of the channels, its bests and its sums of weights.
constexpr int kGivenBytes = kHeads * (kChannels / 2 + 2) * int(sizeof(float));
constexpr float kNoScore = -1e30f, kSlack = 6;
constexpr float kLog2E = 1.4426950408889634f;

struct Shared {
  uint8_t queries[kTileBytes];
  uint8_t keys[2][kTileBytes];
  uint8_t weights[2][kColumnBytes];
  const uint8_t* source[kListed * kKeys];  // null: no such key
  float best[2][kHeads];                   // after a tile, in powers of two
  float shrink[2][kHeads];                 // what a tile does to the sums before
  float sum[2][kHeads];                    // of each multiplying warpgroup's tiles
  float other_best[kHeads], other_sum[kHeads];
  uint64_t full[2], empty[2], weighed[2], given;
};

/// The keys of a block: tiles [first, first + count) of the row's. The window's tiles come first.
struct Part {
  int window, entries, window_tiles, first, count;
  __device__ Part(const Attention& op, int64_t r, int rank)
      : window(int(op.window_of(r))), entries(int(op.entries_of(r))), window_tiles((window + kKeys - 1) / kKeys) {
    const int tiles = window_tiles + (entries + kKeys - 1) / kKeys, half = (tiles + 1) / 2;
    first = rank * half;
    count = rank == 0 ? half : tiles - half;
  }
  __device__ bool in_window(int tile) const { return first + tile < window_tiles; }
  /// The number of its tile's first key in its set.
  __device__ int begin(int tile) const {
    return kKeys * (in_window(tile) ? first + tile : first + tile - window_tiles);
  }
  __device__ int keys(int tile) const { return min(kKeys, (in_window(tile) ? window : entries) - begin(tile)); }
};

// ------------------------------------------------------------------------------------------------ decoding
// Where the keys of kListed tiles lie, and their bytes on the way to the L2 cache. The tables are read three keys at a
// time, because the way leads through two of them. Positions and entries are below 2^31.
__device__ inline void list_keys(Shared& shared, const Attention& op, const Part& part, int64_t r, int tile) {
  constexpr int kOwn = kListed * kKeys / 128;
  const int64_t sequence = op.sequence[r], window_begin = op.window_begin[r];
  const int64_t fresh_begin = op.fresh_begin[sequence];
  const bool has_fresh = fresh_begin < op.fresh_begin[sequence + 1];
  const int64_t fresh_position = has_fresh ? op.fresh_positions[fresh_begin] : INT64_MAX;
  const uint8_t* ring = op.ring.base + op.ring.slots.data[sequence] * op.ring.slot_stride;
  int entry[kOwn], place[kOwn];
  bool valid[kOwn];
#pragma unroll
  for (int u = 0; u < kOwn; ++u) {
    const int at = tile + 2 * u + int(threadIdx.x) / kKeys, k = threadIdx.x % kKeys;
    valid[u] = at < part.count && k < part.keys(at);
    const bool selected = valid[u] && !part.in_window(at);
    entry[u] = selected ? op.entries[r * op.entry_stride + part.begin(at) + k] : 0;
  }
#pragma unroll
  for (int u = 0; u < kOwn; ++u) {
    const int at = tile + 2 * u + int(threadIdx.x) / kKeys;
    const bool selected = valid[u] && !part.in_window(at);
    const int of_sequence = entry[u] / op.latents.entries_per_block;
    place[u] = selected ? op.latents.blocks.data[sequence * op.latents.blocks.stride[0] + of_sequence] : 0;
    entry[u] -= of_sequence * op.latents.entries_per_block;
  }
#pragma unroll
  for (int u = 0; u < kOwn; ++u) {
    const int at = tile + 2 * u + int(threadIdx.x) / kKeys, k = threadIdx.x % kKeys;
    const uint8_t* from = nullptr;
    if (valid[u]) {
      RowFormat format = op.entry_format;
      if (part.in_window(at)) {
        const int64_t position = window_begin + part.begin(at) + k;
        from = position >= fresh_position
                   ? op.fresh + (fresh_begin + position - fresh_position) * op.fresh_stride
                   : ring + uint32_t(position) % uint32_t(op.ring.capacity) * int64_t(op.ring.entry_bytes);
        format = op.window_format;
      } else {
        from = op.latents.base + place[u] * op.latents.block_stride + int64_t(entry[u]) * op.latents.entry_bytes;
      }
      prefetch_to_l2(from, format == RowFormat::q8 ? 528 : 288);
    }
    shared.source[128 * u + int(threadIdx.x)] = from;
  }
}

// What a decoding thread has of a tile: of 8 keys (a Q8 tile, half after half) or 16 (Q4K), a lane one key in eight,
// pieces lane / 8 + 0, 4, 8 ... of 16 bytes. Eight lanes that store together have eight keys: no bank conflicts.
struct Raw {
  uint4 codes[8];
  uint32_t scales[8];
};
__device__ inline uint4 read_16(const uint8_t* from, int at) {
  return from == nullptr ? make_uint4(0, 0, 0, 0) : __ldg(reinterpret_cast<const uint4*>(from + at));
}

__device__ inline void read_q4k(Raw& raw, const uint8_t* const* source) {
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
#pragma unroll
  for (int group = 0; group < 2; ++group) {
    const uint8_t* from = source[16 * warp + 8 * group + lane % 8];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int piece = 4 * i + lane / 8;
      raw.codes[4 * group + i] = read_16(from, 16 * piece);
      raw.scales[4 * group + i] =
          from == nullptr ? 0 : __ldg(reinterpret_cast<const uint16_t*>(from + kChannels / 2 + 2 * piece));
    }
  }
}

// A pair of scales, 2^118 of their value: a bf16 has them, and codes lack 2^126.
__device__ inline uint32_t scales_q4k(uint32_t two) {
  const uint32_t bits = (two << 4 & 0x7f0u) | (two << 12 & 0x07f00000u);  // 2^-120 of their value
  return times(times(bits, power_pair(127 + 119)), power_pair(127 + 119));
}
// Eight codes as they lie: four pairs (0, 4), (1, 5), (2, 6), (3, 7), times the scale.
__device__ inline uint4 spread_q4k(uint32_t codes, uint32_t scale) {
  constexpr uint32_t kSign = 0x80008000u, kMagnitude = 0x01c001c0u;
  return make_uint4(times((codes << 12 & kSign) | (codes << 6 & kMagnitude), scale),
                    times((codes << 8 & kSign) | (codes << 2 & kMagnitude), scale),
                    times((codes << 4 & kSign) | (codes >> 2 & kMagnitude), scale),
                    times((codes & kSign) | (codes >> 6 & kMagnitude), scale));
}

__device__ inline void decode_q4k(uint8_t* tile, const Raw& raw) {
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  // Piece 4 i + lane / 8 has 32 channels: half of a column's row.
  uint8_t* row = tile + lane / 16 * kColumnBytes + (16 * warp + lane % 8) * 128;
  int at[4];
#pragma unroll
  for (int word = 0; word < 4; ++word) at[word] = ((lane / 8 % 2 * 4 + word) ^ (lane % 8)) * 16;
#pragma unroll
  for (int group = 0; group < 2; ++group) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const uint4& codes = raw.codes[4 * group + i];
      const uint32_t scales = scales_q4k(raw.scales[4 * group + i]);
      const uint32_t low = __byte_perm(scales, 0, 0x1010), high = __byte_perm(scales, 0, 0x3232);
      uint8_t* to = row + 2 * i * kColumnBytes + 8 * 128 * group;
      *reinterpret_cast<uint4*>(to + at[0]) = spread_q4k(codes.x, low);
      *reinterpret_cast<uint4*>(to + at[1]) = spread_q4k(codes.y, low);
      *reinterpret_cast<uint4*>(to + at[2]) = spread_q4k(codes.z, high);
      *reinterpret_cast<uint4*>(to + at[3]) = spread_q4k(codes.w, high);
    }
  }
}

__device__ inline const uint8_t* q8_source(const uint8_t* const* source, int half) {
  return source[16 * (threadIdx.x / 32) + 8 * half + threadIdx.x % 8];
}
__device__ inline void read_q8(Raw& raw, const uint8_t* const* source) {
  const uint8_t* from = q8_source(source, 0);
#pragma unroll
  for (int i = 0; i < 8; ++i) raw.codes[i] = read_16(from, 16 * (4 * i + int(threadIdx.x) % 32 / 8));
  const uint4 scales = read_16(from, kChannels);
  raw.scales[0] = scales.x, raw.scales[1] = scales.y, raw.scales[2] = scales.z, raw.scales[3] = scales.w;
}

// Four codes of one word, four of another: pairs of one each, too small by 2^120, times the factors.
__device__ inline uint4 spread_q8(uint32_t first, uint32_t second, const Factors& factors) {
  uint32_t pairs[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const uint32_t v = __byte_perm(first, second, uint32_t((4 + i) << 12 | i << 4));
    pairs[i] = times((v & 0x80008000u) | (v >> 4 & 0x07f007f0u), factors.first);
  }
  if (factors.two) {
#pragma unroll
    for (int i = 0; i < 4; ++i) pairs[i] = times(pairs[i], factors.second);
  }
  return make_uint4(pairs[0], pairs[1], pairs[2], pairs[3]);
}

__device__ inline void decode_q8(uint8_t* tile, Raw& raw, const uint8_t* const* source) {
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  uint8_t* row = tile + (16 * warp + lane % 8) * 128;  // piece 4 i + lane / 8 has 16 channels of column i
  const int first = ((lane / 8 * 2) ^ (lane % 8)) * 16, second = first ^ 16;
  const uint8_t* next = q8_source(source, 1);
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    uint4 scales = half == 0 ? read_16(next, kChannels) : make_uint4(0, 0, 0, 0);
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const uint4 codes = raw.codes[i];
      if (half == 0) raw.codes[i] = read_16(next, 16 * (4 * i + lane / 8));
      // Scale 2 i of 32 channels, or the one after it.
      const uint32_t code = raw.scales[i / 2] >> (i % 2 * 16 + lane / 16 * 8) & 0xff;
      const Factors factors = factors_of(code, 120 - 8);
      uint8_t* to = row + i * kColumnBytes + 8 * 128 * half;
      *reinterpret_cast<uint4*>(to + first) = spread_q8(codes.x, codes.y, factors);
      *reinterpret_cast<uint4*>(to + second) = spread_q8(codes.z, codes.w, factors);
    }
    if (half == 0)
      raw.scales[0] = scales.x, raw.scales[1] = scales.y, raw.scales[2] = scales.z, raw.scales[3] = scales.w;
  }
}

__device__ inline void decode_part(Shared& shared, const Attention& op, const Part& part, int64_t r) {
  Raw raw;
  const auto format = [&](int tile) { return part.in_window(tile) ? op.window_format : op.entry_format; };
  const auto read = [&](int tile) {
    const uint8_t* const* source = shared.source + tile % kListed * kKeys;
    if (format(tile) == RowFormat::q8) {
      read_q8(raw, source);
    } else {
      read_q4k(raw, source);
    }
  };
  for (int tile = 0; tile < part.count; ++tile) {
    const int side = tile & 1;
    if (tile % kListed == 0) {
      meet(kDecoders, 128);  // the last list has been read
      list_keys(shared, op, part, r, tile);
      meet(kDecoders, 128);
      read(tile);
    }
    if (tile >= 2) wait_phase(shared.empty[side], uint32_t(tile / 2 - 1) & 1);
    if (format(tile) == RowFormat::q8) {
      decode_q8(shared.keys[side], raw, shared.source + tile % kListed * kKeys);
    } else {
      decode_q4k(shared.keys[side], raw);
    }
    publish_to_products();
    arrive(shared.full[side]);
    if (tile + 1 < part.count && (tile + 1) % kListed != 0) read(tile + 1);
  }
}

}  // namespace fathom::cuda::attention_keys
