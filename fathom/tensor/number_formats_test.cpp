// Every code of every storage format, both ways. Rounding is judged against a search for the nearest value in double,
// over all floats close to a border between two codes and a stride through all others. Source: spec/model.md 3.1.
#include "fathom/tensor/number_formats.h"

#include <gtest/gtest.h>

#include <limits>
#include <vector>

namespace fathom {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

uint32_t bits_of_float(float value) { return std::bit_cast<uint32_t>(value); }
float float_of(uint32_t bits) { return std::bit_cast<float>(bits); }

/// The value of an E4M3 code from its definition: sign, 4 exponent bits with bias 7, 3 mantissa bits.
double e4m3_value(int code) {
  const int exponent = (code >> 3) & 15, mantissa = code & 7;
  const double magnitude =
      exponent == 0 ? mantissa / 8.0 * std::exp2(-6) : (1 + mantissa / 8.0) * std::exp2(exponent - 7);
  return code & 0x80 ? -magnitude : magnitude;
}

/// Code of the nearest magnitude; of two equally near ones the even code. `values` ascend, value i has code i.
int nearest_code(const std::vector<double>& values, double magnitude) {
  int best = 0;
  for (int i = 1; i < int(values.size()); ++i) {
    const double old_gap = std::abs(values[size_t(best)] - magnitude), gap = std::abs(values[size_t(i)] - magnitude);
    if (gap < old_gap || (gap == old_gap && i % 2 == 0)) best = i;
  }
  return best;
}

/// All floats within 64 steps of each value and of each midpoint between two of them, and a stride of about a million
/// through all others. Magnitudes only.
std::vector<float> hard_floats(const std::vector<double>& values) {
  std::vector<float> out;
  const auto around = [&out](double centre) {
    const int64_t bits = bits_of_float(float(centre));
    for (int64_t b = std::max<int64_t>(0, bits - 64); b <= bits + 64; ++b) out.push_back(float_of(uint32_t(b)));
  };
  for (size_t i = 0; i < values.size(); ++i) {
    around(values[i]);
    if (i > 0) around((values[i - 1] + values[i]) / 2);
  }
  for (uint32_t bits = 0; bits < 0x7f800000u; bits += 4099) out.push_back(float_of(bits));
  out.push_back(std::numeric_limits<float>::max());
  out.push_back(kInfinity);
  return out;
}

// ---------------------------------------------------------------- BF16
TEST(Bf16, AllCodesAreTheUpperHalvesOfFloatsAndComeBack) {
  for (uint32_t code = 0; code < 65536; ++code) {
    const float value = bf16_to_float(uint16_t(code));
    EXPECT_EQ(bits_of_float(value), code << 16);
    const bool is_nan = (code & 0x7f80) == 0x7f80 && (code & 0x7f) != 0;
    // A NaN comes back as a quiet one with its payload; everything else, both zeros included, bit by bit.
    EXPECT_EQ(float_to_bf16(value), is_nan ? code | 0x40 : code);
  }
}

TEST(Bf16, RoundsToNearestAndTiesToEvenBetweenAllNeighbours) {
  for (uint32_t code = 0; code < 0x7f80; ++code) {
    for (const uint32_t sign : {0u, 0x8000u}) {
      const uint32_t low = (code | sign) << 16;
      const auto rounded = [&](uint32_t rest) { return uint32_t(float_to_bf16(float_of(low | rest))) & 0x7fff; };
      EXPECT_EQ(rounded(0x0001), code);
      EXPECT_EQ(rounded(0x7fff), code);
      EXPECT_EQ(rounded(0x8000), code + (code & 1));
      EXPECT_EQ(rounded(0x8001), code + 1);
      EXPECT_EQ(rounded(0xffff), code + 1);
      EXPECT_EQ(float_to_bf16(float_of(low | 0x8001)) & 0x8000u, sign);
    }
  }
}

TEST(Bf16, OverflowGivesInfinityAndTinyNansStayNans) {
  EXPECT_EQ(float_to_bf16(float_of(0x7f7f7fff)), 0x7f7f);  // the last float that stays finite
  EXPECT_EQ(float_to_bf16(float_of(0x7f7f8000)), 0x7f80);
  EXPECT_EQ(float_to_bf16(-std::numeric_limits<float>::max()), 0xff80);
  // All payload bits lie in the half that is cut: without the quiet bit this would become infinity.
  EXPECT_EQ(float_to_bf16(float_of(0x7f800001)), 0x7fc0);
  EXPECT_EQ(float_to_bf16(float_of(0xff80ffff)), 0xffc0);
  EXPECT_EQ(float_to_bf16(float_of(0x7fffffff)), 0x7fff);
}

// ---------------------------------------------------------------- E4M3
TEST(E4m3, AllCodesHaveTheirValueAndComeBack) {
  for (int code = 0; code < 256; ++code) {
    const float value = e4m3_to_float(uint8_t(code));
    EXPECT_EQ(std::signbit(value), code >= 0x80) << code;
    if ((code & 0x7f) == 0x7f) {
      EXPECT_TRUE(std::isnan(value)) << code;
    } else {
      EXPECT_EQ(double(value), e4m3_value(code)) << code;
    }
    EXPECT_EQ(float_to_e4m3(value), code);
  }
  EXPECT_EQ(e4m3_to_float(0x7e), 448.0f);
  EXPECT_EQ(e4m3_to_float(0x01), 0x1p-9f);
  EXPECT_EQ(e4m3_to_float(0x08), 0x1p-6f);
}

TEST(E4m3, RoundsToTheNearestValueTiesToTheEvenCodeAndSaturates) {
  std::vector<double> values;
  for (int code = 0; code < 0x7f; ++code) values.push_back(e4m3_value(code));
  for (const float x : hard_floats(values)) {
    const int want = nearest_code(values, std::min(double(x), 448.0));
    ASSERT_EQ(float_to_e4m3(x), want) << x;
    ASSERT_EQ(float_to_e4m3(-x), want | 0x80) << -x;
  }
}

TEST(E4m3, SaturatesInfinityAndKeepsNanAndTheSignOfZero) {
  EXPECT_EQ(float_to_e4m3(kInfinity), 0x7e);
  EXPECT_EQ(float_to_e4m3(-kInfinity), 0xfe);
  EXPECT_EQ(float_to_e4m3(465.0f), 0x7e);  // beyond the middle between 448 and the 480 that does not exist
  EXPECT_EQ(float_to_e4m3(kNan), 0x7f);
  EXPECT_EQ(float_to_e4m3(-kNan), 0xff);
  EXPECT_EQ(float_to_e4m3(0.0f), 0x00);
  EXPECT_EQ(float_to_e4m3(-0.0f), 0x80);
  EXPECT_EQ(float_to_e4m3(-0x1p-140f), 0x80);  // vanishes, its sign does not
}

// ---------------------------------------------------------------- E2M1
TEST(E2m1, AllCodesHaveTheirValueAndComeBack) {
  const double magnitudes[8] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
  for (int code = 0; code < 16; ++code) {
    const float value = e2m1_to_float(uint8_t(code));
    EXPECT_EQ(std::abs(double(value)), magnitudes[code & 7]);
    EXPECT_EQ(std::signbit(value), code >= 8);
    EXPECT_EQ(float_to_e2m1(value), code);
  }
}

TEST(E2m1, RoundsToTheNearestValueTiesToTheEvenCodeAndSaturates) {
  const std::vector<double> values = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
  for (const float x : hard_floats(values)) {
    const int want = nearest_code(values, std::min(double(x), 6.0));
    ASSERT_EQ(float_to_e2m1(x), want) << x;
    ASSERT_EQ(float_to_e2m1(-x), want | 8) << -x;
  }
}

TEST(E2m1, TiesGoWhereTheSpecificationSays) {
  for (const auto& [x, want] : {std::pair{0.25f, 0.0f}, {1.25f, 1.0f}, {2.5f, 2.0f}, {5.0f, 4.0f}}) {
    EXPECT_EQ(e2m1_to_float(float_to_e2m1(x)), want) << x << " goes down";
  }
  for (const auto& [x, want] : {std::pair{0.75f, 1.0f}, {1.75f, 2.0f}, {3.5f, 4.0f}}) {
    EXPECT_EQ(e2m1_to_float(float_to_e2m1(x)), want) << x << " goes up";
  }
  EXPECT_EQ(float_to_e2m1(-0.0f), 8);
  EXPECT_EQ(float_to_e2m1(kInfinity), 7);
  EXPECT_EQ(float_to_e2m1(kNan), 7);
}

// ---------------------------------------------------------------- E8M0
TEST(E8m0, AllCodesArePowersOfTwoAndComeBack) {
  for (int code = 0; code < 255; ++code) {
    const float value = e8m0_to_float(uint8_t(code));
    EXPECT_EQ(double(value), std::exp2(code - 127)) << code;
    EXPECT_EQ(pow2_to_e8m0(value), code);
  }
  EXPECT_TRUE(std::isnan(e8m0_to_float(255)));
}

TEST(E8m0, Pow2CeilIsTheSmallestPowerThatIsNotBelow) {
  for (int exponent = -126; exponent < 127; ++exponent) {
    const float power = std::exp2(float(exponent));
    EXPECT_EQ(pow2_ceil(power), power);
    EXPECT_EQ(pow2_ceil(std::nextafter(power, kInfinity)), 2 * power);
    EXPECT_EQ(pow2_ceil(1.5f * power), 2 * power);
    EXPECT_EQ(pow2_ceil(std::nextafter(2 * power, 0.0f)), 2 * power);
  }
}

// ---------------------------------------------------------------- Scales of groups: spec/model.md 3.2 and 16.5
TEST(GroupScale, HasTheValuesOfTheSpecification) {
  EXPECT_EQ(q8_scale(448), 1.0f);
  EXPECT_EQ(q8_scale(449), 2.0f);
  EXPECT_EQ(q8_scale(224), 0.5f);
  EXPECT_EQ(q8_scale(0), 0x1p-22f);
  EXPECT_EQ(q4i_scale(6), 1.0f);
  EXPECT_EQ(q4i_scale(6.5f), 2.0f);
  EXPECT_EQ(q4i_scale(0), 0x1p-126f);
  EXPECT_EQ(e4m3_to_float(q4k_scale_code(6)), 1.0f);
  EXPECT_EQ(e4m3_to_float(q4k_scale_code(10)), 1.625f);
  EXPECT_EQ(e4m3_to_float(q4k_scale_code(0)), 0x1p-9f);
  EXPECT_EQ(e4m3_to_float(q4k_scale_code(1e9f)), 448.0f);
}

TEST(GroupScale, DividingGivesTheSameScaleAsMultiplyingByTheRoundedReciprocal) {
  // The specification multiplies by fp32(1/448) and fp32(1/6). The products differ from quotients in the last bit,
  // which could only matter where the quotient is next to a power of two: look at all floats near those, in every
  // binade.
  for (int exponent = -20; exponent < 110; ++exponent) {
    for (const auto& [limit, reciprocal] : {std::pair{448.0f, 1.0f / 448.0f}, {6.0f, 1.0f / 6.0f}}) {
      const uint32_t centre = bits_of_float(limit * std::exp2(float(exponent)));
      for (uint32_t bits = centre - 100; bits <= centre + 100; ++bits) {
        const float amax = float_of(bits);
        const float want = pow2_ceil(std::max(amax, 1e-4f) * reciprocal);
        const float got = limit == 6.0f ? q4i_scale(std::max(amax, 1e-4f)) : q8_scale(amax);
        ASSERT_EQ(got, want) << amax;
      }
    }
  }
}

}  // namespace
}  // namespace fathom
