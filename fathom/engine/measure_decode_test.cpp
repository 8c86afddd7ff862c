#include "fathom/engine/measure_decode.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fathom/engine/fake_model.h"

namespace fathom {
namespace {

using testing::ElementsAre;

TEST(MeasureDecode, SizesRiseTwoADoublingAndEndWithTheLargest) {
  EXPECT_THAT(curve_sizes(1), ElementsAre(1));
  EXPECT_THAT(curve_sizes(6), ElementsAre(1, 2, 4, 6));
  EXPECT_THAT(curve_sizes(96), ElementsAre(1, 2, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96));
}

// The fake model checks that every row has a block, a slot and the rows before it.
TEST(MeasureDecode, RunsEverySizeSixTimesOverItsSequences) {
  FakeModel model({});
  for (const int sequences : {1, 4, 16}) {
    const auto sizes = curve_sizes(6 * sequences);
    const int64_t before = model.calls;
    const auto curve = measure_decode(model.port(), sizes, sequences);
    ASSERT_TRUE(curve.ok());
    ASSERT_EQ(curve->size(), sizes.size());
    for (size_t i = 0; i < sizes.size(); ++i) EXPECT_EQ((*curve)[i].rows, sizes[i]);
    EXPECT_EQ(model.calls - before, 1 + int64_t(6 * sizes.size()));
    EXPECT_EQ(model.most_rows, 6 * sequences);
  }
}

}  // namespace
}  // namespace fathom
