// fathom/backend/cpu/pair_tile.h
// Attention in products of bf16 pairs (AVX512-BF16), eight heads at a time. What the caches hold as FP8 or FP4 is exact
// in bf16, and so are bf16 queries; softmax weights are rounded to bf16 in front of their products
// (spec/model.md 14.9), their sum is not. Only what is below 2^-126 counts as 0.
//   logit    lanes are (head, half of a quad of channels), so a logit is the sum of two sums over quads in rising order
//   output   lanes are channels, and a sum goes over pairs of keys in rising order
// Nothing else is summed, whatever tile, batch or thread a row is in.
#pragma once
#include <immintrin.h>

#include "fathom/backend/cpu/lanes.h"
#include "fathom/tensor/number_formats.h"
#include "fathom/tensor/row_format.h"

namespace fathom::cpu {

struct PairTiles {
  using Key = uint16_t;              // a decoded key is a row of bf16
  static constexpr int kHeads = 8;   // of a group
  static constexpr int kKeys = 8;    // of a tile of logits
  static constexpr int kWidth = 32;  // channels of a tile of outputs

  /// A cache line more than the channels: rows a power of two apart would share few places of the cache.
  static constexpr int64_t key_elements(int64_t channels) { return channels + 32; }
  /// Whether these rows can be taken.
  static bool fits(RowFormat format, int64_t channels) {
    return (format == RowFormat::q8 || format == RowFormat::q4k) && channels % 32 == 0;
  }

  /// The exact values of an encoded row.
  [[gnu::target("avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,avx512bf16")]] static void decode(RowFormat format,
                                                                                                 const uint8_t* bytes,
                                                                                                 int64_t channels,
                                                                                                 Key* out) {
    format == RowFormat::q8 ? decode_fp8(bytes, channels, out) : decode_fp4(bytes, channels, out);
  }

  /// 64 codes a time. The bytes of their bf16 are looked up; a scale of 2^k is k more in the exponent.
  [[gnu::target("avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,avx512bf16")]] static void decode_fp8(
      const uint8_t* bytes, int64_t channels, Key* out) {
    const __m512i low_a = _mm512_load_si512(kFp8.low), low_b = _mm512_load_si512(kFp8.low + 64);
    const __m512i high_a = _mm512_load_si512(kFp8.high), high_b = _mm512_load_si512(kFp8.high + 64);
    const __m512i order = _mm512_setr_epi64(0, 4, 1, 5, 2, 6, 3, 7);
    for (int64_t i = 0; i < channels; i += 64) {
      const __mmask64 present = channels - i >= 64 ? ~uint64_t(0) : 0xffffffffu;
      const __m512i codes = _mm512_permutexvar_epi64(order, _mm512_maskz_loadu_epi8(present, bytes + i));
      const __m512i low = _mm512_permutex2var_epi8(low_a, codes, low_b);
      const __m512i sign = _mm512_and_si512(codes, _mm512_set1_epi8(char(0x80)));
      const __m512i high = _mm512_or_si512(sign, _mm512_permutex2var_epi8(high_a, codes, high_b));
      scale_fp8(_mm512_unpacklo_epi8(low, high), bytes[channels + i / 32], out + i);
      if (channels - i >= 64) {
        scale_fp8(_mm512_unpackhi_epi8(low, high), bytes[channels + i / 32 + 1], out + i + 32);
      }
    }
  }

  /// 32 codes a time, looked up among the 16 values times each of their two scales.
  [[gnu::target("avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,avx512bf16")]] static void decode_fp4(
      const uint8_t* bytes, int64_t channels, Key* out) {
    const __m512 values = _mm512_setr_ps(0, 0.5f, 1, 1.5f, 2, 3, 4, 6, -0.0f, -0.5f, -1, -1.5f, -2, -3, -4, -6);
    const __m512i upper =
        _mm512_setr_epi64(0, 0, 0, 0, 0x0010001000100010, 0x0010001000100010, 0x0010001000100010, 0x0010001000100010);
    const uint8_t* scales = bytes + channels / 2;
    for (int64_t i = 0; i < channels; i += 32) {
      const __m512 first = _mm512_mul_ps(values, _mm512_set1_ps(kFp8.value[scales[i / 16]]));
      const __m512 second = _mm512_mul_ps(values, _mm512_set1_ps(kFp8.value[scales[i / 16 + 1]]));
      const __m512i table = __m512i(_mm512_cvtne2ps_pbh(second, first));
      const __m512i pairs = _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(bytes + i / 2)));
      const __m512i nibbles =
          _mm512_and_si512(_mm512_or_si512(pairs, _mm512_slli_epi32(pairs, 12)), _mm512_set1_epi32(0x000f000f));
      _mm512_storeu_si512(out + i, _mm512_permutexvar_epi16(_mm512_or_si512(nibbles, upper), table));
    }
  }

  /// Heads [first, first + 8) of a query [heads][channels] as [channels / 4][8] quads; heads past the end are zeros.
  [[gnu::target("avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,avx512bf16")]] static void transpose_heads(
      const Key* query, int64_t heads, int64_t channels, int64_t first, Key* out) {
    const Key* in = query + first * channels;
    const int64_t present = heads - first;
    for (int64_t i = 0; i < channels; i += 32, in += 32, out += 32 * kHeads) {
      __m512i x[8], y[8];
#pragma GCC unroll 8
      for (int h = 0; h < 8; ++h) x[h] = h < present ? _mm512_loadu_si512(in + h * channels) : _mm512_setzero_si512();
#pragma GCC unroll 4
      for (int h = 0; h < 8; h += 2) {  // pairs of heads, then fours, then all eight
        y[h] = _mm512_unpacklo_epi64(x[h], x[h + 1]);
        y[h + 1] = _mm512_unpackhi_epi64(x[h], x[h + 1]);
      }
#pragma GCC unroll 2
      for (int h = 0; h < 8; h += 4) {
#pragma GCC unroll 2
        for (int odd = 0; odd < 2; ++odd) {
          x[h + odd] = _mm512_shuffle_i64x2(y[h + odd], y[h + 2 + odd], 0x88);
          x[h + 2 + odd] = _mm512_shuffle_i64x2(y[h + odd], y[h + 2 + odd], 0xdd);
        }
      }
      // x[0], x[1]: quads 0 and 4, 1 and 5 of heads 0 to 3; x[2], x[3]: 2 and 6, 3 and 7; x[4 ...]: of heads 4 to 7.
#pragma GCC unroll 4
      for (int q = 0; q < 4; ++q) {
        _mm512_storeu_si512(out + q * 4 * kHeads, _mm512_shuffle_i64x2(x[q], x[q + 4], 0x88));
        _mm512_storeu_si512(out + (q + 4) * 4 * kHeads, _mm512_shuffle_i64x2(x[q], x[q + 4], 0xdd));
      }
    }
  }

  /// logits[g][k][h] = keys[k] . query[g][h] for 8 keys and `Groups` groups of heads, `query_stride` and
  /// `logit_stride` apart.
  template <int Groups>
  [[gnu::target("avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,avx512bf16"), gnu::noinline]] static void multiply(
      const Key* const* keys, const Key* query, int64_t query_stride, int64_t channels, float* logits,
      int64_t logit_stride) {
    const Key *a = keys[0], *b = keys[1], *c = keys[2], *d = keys[3];
    const Key *e = keys[4], *f = keys[5], *g = keys[6], *h = keys[7];
    __m512 sum[kKeys][Groups];
#pragma GCC unroll 8
    for (int k = 0; k < kKeys; ++k) {
#pragma GCC unroll 2
      for (int i = 0; i < Groups; ++i) sum[k][i] = _mm512_setzero_ps();
    }
    for (int64_t i = 0; i < channels; i += 4) {
      __m512bh q[Groups];
#pragma GCC unroll 2
      for (int j = 0; j < Groups; ++j) q[j] = __m512bh(_mm512_loadu_si512(query + j * query_stride + i * kHeads));
      add_products<Groups>(sum[0], q, a + i);
      add_products<Groups>(sum[1], q, b + i);
      add_products<Groups>(sum[2], q, c + i);
      add_products<Groups>(sum[3], q, d + i);
      add_products<Groups>(sum[4], q, e + i);
      add_products<Groups>(sum[5], q, f + i);
      add_products<Groups>(sum[6], q, g + i);
      add_products<Groups>(sum[7], q, h + i);
    }
    const __m512i even = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
    const __m512i odd = _mm512_setr_epi32(1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31);
#pragma GCC unroll 4
    for (int k = 0; k < kKeys; k += 2) {
#pragma GCC unroll 2
      for (int j = 0; j < Groups; ++j) {
        _mm512_storeu_ps(logits + j * logit_stride + k * kHeads,
                         _mm512_add_ps(_mm512_permutex2var_ps(sum[k][j], even, sum[k + 1][j]),
                                       _mm512_permutex2var_ps(sum[k][j], odd, sum[k + 1][j])));
      }
    }
  }

  /// The logits [n][8] of eight heads become weights in pairs of neighbouring keys, [n / 2, rounded up][8] of two bf16;
  /// `share`: what an output is multiplied with, one over the sum of the weights with the sink's part. Even and odd
  /// keys are summed apart, then together. One row past an odd n is written.
  [[gnu::target("avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,avx512bf16"), gnu::noinline]] static void softmax(
      float* logits, int64_t n, const float* sink, float scale, Key* weights, float* share) {
    if (n % 2 == 1) _mm256_storeu_ps(logits + n * kHeads, _mm256_set1_ps(-INFINITY));
    const __m512 sinks = _mm512_broadcast_f32x8(_mm256_loadu_ps(sink)), scales = _mm512_set1_ps(scale);
    __m512 best = sinks;
    // The maximum of an instruction is its second operand when one is NaN: NaN is not a maximum.
    for (int64_t k = 0; k < n; k += 2) {
      best = _mm512_max_ps(_mm512_mul_ps(_mm512_loadu_ps(logits + k * kHeads), scales), best);
    }
    best = _mm512_max_ps(_mm512_shuffle_f32x4(best, best, 0x4e), best);
    alignas(64) float top[2 * kHeads], total[2 * kHeads];
    _mm512_store_ps(top, best);
    for (int i = 0; i < kHeads; ++i) total[i] = exp_of_falling(sink[i] - top[i]);
    std::fill(total + kHeads, total + 2 * kHeads, 0.0f);
    for (int64_t k = 0; k < n; k += 2, weights += 2 * kHeads) {
      alignas(64) float p[2 * kHeads];
#pragma GCC unroll 1
      for (int i = 0; i < 2 * kHeads; ++i) {
        p[i] = exp_of_falling(logits[k * kHeads + i] * scale - top[i]);
        total[i] += p[i];
      }
      const __m256i codes = __m256i(_mm512_cvtneps_pbh(_mm512_load_ps(p)));
      const __m128i first = _mm256_castsi256_si128(codes), second = _mm256_extracti128_si256(codes, 1);
      const __m256i pairs = _mm256_set_m128i(_mm_unpackhi_epi16(first, second), _mm_unpacklo_epi16(first, second));
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(weights), pairs);
    }
    for (int h = 0; h < kHeads; ++h) share[h] = 1 / (total[h] + total[kHeads + h]);
  }

  /// sums[h] = (from zero, or on top of what is there) the sum over keys k of weights[k][h] * keys[k][first ... + 32),
  /// for 8 heads. The 32 sums of a head are in the order of unpacking: `store` puts them right.
  template <bool FromZero>
  [[gnu::target("avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,avx512bf16"), gnu::always_inline]] static inline void
  weigh(const Key* const* keys, int64_t count, int64_t first, const Key* weights, __m512 (&sum)[kHeads][2],
        const float* before) {
#pragma GCC unroll 8
    for (int h = 0; h < kHeads; ++h) {
      sum[h][0] = FromZero ? _mm512_setzero_ps() : _mm512_loadu_ps(before + h * kWidth);
      sum[h][1] = FromZero ? _mm512_setzero_ps() : _mm512_loadu_ps(before + h * kWidth + 16);
    }
    for (int64_t k = 0; k < count; k += 2, weights += 2 * kHeads) {
      const __m512i a = _mm512_loadu_si512(keys[k] + first), b = _mm512_loadu_si512(keys[k + 1] + first);
      const __m512bh low = __m512bh(_mm512_unpacklo_epi16(a, b)), high = __m512bh(_mm512_unpackhi_epi16(a, b));
#pragma GCC unroll 8
      for (int h = 0; h < kHeads; ++h) {
        int32_t pair;
        __builtin_memcpy(&pair, weights + 2 * h, 4);
        const __m512bh weight = __m512bh(_mm512_set1_epi32(pair));
        sum[h][0] = _mm512_dpbf16_ps(sum[h][0], low, weight);
        sum[h][1] = _mm512_dpbf16_ps(sum[h][1], high, weight);
      }
    }
  }

  /// `keys` [count, even]: adds to `part` [8][32] (`start`: instead of it), and with `out` writes the products with
  /// `share` there, `heads` rows `stride` apart, rather than to `part`.
  [[gnu::target("avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,avx512bf16"), gnu::noinline]] static void outputs(
      const Key* const* keys, int64_t count, int64_t first, const Key* weights, bool start, float* part,
      const float* share, int64_t heads, Key* out, int64_t stride) {
    __m512 sum[kHeads][2];
    start ? weigh<true>(keys, count, first, weights, sum, part) : weigh<false>(keys, count, first, weights, sum, part);
    if (out == nullptr) {
#pragma GCC unroll 8
      for (int h = 0; h < kHeads; ++h) {
        _mm512_storeu_ps(part + h * kWidth, sum[h][0]);
        _mm512_storeu_ps(part + h * kWidth + 16, sum[h][1]);
      }
      return;
    }
    const __m512i front = _mm512_setr_epi32(0, 1, 2, 3, 16, 17, 18, 19, 4, 5, 6, 7, 20, 21, 22, 23);
    const __m512i back = _mm512_add_epi32(front, _mm512_set1_epi32(8));
#pragma GCC unroll 8
    for (int h = 0; h < kHeads; ++h) {
      if (h >= heads) break;
      const __m512 shares = _mm512_set1_ps(share[h]);
      const __m512 low = _mm512_mul_ps(_mm512_permutex2var_ps(sum[h][0], front, sum[h][1]), shares);
      const __m512 high = _mm512_mul_ps(_mm512_permutex2var_ps(sum[h][0], back, sum[h][1]), shares);
      _mm512_storeu_si512(out + h * stride + first, __m512i(_mm512_cvtne2ps_pbh(high, low)));
    }
  }

 private:
  template <int Groups>
  [[gnu::target("avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,avx512bf16"), gnu::always_inline]] static inline void
  add_products(__m512 (&sum)[Groups], const __m512bh (&query)[Groups], const Key* quad) {
    int64_t bits;
    __builtin_memcpy(&bits, quad, 8);
    const __m512bh key = __m512bh(_mm512_set1_epi64(bits));
#pragma GCC unroll 2
    for (int j = 0; j < Groups; ++j) sum[j] = _mm512_dpbf16_ps(sum[j], query[j], key);
  }

  /// Stores 32 bf16 times an E8M0 scale. Values of E4M3 have exponents from 118 on to 135: most scales leave them
  /// inside.
  [[gnu::target("avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,avx512bf16"), gnu::always_inline]] static inline void
  scale_fp8(__m512i values, uint8_t scale, Key* out) {
    if (scale < 10 || scale > 246) {
      const __m512 factor = _mm512_set1_ps(e8m0_to_float(scale));
      const __m512i low = _mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm512_castsi512_si256(values)), 16);
      const __m512i high = _mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm512_extracti64x4_epi64(values, 1)), 16);
      values = __m512i(_mm512_cvtne2ps_pbh(_mm512_mul_ps(__m512(high), factor), _mm512_mul_ps(__m512(low), factor)));
    } else {
      // Zero and NaN stay as they are.
      const __m512i magnitude = _mm512_and_si512(values, _mm512_set1_epi16(0x7fff));
      const __mmask32 scaled =
          _mm512_cmplt_epu16_mask(_mm512_sub_epi16(magnitude, _mm512_set1_epi16(1)), _mm512_set1_epi16(0x7000));
      values = _mm512_mask_add_epi16(values, scaled, values, _mm512_set1_epi16(short((int(scale) - 127) * 128)));
    }
    _mm512_storeu_si512(out, values);
  }

  struct Fp8 {
    alignas(64) uint8_t low[128], high[128];  // of the bf16 of a code without its sign
    float value[256];
  };
  static constexpr Fp8 make_fp8() {
    Fp8 all{};
    for (unsigned code = 0; code < 128; ++code) {
      unsigned bits = (code << 4) + (120u << 7);
      if (code < 8) {  // code * 2^-9
        const unsigned top = unsigned(std::bit_width(code)) - 1;
        bits = code == 0 ? 0 : ((118 + top) << 7) + ((code - (1u << top)) << (7 - top));
      }
      if (code == 127) bits = 0x7fc0;
      all.low[code] = uint8_t(bits & 0xff);
      all.high[code] = uint8_t(bits >> 8);
      all.value[code] = std::bit_cast<float>(bits << 16);
      all.value[code + 128] = std::bit_cast<float>((bits | 0x8000) << 16);
    }
    return all;
  }
  static const Fp8 kFp8;
};

inline constexpr PairTiles::Fp8 PairTiles::kFp8 = PairTiles::make_fp8();

}  // namespace fathom::cpu
