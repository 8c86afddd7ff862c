#include "fathom/backend/cpu/pair_tile.h"

#include <gtest/gtest.h>

#include <cstring>

#include "fathom/backend/cpu/isa.h"
#include "fathom/backend/owned_values.h"

namespace fathom::cpu {
namespace {

// What is below the smallest normal number is 0, the sign of a zero is free, NaN is NaN.
void expect_decodes(RowFormat format, const std::vector<uint8_t>& bytes, int64_t channels) {
  std::vector<float> want(static_cast<size_t>(channels));
  decode_row(format, bytes.data(), want);
  std::vector<uint16_t> got(size_t(PairTiles::key_elements(channels)), 0x5a5a);
  PairTiles::decode(format, bytes.data(), channels, got.data());
  for (int64_t i = 0; i < channels; ++i) {
    const float value = bf16_to_float(got[size_t(i)]);
    const float expected = std::abs(want[size_t(i)]) < 0x1p-126f ? 0 : want[size_t(i)];
    if (std::isnan(expected)) {
      ASSERT_TRUE(std::isnan(value)) << i;
    } else {
      ASSERT_EQ(value, expected) << i;
    }
  }
  EXPECT_EQ(got[size_t(channels)], 0x5a5a);
}

TEST(PairTileTest, EveryCodeOfAWindowRowIsExactUnderEveryScale) {
  if (!detected_processor().bf16_dot) GTEST_SKIP() << "needs AVX512-BF16";
  for (int scale = 0; scale < 256; ++scale) {
    std::vector<uint8_t> bytes(256 + 8, uint8_t(scale));
    for (size_t i = 0; i < 256; ++i) bytes[i] = uint8_t(i);
    expect_decodes(RowFormat::q8, bytes, 256);
  }
  std::vector<uint8_t> odd(96 + 3, 127);  // three groups: the last vector is half one
  for (size_t i = 0; i < 96; ++i) odd[i] = uint8_t(2 * i + 1);
  odd[97] = 100;
  odd[98] = 140;
  expect_decodes(RowFormat::q8, odd, 96);
}

TEST(PairTileTest, EveryCodeOfALatentIsExactUnderEveryScale) {
  if (!detected_processor().bf16_dot) GTEST_SKIP() << "needs AVX512-BF16";
  for (int scale = 0; scale < 256; ++scale) {
    std::vector<uint8_t> bytes(32 + 4, uint8_t(scale));
    for (size_t i = 0; i < 32; ++i) bytes[i] = uint8_t(i * 0x1f + 7);
    for (size_t i = 0; i < 8; ++i) bytes[i] = uint8_t(0x10 * (2 * i + 1) + 2 * i);
    bytes[33] = uint8_t(scale ^ 0x15);  // each group of 16 has its own
    expect_decodes(RowFormat::q4k, bytes, 64);
  }
}

}  // namespace
}  // namespace fathom::cpu
