// fathom/backend/cpu/code_lanes.h
// Stored weights as vectors of bf16 with their block scales in them, by table look-ups in registers (AVX512-VBMI). The
// scale is a power of two and meets a number of at most four significant bits, so nothing is rounded as long as the
// scale is moderate.
//
// A block of 32 columns becomes two steps of 16 in the order that costs least; blocks of x are brought into the same
// one:
//   bf16   columns 0 .. 31
//   E4M3   columns 0-7, 16-23, 8-15, 24-31
//   E2M1   columns 0, 4, 8 .. 28, 1, 5 .. 29, 2, 6 .. 30, 3, 7 .. 31: nibble n of each of the eight words, n = 0 .. 3
// bf16 and E4M3 decode two weight rows at once, to vectors of [a step of one row | the same of the other].
#pragma once
#include <immintrin.h>

#include <array>

#include "fathom/tensor/dtype.h"
#include "fathom/tensor/number_formats.h"

namespace fathom::cpu {

// Scales of 2^-60 .. 2^60: times any weight, and times x of 2^-60 .. 2^61, a normal bf16.
inline constexpr int kModerate = 60;
inline constexpr bool is_moderate(uint8_t e8m0) { return e8m0 >= 127 - kModerate && e8m0 <= 127 + kModerate; }

/// bf16 codes times powers of two, as look-ups want them.
struct CodeTables {
  // Of E4M3 magnitudes, times 1 and times 2: low bytes and high bytes.
  alignas(64) std::array<std::array<uint8_t, 128>, 2> e4m3_low{}, e4m3_high{};
  // Of E2M1 codes times each scale; twice the same 16, for look-ups that read five bits.
  alignas(64) std::array<std::array<uint16_t, 32>, 256> e2m1{};

  CodeTables() {
    for (size_t i = 0; i < 128; ++i) {
      for (size_t power = 0; power < 2; ++power) {
        const uint16_t code = float_to_bf16(e4m3_to_float(uint8_t(i)) * float(1 + power));
        e4m3_low[power][i] = uint8_t(code);
        e4m3_high[power][i] = uint8_t(code >> 8);
      }
    }
    for (size_t scale = 0; scale < 256; ++scale) {
      if (!is_moderate(uint8_t(scale))) continue;
      for (size_t i = 0; i < 32; ++i) {
        e2m1[scale][i] = float_to_bf16(kE2m1[i % 16] * e8m0_to_float(uint8_t(scale)));
      }
    }
  }
};
inline const CodeTables kCodeTables;

/// Decodes E4M3 codes times one moderate scale. 2^(2h + p): p chooses the tables, h is added to the high bytes of all
/// but 0 and NaN.
struct E4m3Lanes {
  __m512i low[2], high[2], sign;

  [[gnu::target("avx512f,avx512bw"), gnu::always_inline]] inline explicit E4m3Lanes(int scale = 127) {
    const int power = scale - 127, odd = power & 1;
    const __m512i add = _mm512_set1_epi8(char((power - odd) / 2));
    for (int half = 0; half < 2; ++half) {
      low[half] = _mm512_load_si512(kCodeTables.e4m3_low[size_t(odd)].data() + half * 64);
      const __m512i base = _mm512_load_si512(kCodeTables.e4m3_high[size_t(odd)].data() + half * 64);
      const __mmask64 numbers = half == 0 ? ~__mmask64(1) : ~__mmask64(0) >> 1;
      high[half] = _mm512_mask_add_epi8(base, numbers, base, add);
    }
    sign = _mm512_set1_epi8(char(0x80));
  }

  /// In each 128 bits: the first eight codes to one vector, the others to the other.
  [[gnu::target("avx512f,avx512bw,avx512vbmi"), gnu::always_inline]] inline void decode(__m512i codes, __m512i& first,
                                                                                        __m512i& second) const {
    const __m512i lows = _mm512_permutex2var_epi8(low[0], codes, low[1]);  // reads seven bits: not the sign
    const __m512i magnitudes = _mm512_permutex2var_epi8(high[0], codes, high[1]);
    const __m512i highs = _mm512_ternarylogic_epi32(magnitudes, codes, sign, 0xf8);  // magnitude | (code & sign)
    first = _mm512_unpacklo_epi8(lows, highs);
    second = _mm512_unpackhi_epi8(lows, highs);
  }

  /// A block of two rows.
  [[gnu::target("avx512f,avx512bw,avx512vbmi"), gnu::always_inline]] inline void decode(const uint8_t* row0,
                                                                                        const uint8_t* row1,
                                                                                        __m512i& first,
                                                                                        __m512i& second) const {
    const __m256i low_half = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(row0));
    const __m256i high_half = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(row1));
    decode(_mm512_inserti64x4(_mm512_castsi256_si512(low_half), high_half, 1), first, second);
  }
};

/// Decodes E2M1 codes times the scale of their block, a step of one row at a time: 16 words to a vector, because a
/// look-up among 16 reads four bits of a word and lets the other nibbles be. With 32 words, of two rows, every index
/// would have to be cut out and told its row first: 7.1 cycles of Zen 4 for 64 codes instead of 4.7.
struct E2m1Lanes {
  __m256i shifts[2];  // that bring a step's nibbles down

  [[gnu::target("avx512f,avx512bw,avx512vl"), gnu::always_inline]] inline E2m1Lanes() {
    shifts[0] = _mm256_setr_epi64x(0, 0, 0x0004000400040004, 0x0004000400040004);
    shifts[1] = _mm256_add_epi16(shifts[0], _mm256_set1_epi16(8));
  }
  [[gnu::target("avx512f,avx512bw,avx512vl"), gnu::always_inline]] inline __m256i decode(const uint8_t* block,
                                                                                         uint8_t scale,
                                                                                         int step) const {
    const __m256i codes = _mm256_broadcastsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(block)));
    const __m256i values = _mm256_load_si256(reinterpret_cast<const __m256i*>(kCodeTables.e2m1[scale].data()));
    return _mm256_permutexvar_epi16(_mm256_srlv_epi16(codes, shifts[step]), values);
  }
};

struct Bf16Lanes {
  /// 16 columns of two rows; those whose bits in `lanes` are 0 are not read.
  [[gnu::target("avx512f,avx512bw,avx512vl"), gnu::always_inline]] static inline __m512i decode(const uint8_t* row0,
                                                                                                const uint8_t* row1,
                                                                                                __mmask16 lanes) {
    return _mm512_inserti64x4(_mm512_castsi256_si512(_mm256_maskz_loadu_epi16(lanes, row0)),
                              _mm256_maskz_loadu_epi16(lanes, row1), 1);
  }
};

/// The words of a block of x in the order of `weight`: from natural order, and from the first and second vectors of
/// E4m3Lanes::decode for 64 codes of a row (add 16 for the second block).
struct ColumnOrder {
  __m512i from_natural, from_codes;

  [[gnu::target("avx512f,avx512bw"), gnu::always_inline]] inline explicit ColumnOrder(DType weight) {
    alignas(64) uint16_t columns[32];  // at their places
    for (int i = 0; i < 32; ++i) {
      const int eight = i / 8 == 1 ? 2 : i / 8 == 2 ? 1 : i / 8;
      columns[i] = uint16_t(weight == DType::f8_e4m3   ? eight * 8 + i % 8
                            : weight == DType::f4_e2m1 ? i % 8 * 4 + i / 8
                                                       : i);
    }
    from_natural = _mm512_load_si512(columns);
    // Column c of a block lies in vector c / 8 % 2 at word c / 16 * 8 + c % 8.
    for (uint16_t& c : columns) c = uint16_t(c / 8 % 2 * 32 + c / 16 * 8 + c % 8);
    from_codes = _mm512_load_si512(columns);
  }
};

}  // namespace fathom::cpu
