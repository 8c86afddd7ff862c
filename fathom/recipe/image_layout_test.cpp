#include "fathom/recipe/image_layout.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "fathom/base/json.h"

namespace fathom::recipe {
namespace {

std::string vectors() {
  const char* set = std::getenv("FATHOM_SHARED");
  const std::string shared = set ? set : std::string(FATHOM_SOURCE_DIR) + "/../shared";
  return shared + "/vectors/recipe/images.jsonl";
}

int64_t number(const Json& row, std::string_view key, int64_t otherwise) {
  const Json* value = row.find(key);
  return value ? value->as_int64().value_or(otherwise) : otherwise;
}

ImageDetail detail_of(const Json& row) {
  for (ImageDetail detail : {ImageDetail::low, ImageDetail::original, ImageDetail::automatic}) {
    if (row.find("detail")->text == name_of(detail)) return detail;
  }
  return ImageDetail::high;
}

TEST(ImageLayout, AgreesWithAllVectorsOfTheSpecification) {
  if (!std::filesystem::exists(vectors())) GTEST_SKIP() << vectors() << " is not there: set FATHOM_SHARED";
  std::ifstream file(vectors());
  std::string line;
  int sizes = 0, refusals = 0, other = 0;
  while (std::getline(file, line)) {
    const Result<Json> read = parse_json(line, vectors());
    ASSERT_TRUE(read.ok());
    const Json& row = *read;
    const std::string& name = row.find("name")->text;
    const Json& expect = *row.find("expect");
    const int64_t width = number(row, "width", 0), height = number(row, "height", 0);
    const Json* refused = expect.find("error_kind");
    if (refused && refused->text != "ImageDimensionsTooLarge") {  // of the file's format: vision's matter
      EXPECT_EQ(refused->text, "UnsupportedMediaType") << name;
      ++other;
      continue;
    }
    if (row.find("kind")->text == "token_count") {
      const Result<ImageLayout> counted = count_image_tokens(width, height);
      ASSERT_TRUE(counted.ok()) << name;
      EXPECT_EQ(counted->tokens, number(expect, "tokens", -1)) << name;
      ++sizes;
      continue;
    }
    const ImageLimits limits{int(number(row, "max_dimension_px", kMostImageSide)),
                             int(number(row, "low_detail_max_dimension_px", 512))};
    const Result<ImageLayout> layout = lay_out_image(width, height, detail_of(row), limits);
    if (refused) {
      ASSERT_FALSE(layout.ok()) << name;
      EXPECT_EQ(layout.error().code, ErrorCode::out_of_range) << name;
      EXPECT_EQ("image[0]: " + layout.error().message, expect.find("message")->text) << name;
      ++refusals;
      continue;
    }
    ASSERT_TRUE(layout.ok()) << name;
    EXPECT_EQ(*layout, (ImageLayout{int(number(expect, "width", 0)), int(number(expect, "height", 0)),
                                    int(number(expect, "tokens", 0))}))
        << name;
    ++sizes;
  }
  EXPECT_EQ(sizes + refusals + other, 148);
  EXPECT_EQ(other, 2);
  EXPECT_EQ(refusals, 5);
}

// Measured with the oracle: the shapes at which a row or a column of tokens is all that fits.
TEST(ImageLayout, ALineOfPixelsBecomesALineOfTokens) {
  EXPECT_EQ(lay_out_image(8192, 1, ImageDetail::high).value(), (ImageLayout{16380, 28, 393}));
  EXPECT_EQ(lay_out_image(1, 8192, ImageDetail::high).value(), (ImageLayout{42, 16380, 782}));
  EXPECT_EQ(lay_out_image(8192, 1, ImageDetail::low).value(), (ImageLayout{12320, 28, 297}));
  EXPECT_EQ(lay_out_image(1, 8192, ImageDetail::low).value(), (ImageLayout{28, 12320, 590}));
  // Without the clamp of WebP the whole budget is used: 1,021 or 1,022 tokens, newlines, start and end.
  EXPECT_EQ(count_image_tokens(1 << 24, 1)->tokens, 1024);
  EXPECT_EQ(count_image_tokens(1, 1 << 24)->tokens, 1024);
}

TEST(ImageLayout, EverySizeSettlesOnWholePatchesWithinTheBudget) {
  // A coarse walk over both axes, dense where the rules change sides: around one patch, one cell, the minimum area and
  // the largest square that fits the budget.
  std::vector<int64_t> sides;
  for (int64_t side = 1; side <= 60; ++side) sides.push_back(side);
  for (int64_t side : {511, 512, 513, 543, 544, 545, 546, 547, 1301, 1302, 1303, 1315, 1344, 4095, 8191, 8192}) {
    sides.push_back(side);
  }
  for (int64_t side = 64; side < 8192; side = side * 9 / 8) sides.push_back(side);
  for (int64_t width : sides) {
    for (int64_t height : sides) {
      for (ImageDetail detail : {ImageDetail::low, ImageDetail::high}) {
        const Result<ImageLayout> layout = lay_out_image(width, height, detail);
        ASSERT_TRUE(layout.ok()) << width << " x " << height;
        ASSERT_EQ(layout->width % 14, 0) << width << " x " << height;
        ASSERT_EQ(layout->height % 14, 0) << width << " x " << height;
        ASSERT_LE(layout->tokens, 1024) << width << " x " << height;
        ASSERT_LE(std::max(layout->width, layout->height), kMostResizedSide) << width << " x " << height;
        // What was laid out once is left as it is.
        if (std::max(layout->width, layout->height) < kMostResizedSide) {
          ASSERT_EQ(count_image_tokens(layout->width, layout->height).value(), *layout) << width << " x " << height;
        }
      }
    }
  }
}

TEST(ImageLayout, SidesOutsideTheLimitsAreRefused) {
  const auto refused = [](int64_t width, int64_t height) {
    const Result<ImageLayout> layout = lay_out_image(width, height, ImageDetail::high);
    return !layout.ok() && layout.error().code == ErrorCode::out_of_range;
  };
  EXPECT_TRUE(refused(0, 10));
  EXPECT_TRUE(refused(10, 0));
  EXPECT_TRUE(refused(-1, -1));
  EXPECT_TRUE(refused(8193, 1));
  EXPECT_TRUE(refused(1, 8193));
  EXPECT_TRUE(refused(INT64_MAX, INT64_MAX));
  EXPECT_FALSE(refused(8192, 8192));
  EXPECT_FALSE(count_image_tokens(0, 5).ok());
  EXPECT_FALSE(count_image_tokens(INT64_MAX, 5).ok());
}

TEST(ImageLayout, LowDetailIsLaidOutAsTheSmallerImageWouldBe) {
  // 1025 x 2 scales by 512 / 1025: the height rounds 0.999 to 1. 4000 x 3 leaves 0.384, which is raised to 1.
  EXPECT_EQ(*lay_out_image(1025, 2, ImageDetail::low), *lay_out_image(512, 1, ImageDetail::high));
  EXPECT_EQ(*lay_out_image(4000, 3, ImageDetail::low), *lay_out_image(512, 1, ImageDetail::high));
  EXPECT_EQ(*lay_out_image(512, 300, ImageDetail::low), *lay_out_image(512, 300, ImageDetail::high));
  EXPECT_EQ(*lay_out_image(1024, 3, ImageDetail::low), *lay_out_image(512, 2, ImageDetail::high));  // 1.5, away from 0
}

TEST(ImageLayout, TheAdjustmentIsWhatImagesTakeBeyondOnePlaceholderEach) {
  EXPECT_EQ(image_token_adjustment({}), 0);
  EXPECT_EQ(image_token_adjustment({{546, 546, 184}, {42, 16380, 782}}), 183 + 781);
}

}  // namespace
}  // namespace fathom::recipe
