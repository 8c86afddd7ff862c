// fathom/backend/cpu/index_tile.h
// Index scores in integers (AVX512-VNNI), sixteen keys side by side in lanes. An FP4 value is half an integer of at
// most 12, so the products of a group of 32 channels are summed exactly, and what is left are the powers of two of its
// two scales. A scale at most 8 times the smallest of its row goes into the integers too (they stay below 128), and
// then a dot of up to 128 channels is one exact sum; a row with farther scales ("wide") pays a conversion for each
// group. Both ways a score is the same float as long as floats hold the dot, so it does not depend on the keys beside
// it.
//   score(j) = sum over heads, in rising order, of weight * relu(dot)
// One instruction multiplies 64 pairs: 32 heads of 128 channels take 64 of them a key, 17 ns at 3.7 GHz, in which the
// memory delivers five times the 68 bytes of a key. So the indexer is bound by arithmetic.
#pragma once
#include <immintrin.h>

#include <cstring>

#include "fathom/backend/cpu/lanes.h"
#include "fathom/backend/element.h"
#include "fathom/backend/ops.h"
#include "fathom/tensor/number_formats.h"

namespace fathom::cpu {

struct IndexTile {
  static constexpr int kKeys = 16;
  static constexpr int kHeads = 8;       // whose sums are in registers at a time
  static constexpr int kMostGroups = 4;  // of 32 channels
  /// What is added to keys, for one factor of the instruction has no sign: 12 * 8.
  static constexpr int kOffset = 96;

  static bool fits(const SelectRows& op) {
    return op.format == RowFormat::q4i && op.channels % 32 == 0 && op.channels <= 32 * kMostGroups;
  }

  /// Sixteen decoded keys: bytes [channels / 4][16 keys][4], the even channels of eight, then the odd ones, and so on;
  /// scales [16], or when wide [channels / 32][16].
  struct Keys {
    alignas(64) uint8_t codes[32 * kMostGroups * kKeys];
    alignas(64) float scales[kMostGroups][kKeys];
    bool wide;
  };

  /// A row's query, in memory of `query_floats`. `heads` is a multiple of eight: those past the end are zeros.
  struct Query {
    int64_t heads;
    int32_t* codes;    // [channels / 4][heads] four bytes each, as in Keys
    int32_t* offsets;  // [groups][heads] less what kOffset adds, then the sum of groups
    float* scales;     // [groups][heads]; 1 unless wide
    float* weights;    // [heads] with the scale of the head unless wide
    bool* wide;
  };
  static int64_t query_floats(const SelectRows& op) {
    const int64_t heads = (op.heads + kHeads - 1) / kHeads * kHeads, groups = op.channels / 32;
    return heads * (op.channels / 4 + 2 * groups + 2) + 16;
  }
  static Query query_in(const SelectRows& op, float* memory) {
    const int64_t heads = (op.heads + kHeads - 1) / kHeads * kHeads, groups = op.channels / 32;
    int32_t* const integers = reinterpret_cast<int32_t*>(memory);
    float* const floats = memory + heads * (op.channels / 4 + groups + 1);
    return {heads,
            integers,
            integers + heads * (op.channels / 4),
            floats,
            floats + heads * groups,
            reinterpret_cast<bool*>(floats + heads * (groups + 1))};
  }

  /// places [16]: where the keys lie.
  [[gnu::target("avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,avx512vnni"), gnu::noinline]] static void decode(
      const uint8_t* const* places, int64_t channels, Keys& out) {
    const int64_t groups = channels / 32;
    const __m512i scales = scale_bytes(places, channels), least = least_of_groups(scales);
    const __m512i above = _mm512_sub_epi8(scales, least);
    out.wide = _mm512_cmpgt_epu8_mask(above, _mm512_set1_epi8(3)) != 0;
    const __m512i shifts = out.wide ? _mm512_setzero_si512() : _mm512_slli_epi32(above, 4);
    const __m512i table = _mm512_add_epi8(shifted_values(), _mm512_set1_epi8(kOffset));
    for (int64_t g = 0; g < groups; ++g) {
      if (out.wide || g == 0) {
        const __m512i bytes = out.wide ? _mm512_srlv_epi32(scales, _mm512_set1_epi32(int(8 * g))) : least;
        _mm512_store_ps(out.scales[g], floats_of_scales(bytes));
      }
      __m512i words[4];
      words_of_group(places, g, words);
      const __m512i shift = of_group(shifts, g);
#pragma GCC unroll 4
      for (int i = 0; i < 4; ++i) {
        uint8_t* const to = out.codes + (8 * g + 2 * i) * 4 * kKeys;
        _mm512_store_si512(to, _mm512_permutexvar_epi8(low_codes(words[i], shift), table));
        _mm512_store_si512(to + 4 * kKeys, _mm512_permutexvar_epi8(high_codes(words[i], shift), table));
      }
    }
  }

  /// Row r's query and head weights.
  [[gnu::target("avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,avx512vnni"), gnu::noinline]] static void prepare(
      const SelectRows& op, int64_t r, float* memory) {
    const Query query = query_in(op, memory);
    const int64_t groups = op.channels / 32, bytes = row_bytes(op.format, op.channels);
    const uint8_t* const row = op.queries.data + r * op.queries.stride[0];
    static constexpr uint8_t kZeros[17 * kMostGroups] = {};
    const uint8_t* places[kKeys];
    *query.wide = false;
    for (int pass = 0; pass < 2; ++pass) {  // first whether any head is wide
      for (int64_t first = 0; first < op.heads; first += kKeys) {
        for (int64_t h = 0; h < kKeys; ++h) places[h] = first + h < op.heads ? row + (first + h) * bytes : kZeros;
        const __m512i scales = scale_bytes(places, op.channels), least = least_of_groups(scales);
        const __m512i above = _mm512_sub_epi8(scales, least);
        if (pass == 0) {
          *query.wide |= _mm512_cmpgt_epu8_mask(above, _mm512_set1_epi8(3)) != 0;
        } else {
          prepare_heads(op, r, query, places, first, groups, scales, least, above);
        }
      }
    }
  }

  /// scores[k] of 16 keys.
  [[gnu::target("avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,avx512vnni"), gnu::noinline]] static void score(
      const SelectRows& op, const float* memory, const Keys& keys, float* scores) {
    const Query query = query_in(op, const_cast<float*>(memory));
    const int64_t groups = op.channels / 32;
    __m512 sum = _mm512_setzero_ps();
    if (keys.wide || *query.wide) {
      for (int64_t h = 0; h < query.heads; h += kHeads) sum = add_wide(query, keys, h, groups, sum);
    } else {
      for (int64_t h = 0; h < query.heads; h += kHeads) {
        __m512i dots[kHeads];
        dot(query, keys, h, query.offsets + groups * query.heads, 0, 8 * groups, dots);
#pragma GCC unroll 8
        for (int i = 0; i < kHeads; ++i) {
          const __m512 relu = _mm512_max_ps(_mm512_setzero_ps(), _mm512_cvtepi32_ps(dots[i]));
          sum = _mm512_fmadd_ps(_mm512_set1_ps(query.weights[h + i]), relu, sum);
        }
      }
    }
    if (!keys.wide) sum = _mm512_mul_ps(sum, _mm512_load_ps(keys.scales[0]));
    _mm512_storeu_ps(scores, sum);
  }

 private:
  /// sum += key . (the four bytes at `query`) in each lane. As the intrinsic, g++ 12 copies every sum twice a round.
  [[gnu::target("avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,avx512vnni"), gnu::always_inline]] static inline void
  add_fours(__m512i& sum, __m512i key, const int32_t* query) {
    __asm__("vpdpbusd %2%{1to16%}, %1, %0" : "+v"(sum) : "v"(key), "m"(*query));
  }

  /// Quads [begin, end) of the keys with 8 heads from `h` on; sums start from `start`.
  [[gnu::target("avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,avx512vnni"), gnu::always_inline]] static inline void
  dot(const Query& query, const Keys& keys, int64_t h, const int32_t* start, int64_t begin, int64_t end,
      __m512i (&dots)[kHeads]) {
#pragma GCC unroll 8
    for (int i = 0; i < kHeads; ++i) dots[i] = _mm512_set1_epi32(start[h + i]);
    const int32_t* codes = query.codes + begin * query.heads + h;
    for (int64_t q = begin; q < end; ++q, codes += query.heads) {
      const __m512i key = _mm512_load_si512(keys.codes + q * 4 * kKeys);
#pragma GCC unroll 8
      for (int i = 0; i < kHeads; ++i) add_fours(dots[i], key, codes + i);
    }
  }

  /// The same group by group, each with its scales.
  [[gnu::target("avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,avx512vnni"), gnu::noinline]] static __m512 add_wide(
      const Query& query, const Keys& keys, int64_t h, int64_t groups, __m512 sum) {
    __m512 whole[kHeads];
#pragma GCC unroll 8
    for (int i = 0; i < kHeads; ++i) whole[i] = _mm512_setzero_ps();
    for (int64_t g = 0; g < groups; ++g) {
      const __m512 scales = keys.wide ? _mm512_load_ps(keys.scales[g]) : _mm512_set1_ps(1);
      __m512i dots[kHeads];
      dot(query, keys, h, query.offsets + g * query.heads, 8 * g, 8 * g + 8, dots);
#pragma GCC unroll 8
      for (int i = 0; i < kHeads; ++i) {
        const __m512 both = _mm512_mul_ps(scales, _mm512_set1_ps(query.scales[g * query.heads + h + i]));
        whole[i] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(dots[i]), both, whole[i]);
      }
    }
#pragma GCC unroll 8
    for (int i = 0; i < kHeads; ++i) {  // the second operand is what NaN leaves
      const __m512 relu = _mm512_max_ps(_mm512_setzero_ps(), whole[i]);
      sum = _mm512_fmadd_ps(_mm512_set1_ps(query.weights[h + i]), relu, sum);
    }
    return sum;
  }

  [[gnu::target("avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,avx512vnni"), gnu::always_inline]] static inline void
  prepare_heads(const SelectRows& op, int64_t r, const Query& query, const uint8_t* const* places, int64_t first,
                int64_t groups, __m512i scales, __m512i least, __m512i above) {
    const bool wide = *query.wide;
    const __mmask16 stored = __mmask16(query.heads - first >= kKeys ? 0xffff : 0xff);
    const __m512i shifts = wide ? _mm512_setzero_si512() : _mm512_slli_epi32(above, 4), ones = _mm512_set1_epi8(1);
    __m512i total = _mm512_setzero_si512();
    for (int64_t g = 0; g < groups; ++g) {
      __m512i words[4], sum = _mm512_setzero_si512();
      words_of_group(places, g, words);
      const __m512i shift = of_group(shifts, g);
#pragma GCC unroll 4
      for (int i = 0; i < 4; ++i) {
        const __m512i even = _mm512_permutexvar_epi8(low_codes(words[i], shift), shifted_values());
        const __m512i odd = _mm512_permutexvar_epi8(high_codes(words[i], shift), shifted_values());
        int32_t* const to = query.codes + (8 * g + 2 * i) * query.heads + first;
        _mm512_mask_storeu_epi32(to, stored, even);
        _mm512_mask_storeu_epi32(to + query.heads, stored, odd);
        sum = _mm512_dpbusd_epi32(_mm512_dpbusd_epi32(sum, ones, even), ones, odd);
      }
      const __m512i offset = _mm512_mullo_epi32(sum, _mm512_set1_epi32(-kOffset));
      total = _mm512_add_epi32(total, offset);
      _mm512_mask_storeu_epi32(query.offsets + g * query.heads + first, stored, offset);
      const __m512 scale = floats_of_scales(_mm512_srlv_epi32(scales, _mm512_set1_epi32(int(8 * g))));
      _mm512_mask_storeu_ps(query.scales + g * query.heads + first, stored, wide ? scale : _mm512_set1_ps(1));
    }
    _mm512_mask_storeu_epi32(query.offsets + groups * query.heads + first, stored, total);
    float weights[kKeys] = {};
    for (int64_t h = 0; h < kKeys && first + h < op.heads; ++h) {
      weights[h] = load(op.head_weights.dtype, op.head_weights.row(r), first + h) * op.weight_scale;
    }
    // Both integers are twice their values.
    const __m512 quarter = _mm512_set1_ps(0.25f), scale = floats_of_scales(least);
    const __m512 factor = wide ? quarter : _mm512_mul_ps(quarter, scale);
    _mm512_mask_storeu_ps(query.weights + first, stored, _mm512_mul_ps(_mm512_loadu_ps(weights), factor));
  }

  /// The scale bytes of 16 rows, of up to four groups: byte g mod (number of groups) of a row's word.
  [[gnu::target("avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,avx512vnni"), gnu::always_inline]] static inline __m512i
  scale_bytes(const uint8_t* const* places, int64_t channels) {
    const int64_t at = channels / 2;
    alignas(64) uint32_t words[kKeys];
    if (channels == 128) {
      for (int k = 0; k < kKeys; ++k) std::memcpy(words + k, places[k] + at, 4);
    } else if (channels == 96) {
      for (int k = 0; k < kKeys; ++k) {
        const uint8_t* s = places[k] + at;
        words[k] = uint32_t(s[0] | s[1] << 8 | s[2] << 16) | uint32_t(s[2]) << 24;
      }
    } else if (channels == 64) {
      for (int k = 0; k < kKeys; ++k) words[k] = uint32_t(places[k][at] | places[k][at + 1] << 8) * 0x10001u;
    } else {
      for (int k = 0; k < kKeys; ++k) words[k] = places[k][at] * 0x1010101u;
    }
    return _mm512_load_si512(words);
  }

  /// The least byte of each word, in all its bytes.
  [[gnu::target("avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,avx512vnni"), gnu::always_inline]] static inline __m512i
  least_of_groups(__m512i words) {
    const __m512i half = _mm512_min_epu8(words, _mm512_rol_epi32(words, 16));
    return _mm512_min_epu8(half, _mm512_rol_epi32(half, 8));
  }

  /// e8m0_to_float of the lowest byte of each word.
  [[gnu::target("avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,avx512vnni"), gnu::always_inline]] static inline __m512
  floats_of_scales(__m512i words) {
    const __m512i codes = _mm512_and_si512(words, _mm512_set1_epi32(0xff));
    __m512i bits = _mm512_slli_epi32(codes, 23);
    bits = _mm512_mask_mov_epi32(bits, _mm512_cmpeq_epi32_mask(codes, _mm512_setzero_si512()),
                                 _mm512_set1_epi32(0x00400000));
    bits = _mm512_mask_mov_epi32(bits, _mm512_cmpeq_epi32_mask(codes, _mm512_set1_epi32(0xff)),
                                 _mm512_set1_epi32(0x7fc00000));
    return _mm512_castsi512_ps(bits);
  }

  /// Twice the value of an FP4 code, times 2^shift, at 16 * shift + code.
  [[gnu::target("avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,avx512vnni"), gnu::always_inline]] static inline __m512i
  shifted_values() {
    alignas(64) static constexpr int8_t kTable[64] = {
        0, 1, 2,  3,  4,  6,  8,  12, 0, -1, -2,  -3,  -4,  -6,  -8,  -12,  //
        0, 2, 4,  6,  8,  12, 16, 24, 0, -2, -4,  -6,  -8,  -12, -16, -24,  //
        0, 4, 8,  12, 16, 24, 32, 48, 0, -4, -8,  -12, -16, -24, -32, -48,  //
        0, 8, 16, 24, 32, 48, 64, 96, 0, -8, -16, -24, -32, -48, -64, -96};
    return _mm512_load_si512(kTable);
  }
  /// Bits 4 and 5 of byte g of each word, in all its bytes.
  [[gnu::target("avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,avx512vnni"), gnu::always_inline]] static inline __m512i
  of_group(__m512i shifts, int64_t g) {
    const __m512i bytes =
        _mm512_or_si512(_mm512_set1_epi32(int(g) * 0x01010101),
                        _mm512_broadcast_i32x4(_mm_setr_epi32(0, 0x04040404, 0x08080808, 0x0c0c0c0c)));
    return _mm512_and_si512(_mm512_shuffle_epi8(shifts, bytes), _mm512_set1_epi8(0x30));
  }
  [[gnu::target("avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,avx512vnni"), gnu::always_inline]] static inline __m512i
  low_codes(__m512i words, __m512i shift) {
    return _mm512_ternarylogic_epi32(words, _mm512_set1_epi8(15), shift, 0xea);  // (a & b) | c
  }
  [[gnu::target("avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,avx512vnni"), gnu::always_inline]] static inline __m512i
  high_codes(__m512i words, __m512i shift) {
    return low_codes(_mm512_srli_epi32(words, 4), shift);
  }

  /// Word i of group g of 16 rows, eight codes each, side by side.
  [[gnu::target("avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,avx512vnni"), gnu::always_inline]] static inline void
  words_of_group(const uint8_t* const* places, int64_t g, __m512i (&words)[4]) {
    __m512i x[4];
#pragma GCC unroll 4
    for (int j = 0; j < 4; ++j) {  // rows j, 4 + j, 8 + j, 12 + j
      x[j] = _mm512_castsi128_si512(load16(places[j] + 16 * g));
      x[j] = _mm512_inserti32x4(x[j], load16(places[4 + j] + 16 * g), 1);
      x[j] = _mm512_inserti32x4(x[j], load16(places[8 + j] + 16 * g), 2);
      x[j] = _mm512_inserti32x4(x[j], load16(places[12 + j] + 16 * g), 3);
    }
    const __m512i a = _mm512_unpacklo_epi32(x[0], x[1]), b = _mm512_unpackhi_epi32(x[0], x[1]);
    const __m512i c = _mm512_unpacklo_epi32(x[2], x[3]), d = _mm512_unpackhi_epi32(x[2], x[3]);
    words[0] = _mm512_unpacklo_epi64(a, c);
    words[1] = _mm512_unpackhi_epi64(a, c);
    words[2] = _mm512_unpacklo_epi64(b, d);
    words[3] = _mm512_unpackhi_epi64(b, d);
  }
  [[gnu::target("avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,avx512vnni"), gnu::always_inline]] static inline __m128i
  load16(const uint8_t* from) {
    return _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
  }
};

}  // namespace fathom::cpu
