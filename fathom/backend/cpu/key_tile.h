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

/// Heads [first, first + 8) of a query [heads, channels] as [channels][8]; heads past the end are zeros.
template <class T>
[[gnu::always_inline]] inline void transpose_heads(const T* query, int64_t heads, int64_t channels, int64_t first,
                                                   float* out) {
  for (int64_t h = 0; h < kHeads; ++h) {
    const bool present = first + h < heads;
    const T* in = query + (present ? first + h : 0) * channels;
    for (int64_t i = 0; i < channels; ++i) out[i * kHeads + h] = present ? number(in, i) : 0.0f;
  }
}

/// out[k][h] = keys[k] . query[h] for 8 keys of `channels` floats.
[[gnu::always_inline]] inline void multiply_keys(const float* keys, const float* query, int64_t channels,
                                                 float* __restrict out) {
  float sum[kKeys][kHeads] = {};
  for (int64_t i = 0; i < channels; ++i, ++keys, query += kHeads) {
#pragma GCC unroll 8
    for (int k = 0; k < kKeys; ++k) {
#pragma GCC unroll 1
      for (int h = 0; h < kHeads; ++h) sum[k][h] = std::fma(keys[k * channels], query[h], sum[k][h]);
    }
  }
  for (int k = 0; k < kKeys; ++k) {
#pragma GCC unroll 1
    for (int h = 0; h < kHeads; ++h) out[k * kHeads + h] = sum[k][h];
  }
}

/// out[h][c] = sum over keys k of weights[k][h] * keys[k][c], for 8 heads and `Channels` channels.
template <int Channels>
[[gnu::always_inline]] inline void weigh_keys(const float* keys, int64_t count, int64_t stride, const float* weights,
                                              float* __restrict out) {
  float sum[kHeads][Channels] = {};
  for (int64_t k = 0; k < count; ++k, keys += stride, weights += kHeads) {
#pragma GCC unroll 8
    for (int h = 0; h < kHeads; ++h) {
#pragma GCC unroll 1
      for (int c = 0; c < Channels; ++c) sum[h][c] = std::fma(weights[h], keys[c], sum[h][c]);
    }
  }
  for (int h = 0; h < kHeads; ++h) {
#pragma GCC unroll 1
    for (int c = 0; c < Channels; ++c) out[h * Channels + c] = sum[h][c];
  }
}

/// The tiles as functions of their own, one for each instruction set: inlined into a larger one the compiler no longer
/// keeps their sums in registers.
struct Avx2Tiles {
  static constexpr int kChannels = 8;  // of weigh: 8 sums of 8, in 16 registers
  [[gnu::target("avx2,fma"), gnu::noinline]] static void multiply(const float* keys, const float* query,
                                                                  int64_t channels, float* out) {
    multiply_keys(keys, query, channels, out);
  }
  [[gnu::target("avx2,fma"), gnu::noinline]] static void weigh(const float* keys, int64_t count, int64_t stride,
                                                               const float* weights, float* out) {
    weigh_keys<kChannels>(keys, count, stride, weights, out);
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

struct Avx512Tiles {
  static constexpr int kChannels = 16;
  [[gnu::target("avx512f,avx512bw,avx512dq,avx512vl"), gnu::noinline]] static void multiply(const float* keys,
                                                                                            const float* query,
                                                                                            int64_t channels,
                                                                                            float* out) {
    multiply_keys(keys, query, channels, out);
  }
  [[gnu::target("avx512f,avx512bw,avx512dq,avx512vl"), gnu::noinline]] static void weigh(const float* keys,
                                                                                         int64_t count, int64_t stride,
                                                                                         const float* weights,
                                                                                         float* out) {
    weigh_keys<kChannels>(keys, count, stride, weights, out);
  }
  [[gnu::target("avx512f,avx512bw,avx512dq,avx512vl")]] static void decode_fp4(const uint8_t* codes, float half,
                                                                               float* out) {
    const __m512 values = _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(Avx2Tiles::fp4_values(codes)));
    _mm512_storeu_ps(out, _mm512_mul_ps(values, _mm512_set1_ps(half)));
  }
};

/// The exact values of an encoded row (the sign of an FP4 zero is dropped).
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
