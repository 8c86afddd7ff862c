// fathom/backend/cpu/group_codes.h
// Codes of one group of channels with AVX-512, bit for bit those of encode_row (tensor/row_format.h): for Q8 rows in
// front of products and for cache rows.
#pragma once
#include <immintrin.h>

#include "fathom/backend/cpu/lanes.h"
#include "fathom/tensor/number_formats.h"

namespace fathom::cpu {

// ---------------------------------------------------------------------------------------------------------------- Q8
// A code is made as float_to_e4m3 makes it. The scale is a power of two, so x * (1 / scale) is x / scale; it is never
// below 2^-22, and where it is infinite both give the same zeros and NaN.

[[gnu::target("avx512f,avx512bw,avx512vl"), gnu::always_inline]] inline __m512 load_avx512(const uint16_t* x) {
  const __m256i code = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(x));
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(code), 16));
}
[[gnu::target("avx512f,avx512bw,avx512vl"), gnu::always_inline]] inline __m512 load_avx512(const float* x) {
  return _mm512_loadu_ps(x);
}

[[gnu::target("avx512f,avx512bw,avx512vl"), gnu::always_inline]] inline __m128i e4m3_codes_avx512(__m512 value) {
  const __m512i bits = _mm512_castps_si512(value);
  const __m512 magnitude = _mm512_min_ps(_mm512_abs_ps(value), _mm512_set1_ps(448.0f));
  const __m512i m = _mm512_castps_si512(magnitude);
  const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(m, 20), _mm512_set1_epi32(1));
  const __m512i rounded = _mm512_add_epi32(m, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7ffff)));
  __m512i code = _mm512_sub_epi32(_mm512_srli_epi32(rounded, 20), _mm512_set1_epi32(120 << 3));
  const __m512i steps = _mm512_castps_si512(_mm512_add_ps(magnitude, _mm512_set1_ps(0x1p14f)));
  const __mmask16 subnormal = _mm512_cmp_ps_mask(magnitude, _mm512_set1_ps(0x1p-6f), _CMP_LT_OQ);
  code = _mm512_mask_sub_epi32(code, subnormal, steps, _mm512_castps_si512(_mm512_set1_ps(0x1p14f)));
  code = _mm512_mask_mov_epi32(code, _mm512_cmp_ps_mask(value, value, _CMP_UNORD_Q), _mm512_set1_epi32(0x7f));
  const __m512i sign = _mm512_and_si512(_mm512_srli_epi32(bits, 24), _mm512_set1_epi32(0x80));
  return _mm512_cvtepi32_epi8(_mm512_or_si512(code, sign));
}

/// The largest magnitude of a group; NaN counts as nothing, as in max_abs.
[[gnu::target("avx512f,avx512bw,avx512vl"), gnu::always_inline]] inline float largest_avx512(const float* x) {
  const __m512 a = _mm512_loadu_ps(x), b = _mm512_loadu_ps(x + 16);
  // The maximum of an instruction is its second operand when one is NaN.
  return _mm512_reduce_max_ps(_mm512_max_ps(_mm512_abs_ps(b), _mm512_max_ps(_mm512_abs_ps(a), _mm512_setzero_ps())));
}
/// Of 32 bf16: their magnitudes sort as the integers that they are.
[[gnu::target("avx512f,avx512bw,avx512vl"), gnu::always_inline]] inline float largest_avx512(const uint16_t* x) {
  const __m512i magnitude = _mm512_and_si512(_mm512_loadu_si512(x), _mm512_set1_epi16(0x7fff));
  const __mmask32 number = _mm512_cmple_epu16_mask(magnitude, _mm512_set1_epi16(0x7f80));
  const __m512i numbers = _mm512_maskz_mov_epi16(number, magnitude);
  const __m256i half = _mm256_max_epu16(_mm512_castsi512_si256(numbers), _mm512_extracti64x4_epi64(numbers, 1));
  const __m128i eight = _mm_max_epu16(_mm256_castsi256_si128(half), _mm256_extracti128_si256(half, 1));
  const __m128i least = _mm_minpos_epu16(_mm_xor_si128(eight, _mm_set1_epi16(-1)));
  return std::bit_cast<float>(~uint32_t(_mm_cvtsi128_si32(least)) << 16);
}

/// 32 numbers as floats, whatever they are.
template <class T>
[[gnu::target("avx512f,avx512bw,avx512vl"), gnu::always_inline]] inline void encode_q8_floats_avx512(const T* x,
                                                                                                     float scale,
                                                                                                     uint8_t* codes) {
  const __m512 inverse = _mm512_set1_ps(1 / scale);
  for (int i = 0; i < 32; i += 16) {
    const __m128i part = e4m3_codes_avx512(_mm512_mul_ps(load_avx512(x + i), inverse));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(codes + i), part);
  }
}
[[gnu::target("avx512f,avx512bw,avx512vl"), gnu::always_inline]] inline void encode_q8_avx512(const float* x,
                                                                                              float scale,
                                                                                              uint8_t* codes) {
  encode_q8_floats_avx512(x, scale, codes);
}
/// The same for bf16, 32 numbers in words: dividing by 2^k takes k off the exponent.
[[gnu::target("avx512f,avx512bw,avx512vl"), gnu::always_inline]] inline void encode_q8_avx512(const uint16_t* x,
                                                                                              float scale,
                                                                                              uint8_t* codes) {
  const __m512i bits = _mm512_loadu_si512(x), magnitude = _mm512_and_si512(bits, _mm512_set1_epi16(0x7fff));
  if (_mm512_cmpge_epu16_mask(magnitude, _mm512_set1_epi16(0x7f80)) != 0) {  // infinity or NaN
    return encode_q8_floats_avx512(x, scale, codes);
  }
  const __m512i one = _mm512_set1_epi16(1);
  const int k = int(pow2_to_e8m0(scale)) - 127;
  // Exponents of 2^-6 and more: three bits of the mantissa stay, ties to even.
  const __m512i moved = _mm512_sub_epi16(magnitude, _mm512_set1_epi16(short(k * 128)));
  const __m512i odd = _mm512_and_si512(_mm512_srli_epi16(moved, 4), one);
  const __m512i rounded = _mm512_add_epi16(_mm512_add_epi16(moved, _mm512_set1_epi16(7)), odd);
  const __m512i normal = _mm512_sub_epi16(_mm512_srli_epi16(rounded, 4), _mm512_set1_epi16(120 << 3));
  // Below, the steps are 2^-9: the mantissa with its hidden bit is shifted by 5 or more; by 16 or more it is gone.
  const __m512i shift = _mm512_sub_epi16(_mm512_set1_epi16(short(125 + k)), _mm512_srli_epi16(magnitude, 7));
  const __m512i mantissa =
      _mm512_or_si512(_mm512_and_si512(magnitude, _mm512_set1_epi16(0x7f)), _mm512_set1_epi16(0x80));
  const __m512i odd_step = _mm512_and_si512(_mm512_srlv_epi16(mantissa, shift), one);
  const __m512i half = _mm512_sub_epi16(_mm512_sllv_epi16(one, _mm512_sub_epi16(shift, one)), one);
  const __m512i steps = _mm512_srlv_epi16(_mm512_add_epi16(_mm512_add_epi16(mantissa, half), odd_step), shift);
  const __mmask32 small = _mm512_cmpgt_epi16_mask(shift, _mm512_set1_epi16(4));
  const __m512i sign = _mm512_and_si512(_mm512_srli_epi16(bits, 8), _mm512_set1_epi16(0x80));
  const __m512i code = _mm512_or_si512(_mm512_mask_mov_epi16(normal, small, steps), sign);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(codes), _mm512_cvtepi16_epi8(code));
}

/// A row in Q8: codes [channels], scales [channels / 32].
template <class T>
[[gnu::target("avx512f,avx512bw,avx512vl"), gnu::always_inline]] inline void encode_q8_row_avx512(const T* x,
                                                                                                  int64_t channels,
                                                                                                  uint8_t* codes,
                                                                                                  uint8_t* scales) {
  for (int64_t g = 0; g < channels / 32; ++g) {
    const float scale = q8_scale(largest_avx512(x + g * 32));
    scales[g] = pow2_to_e8m0(scale);
    encode_q8_avx512(x + g * 32, scale, codes + g * 32);
  }
}

// ------------------------------------------------------------------------------------------------------- Q4I and Q4K
/// Sixteen E2M1 codes, one a lane: the exponent and mantissa of the rounded value; below 1 the steps are 1/2, which is
/// the last place of 2^22. NaN is 6 too.
[[gnu::target("avx512f,avx512bw,avx512vl"), gnu::always_inline]] inline __m512i e2m1_codes_avx512(__m512 value) {
  const __m512i bits = _mm512_castps_si512(value);
  // The minimum of an instruction is its second operand when one is NaN.
  const __m512 magnitude = _mm512_min_ps(_mm512_abs_ps(value), _mm512_set1_ps(6));
  const __m512i m = _mm512_castps_si512(magnitude);
  const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(m, 22), _mm512_set1_epi32(1));
  const __m512i rounded = _mm512_add_epi32(m, _mm512_add_epi32(odd, _mm512_set1_epi32(0x1fffff)));
  const __m512i normal = _mm512_sub_epi32(_mm512_srli_epi32(rounded, 22), _mm512_set1_epi32(126 << 1));
  const __m512i steps = _mm512_castps_si512(_mm512_add_ps(magnitude, _mm512_set1_ps(0x1p22f)));
  const __mmask16 small = _mm512_cmp_ps_mask(magnitude, _mm512_set1_ps(1), _CMP_LT_OQ);
  const __m512i code = _mm512_mask_sub_epi32(normal, small, steps, _mm512_castps_si512(_mm512_set1_ps(0x1p22f)));
  return _mm512_or_si512(code, _mm512_and_si512(_mm512_srli_epi32(bits, 28), _mm512_set1_epi32(8)));
}

/// Sixteen codes, one a lane, as eight bytes: the even ones are the low nibbles.
[[gnu::target("avx512f,avx512bw,avx512vl"), gnu::always_inline]] inline void store_nibbles_avx512(__m512i codes,
                                                                                                  uint8_t* out) {
  const __m512i pairs = _mm512_or_si512(codes, _mm512_srli_epi64(codes, 28));  // in the lower half of each qword
  _mm_storel_epi64(reinterpret_cast<__m128i*>(out), _mm512_cvtepi64_epi8(pairs));
}

/// A group of 32 in Q4I.
template <class T>
[[gnu::target("avx512f,avx512bw,avx512vl"), gnu::always_inline]] inline void encode_q4i_avx512(const T* x,
                                                                                               uint8_t* codes,
                                                                                               uint8_t* scale_code) {
  const float scale = q4i_scale(largest_avx512(x));
  *scale_code = pow2_to_e8m0(scale);
  const __m512 inverse = _mm512_set1_ps(1 / scale);
  store_nibbles_avx512(e2m1_codes_avx512(_mm512_mul_ps(load_avx512(x), inverse)), codes);
  store_nibbles_avx512(e2m1_codes_avx512(_mm512_mul_ps(load_avx512(x + 16), inverse)), codes + 8);
}

/// A group of 16 in Q4K.
template <class T>
[[gnu::target("avx512f,avx512bw,avx512vl"), gnu::always_inline]] inline void encode_q4k_avx512(const T* x,
                                                                                               uint8_t* codes,
                                                                                               uint8_t* scale_code) {
  const __m512 values = load_avx512(x);
  const uint8_t code = q4k_scale_code(_mm512_reduce_max_ps(_mm512_max_ps(_mm512_abs_ps(values), _mm512_setzero_ps())));
  *scale_code = code;
  store_nibbles_avx512(e2m1_codes_avx512(_mm512_div_ps(values, _mm512_set1_ps(e4m3_of(code)))), codes);
}

}  // namespace fathom::cpu
