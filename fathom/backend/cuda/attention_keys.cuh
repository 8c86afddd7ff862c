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
constexpr int kDecoding = 256;                                     // threads
constexpr int kListedSteps = 6;                                    // whose keys are looked up together
constexpr int kListers = 1;                                        // the barrier of the warps that do it
constexpr int kListed = 2 * kListedSteps * kKeys, kListing = 128;  // keys; threads
// Keys lie in shared memory as 2^-8 of their value, so that 2^126 (what FP4 codes lack) times the scale is a bf16.
// Scores and weights make up for it.
constexpr float kKeyScale = 1.0f / 256, kWeightLog2 = 8;

// A row has up to 64 heads and two blocks, which have half of the channels of its result each. They go through its
// tiles by twos, a step each: a block scores the first or the second of them (its own), and needs of the other the
// channels that it adds up. By step & 1, where two are in use at once.
struct Shared {
  uint8_t own[2][2 * kHalfBytes];
  uint8_t other[2][kHalfBytes];
  uint8_t weights[2][kColumnBytes];       // of the step's two tiles
  const uint8_t* source[2][kListed];      // where keys lie, by list & 1
  int listed_steps[2], listed_window[2];  // of a list: its steps, 0 behind the last; its tiles of the window
  float most[2][kHeads];                  // the other block's best score of a step, in powers of two
  float best[kHeads];                     // after a step
  float sum[2][2][kHeads];                // by row & 1: of each block's weights
  uint64_t listed[2], unlisted[2];
  uint64_t full_own[2], full_other[2], empty[2], scored[2], summed[2];
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
// What is read where there is no key or no query.
__device__ const uint4 kZeros[kChannels / 8] = {};

// n / divisor for n below 2^31. Source: Granlund and Montgomery, Division by invariant integers using multiplication.
struct Divider {
  uint32_t factor;
  int shift = 0;
  __device__ explicit Divider(uint32_t divisor) {
    while (uint32_t(1) << shift < divisor) ++shift;
    factor = uint32_t(((uint64_t(1) << 32) * ((uint64_t(1) << shift) - divisor)) / divisor + 1);
  }
  __device__ int quotient(int n) const {
    return int((uint32_t(uint64_t(factor) * uint32_t(n) >> 32) + uint32_t(n)) >> shift);
  }
};

// The lists of all rows that a pair of blocks has, for each six steps. kListing threads make one ahead of those that
// decode; the keys' bytes (of the block's own tiles) and the queries are on the way to the L2 cache then. The way to a
// key leads through two tables: what does not depend on each other is read together, and entries before it is known how
// many there are. Positions and entries are below 2^31.
struct Lister {
  Shared& shared;
  const Attention& op;
  const int rank, thread;
  const int items, stride;
  int item;  // of the next list
  const Divider blocks;
  uint32_t number = 0;              // of lists
  int first = 0, window_tiles = 0;  // of the next list: its first tile; of its row, where that is not 0
  bool ended = false;

  __device__ Lister(Shared& block, const Attention& attention, int own, int begin, int end, int step)
      : shared(block),
        op(attention),
        rank(own),
        thread(int(threadIdx.x) % kListing),
        items(end),
        stride(step),
        item(begin),
        blocks(op.entries != nullptr ? uint32_t(op.latents.entries_per_block) : 1u) {}

  // The keys of the block's own tiles, once they are listed.
  __device__ __forceinline__ void announce_keys(int listed_steps, int window) const {
    meet(kListers, kListing);
#pragma unroll 1
    for (int i = thread; i < listed_steps * kKeys; i += kListing) {
      const int tile = 2 * (i / kKeys) + rank;
      const uint8_t* from = shared.source[number & 1][tile * kKeys + i % kKeys];
      const int bytes = (tile < window ? op.window_format : op.entry_format) == RowFormat::q8 ? 528 : 288;
#pragma unroll 1
      for (int at = 0; at < bytes; at += 128) prefetch_to_l2(from + at);
    }
  }
  __device__ __forceinline__ void announce_queries(const Item& it) const {
    const uint8_t* queries = op.queries + (it.row * op.query_stride + it.first_head * kChannels) * int64_t(2);
    const int bytes = min(kHeads, op.heads - it.first_head) * kChannels * 2;
    for (int at = (kListing * rank + thread) * 128; at < bytes; at += 2 * kListing * 128) prefetch_to_l2(queries + at);
  }

  // Makes the next list, or says that there is none. A thread looks up AtOnce entries together.
  template <int AtOnce>
  __device__ __forceinline__ void list() {
    const int side = int(number & 1);
    const auto wait = [&] {
      if (number >= 2) wait_phase(shared.unlisted[side], (number / 2 - 1) & 1);
    };
    if (item >= items) {
      if (ended) return;
      ended = true;
      wait();
      shared.listed_steps[side] = 0;
      arrive(shared.listed[side]);
      return;
    }
    const Item it(op, item);
    const int64_t r = it.row;
    const int first_entry = kKeys * max(first - window_tiles, 0);
    const int32_t* entries = op.entries + r * op.entry_stride;
    const int64_t sequence = op.sequence[r];
    const int window_begin = int(op.window_begin[r]);
    const Keys keys(op, r);
    int in_window = 0;  // places of the list
#pragma unroll 1
    for (int from = 0; in_window + from < kListed || from == 0; from += AtOnce * kListing) {
      int entry[AtOnce], place[AtOnce];
#pragma unroll
      for (int u = 0; u < AtOnce; ++u) {
        const int i = first_entry + from + kListing * u + thread;
        entry[u] = i < op.most_entries ? __ldg(&entries[i]) : 0;
      }
      in_window = min(kListed, kKeys * max(keys.window_tiles - first, 0));
      const int32_t* table = op.latents.blocks.data + sequence * op.latents.blocks.stride[0];
#pragma unroll
      for (int u = 0; u < AtOnce; ++u) {
        place[u] = -1;
        const int i = from + kListing * u + thread;
        if (first_entry + i < keys.entries && in_window + i < kListed) {
          const int of_sequence = blocks.quotient(entry[u]);
          place[u] = __ldg(&table[of_sequence]);
          entry[u] -= of_sequence * op.latents.entries_per_block;
        }
      }
      if (from == 0) {
        const int64_t fresh_begin = op.fresh_begin[sequence];
        const bool has_fresh = fresh_begin < op.fresh_begin[sequence + 1];
        const uint8_t* ring = op.ring.base + op.ring.slots.data[sequence] * op.ring.slot_stride;
        const int64_t fresh_position = has_fresh ? op.fresh_positions[fresh_begin] : INT64_MAX;
        wait();
#pragma unroll 1
        for (int i = thread; i < in_window; i += kListing) {
          const uint8_t* at = reinterpret_cast<const uint8_t*>(kZeros);
          if (kKeys * first + i < keys.window) {
            const int position = window_begin + kKeys * first + i;
            at = position >= fresh_position
                     ? op.fresh + (fresh_begin + position - fresh_position) * op.fresh_stride
                     : ring + uint32_t(position) % uint32_t(op.ring.capacity) * int64_t(op.ring.entry_bytes);
          }
          shared.source[side][i] = at;
        }
      }
      // Through shared memory, so that the rest is written once.
      const auto slot = [&](int i) { return reinterpret_cast<int2*>(&shared.source[side][in_window + i]); };
      const int end = min(from + AtOnce * kListing, kListed - in_window);
#pragma unroll
      for (int u = 0; u < AtOnce; ++u) {
        const int i = from + kListing * u + thread;
        if (i < end) *slot(i) = make_int2(place[u], entry[u]);
      }
#pragma unroll 1
      for (int i = from + thread; i < end; i += kListing) {
        const int2 v = *slot(i);
        const uint8_t* at = reinterpret_cast<const uint8_t*>(kZeros);
        if (v.x >= 0) at = op.latents.base + v.x * op.latents.block_stride + v.y * int64_t(op.latents.entry_bytes);
        shared.source[side][in_window + i] = at;
      }
    }
    const int listed_steps = min(kListedSteps, keys.steps - first / 2), window = keys.window_tiles - first;
    shared.listed_steps[side] = listed_steps;
    shared.listed_window[side] = window;
    arrive(shared.listed[side]);
    if (first == 0 && number > 0) announce_queries(it);
    announce_keys(listed_steps, window);
    ++number;
    first += 2 * kListedSteps;
    window_tiles = keys.window_tiles;
    if (first >= 2 * keys.steps) first = window_tiles = 0, item += stride;
  }
};

// ------------------------------------------------------------------------------------------------ decoding
// What a thread has ahead of half of the channels of its key: of eight times 32 channels it (lane / 8) has two, number
// 4 i + lane / 8; of a Q8 key only the first of them. Eight lanes that store together have eight keys: no bank
// conflicts.
struct Raw {
  uint4 codes[2];
  uint32_t scales[2];
};
__device__ inline int own_key() { return int(threadIdx.x) / 32 * 8 + int(threadIdx.x) % 8; }
__device__ inline int quarter() { return int(threadIdx.x) % 32 / 8; }

// These stay where they are written: behind the last use of the registers that they fill.
__device__ __forceinline__ void read_16(uint4& v, const uint8_t* from) {
  asm volatile("ld.global.nc.v4.u32 {%0, %1, %2, %3}, [%4];" : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(from));
}
__device__ __forceinline__ uint32_t read_2(const uint8_t* from) {
  uint16_t v;
  asm volatile("ld.global.nc.u16 %0, [%1];" : "=h"(v) : "l"(from));
  return v;
}
__device__ __forceinline__ uint32_t read_1(const uint8_t* from) {
  uint32_t v;
  asm volatile("ld.global.nc.u8 %0, [%1];" : "=r"(v) : "l"(from));
  return v;
}
__device__ __forceinline__ void read_half(Raw& raw, bool q4k, const uint8_t* from, int half) {
  if (q4k) {
    const uint8_t* scales = from + kChannels / 2 + 16 * half + 2 * quarter();
    raw.scales[0] = read_2(scales), raw.scales[1] = read_2(scales + 8);
    const uint8_t* codes = from + kChannels / 4 * half + 16 * quarter();
    read_16(raw.codes[0], codes), read_16(raw.codes[1], codes + 64);
  } else {
    const uint8_t* scales = from + kChannels + 8 * half + quarter();
    raw.scales[0] = read_1(scales), raw.scales[1] = read_1(scales + 4);
    const uint8_t* codes = from + kChannels / 2 * half + 32 * quarter();
    read_16(raw.codes[0], codes), read_16(raw.codes[1], codes + 16);
  }
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
template <bool Two>
__device__ __forceinline__ void decode_q8(uint32_t to, const uint4& a, const uint4& b, uint32_t scale) {
  // What codes lack, the scale, 2^-8. One factor will do for scales below two.
  Factors factors{(scale + 120 - 8) * 0x00800080u, 0, false};
  if (Two) factors = factors_of(scale, 120 - 8);
#pragma unroll
  for (int piece = 0; piece < 4; ++piece) {
    const auto pair = [&](uint32_t first, uint32_t second) {
      const uint32_t v = __byte_perm(first, second, uint32_t((4 + piece) << 12 | piece << 4));
      const uint32_t product = times((v & 0x80008000u) | (v >> 4 & 0x07f007f0u), factors.first);
      return Two ? times(product, factors.second) : product;
    };
    store_piece(to ^ uint32_t(16 * piece), pair(a.x, a.y), pair(a.z, a.w), pair(b.x, b.y), pair(b.z, b.w));
  }
}
// `to`: as the place of the thread's first piece of its key.
__device__ __forceinline__ void decode_half(uint32_t to, const Raw& raw, bool q4k, const uint8_t* const& source,
                                            int half) {
  if (q4k) {
    decode_q4k(to, raw.codes[0], raw.scales[0]);
    decode_q4k(to + 2 * kColumnBytes, raw.codes[1], raw.scales[1]);
    return;
  }
  uint4 rest[2];
  const uint8_t* codes = source + kChannels / 2 * half + 32 * (4 + quarter());
  read_16(rest[0], codes), read_16(rest[1], codes + 16);
  if (__any_sync(~0u, (raw.scales[0] | raw.scales[1]) >= 0x80)) {
    decode_q8<true>(to, raw.codes[0], raw.codes[1], raw.scales[0]);
    decode_q8<true>(to + 2 * kColumnBytes, rest[0], rest[1], raw.scales[1]);
  } else {
    decode_q8<false>(to, raw.codes[0], raw.codes[1], raw.scales[0]);
    decode_q8<false>(to + 2 * kColumnBytes, rest[0], rest[1], raw.scales[1]);
  }
}

// A decoding thread's way through the lists.
struct Way {
  Shared& shared;
  const Attention& op;
  const int rank;
  uint32_t number = 0;  // of the list
  int step = -1, steps = 0;
  int own = 0;  // where its key of the own tile stands in the lists; the other's: own ^ kKeys
  bool own_q4k = false, other_q4k = false;

  // False behind the last step.
  __device__ __forceinline__ bool next() {
    if (++step == steps) {
      if (step > 0) ++number;
      step = 0;
      wait_phase(shared.listed[number & 1], number / 2 & 1);
      steps = shared.listed_steps[number & 1];
      if (steps == 0) return false;
    }
    const int side = int(number & 1), window = shared.listed_window[side], tile = 2 * step + rank;
    own = side * kListed + tile * kKeys + own_key();
    own_q4k = (tile < window ? op.window_format : op.entry_format) == RowFormat::q4k;
    other_q4k = ((tile ^ 1) < window ? op.window_format : op.entry_format) == RowFormat::q4k;
    return true;
  }
};

// The decoding warps of the block whose own tile of a step is its number `rank`: two halves of it, one of the other.
__device__ inline void decode_rows(Shared& shared, const Attention& op, int rank) {
  const uint8_t* const* source = shared.source[0];
  const int lane = int(threadIdx.x) % 32;
  const uint32_t place = uint32_t(lane / 16 * kColumnBytes + swizzled(own_key(), lane / 8 % 2 * 4));
  Raw low, high, other;
  Way way{shared, op, rank};
  bool more = way.next();
  if (more) {
    read_half(low, way.own_q4k, source[way.own], 0);
    read_half(high, way.own_q4k, source[way.own], 1);
    read_half(other, way.other_q4k, source[way.own ^ kKeys], rank);
  }
  for (uint32_t turn = 0; more; ++turn) {
    const int side = int(turn & 1), own = way.own;
    const bool own_q4k = way.own_q4k, other_q4k = way.other_q4k;
    const uint32_t list = way.number;
    more = way.next();
    if (turn >= 2) wait_phase(shared.empty[side], (turn / 2 - 1) & 1);
    const uint32_t to = shared_address(shared.own[side]) + place;
    decode_half(to, low, own_q4k, source[own], 0);
    publish_to_products();
    if (more) read_half(low, way.own_q4k, source[way.own], 0);
    decode_half(to + kHalfBytes, high, own_q4k, source[own], 1);
    publish_to_products();
    __syncwarp();
    if (lane == 0) arrive(shared.full_own[side]);
    if (more) read_half(high, way.own_q4k, source[way.own], 1);
    decode_half(shared_address(shared.other[side]) + place, other, other_q4k, source[own ^ kKeys], rank);
    publish_to_products();
    __syncwarp();
    if (lane == 0) arrive(shared.full_other[side]);
    if (more) read_half(other, way.other_q4k, source[way.own ^ kKeys], rank);
    if (list != way.number || !more) arrive(shared.unlisted[list & 1]);
  }
}

}  // namespace fathom::cuda::attention_keys
