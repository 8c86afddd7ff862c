// fathom/backend/cpu/key_tile.h
// Products of cached rows with the heads of a query, for attention and for the indexer: heads lie side by side in
// lanes, eight at a time, so that nothing is ever summed across a vector. A product of one head and one key is the sum
// over channels in rising order, whatever tile it is in.
#pragma once
#include <immintrin.h>

#include "fathom/backend/cpu/lanes.h"
#include "fathom/tensor/number_formats.h"
#include "fathom/tensor/row_format.h"

namespace fathom::cpu {

inline constexpr int kHeads = 8;  // in lanes
inline constexpr int kKeys = 8;   // of a tile

/// The logits [n][8] of eight heads become weights, and `share` what an output is multiplied with: one over their sum
/// with the sink's part. Even and odd keys are summed apart, then together. One row past an odd n is written.
[[gnu::always_inline]] inline void weights_of_logits(float* __restrict logits, int64_t n, const float* sink,
                                                     float scale, float* __restrict share) {
  constexpr int kPair = 2 * kHeads;
  float best[kPair], total[kPair], start[kPair];
  for (int h = 0; h < kHeads; ++h) best[h] = best[kHeads + h] = sink[h];
  if (n % 2 == 1) std::fill(logits + n * kHeads, logits + (n + 1) * kHeads, -INFINITY);
  for (int64_t k = 0; k < n; k += 2) {
#pragma GCC unroll 1
    for (int i = 0; i < kPair; ++i) best[i] = std::max(best[i], logits[k * kHeads + i] * scale);
  }
#pragma GCC unroll 1
  for (int h = 0; h < kHeads; ++h) best[h] = best[kHeads + h] = std::max(best[h], best[kHeads + h]);
#pragma GCC unroll 1
  for (int i = 0; i < kPair; ++i) start[i] = i < kHeads ? sink[i % kHeads] : -INFINITY;
#pragma GCC unroll 1
  for (int i = 0; i < kPair; ++i) total[i] = exp_of_falling(start[i] - best[i]);
  for (int64_t k = 0; k < n; k += 2) {
#pragma GCC unroll 1
    for (int i = 0; i < kPair; ++i) {
      const float p = exp_of_falling(logits[k * kHeads + i] * scale - best[i]);
      logits[k * kHeads + i] = p;
      total[i] += p;
    }
  }
#pragma GCC unroll 1
  for (int h = 0; h < kHeads; ++h) share[h] = 1 / (total[h] + total[kHeads + h]);
}

/// The tiles as functions of their own, one for each instruction set: inlined into a larger one the compiler no longer
/// keeps their sums in registers.
struct Avx2Tiles {
  using Key = float;
  static constexpr int64_t key_elements(int64_t channels) { return channels; }
  static constexpr int kKeys = cpu::kKeys;
  static constexpr int kChannels = 8;  // of weigh: 8 sums of 8, in 16 registers
  /// out[k][h] = keys[k] . query[h] for 8 keys of `channels` floats; query [channels][8].
  [[gnu::target("avx2,fma"), gnu::noinline]] static void multiply(const float* const* keys, const float* query,
                                                                  int64_t channels, float* out) {
    const float *a = keys[0], *b = keys[1], *c = keys[2], *d = keys[3];
    const float *e = keys[4], *f = keys[5], *g = keys[6], *h = keys[7];
    __m256 sum[kKeys];
#pragma GCC unroll 8
    for (int k = 0; k < kKeys; ++k) sum[k] = _mm256_setzero_ps();
    for (int64_t i = 0; i < channels; ++i) {
      const __m256 q = _mm256_loadu_ps(query + i * kHeads);
      sum[0] = _mm256_fmadd_ps(_mm256_broadcast_ss(a + i), q, sum[0]);
      sum[1] = _mm256_fmadd_ps(_mm256_broadcast_ss(b + i), q, sum[1]);
      sum[2] = _mm256_fmadd_ps(_mm256_broadcast_ss(c + i), q, sum[2]);
      sum[3] = _mm256_fmadd_ps(_mm256_broadcast_ss(d + i), q, sum[3]);
      sum[4] = _mm256_fmadd_ps(_mm256_broadcast_ss(e + i), q, sum[4]);
      sum[5] = _mm256_fmadd_ps(_mm256_broadcast_ss(f + i), q, sum[5]);
      sum[6] = _mm256_fmadd_ps(_mm256_broadcast_ss(g + i), q, sum[6]);
      sum[7] = _mm256_fmadd_ps(_mm256_broadcast_ss(h + i), q, sum[7]);
    }
#pragma GCC unroll 8
    for (int k = 0; k < kKeys; ++k) _mm256_storeu_ps(out + k * kHeads, sum[k]);
  }
  /// out[h][c] = share[h] * (sum over keys k in rising order of weights[k][h] * keys[k][first + c]), for 8 heads.
  [[gnu::target("avx2,fma"), gnu::noinline]] static void weigh(const float* const* keys, int64_t count, int64_t first,
                                                               const float* weights, const float* share, float* out) {
    __m256 sum[kHeads];
#pragma GCC unroll 8
    for (int h = 0; h < kHeads; ++h) sum[h] = _mm256_setzero_ps();
    for (int64_t k = 0; k < count; ++k, weights += kHeads) {
      const __m256 key = _mm256_loadu_ps(keys[k] + first);
#pragma GCC unroll 8
      for (int h = 0; h < kHeads; ++h) sum[h] = _mm256_fmadd_ps(_mm256_broadcast_ss(weights + h), key, sum[h]);
    }
#pragma GCC unroll 8
    for (int h = 0; h < kHeads; ++h) {
      _mm256_storeu_ps(out + h * kChannels, _mm256_mul_ps(sum[h], _mm256_broadcast_ss(share + h)));
    }
  }
  [[gnu::target("avx2,fma"), gnu::noinline]] static void softmax(float* logits, int64_t n, const float* sink,
                                                                 float scale, float* share) {
    weights_of_logits(logits, n, sink, scale, share);
  }
  [[gnu::target("avx2,fma")]] static __m256 load8(const float* x) { return _mm256_loadu_ps(x); }
  [[gnu::target("avx2,fma")]] static __m256 load8(const uint16_t* x) {
    const __m256i wide = _mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(x)));
    return _mm256_castsi256_ps(_mm256_slli_epi32(wide, 16));
  }
  /// Heads [first, first + 8) of a query [heads, channels] as [channels][8]; heads past the end are zeros.
  template <class T>
  [[gnu::target("avx2,fma"), gnu::noinline]] static void transpose_heads(const T* query, int64_t heads,
                                                                         int64_t channels, int64_t first, float* out) {
    const T* in = query + first * channels;
    const int64_t present = heads - first;
    for (int64_t i = 0; i < channels; i += 8, in += 8, out += 8 * kHeads) {
      __m256 x[8], y[8];
#pragma GCC unroll 8
      for (int h = 0; h < 8; ++h) x[h] = h < present ? load8(in + h * channels) : _mm256_setzero_ps();
#pragma GCC unroll 4
      for (int h = 0; h < 8; h += 2) {  // pairs of heads, then fours, then all eight
        y[h] = _mm256_unpacklo_ps(x[h], x[h + 1]);
        y[h + 1] = _mm256_unpackhi_ps(x[h], x[h + 1]);
      }
#pragma GCC unroll 2
      for (int h = 0; h < 8; h += 4) {
        x[h] = _mm256_shuffle_ps(y[h], y[h + 2], 0x44);
        x[h + 1] = _mm256_shuffle_ps(y[h], y[h + 2], 0xee);
        x[h + 2] = _mm256_shuffle_ps(y[h + 1], y[h + 3], 0x44);
        x[h + 3] = _mm256_shuffle_ps(y[h + 1], y[h + 3], 0xee);
      }
#pragma GCC unroll 4
      for (int c = 0; c < 4; ++c) {
        _mm256_storeu_ps(out + c * kHeads, _mm256_permute2f128_ps(x[c], x[c + 4], 0x20));
        _mm256_storeu_ps(out + (c + 4) * kHeads, _mm256_permute2f128_ps(x[c], x[c + 4], 0x31));
      }
    }
  }
  /// Sixteen E2M1 codes times `half`, half a scale: the table holds twice their values, as integers.
  [[gnu::target("avx2,fma")]] static void decode_fp4(const uint8_t* codes, float half, float* out) {
    const __m128i values = fp4_values(codes);
    const __m256 scale = _mm256_set1_ps(half);
    _mm256_storeu_ps(out, _mm256_mul_ps(_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(values)), scale));
    const __m128i upper = _mm_unpackhi_epi64(values, values);
    _mm256_storeu_ps(out + 8, _mm256_mul_ps(_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(upper)), scale));
  }
  [[gnu::target("avx2,fma")]] static __m128i fp4_values(const uint8_t* codes) {
    const __m128i table = _mm_setr_epi8(0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12);
    const __m128i nibble = _mm_set1_epi8(15), pairs = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(codes));
    const __m128i low = _mm_and_si128(pairs, nibble), high = _mm_and_si128(_mm_srli_epi16(pairs, 4), nibble);
    return _mm_shuffle_epi8(table, _mm_unpacklo_epi8(low, high));
  }
};

struct Avx512Tiles : Avx2Tiles {
  static constexpr int kChannels = 16;
  [[gnu::target("avx512f,avx512bw,avx512dq,avx512vl,fma"), gnu::noinline]] static void multiply(
      const float* const* keys, const float* query, int64_t channels, float* out) {
    const float *a = keys[0], *b = keys[1], *c = keys[2], *d = keys[3];
    const float *e = keys[4], *f = keys[5], *g = keys[6], *h = keys[7];
    __m256 sum[kKeys];
#pragma GCC unroll 8
    for (int k = 0; k < kKeys; ++k) sum[k] = _mm256_setzero_ps();
#pragma GCC unroll 2
    for (int64_t i = 0; i < channels; ++i) {  // a broadcast is part of the product's instruction
      const __m256 q = _mm256_loadu_ps(query + i * kHeads);
      sum[0] = _mm256_fmadd_ps(_mm256_set1_ps(a[i]), q, sum[0]);
      sum[1] = _mm256_fmadd_ps(_mm256_set1_ps(b[i]), q, sum[1]);
      sum[2] = _mm256_fmadd_ps(_mm256_set1_ps(c[i]), q, sum[2]);
      sum[3] = _mm256_fmadd_ps(_mm256_set1_ps(d[i]), q, sum[3]);
      sum[4] = _mm256_fmadd_ps(_mm256_set1_ps(e[i]), q, sum[4]);
      sum[5] = _mm256_fmadd_ps(_mm256_set1_ps(f[i]), q, sum[5]);
      sum[6] = _mm256_fmadd_ps(_mm256_set1_ps(g[i]), q, sum[6]);
      sum[7] = _mm256_fmadd_ps(_mm256_set1_ps(h[i]), q, sum[7]);
    }
#pragma GCC unroll 8
    for (int k = 0; k < kKeys; ++k) _mm256_storeu_ps(out + k * kHeads, sum[k]);
  }
  [[gnu::target("avx512f,avx512bw,avx512dq,avx512vl"), gnu::noinline]] static void weigh(
      const float* const* keys, int64_t count, int64_t first, const float* weights, const float* share, float* out) {
    __m512 sum[kHeads];
#pragma GCC unroll 8
    for (int h = 0; h < kHeads; ++h) sum[h] = _mm512_setzero_ps();
    for (int64_t k = 0; k < count; ++k, weights += kHeads) {
      const __m512 key = _mm512_loadu_ps(keys[k] + first);
#pragma GCC unroll 8
      for (int h = 0; h < kHeads; ++h) sum[h] = _mm512_fmadd_ps(_mm512_set1_ps(weights[h]), key, sum[h]);
    }
#pragma GCC unroll 8
    for (int h = 0; h < kHeads; ++h) {
      _mm512_storeu_ps(out + h * kChannels, _mm512_mul_ps(sum[h], _mm512_set1_ps(share[h])));
    }
  }
  [[gnu::target("avx512f,avx512bw,avx512dq,avx512vl"), gnu::noinline]] static void softmax(float* logits, int64_t n,
                                                                                           const float* sink,
                                                                                           float scale, float* share) {
    weights_of_logits(logits, n, sink, scale, share);
  }
  [[gnu::target("avx512f,avx512bw,avx512dq,avx512vl")]] static void decode_fp4(const uint8_t* codes, float half,
                                                                               float* out) {
    const __m512 values = _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(Avx2Tiles::fp4_values(codes)));
    _mm512_storeu_ps(out, _mm512_mul_ps(values, _mm512_set1_ps(half)));
  }
};

/// The exact values of an encoded row (the sign of an FP4 zero is dropped), as `Tiles` reads them.
template <class Tiles>
[[gnu::always_inline]] inline void decode_key(RowFormat format, const uint8_t* bytes, int64_t channels, float* out) {
  if (format == RowFormat::f32) {
    const float* in = reinterpret_cast<const float*>(bytes);
    for (int64_t i = 0; i < channels; ++i) out[i] = in[i];
  } else if (format == RowFormat::q8) {
    for (int64_t g = 0; g < channels / 32; ++g) {
      const float scale = e8m0_to_float(bytes[channels + g]);
#pragma GCC unroll 1
      for (int i = 0; i < 32; ++i) out[g * 32 + i] = e4m3_of(bytes[g * 32 + i]) * scale;
    }
  } else {
    const uint8_t* scales = bytes + channels / 2;
    for (int64_t g = 0; g < channels / 16; ++g) {
      const float scale = format == RowFormat::q4k ? e4m3_of(scales[g]) : e8m0_to_float(scales[g / 2]);
      Tiles::decode_fp4(bytes + g * 8, 0.5f * scale, out + g * 16);
    }
  }
}

}  // namespace fathom::cpu
