// fathom/backend/cpu/avx512_panel.h
// What the AVX-512 kernels share: the step from stored weight rows to outputs side by side, block scales, the reading
// of x and the rounding of sums.
#pragma once
#include <immintrin.h>

#include <bit>
#include <cstring>

#include "fathom/backend/cpu/product.h"
#include "fathom/tensor/number_formats.h"

namespace fathom::cpu {

/// Of four rows, within each 128 bits: v[d] becomes dword d of all, row n in lane n. `words_apart`: first the four low
/// words, then the four high words, which is what interleaving bytes afterwards wants.
template <bool words_apart>
[[gnu::target("avx512f,avx512bw"), gnu::always_inline]] inline void transpose_parts(__m512i v[4]) {
  if (words_apart) {
    const __m512i low = _mm512_unpacklo_epi16(v[0], v[1]), high = _mm512_unpackhi_epi16(v[0], v[1]);
    const __m512i low2 = _mm512_unpacklo_epi16(v[2], v[3]), high2 = _mm512_unpackhi_epi16(v[2], v[3]);
    v[0] = _mm512_unpacklo_epi32(low, low2);
    v[1] = _mm512_unpackhi_epi32(low, low2);
    v[2] = _mm512_unpacklo_epi32(high, high2);
    v[3] = _mm512_unpackhi_epi32(high, high2);
  } else {
    const __m512i low = _mm512_unpacklo_epi32(v[0], v[1]), high = _mm512_unpackhi_epi32(v[0], v[1]);
    const __m512i low2 = _mm512_unpacklo_epi32(v[2], v[3]), high2 = _mm512_unpackhi_epi32(v[2], v[3]);
    v[0] = _mm512_unpacklo_epi64(low, low2);
    v[1] = _mm512_unpackhi_epi64(low, low2);
    v[2] = _mm512_unpacklo_epi64(high, high2);
    v[3] = _mm512_unpackhi_epi64(high, high2);
  }
}

/// v[j] becomes dword j of rows 0..15, row n in lane n (or as above): 64 shuffles for 1,024 bytes.
template <bool words_apart>
[[gnu::target("avx512f,avx512bw"), gnu::always_inline]] inline void transpose_dwords(__m512i v[16]) {
  for (int q = 0; q < 16; q += 4) transpose_parts<words_apart>(v + q);
  // Part p of v[4q + d] is dword 4p + d of rows 4q .. 4q + 3; now a 4 x 4 transpose of the 128-bit parts.
  __m512i t[16];
  for (int d = 0; d < 4; ++d) {
    t[d] = _mm512_shuffle_i32x4(v[d], v[4 + d], 0x88);           // parts 0 and 2 of rows 0.., 4..
    t[4 + d] = _mm512_shuffle_i32x4(v[d], v[4 + d], 0xdd);       // parts 1 and 3
    t[8 + d] = _mm512_shuffle_i32x4(v[8 + d], v[12 + d], 0x88);  // the same of rows 8.., 12..
    t[12 + d] = _mm512_shuffle_i32x4(v[8 + d], v[12 + d], 0xdd);
  }
  for (int d = 0; d < 4; ++d) {
    v[d] = _mm512_shuffle_i32x4(t[d], t[8 + d], 0x88);
    v[8 + d] = _mm512_shuffle_i32x4(t[d], t[8 + d], 0xdd);
    v[4 + d] = _mm512_shuffle_i32x4(t[4 + d], t[12 + d], 0x88);
    v[12 + d] = _mm512_shuffle_i32x4(t[4 + d], t[12 + d], 0xdd);
  }
}

/// The first `count` (1..8) bytes of a row of scales, and nothing beyond: the row may end where its page does.
inline uint64_t load_scale_bytes(const uint8_t* bytes, int64_t count) {
  const auto word = [bytes]<class T>(int64_t at, T value) {
    std::memcpy(&value, bytes + at, sizeof value);
    return uint64_t(value);
  };
  if (count == 8) return word(0, uint64_t());
  if (count >= 4) return word(0, uint32_t()) | word(count - 4, uint32_t()) << (8 * (count - 4));
  if (count >= 2) return word(0, uint16_t()) | word(count - 2, uint16_t()) << (8 * (count - 2));
  return bytes[0];
}

/// 2^(byte b of each lane - 127), as e8m0_to_float.
[[gnu::target("avx512f"), gnu::always_inline]] inline __m512 e8m0_lanes(__m512i four_codes, int b) {
  const __m512i code = _mm512_and_si512(_mm512_srl_epi32(four_codes, _mm_cvtsi32_si128(8 * b)), _mm512_set1_epi32(255));
  __m512i bits = _mm512_slli_epi32(code, 23);
  bits = _mm512_mask_mov_epi32(bits, _mm512_testn_epi32_mask(code, code), _mm512_set1_epi32(0x00400000));
  bits =
      _mm512_mask_mov_epi32(bits, _mm512_cmpeq_epi32_mask(code, _mm512_set1_epi32(255)), _mm512_set1_epi32(0x7fc00000));
  return _mm512_castsi512_ps(bits);
}

/// Where the scales of outputs `first` .. `first` + 15 of a panel lie: found once, read for every chunk.
struct ScaleRows {
  const uint8_t* row[16] = {};
  int distinct = 0;  // 0: the format has none; 1: row[0] is everybody's; 16

  ScaleRows(const Panel& panel, int first) {
    if (!panel.scaled()) return;
    distinct = panel.one_scale_row() ? 1 : 16;
    for (int i = 0; i < distinct; ++i) row[i] = panel.scales(first + i);
  }
};

/// out[block * 32 + i] for the blocks from column `begin` on.
[[gnu::target("avx512f")]] inline void decode_scales_avx512(const ScaleRows& rows, int64_t begin, int64_t blocks,
                                                            float* out) {
  const int64_t at = begin / kBlock;
  if (rows.distinct < 16) {
    for (int64_t b = 0; b < blocks; ++b) {
      _mm512_store_ps(out + b * kPanel, _mm512_set1_ps(rows.distinct ? e8m0_to_float(rows.row[0][at + b]) : 1.0f));
    }
    return;
  }
  // Through registers: a wide load of what narrow stores have just written would wait for all of them.
  const auto bytes = [&rows, at, blocks](int i) { return (long long)(load_scale_bytes(rows.row[i] + at, blocks)); };
  const __m512i lower =
      _mm512_set_epi64(bytes(7), bytes(6), bytes(5), bytes(4), bytes(3), bytes(2), bytes(1), bytes(0));
  const __m512i upper =
      _mm512_set_epi64(bytes(15), bytes(14), bytes(13), bytes(12), bytes(11), bytes(10), bytes(9), bytes(8));
  const __m512i even = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
  const __m512i first4 = _mm512_permutex2var_epi32(lower, even, upper);
  const __m512i last4 = _mm512_permutex2var_epi32(lower, _mm512_add_epi32(even, _mm512_set1_epi32(1)), upper);
  for (int64_t b = 0; b < blocks; ++b)
    _mm512_store_ps(out + b * kPanel, e8m0_lanes(b < 4 ? first4 : last4, int(b & 3)));
}

/// 16 floats to bf16 as float_to_bf16 does it: nearest even, NaN stays NaN with its sign, subnormals are kept.
[[gnu::target("avx512f"), gnu::always_inline]] inline __m256i bf16_of(__m512 value) {
  const __m512i bits = _mm512_castps_si512(value);
  const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
  const __m512i up = _mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
  const __m512i quiet = _mm512_or_si512(bits, _mm512_set1_epi32(0x400000));
  const __m512i code = _mm512_mask_mov_epi32(up, _mm512_cmp_ps_mask(value, value, _CMP_UNORD_Q), quiet);
  return _mm512_cvtepi32_epi16(_mm512_srli_epi32(code, 16));
}

[[gnu::target("avx512f,avx512bw,avx512vl")]] inline void store_sums_avx512(const float* sums, int64_t rows, int count,
                                                                           DType dtype, uint8_t* out,
                                                                           int64_t out_bytes) {
  for (int64_t r = 0; r < rows; ++r, sums += kPanel, out += out_bytes) {
    for (int i = 0; i < count; i += 16) {
      const __mmask16 lanes = __mmask16(count - i >= 16 ? 0xffff : (1 << (count - i)) - 1);
      const __m512 value = _mm512_load_ps(sums + i);
      if (dtype == DType::f32) {
        _mm512_mask_storeu_ps(out + i * 4, lanes, value);
      } else {
        _mm256_mask_storeu_epi16(out + i * 2, lanes, bf16_of(value));
      }
    }
  }
}

/// 16 E4M3 codes, one a lane in its low byte, as floats.
[[gnu::target("avx512f"), gnu::always_inline]] inline __m512 e4m3_lanes(__m512i code) {
  // The magnitude's exponent and mantissa, moved to their place in a float, are 2^-120 of the value, subnormals too.
  const __m512i magnitude = _mm512_and_si512(code, _mm512_set1_epi32(0x7f));
  const __m512 tiny = _mm512_castsi512_ps(_mm512_slli_epi32(magnitude, 20));
  __m512 value = _mm512_mul_ps(tiny, _mm512_set1_ps(0x1p120f));
  const __mmask16 nan = _mm512_cmpeq_epi32_mask(magnitude, _mm512_set1_epi32(0x7f));
  value = _mm512_mask_mov_ps(value, nan, _mm512_castsi512_ps(_mm512_set1_epi32(0x7fc00000)));
  const __m512i sign = _mm512_slli_epi32(_mm512_and_si512(code, _mm512_set1_epi32(0x80)), 24);
  return _mm512_castsi512_ps(_mm512_or_si512(_mm512_castps_si512(value), sign));
}

/// Columns [begin, begin + count) of row `row` of x, exactly, 16 at a time from `at`; zeros past `count`.
[[gnu::target("avx512f,avx512bw,avx512vl"), gnu::always_inline]] inline __m512 x_lanes(const Matrix& x,
                                                                                       const uint8_t* row,
                                                                                       const uint8_t* scales,
                                                                                       int64_t column, int64_t left) {
  const __mmask16 lanes = __mmask16(left >= 16 ? 0xffff : left <= 0 ? 0 : (1 << left) - 1);
  if (x.dtype() == DType::f32) return _mm512_maskz_loadu_ps(lanes, row + column * 4);
  if (x.dtype() == DType::bf16) {
    const __m256i code = _mm256_maskz_loadu_epi16(lanes, row + column * 2);
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(code), 16));
  }
  const __m512 value = e4m3_lanes(_mm512_cvtepu8_epi32(_mm_maskz_loadu_epi8(lanes, row + column)));
  return _mm512_mul_ps(value, _mm512_set1_ps(e8m0_to_float(scales[column / kBlock])));
}

}  // namespace fathom::cpu
