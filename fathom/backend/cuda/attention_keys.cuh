// fathom/backend/cuda/attention_keys.cuh
// The keys of latent attention on asynchronous products (latent_attention_warpgroup.cu): which a row has, where they
// lie, and the warps that look them up and decode them, tile by tile, into the shared memory from which others multiply
// them.
//
// In shared memory 32 channels lie as four pieces of 16 bytes: channels 0 4 of each eight, 1 5, 2 6, 3 7. FP4 codes
// come apart in pairs like this, and a thread that has two channels of each piece, of queries or of sums, has an eight.
#pragma once
#include "fathom/backend/cuda/attention.cuh"
#include "fathom/backend/cuda/block_pair.cuh"

namespace fathom::cuda::attention_keys {

constexpr int kChannels = 512, kKeys = 64, kHeads = 64;
constexpr int kColumnBytes = 128 * kKeys;  // of 64 channels of a tile's keys
constexpr int kHalfBytes = 4 * kColumnBytes;
constexpr int kWarps = 4;             // of each role
constexpr int kOwn = 3, kOthers = 2;  // halves of tiles that are in use at once
constexpr int kListed = 4;            // steps whose keys are looked up ahead
// Keys lie in shared memory as 2^-8 of their value, so that 2^126 (what FP4 codes lack) times the scale is a bf16.
// Scores and weights make up for it.
constexpr float kKeyScale = 1.0f / 256, kWeightLog2 = 8;

// A step of a row: two tiles, of which the first `in_window` belong to the window.
struct Step {
  int in_window;
  int keys[2];  // at most 0 behind the last tile
  int left;     // steps of the row from this one on; 0: there are no more rows
};

// A row has up to 64 heads and two blocks, which have half of the channels of its result each. They go through its
// tiles by twos, a step each: a block scores the first or the second of them (its own), and needs of the other the
// channels that it adds up. What it needs for scores alone is free as soon as they are there, so one place will do.
struct Shared {
  uint8_t own[kOwn][kHalfBytes];              // of the own tile: the channels that the block adds up
  uint8_t rest[kHalfBytes];                   // and the others
  uint8_t other[kOthers][kHalfBytes];         // of the other tile
  uint8_t weights[2][kColumnBytes];           // of the step's two tiles
  const uint8_t* source[kListed][2 * kKeys];  // where keys lie
  Step listed_step[kListed];
  int2 own_step[kOwn];      // of the own tile: keys, and steps left
  float most[2][kHeads];    // by step & 1: the other block's best score, in powers of two
  float best[kHeads];       // after a step
  float sum[2][2][kHeads];  // by row & 1: of each block's weights
  uint64_t listed[kListed], unlisted[kListed];
  // What is decoded, and what is free again.
  uint64_t full_own[kOwn], added_own[kOwn], full_rest, scored_rest, full_other[kOthers], added_other[kOthers];
  uint64_t compared[2], summed[2];  // what the other block sends
  uint64_t weighed, weights_free;
};

/// The keys of a row: those of the window, in tiles, then the entries', in others.
struct Keys {
  int window, entries, window_tiles, steps;
  __device__ Keys(const Attention& op, int64_t r)
      : window(int(op.window_of(r))),
        entries(int(op.entries_of(r))),
        window_tiles((window + kKeys - 1) / kKeys),
        steps(max(1, (window_tiles + (entries + kKeys - 1) / kKeys + 1) / 2)) {}
  /// At most 0 behind the last tile.
  __device__ int of_tile(int tile) const {
    return tile < window_tiles ? window - kKeys * tile : entries - kKeys * (tile - window_tiles);
  }
};

/// What a pair of blocks works on one after the other: a row and 64 heads of it.
struct Item {
  int64_t row;
  int first_head;
  __device__ Item(const Attention& op, int i) {
    const int groups = (op.heads + kHeads - 1) / kHeads, of_rows = i / groups;
    row = of_rows;
    first_head = (i - of_rows * groups) * kHeads;
  }
};

// ------------------------------------------------------------------------------------------------ where they lie
constexpr uint32_t kQ8Bytes = kChannels + kChannels / 32, kQ4kBytes = kChannels / 2 + kChannels / 16;  // of a key
// What is read where there is no key or no query.
__device__ const uint4 kZeros[kChannels / 8] = {};

// The keys of all rows that a pair of blocks has, step by step, ahead of the warps that decode them; their bytes (of
// the block's own tiles) and the next row's queries are on the way to the L2 cache then. A thread has a key of each
// step. The way to a key leads through two tables. Positions and entries are below 2^31.
__device__ inline void list_rows(Shared& shared, const Attention& op, int rank, int item, int items, int stride) {
  const int thread = int(threadIdx.x) % (32 * kWarps), side = thread / kKeys;
  uint32_t number = 0;  // of steps over all rows
  const auto take_place = [&] {
    const int place = int(number % kListed);
    if (number >= kListed) wait_phase(shared.unlisted[place], (number / kListed - 1) & 1);
    return place;
  };
  const auto give_place = [&](int place) {
    arrive(shared.listed[place]);
    ++number;
  };
  // 32 KB, number `part` of them.
  const auto announce = [&](const void* from, int64_t bytes, int part) {
    for (int64_t at = 128 * (256 * part + thread), n = 0; at < bytes && n < 2; at += 128 * 128, ++n) {
      prefetch_to_l2(static_cast<const uint8_t*>(from) + at);
    }
  };
#pragma unroll 1
  for (; item < items; item += stride) {
    const Item it(op, item);
    const int64_t r = it.row, sequence = op.sequence[r];
    const int32_t* entries = op.entries + r * op.entry_stride;
    announce(entries, op.entries != nullptr ? op.most_entries * 4 : 0, 0);
    announce(op.queries + (r * op.query_stride + it.first_head * kChannels) * int64_t(2),
             int64_t(min(kHeads, op.heads - it.first_head)) * kChannels * 2, rank);
    const Keys keys(op, r);
    const int window_begin = int(op.window_begin[r]);
    const int64_t fresh_begin = op.fresh_begin[sequence];
    const bool has_fresh = fresh_begin < op.fresh_begin[sequence + 1];
    const uint8_t* ring = op.ring.base + op.ring.slots.data[sequence] * op.ring.slot_stride;
    const int64_t fresh_position = has_fresh ? op.fresh_positions[fresh_begin] : INT64_MAX;
    const int32_t* pages = op.latents.blocks.data + sequence * op.latents.blocks.stride[0];
    announce(pages, op.entries != nullptr ? op.latents.blocks.shape[1] * 4 : 0, 0);
#pragma unroll 1
    for (int step = 0; step < keys.steps; ++step) {
      const int tile = 2 * step + side, i = thread % kKeys;
      const bool in_window = tile < keys.window_tiles, exists = i < keys.of_tile(tile);
      const uint8_t* at = reinterpret_cast<const uint8_t*>(kZeros);
      if (exists && in_window) {
        const int position = window_begin + kKeys * tile + i;
        at = position >= fresh_position
                 ? op.fresh + (fresh_begin + position - fresh_position) * op.fresh_stride
                 : ring + uint32_t(position) % uint32_t(op.ring.capacity) * int64_t(op.ring.entry_bytes);
      } else if (exists) {
        const uint32_t entry = uint32_t(__ldg(&entries[kKeys * (tile - keys.window_tiles) + i]));
        const uint32_t per_page = uint32_t(op.latents.entries_per_block), page = entry / per_page;
        at = op.latents.base + __ldg(&pages[page]) * op.latents.block_stride +
             (entry - page * per_page) * int64_t(op.latents.entry_bytes);
      }
      const int place = take_place();
      shared.source[place][thread] = at;
      if (thread == 0) {
        shared.listed_step[place] = {min(2, max(0, keys.window_tiles - 2 * step)),
                                     {keys.of_tile(2 * step), keys.of_tile(2 * step + 1)},
                                     keys.steps - step};
      }
      give_place(place);
      if (exists && side == rank) {
        const RowFormat format = in_window ? op.window_format : op.entry_format;
        const int bytes = int(format == RowFormat::q8 ? kQ8Bytes : kQ4kBytes);
#pragma unroll 1
        for (int byte = 0; byte < bytes; byte += 128) prefetch_to_l2(at + byte);
        prefetch_to_l2(at + bytes - 1);
      }
    }
  }
  const int place = take_place();
  shared.source[place][thread] = reinterpret_cast<const uint8_t*>(kZeros);
  if (thread == 0) shared.listed_step[place] = {};
  give_place(place);
}

// ------------------------------------------------------------------------------------------------ decoding
// What a thread has ahead of half of the channels of a key: of four times 64 channels it (lane / 8) has one, of a Q8
// key the first 32 of them and the scales of all. A thread has two keys, eight apart. Eight lanes that store together
// have eight keys: no bank conflicts.
struct Raw {
  uint4 codes[2];
  uint32_t scales;
};
__device__ inline int own_key() { return int(threadIdx.x) % (32 * kWarps) / 32 * 16 + int(threadIdx.x) % 8; }
__device__ inline int quarter() { return int(threadIdx.x) % 32 / 8; }

// These stay where they are written: behind the last use of the registers that they fill.
__device__ __forceinline__ void read_16(uint4& v, const uint8_t* from) {
  asm volatile("ld.global.nc.v4.u32 {%0, %1, %2, %3}, [%4];" : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(from));
}
// Where number `number` of eight times 64 channels begins in a key.
__device__ __forceinline__ int codes_at(bool q4k, int number) { return number << (q4k ? 5 : 6); }
__device__ __forceinline__ void read_part(Raw& raw, bool q4k, const uint8_t* from, int number) {
  if (q4k) {
    asm volatile("ld.global.nc.u32 %0, [%1];" : "=r"(raw.scales) : "l"(from + kChannels / 2 + 4 * number));
  } else {
    asm volatile("{.reg .b16 t; ld.global.nc.b16 t, [%1]; cvt.u32.u16 %0, t;}"
                 : "=r"(raw.scales)
                 : "l"(from + kChannels + 2 * number));
  }
  const uint8_t* codes = from + codes_at(q4k, number);
  read_16(raw.codes[0], codes), read_16(raw.codes[1], codes + 16);
}

__device__ __forceinline__ void store_piece(uint32_t to, uint32_t a, uint32_t b, uint32_t c, uint32_t d) {
  asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};" ::"r"(to), "r"(a), "r"(b), "r"(c), "r"(d) : "memory");
}

// A pair of scales, 2^118 of their value: a bf16 has them, and codes lack 2^126.
__device__ inline uint32_t scales_q4k(uint32_t two) {
  const uint32_t bits = (two << 4 & 0x7f0u) | (two << 12 & 0x07f00000u);  // 2^-120 of their value
  return times(times(bits, power_pair(127 + 119)), power_pair(127 + 119));
}
// 32 channels: of each word pairs 0 4, 1 5, 2 6, 3 7 of its codes. A product puts a code's bits both where its sign and
// where its magnitude has to be. `to` is the place of piece 0 of a row whose pieces are exchanged by its number.
__device__ __forceinline__ void decode_q4k(uint32_t to, uint4 codes, uint32_t two) {
  constexpr uint32_t kEven = 0x000f000fu, kOdd = 0x00f000f0u, kSignAndMagnitude = 0x81c081c0u;
  const uint32_t scales = scales_q4k(two);
  const uint32_t low = __byte_perm(scales, 0, 0x1010), high = __byte_perm(scales, 0, 0x3232);
#pragma unroll
  for (int piece = 0; piece < 4; ++piece) {
    const auto pair = [&](uint32_t word, uint32_t scale) {
      const uint32_t twice = piece % 2 == 0 ? (word & kEven) * 0x1040u : (word & kOdd) * 0x104u;
      return times(twice & kSignAndMagnitude, scale);
    };
    if (piece == 2) codes.x >>= 8, codes.y >>= 8, codes.z >>= 8, codes.w >>= 8;
    store_piece(to ^ uint32_t(16 * piece), pair(codes.x, low), pair(codes.y, low), pair(codes.z, high),
                pair(codes.w, high));
  }
}
// The same of 32 codes of Q8.
__device__ __forceinline__ void decode_q8(uint32_t to, const uint4& a, const uint4& b, uint32_t scale) {
  const Factors factors = factors_of(scale, 120 - 8);  // what codes lack, the scale, 2^-8
#pragma unroll
  for (int piece = 0; piece < 4; ++piece) {
    const auto pair = [&](uint32_t first, uint32_t second) {
      const uint32_t v = __byte_perm(first, second, uint32_t((4 + piece) << 12 | piece << 4));
      return times(times((v & 0x80008000u) | (v >> 4 & 0x07f007f0u), factors.first), factors.second);
    };
    store_piece(to ^ uint32_t(16 * piece), pair(a.x, a.y), pair(a.z, a.w), pair(b.x, b.y), pair(b.z, b.w));
  }
}

// Where a thread's two keys of a tile lie.
struct Sources {
  const uint8_t* key[2];
  __device__ explicit Sources(const uint8_t* const* listed) : key{listed[0], listed[8]} {}
};
// 0 once all of it has arrived; `zero`, too, is 0, but the compiler does not know it.
__device__ __forceinline__ int arrived(const Raw (&raw)[2], uint32_t zero) {
  const uint32_t first = raw[0].codes[0].x | raw[0].codes[1].x | raw[0].scales;
  return int((first | raw[1].codes[0].x | raw[1].codes[1].x | raw[1].scales) & zero);
}
// Half of a tile, of both keys of a thread. `late`: arrived() of what was read before. A warp waits for all of its
// loads together, so those of the next half begin when these have come, and are under way while these are decoded.
__device__ __forceinline__ void read_halves(Raw (&raw)[2], bool q4k, const Sources& from, int half, int late) {
  const int number = 4 * half + quarter() + late;
  read_part(raw[0], q4k, from.key[0], number), read_part(raw[1], q4k, from.key[1], number);
}
// `to`: where the half begins.
__device__ __forceinline__ void decode_halves(const uint8_t* to, const Raw (&raw)[2], bool q4k,
                                              const uint8_t* const* source, int half) {
  constexpr uint32_t kSecondKey = 8 * 128, kSecond = 64;  // keys; 32 channels
  const uint32_t at = shared_address(to) + uint32_t(quarter() * kColumnBytes + swizzled(own_key(), 0));
  if (q4k) {
#pragma unroll
    for (int k = 0; k < 2; ++k) {
      decode_q4k(at + k * kSecondKey, raw[k].codes[0], raw[k].scales);
      decode_q4k((at + k * kSecondKey) ^ kSecond, raw[k].codes[1], raw[k].scales >> 16);
    }
    return;
  }
  uint4 second[2][2];
#pragma unroll
  for (int k = 0; k < 2; ++k) {
    const uint8_t* codes = source[8 * k] + codes_at(false, 4 * half + quarter()) + 32;
    read_16(second[k][0], codes), read_16(second[k][1], codes + 16);
    decode_q8(at + k * kSecondKey, raw[k].codes[0], raw[k].codes[1], raw[k].scales & 0xff);
  }
#pragma unroll
  for (int k = 0; k < 2; ++k) {
    decode_q8((at + k * kSecondKey) ^ kSecond, second[k][0], second[k][1], raw[k].scales >> 8);
  }
}

// The decoding warps of the block whose own tile of a step is its number `rank`. The other tile's half comes a turn
// later than the own tile: it is wanted only when weights are there. One half is under way and one in use at any time;
// they are read even where nothing will be decoded (zeros then), so that the compiler sees it. Places are looked up
// before the stores that they would wait behind.
__device__ inline void decode_rows(Shared& shared, const Attention& op, int rank) {
  const bool first_lane = threadIdx.x % 32 == 0;
  const auto sources = [&](uint32_t turn, int tile) {
    return &shared.source[turn % kListed][tile * kKeys + own_key()];
  };
  const auto is_q4k = [&](const Step& step, int tile) {
    return (tile < step.in_window ? op.window_format : op.entry_format) == RowFormat::q4k;
  };
  const auto listed = [&](uint32_t turn) {
    wait_phase(shared.listed[turn % kListed], turn / kListed & 1);
    return shared.listed_step[turn % kListed];
  };
  const auto publish = [&](uint64_t& barrier) {
    publish_to_products();
    __syncwarp();
    if (first_lane) arrive(barrier);
  };
  const uint32_t zero = uint32_t(op.rows >> 62);
  Raw rest[2], own[2], other[2];
  Step step = listed(0);
  bool q4k = is_q4k(step, rank), other_q4k = is_q4k(step, rank ^ 1);
  Sources from(sources(0, rank));
  read_halves(rest, q4k, from, rank ^ 1, 0);
  int place = 0;  // turn % kOwn
  uint32_t phase = 1;
#pragma unroll 1
  for (uint32_t turn = 0;; ++turn) {
    const bool here = step.left > 0, now_q4k = q4k, next_other_q4k = is_q4k(step, rank ^ 1);
    const uint32_t before = turn > 0 ? turn - 1 : 0, next = here ? turn + 1 : turn;
    read_halves(own, q4k, from, rank, arrived(rest, zero));
    const Sources from_other(sources(before, rank ^ 1));
    if (here) {
      if (turn > 0) wait_phase(shared.scored_rest, before & 1);
      decode_halves(shared.rest, rest, now_q4k, sources(turn, rank), rank ^ 1);
      publish(shared.full_rest);
    }
    read_halves(other, other_q4k, from_other, rank, arrived(own, zero));
    if (here) {
      const int2 of_own = make_int2(rank == 0 ? step.keys[0] : step.keys[1], step.left);
      step = listed(next);
      q4k = is_q4k(step, rank);
      from = Sources(sources(next, rank));
      if (turn >= kOwn) wait_phase(shared.added_own[place], phase);
      decode_halves(shared.own[place], own, now_q4k, sources(turn, rank), rank);
      if (threadIdx.x == 0) shared.own_step[place] = of_own;
      publish(shared.full_own[place]);
      if (++place == kOwn) place = 0, phase ^= 1;
    }
    read_halves(rest, q4k, from, rank ^ 1, arrived(other, zero));
    if (turn > 0) {
      const uint32_t side = before % kOthers;
      if (before >= kOthers) wait_phase(shared.added_other[side], (before / kOthers - 1) & 1);
      decode_halves(shared.other[side], other, other_q4k, sources(before, rank ^ 1), rank);
      publish(shared.full_other[side]);
      arrive(shared.unlisted[before % kListed]);
    }
    if (!here) break;
    other_q4k = next_other_q4k;
  }
}

}  // namespace fathom::cuda::attention_keys
