// fathom/backend/cpu/quantize_rows.cpp
// Q8 rows for products: the codes and scales of encode_row (tensor/row_format.h), bit for bit, 32 channels at a time.
#include <immintrin.h>

#include "fathom/backend/cpu/group_codes.h"
#include "fathom/backend/cpu/row_operations.h"
#include "fathom/backend/cpu/row_steps.h"
#include "fathom/backend/cpu/scratch.h"
#include "fathom/backend/cpu/turn.h"
#include "fathom/tensor/number_formats.h"

namespace fathom::cpu {
namespace {

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
[[gnu::target("avx2,fma"), gnu::always_inline]] inline void row_avx2(const T* x, int64_t channels, uint8_t* codes,
                                                                     uint8_t* scales) {
  for (int64_t g = 0; g < channels / 32; ++g) {
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

template <class Codes, class T>
[[gnu::always_inline]] inline void rows(const QuantizeRows& op, int64_t begin, int64_t end) {
  static thread_local Scratch scratch, turns_scratch;
  const int64_t n = op.x.cols, pairs = int64_t(op.turn.frequencies.size());
  T* const turned = scratch.get<T>(pairs > 0 ? n : 0);
  float* const turns = turns_scratch.get<float>(2 * pairs);
  for (int64_t r = begin; r < end; ++r) {
    const T* x = row_of<T>(op.x, r);
    if (pairs > 0) {
      std::memcpy(turned, x, size_t(n) * sizeof(T));
      turns_of(op.turn.positions[r], op.turn.frequencies, op.turn.inverse, turns);
      turn_heads(turned, op.heads, n / op.heads, pairs, turns);
      x = turned;
    }
    Codes::q8(x, n, op.codes.row(r), op.scales.row(r));
  }
}

[[gnu::target("avx2,fma")]] void piece_avx2(const QuantizeRows& op, int64_t b, int64_t e) {
  op.x.dtype == DType::bf16 ? rows<Avx2Codes, uint16_t>(op, b, e) : rows<Avx2Codes, float>(op, b, e);
}
[[gnu::target("avx512f,avx512bw,avx512dq,avx512vl")]] void piece_avx512(const QuantizeRows& op, int64_t b, int64_t e) {
  op.x.dtype == DType::bf16 ? rows<Avx512Codes, uint16_t>(op, b, e) : rows<Avx512Codes, float>(op, b, e);
}

template <auto piece>
void run(Queue& queue, const QuantizeRows& op) {
  const int64_t row_ns = 10 + op.x.cols / 4 + turn_ns(int64_t(op.turn.frequencies.size()), op.heads);
  for_row_pieces(queue, op.x.rows, row_ns, [&](int64_t b, int64_t e) { piece(op, b, e); });
}

}  // namespace

[[gnu::target("avx2,fma")]] void Avx2Codes::q8(const float* x, int64_t n, uint8_t* codes, uint8_t* scales) {
  row_avx2(x, n, codes, scales);
}
[[gnu::target("avx2,fma")]] void Avx2Codes::q8(const uint16_t* x, int64_t n, uint8_t* codes, uint8_t* scales) {
  row_avx2(x, n, codes, scales);
}
[[gnu::target("avx512f,avx512bw,avx512vl")]] void Avx512Codes::q8(const float* x, int64_t n, uint8_t* codes,
                                                                  uint8_t* scales) {
  encode_q8_row_avx512(x, n, codes, scales);
}
[[gnu::target("avx512f,avx512bw,avx512vl")]] void Avx512Codes::q8(const uint16_t* x, int64_t n, uint8_t* codes,
                                                                  uint8_t* scales) {
  encode_q8_row_avx512(x, n, codes, scales);
}

const Variants<QuantizeRows> kQuantizeRows{run<piece_avx2>, run<piece_avx512>};

}  // namespace fathom::cpu
