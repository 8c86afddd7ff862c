#include <cstring>

#include "fathom/backend/tables_under_test.h"

namespace fathom {
namespace {

class CompressTest : public OverTables {
 protected:
  // projected [rows, 2 * channels]; the state ring holds 7 positions.
  static Tensor run(const Operations& table, Queue& queue, const OwnedRows& rows, const std::vector<float>& projected,
                    const std::vector<int32_t>& group_row, const RingRegion& state, int ratio, DType dtype,
                    int64_t channels) {
    Tensor out(dtype, int64_t(group_row.size()), channels);
    Compress op;
    op.rows = rows;
    op.projected = view(projected, 2 * channels);
    op.state = state;
    op.group_row = view(group_row);
    op.ratio = ratio;
    op.out = out.out();
    table.compress(queue, op);
    return out;
  }
};
INSTANTIATE_TEST_SUITE_P(Tables, CompressTest, all_tables(), table_name);

TEST_P(CompressTest, WeighsValuesByTheSoftmaxOfTheirScores) {
  // Two channels: equal scores give the mean; a score that is ln 3 larger gives 1/4 and 3/4.
  const OwnedRows rows({{4, 2}});
  const std::vector<float> projected{1, 0, 5, 0, /* next token */ 3, 8, 5, std::log(3.0f)};
  OwnedRings state(1, 7, 16);
  const Tensor out = run(ops(), queue, rows, projected, {1}, state.region, 2, DType::f32, 2);
  EXPECT_FLOAT_EQ(out.at(0, 0), 2);
  EXPECT_FLOAT_EQ(out.at(0, 1), 6);
}

TEST_P(CompressTest, EarlierTokensOfAGroupComeFromTheState) {
  const OwnedRows rows({{8, 2}, {5, 1}});  // the second sequence's group began in an earlier step
  const std::vector<float> projected{1, 0, 3, 0, 10, 0};
  OwnedRings state(2, 7, 8);
  const float kept[2] = {20, 0};
  std::memcpy(state.region.entry(1, 4), kept, 8);
  const Tensor out = run(ops(), queue, rows, projected, {1, 2}, state.region, 2, DType::f32, 1);
  EXPECT_FLOAT_EQ(out.at(0, 0), 2);
  EXPECT_FLOAT_EQ(out.at(1, 0), 15);
}

TEST_P(CompressTest, AgreesWithTheDefinitionGroupByGroup) {
  for (const int64_t channels : {1, 17, 64, 512}) {
    for (const int ratio : {2, 3}) {
      const OwnedRows rows({{0, 60}});
      std::vector<float> projected = noise(60 * 2 * channels, 5);
      for (float& v : projected) v *= 9;
      std::vector<int32_t> group_row;
      for (int32_t r = ratio - 1; r < 60; r += ratio) group_row.push_back(r);
      OwnedRings state(1, 7, int(8 * channels));
      for (const DType dtype : {DType::f32, DType::bf16}) {
        const Tensor want = run(definition(), queue, rows, projected, group_row, state.region, ratio, dtype, channels);
        const Tensor got = run(ops(), queue, rows, projected, group_row, state.region, ratio, dtype, channels);
        // exp of differences up to 18 and sums of values up to 9: a few roundings of each; then the store.
        const double bound = 9 * (16 * 0x1p-24 + 2 * rounding(dtype));
        for (int64_t g = 0; g < got.rows; ++g) {
          for (int64_t i = 0; i < channels; ++i) ASSERT_NEAR(got.at(g, i), want.at(g, i), bound);
          const Tensor alone =
              run(ops(), queue, rows, projected, {group_row[size_t(g)]}, state.region, ratio, dtype, channels);
          EXPECT_EQ(alone.row(0), got.row(g));
        }
      }
    }
  }
}

}  // namespace
}  // namespace fathom
