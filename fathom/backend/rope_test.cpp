#include "fathom/backend/tables_under_test.h"

namespace fathom {
namespace {

class RopeTest : public OverTables {
 protected:
  static void turn(const Operations& table, Queue& queue, Tensor& x, int heads, const std::vector<int64_t>& positions,
                   const std::vector<float>& frequencies, bool inverse = false) {
    Rope op;
    op.x = x.out();
    op.heads = heads;
    op.positions = view(positions);
    op.frequencies = frequencies;
    op.inverse = inverse;
    table.rope(queue, op);
  }
};
INSTANTIATE_TEST_SUITE_P(Tables, RopeTest, all_tables(), table_name);

// spec/model.md 16.7. A product in double would give cos -0.77021937 and 0.34359950.
TEST_P(RopeTest, TheAngleIsRoundedToFloat) {
  struct Case {
    int64_t position;
    double base, exponent, cos;
  };
  for (const Case& c : {Case{1000000, 160000, -10.0 / 64, -0.77129060}, Case{777777, 10000, -2.0 / 64, 0.36702229}}) {
    Tensor x(DType::f32, 1, 2, {1, 0});
    turn(ops(), queue, x, 1, {c.position}, {float(std::pow(c.base, c.exponent))});
    EXPECT_NEAR(x.at(0, 0), c.cos, 1e-7);
    EXPECT_NEAR(x.at(0, 1) * x.at(0, 1), 1 - c.cos * c.cos, 3e-7);
  }
}

TEST_P(RopeTest, TurnsNeighbouringPairsOfTheTailOfEachHead) {
  // A quarter turn: (a, b) becomes (-b, a). Two heads of 6 channels, one pair each.
  Tensor x(DType::f32, 1, 12, {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12});
  turn(ops(), queue, x, 2, {1}, {1.5707964f});
  const std::vector<float> want{1, 2, 3, 4, -6, 5, 7, 8, 9, 10, -12, 11};
  for (int64_t i = 0; i < 12; ++i) EXPECT_NEAR(x.at(0, i), want[size_t(i)], 2e-6);
}

TEST_P(RopeTest, PositionZeroChangesNothing) {
  Tensor x = noise(DType::bf16, 1, 64, 1);
  const auto before = x.bytes;
  turn(ops(), queue, x, 1, {0}, std::vector<float>(8, 0.5f));
  EXPECT_EQ(x.bytes, before);
}

TEST_P(RopeTest, AgreesWithTheDefinitionBothWaysAndRowByRow) {
  // Pairs: 1, 5 and 8 (the miniature), 32 (the model). Positions up to a million.
  // Channels that are not turned: as many that turned ones begin anywhere, or at multiples of 16 bytes.
  for (const auto& [pairs, others] :
       std::vector<std::pair<int64_t, int64_t>>{{1, 14}, {5, 14}, {8, 14}, {32, 14}, {8, 16}, {12, 8}, {32, 448}}) {
    std::vector<float> frequencies;
    for (int64_t i = 0; i < pairs; ++i) frequencies.push_back(float(std::pow(10000.0, -double(i) / double(pairs))));
    std::vector<int64_t> positions{0, 1, 77, 1048575};
    while (positions.size() < 40) positions.push_back(int64_t(positions.size()) * 26001);
    for (const DType dtype : {DType::f32, DType::bf16}) {
      for (const bool inverse : {false, true}) {
        const int heads = 3;
        const int64_t cols = heads * (2 * pairs + others);
        const Tensor x = noise(dtype, 40, cols, 3);
        Tensor want = x, got = x;
        turn(definition(), queue, want, heads, positions, frequencies, inverse);
        turn(ops(), queue, got, heads, positions, frequencies, inverse);
        // cos and sin each within an ulp, two products and a sum of numbers up to 1; then the store.
        const double bound = 6 * 0x1p-24 + 4 * rounding(dtype);
        for (int64_t r = 0; r < 40; ++r) {
          for (int64_t i = 0; i < cols; ++i) ASSERT_NEAR(got.at(r, i), want.at(r, i), bound) << r << ' ' << i;
          Tensor alone(dtype, 1, cols);
          alone.bytes = x.row(r);
          turn(ops(), queue, alone, heads, {positions[size_t(r)]}, frequencies, inverse);
          EXPECT_EQ(alone.bytes, got.row(r));
        }
      }
    }
  }
}

}  // namespace
}  // namespace fathom
