// Latent attention for many heads: 512 channels, keys Q8 or Q4K as the caches keep them, bf16 queries. Two blocks share
// a row and up to 64 heads: its keys go in tiles of 64, the first half of the tiles to the first block. A block has
// three warpgroups:
//
//   one      decodes: a tile's bytes into registers while the tile before is in use, then as bf16 into one of two
//            places in shared memory, exactly (a Q4K value has six significant bits), at 2^-8 of its value (kKeyScale)
//   two      multiply. Scores of a tile = queries . keys^T are the work of one of them in turn, which also makes the
//            weights; then both add weights . keys to their 256 channels: 128 float registers a thread. While one turns
//            scores into weights, the products of the other go on.
//
// The best score of a head runs along, and what is there shrinks when the best rose by more than 2^6: weights are
// rounded to bf16, which has the same precision up to there. At the end each block gives half of its sums to the other,
// which adds the two in one order: a row's result depends on its own keys alone.
//
// In shared memory the channels of each eight lie in the order 0 4 1 5 2 6 3 7, of keys and queries alike: FP4 codes
// come apart in pairs then. Bytes of a row: 128 * 528 + 512 * 288 = 215 KB of
// keys. Operations: 2 * 2 * 64 * 640 * 512 = 84 million: 390 a byte, so the floor is that of bf16 arithmetic.
#include "fathom/backend/cuda/attention.cuh"
#include "fathom/backend/cuda/block_pair.cuh"

namespace fathom::cuda {
namespace {

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

// The keys of a block: tiles [first, first + count) of the row's. The window's tiles come first.
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
__device__ void list_keys(Shared& shared, const Attention& op, const Part& part, int64_t r, int tile) {
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

__device__ void read_q4k(Raw& raw, const uint8_t* const* source) {
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

__device__ void decode_q4k(uint8_t* tile, const Raw& raw) {
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
__device__ void read_q8(Raw& raw, const uint8_t* const* source) {
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

__device__ void decode_q8(uint8_t* tile, Raw& raw, const uint8_t* const* source) {
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

__device__ void decode_part(Shared& shared, const Attention& op, const Part& part, int64_t r) {
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

// ------------------------------------------------------------------------------------------------ products
// 2^x, off by two units in the last place at most.
__device__ inline float power_of_two(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// The queries in the order of the keys' channels; heads that do not exist as zeros.
__device__ void place_queries(Shared& shared, const Attention& op, int64_t r, int first_head, int thread) {
  const Bf16* queries =
      reinterpret_cast<const Bf16*>(op.queries) + r * op.query_stride + int64_t(first_head) * kChannels;
  constexpr int kAtOnce = 8;
  for (int begin = thread; begin < kHeads * 64; begin += 256 * kAtOnce) {
    uint4 eight[kAtOnce];
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      const int head = (begin + 256 * i) / 64, piece = (begin + 256 * i) % 64;
      eight[i] = make_uint4(0, 0, 0, 0);
      if (first_head + head < op.heads) {
        eight[i] = __ldg(reinterpret_cast<const uint4*>(queries + int64_t(head) * kChannels + 8 * piece));
      }
    }
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      const int head = (begin + 256 * i) / 64, piece = (begin + 256 * i) % 64;
      const uint4 v = eight[i];
      *reinterpret_cast<uint4*>(shared.queries + piece / 8 * kColumnBytes + swizzled(head, piece % 8)) =
          make_uint4(__byte_perm(v.x, v.z, 0x5410), __byte_perm(v.x, v.z, 0x7632), __byte_perm(v.y, v.w, 0x5410),
                     __byte_perm(v.y, v.w, 0x7632));
    }
  }
  publish_to_products();
  meet(kMultipliers, 256);
}

// A thread of the multiplying warpgroups: of the sums it has rows `row` and `row + 8`, of each eight channels two.
struct Multiplier {
  Shared& shared;
  const int group;       // which of the two
  const int warp, lane;  // of the warpgroup
  const float scale;     // from products to powers of two
  float out[128];
  float score[32];
  float sum[2], shrink[2];

  __device__ Multiplier(Shared& block, int number, float to_power)
      : shared(block), group(number), warp(threadIdx.x / 32 % 4), lane(threadIdx.x % 32), scale(to_power) {
#pragma unroll
    for (int i = 0; i < 128; ++i) out[i] = 0;
    sum[0] = sum[1] = 0;
  }
  __device__ int row() const { return 16 * warp + lane / 4; }

  __device__ __forceinline__ void begin_scores(int tile) {
    const int side = tile & 1;
    wait_phase(shared.full[side], uint32_t(tile / 2) & 1);
    const uint64_t a = describe_tile(shared_address(shared.queries)),
                   b = describe_tile(shared_address(shared.keys[side]));
    begin_products();
#pragma unroll
    for (int k = 0; k < kChannels / 16; ++k) {
      const uint64_t further = uint64_t(k / 4 * (kColumnBytes / 16) + k % 4 * 2);
      multiply_rows(score, a + further, b + further, k > 0);
    }
    commit_products();
  }

  // Scores to weights, their sum, and what they do to the sums before.
  __device__ __forceinline__ void weigh(int tile, int keys) {
    const int side = tile & 1;
    hold(score);
    if (keys < kKeys) {
#pragma unroll
      for (int i = 0; i < 32; ++i) {
        if (i / 4 * 8 + lane % 4 * 2 + i % 2 >= keys) score[i] = -INFINITY;
      }
    }
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int head = row() + 8 * h;
      const float before = tile == 0 ? kNoScore : shared.best[side ^ 1][head];
      float most = -INFINITY;
#pragma unroll
      for (int n = 0; n < 8; ++n) most = fmaxf(most, fmaxf(score[4 * n + 2 * h], score[4 * n + 2 * h + 1]));
      most = fmaxf(most, __shfl_xor_sync(~0u, most, 1));
      most = fmaxf(most, __shfl_xor_sync(~0u, most, 2)) * scale;
      const float best = most > before + kSlack ? most : before;
      shrink[h] = power_of_two(before - best);
      if (lane % 4 == 0) {
        shared.best[side][head] = best;
        shared.shrink[side][head] = shrink[h];
      }
      float part = 0;
#pragma unroll
      for (int n = 0; n < 8; ++n) {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          float& s = score[4 * n + 2 * h + i];
          s = power_of_two(fmaf(s, scale, kWeightLog2 - best));
          part += s;
        }
      }
      sum[h] = fmaf(sum[h], shrink[h], part);
    }
    // A lane names row lane % 8 of matrix lane / 8: rows 0 and 8, then the next eight keys.
    const int at_row = 16 * warp + lane / 8 % 2 * 8 + lane % 8;
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      uint32_t pairs[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const __nv_bfloat162 pair = __floats2bfloat162_rn(score[8 * j + 2 * i], score[8 * j + 2 * i + 1]);
        pairs[i] = *reinterpret_cast<const uint32_t*>(&pair);
      }
      store_matrices(shared.weights[side] + swizzled(at_row, 2 * j + lane / 16), pairs[0], pairs[1], pairs[2],
                     pairs[3]);
    }
    publish_to_products();
    arrive(shared.weighed[side]);
  }

  // out = out * shrink + weights . keys, under way at the return. `own`: this warpgroup weighed the tile.
  __device__ __forceinline__ void begin_output(int tile, bool own) {
    const int side = tile & 1;
    wait_phase(shared.weighed[side], uint32_t(tile / 2) & 1);
    if (!own) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        shrink[h] = shared.shrink[side][row() + 8 * h];
        sum[h] *= shrink[h];
      }
    }
    if (__any_sync(~0u, shrink[0] != 1 || shrink[1] != 1)) {
#pragma unroll
      for (int n = 0; n < 32; ++n) {
        out[4 * n] *= shrink[0], out[4 * n + 1] *= shrink[0];
        out[4 * n + 2] *= shrink[1], out[4 * n + 3] *= shrink[1];
      }
    }
    const uint64_t a = describe_tile(shared_address(shared.weights[side])),
                   b = describe_transposed_tiles(shared_address(shared.keys[side] + 4 * group * kColumnBytes));
    hold(out);
    begin_products();
#pragma unroll
    for (int k = 0; k < kKeys / 16; ++k) multiply_columns(out, a + 2 * k, b + 128 * k, true);
    commit_products();
  }
  __device__ __forceinline__ void end_output(int tile) {
    wait_products<0>();
    hold(out);
    if (lane == 0) arrive(shared.empty[tile & 1]);
  }

  // Tiles 0, 2, 4 ... are weighed by group 0, the others by group 1; each begins its scores before it waits for the
  // other's weights.
  __device__ __forceinline__ void multiply_part(const Part& part) {
    int tile = group;
    if (tile >= part.count) arrive_in_cluster();
    if (group == 0 && part.count > 0) {
      begin_scores(0);
      wait_products<0>();
      if (part.count <= 2) arrive_in_cluster();  // these were the last scores of this warpgroup
      weigh(0, part.keys(0));
      begin_output(0, true);
      end_output(0);
      tile = 2;
    }
    for (; tile < part.count; tile += 2) {
      begin_scores(tile);
      begin_output(tile - 1, false);
      wait_products<1>();
      if (tile + 2 >= part.count) arrive_in_cluster();
      weigh(tile, part.keys(tile));
      end_output(tile - 1);
      begin_output(tile, true);
      end_output(tile);
    }
    if (tile == part.count && tile > 0) {
      begin_output(tile - 1, false);
      end_output(tile - 1);
    }
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      sum[h] += __shfl_xor_sync(~0u, sum[h], 1);
      sum[h] += __shfl_xor_sync(~0u, sum[h], 2);
      if (lane % 4 == 0) shared.sum[group][row() + 8 * h] = sum[h];
    }
  }

  // The sums of channels that the other block ends, in the place of its queries.
  template <int Rank>
  __device__ __forceinline__ void give(const Part& part, int thread) {
    const uint32_t barrier = address_in_block(&shared.given, Rank ^ 1);
    if (thread < kHeads) {
      const float best = part.count > 0 ? shared.best[(part.count - 1) & 1][thread] : kNoScore;
      store_in_block(address_in_block(&shared.other_best[thread], Rank ^ 1), best, barrier);
      store_in_block(address_in_block(&shared.other_sum[thread], Rank ^ 1),
                     shared.sum[0][thread] + shared.sum[1][thread], barrier);
    }
    const uint32_t to = address_in_block(shared.queries + 16 * thread, Rank ^ 1);
#pragma unroll
    for (int j = 0; j < 16; ++j) {
      const float* from = out + 64 * (Rank ^ 1) + 4 * j;
      store_in_block(to + uint32_t(256 * 16 * j), make_float4(from[0], from[1], from[2], from[3]), barrier);
    }
  }

  template <int Rank>
  __device__ __forceinline__ void end(const Attention& op, const Part& part, int64_t r, int first_head, int thread) {
    float own[2], other[2];  // factors of the two blocks' sums
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int head = row() + 8 * h;
      const float sink = first_head + head < op.heads ? op.sink[first_head + head] * kLog2E : 0;
      const float own_best = part.count > 0 ? shared.best[(part.count - 1) & 1][head] : kNoScore;
      const float other_best = shared.other_best[head], best = fmaxf(sink, fmaxf(own_best, other_best));
      own[h] = power_of_two(own_best - best);
      other[h] = power_of_two(other_best - best);
      // Commutative: the same in both blocks.
      const float weights = __fadd_rn(__fmul_rn(shared.sum[0][head] + shared.sum[1][head], own[h]),
                                      __fmul_rn(shared.other_sum[head], other[h]));
      const float inverse = __fdividef(1, weights * kKeyScale + power_of_two(sink - best));
      own[h] *= inverse, other[h] *= inverse;
    }
    const float4* given = reinterpret_cast<const float4*>(shared.queries) + thread;
    Bf16* to = reinterpret_cast<Bf16*>(op.out) + r * op.out_stride + int64_t(first_head + row()) * kChannels +
               256 * group + 128 * Rank + 8 * (lane % 4);
    const bool odd = lane % 2 != 0, upper = lane % 4 >= 2;
#pragma unroll
    for (int m = 0; m < 4; ++m) {
      uint32_t words[2][4];  // of each row and eight channels: channels t and t + 4
#pragma unroll
      for (int n = 0; n < 4; ++n) {
        const float* mine = out + 64 * Rank + 16 * m + 4 * n;
        const float4 theirs = given[256 * (4 * m + n)];
        const __nv_bfloat162 low = __floats2bfloat162_rn(fmaf(theirs.x, other[0], mine[0] * own[0]),
                                                         fmaf(theirs.y, other[0], mine[1] * own[0])),
                             high = __floats2bfloat162_rn(fmaf(theirs.z, other[1], mine[2] * own[1]),
                                                          fmaf(theirs.w, other[1], mine[3] * own[1]));
        words[0][n] = *reinterpret_cast<const uint32_t*>(&low);
        words[1][n] = *reinterpret_cast<const uint32_t*>(&high);
      }
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        // Four lanes have a word each of four eights: they exchange them so that each has an eight.
        uint32_t(&w)[4] = words[h];
#pragma unroll
        for (int n = 0; n < 4; n += 2) {
          const uint32_t got = __shfl_xor_sync(~0u, odd ? w[n] : w[n + 1], 1);
          w[n] = odd ? got : w[n];
          w[n + 1] = odd ? w[n + 1] : got;
        }
#pragma unroll
        for (int n = 0; n < 2; ++n) {
          const uint32_t got = __shfl_xor_sync(~0u, upper ? w[n] : w[n + 2], 2);
          w[n] = upper ? got : w[n];
          w[n + 2] = upper ? w[n + 2] : got;
        }
        if (first_head + row() + 8 * h < op.heads) {
          *reinterpret_cast<uint4*>(to + 8 * h * kChannels + 32 * m) =
              make_uint4(__byte_perm(w[0], w[1], 0x5410), __byte_perm(w[2], w[3], 0x5410),
                         __byte_perm(w[0], w[1], 0x7632), __byte_perm(w[2], w[3], 0x7632));
        }
      }
    }
  }
};

__global__ void __cluster_dims__(2, 1, 1) __launch_bounds__(kThreads, 1)
    attention_warpgroup_kernel(const __grid_constant__ Attention op) {
  extern __shared__ uint8_t memory[];
  Shared& shared = *reinterpret_cast<Shared*>(memory + (-shared_address(memory) & 1023));
  const int64_t r = blockIdx.x / 2;
  const int rank = int(rank_in_cluster()), first_head = int(blockIdx.y) * kHeads;
  if (threadIdx.x == 0) {
#pragma unroll
    for (int side = 0; side < 2; ++side) {
      init_barrier(shared.full[side], 128);
      init_barrier(shared.empty[side], 8);
      init_barrier(shared.weighed[side], 128);
    }
    init_barrier(shared.given, 1);
    publish_barriers();
    expect_bytes(shared.given, kGivenBytes);
  }
  __syncthreads();
  const Part part(op, r, rank);
  if (threadIdx.x < 128) {
    give_registers<kDecoderRegisters>();
    decode_part(shared, op, part, r);
    arrive_in_cluster();
    wait_for_cluster();
  } else {
    take_registers<kProductRegisters>();
    const int thread = int(threadIdx.x) - 128;
    place_queries(shared, op, r, first_head, thread);
    Multiplier m(shared, thread / 128, op.scale * kLog2E / kKeyScale);
    m.multiply_part(part);
    meet(kMultipliers, 256);
    wait_for_cluster();  // the other block has made its last scores
    if (rank == 0) {
      m.give<0>(part, thread);
    } else {
      m.give<1>(part, thread);
    }
    wait_phase(shared.given, 0);
    if (rank == 0) {
      m.end<0>(op, part, r, first_head, thread);
    } else {
      m.end<1>(op, part, r, first_head, thread);
    }
  }
}

}  // namespace

bool fits_attention_warpgroups(const Attention& op) {
  return fits_attention_tensor_cores(op) && alignment(op) == 16 && op.heads > 16 && op.scale > 0 &&
         reinterpret_cast<uintptr_t>(op.out) % 16 == 0 && op.out_stride % 8 == 0;
}

void launch_attention_warpgroups(Call& call, const Attention& op) {
  constexpr int kBytes = int(sizeof(Shared)) + 1024;  // its start is aligned to 1,024
  expect(cudaFuncSetAttribute(attention_warpgroup_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes),
         "latent_attention");
  const dim3 blocks(grid(2 * op.rows), unsigned((op.heads + kHeads - 1) / kHeads));
  attention_warpgroup_kernel<<<blocks, kThreads, kBytes, call.stream()>>>(op);
}

}  // namespace fathom::cuda
