// fathom/backend/cpu/quantize_rows.cpp
// Q8 rows for products: the codes and scales of encode_row (tensor/row_format.h), bit for bit, 32 channels at a time.
#include <immintrin.h>

#include "fathom/backend/cpu/row_operations.h"
#include "fathom/tensor/number_formats.h"

namespace fathom::cpu {
namespace {

// A code is made as float_to_e4m3 makes it. The scale is a power of two, so x * (1 / scale) is x / scale; it is never
// below 2^-22, and where it is infinite both give the same zeros and NaN.

[[gnu::target("avx512f,avx512bw,avx512vl"), gnu::always_inline]] inline __m512 load_avx512(const uint16_t* x) {
  const __m256i code = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(x));
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(code), 16));
}

[[gnu::target("avx512f,avx512bw,avx512vl"), gnu::always_inline]] inline __m128i codes_avx512(__m512 value) {
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
/// Magnitudes of bf16 sort as the integers that they are.
[[gnu::target("avx512f,avx512bw,avx512vl"), gnu::always_inline]] inline float largest_avx512(const uint16_t* x) {
  const __m512i magnitude = _mm512_and_si512(_mm512_loadu_si512(x), _mm512_set1_epi16(0x7fff));
  const __mmask32 number = _mm512_cmple_epu16_mask(magnitude, _mm512_set1_epi16(0x7f80));
  const __m512i numbers = _mm512_maskz_mov_epi16(number, magnitude);
  const __m256i half = _mm256_max_epu16(_mm512_castsi512_si256(numbers), _mm512_extracti64x4_epi64(numbers, 1));
  const __m128i eight = _mm_max_epu16(_mm256_castsi256_si128(half), _mm256_extracti128_si256(half, 1));
  const __m128i least = _mm_minpos_epu16(_mm_xor_si128(eight, _mm_set1_epi16(-1)));
  return std::bit_cast<float>(~uint32_t(_mm_cvtsi128_si32(least)) << 16);
}

[[gnu::target("avx512f,avx512bw,avx512vl"), gnu::always_inline]] inline void encode_avx512(const float* x, float scale,
                                                                                           uint8_t* codes) {
  const __m512 inverse = _mm512_set1_ps(1 / scale);
  for (int i = 0; i < 32; i += 16) {
    const __m128i part = codes_avx512(_mm512_mul_ps(_mm512_loadu_ps(x + i), inverse));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(codes + i), part);
  }
}
/// The same for bf16, 32 numbers in words: dividing by 2^k takes k off the exponent.
[[gnu::target("avx512f,avx512bw,avx512vl"), gnu::always_inline]] inline void encode_avx512(const uint16_t* x,
                                                                                           float scale,
                                                                                           uint8_t* codes) {
  const __m512i bits = _mm512_loadu_si512(x), magnitude = _mm512_and_si512(bits, _mm512_set1_epi16(0x7fff));
  if (_mm512_cmpge_epu16_mask(magnitude, _mm512_set1_epi16(0x7f80)) != 0) {  // infinity or NaN
    const __m512 inverse = _mm512_set1_ps(1 / scale);
    for (int i = 0; i < 32; i += 16) {
      const __m128i part = codes_avx512(_mm512_mul_ps(load_avx512(x + i), inverse));
      _mm_storeu_si128(reinterpret_cast<__m128i*>(codes + i), part);
    }
    return;
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

template <class T>
[[gnu::target("avx512f,avx512bw,avx512vl"), gnu::always_inline]] inline void rows_avx512(const QuantizeRows& op,
                                                                                         int64_t begin, int64_t end) {
  for (int64_t r = begin; r < end; ++r) {
    const T* x = row_of<T>(op.x, r);
    uint8_t* codes = op.codes.row(r);
    uint8_t* scales = op.scales.row(r);
    for (int64_t g = 0; g < op.x.cols / 32; ++g) {
      const float scale = q8_scale(largest_avx512(x + g * 32));
      scales[g] = pow2_to_e8m0(scale);
      encode_avx512(x + g * 32, scale, codes + g * 32);
    }
  }
}

[[gnu::target("avx2,fma"), gnu::always_inline]] inline __m256 load_avx2(const float* x) { return _mm256_loadu_ps(x); }
[[gnu::target("avx2,fma"), gnu::always_inline]] inline __m256 load_avx2(const uint16_t* x) {
  const __m128i code = _mm_loadu_si128(reinterpret_cast<const __m128i*>(x));
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(code), 16));
}

[[gnu::target("avx2,fma"), gnu::always_inline]] inline __m256 abs_avx2(__m256 value) {
  return _mm256_andnot_ps(_mm256_set1_ps(-0.0f), value);
}

/// Eight codes, one a lane.
[[gnu::target("avx2,fma"), gnu::always_inline]] inline __m256i codes_avx2(__m256 value) {
  const __m256 magnitude = _mm256_min_ps(abs_avx2(value), _mm256_set1_ps(448.0f));
  const __m256i m = _mm256_castps_si256(magnitude);
  const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(m, 20), _mm256_set1_epi32(1));
  const __m256i rounded = _mm256_add_epi32(m, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7ffff)));
  const __m256i normal = _mm256_sub_epi32(_mm256_srli_epi32(rounded, 20), _mm256_set1_epi32(120 << 3));
  const __m256i steps = _mm256_castps_si256(_mm256_add_ps(magnitude, _mm256_set1_ps(0x1p14f)));
  const __m256i small = _mm256_sub_epi32(steps, _mm256_castps_si256(_mm256_set1_ps(0x1p14f)));
  const __m256 subnormal = _mm256_cmp_ps(magnitude, _mm256_set1_ps(0x1p-6f), _CMP_LT_OQ);
  const __m256i code = _mm256_blendv_epi8(normal, small, _mm256_castps_si256(subnormal));
  const __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(value, value, _CMP_UNORD_Q));
  const __m256i sign = _mm256_and_si256(_mm256_srli_epi32(_mm256_castps_si256(value), 24), _mm256_set1_epi32(0x80));
  return _mm256_or_si256(_mm256_blendv_epi8(code, _mm256_set1_epi32(0x7f), nan), sign);
}

template <class T>
[[gnu::target("avx2,fma"), gnu::always_inline]] inline void rows_avx2(const QuantizeRows& op, int64_t begin,
                                                                      int64_t end) {
  for (int64_t r = begin; r < end; ++r) {
    const T* x = row_of<T>(op.x, r);
    uint8_t* codes = op.codes.row(r);
    uint8_t* scales = op.scales.row(r);
    for (int64_t g = 0; g < op.x.cols / 32; ++g) {
      __m256 value[4], amax = _mm256_setzero_ps();
      for (int i = 0; i < 4; ++i) {
        value[i] = load_avx2(x + g * 32 + i * 8);
        amax = _mm256_max_ps(abs_avx2(value[i]), amax);  // NaN counts as nothing, as above
      }
      alignas(32) float lanes[8];
      _mm256_store_ps(lanes, amax);
      const float scale = q8_scale(*std::max_element(lanes, lanes + 8));
      const __m256 inverse = _mm256_set1_ps(1 / scale);
      scales[g] = pow2_to_e8m0(scale);
      __m256i code[4];
      for (int i = 0; i < 4; ++i) code[i] = codes_avx2(_mm256_mul_ps(value[i], inverse));
      // Packing works within 128 bits; the permutation puts the dwords of four codes in order again.
      const __m256i words0 = _mm256_packus_epi32(code[0], code[1]), words1 = _mm256_packus_epi32(code[2], code[3]);
      const __m256i bytes = _mm256_packus_epi16(words0, words1);
      const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(codes + g * 32), _mm256_permutevar8x32_epi32(bytes, order));
    }
  }
}

[[gnu::target("avx2,fma")]] void piece_avx2(const QuantizeRows& op, int64_t b, int64_t e) {
  op.x.dtype == DType::bf16 ? rows_avx2<uint16_t>(op, b, e) : rows_avx2<float>(op, b, e);
}
[[gnu::target("avx512f,avx512bw,avx512vl")]] void piece_avx512(const QuantizeRows& op, int64_t b, int64_t e) {
  op.x.dtype == DType::bf16 ? rows_avx512<uint16_t>(op, b, e) : rows_avx512<float>(op, b, e);
}

template <auto piece>
void run(Queue& queue, const QuantizeRows& op) {
  for_row_pieces(queue, op.x.rows, 10 + op.x.cols / 4, [&](int64_t b, int64_t e) { piece(op, b, e); });
}

}  // namespace

const Variants<QuantizeRows> kQuantizeRows{run<piece_avx2>, run<piece_avx512>};

}  // namespace fathom::cpu
