// fathom/tensor/number_formats.h
// Exact scalar conversions of the storage formats, both ways. Everything that rounds in fathom rounds by these rules;
// vector code is tested against them. Source: spec/model.md 3.1, 3.2.
#pragma once
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <span>

namespace fathom {

// ---------------------------------------------------------------- BF16: the upper half of a float
inline float bf16_to_float(uint16_t code) { return std::bit_cast<float>(uint32_t(code) << 16); }

/// Nearest, ties to even. NaN stays NaN (quiet); overflow gives infinity.
inline uint16_t float_to_bf16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return uint16_t((bits >> 16) | 0x40);
  return uint16_t((bits + 0x7fffu + ((bits >> 16) & 1)) >> 16);
}

inline float round_to_bf16(float value) { return bf16_to_float(float_to_bf16(value)); }

// ---------------------------------------------------------------- E4M3 (e4m3fn)
inline float e4m3_to_float(uint8_t code) {
  const int exponent = (code >> 3) & 15, mantissa = code & 7;
  if (exponent == 15 && mantissa == 7) return std::bit_cast<float>(0x7fc00000u | uint32_t(code & 0x80) << 24);
  const float magnitude =
      exponent == 0 ? std::ldexp(float(mantissa), -9) : std::ldexp(float(8 + mantissa), exponent - 10);
  return (code & 0x80) ? -magnitude : magnitude;
}

/// Nearest, ties to even, saturating at 448. NaN gives 0x7f with its sign. The sign of zero is kept.
inline uint8_t float_to_e4m3(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint8_t sign = uint8_t((bits >> 24) & 0x80);
  if (std::isnan(value)) return uint8_t(sign | 0x7f);
  const float magnitude = std::min(std::abs(value), 448.0f);
  if (magnitude < 0x1p-6f) {  // subnormal: steps of 2^-9; the sum rounds in the last place of 2^14
    const float shifted = magnitude + 0x1p14f;
    return uint8_t(sign | (std::bit_cast<uint32_t>(shifted) - std::bit_cast<uint32_t>(0x1p14f)));
  }
  const uint32_t m = std::bit_cast<uint32_t>(magnitude);
  const uint32_t rounded = m + 0x7ffffu + ((m >> 20) & 1);  // 3 mantissa bits stay
  return uint8_t(sign | ((rounded >> 20) - (120u << 3)));
}

// ---------------------------------------------------------------- E8M0: a power of two
/// 2^(code - 127); 0xff is NaN. Code 0 is 2^-127, a subnormal float.
inline float e8m0_to_float(uint8_t code) {
  if (code == 0xff) return std::bit_cast<float>(0x7fc00000u);
  if (code == 0) return 0x1p-127f;
  return std::bit_cast<float>(uint32_t(code) << 23);
}

/// The code of a power of two in [2^-127, 2^127].
inline uint8_t pow2_to_e8m0(float power) { return uint8_t(std::bit_cast<uint32_t>(power) >> 23); }

/// The smallest power of two that is not below t, for normal t > 0.
inline float pow2_ceil(float t) {
  return std::bit_cast<float>((std::bit_cast<uint32_t>(t) + 0x007fffffu) & 0x7f800000u);
}

// ---------------------------------------------------------------- E2M1
inline constexpr float kE2m1[16] = {0.0f,  0.5f,  1.0f,  1.5f,  2.0f,  3.0f,  4.0f,  6.0f,
                                    -0.0f, -0.5f, -1.0f, -1.5f, -2.0f, -3.0f, -4.0f, -6.0f};

inline float e2m1_to_float(uint8_t code) { return kE2m1[code & 15]; }

/// Nearest, ties to the even code, saturating at 6. The sign of zero is kept. NaN gives 6 with its sign.
inline uint8_t float_to_e2m1(float value) {
  const uint8_t sign = std::signbit(value) ? 8 : 0;
  const float m = std::abs(value);
  // Thresholds between codes 0..7; a value on 0.25, 1.25, 2.5 or 5 goes down, on 0.75, 1.75 or 3.5 up.
  const int code = int(!(m <= 0.25f)) + int(!(m < 0.75f)) + int(!(m <= 1.25f)) + int(!(m < 1.75f)) + int(!(m <= 2.5f)) +
                   int(!(m < 3.5f)) + int(!(m <= 5.0f));
  return uint8_t(sign | code);
}

// ---------------------------------------------------------------- Groups: one scale for neighbours along a row
inline float max_abs(std::span<const float> x) {
  float a = 0;
  for (const float v : x) a = std::max(a, std::abs(v));
  return a;
}

/// Scale of Q8 for a group whose largest magnitude is `amax`: a power of two; amax is floored at 1e-4.
inline float q8_scale(float amax) { return pow2_ceil(std::max(amax, 1e-4f) / 448.0f); }
/// Scale of Q4I (and of MXFP4 weights): a power of two; amax is floored at 6 * 2^-126.
inline float q4i_scale(float amax) { return pow2_ceil(std::max(amax, 6 * 0x1p-126f) / 6.0f); }
/// Scale of Q4K as its E4M3 code: amax / 6, floored at 2^-9, saturating at 448.
inline uint8_t q4k_scale_code(float amax) { return float_to_e4m3(std::clamp(amax / 6.0f, 0x1p-9f, 448.0f)); }

}  // namespace fathom
