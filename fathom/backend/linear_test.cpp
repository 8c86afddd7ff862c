// Products by hand, over every table. Sizes, formats and independence of variants: cpu/product_test.cpp.
#include "fathom/backend/tables_under_test.h"

namespace fathom {
namespace {

class LinearTest : public OverTables {};
INSTANTIATE_TEST_SUITE_P(Tables, LinearTest, all_tables(), table_name);

TEST_P(LinearTest, MultipliesRowsWithWeightRows) {
  const Tensor x(DType::f32, 2, 3, {1, 2, 3, -1, 0, 0.5f}), weight(DType::bf16, 2, 3, {4, 5, 6, 0, 1, 2});
  Tensor out(DType::f32, 2, 2);
  Linear op;
  op.x = AnyView(x);
  op.weight = AnyView(weight);
  op.out = out.out();
  ops().linear(queue, op);
  EXPECT_EQ(out.at(0, 0), 32);
  EXPECT_EQ(out.at(0, 1), 8);
  EXPECT_EQ(out.at(1, 0), -1);
  EXPECT_EQ(out.at(1, 1), 1);
}

// The released formats: an FP8 weight with one scale for 32 x 32, an FP4 weight with one for a row's 32 columns, both
// against Q8 activations. Codes 0x38 (1.0) of E4M3 and 2 (1.0) of E2M1; scales 2^1 in x, 2^3 and 2^-1 in the weights.
TEST_P(LinearTest, ScalesOfBothSidesMultiply) {
  Tensor x_codes(DType::f8_e4m3, 1, 64), x_scales(DType::f8_e8m0, 1, 2);
  std::fill(x_codes.bytes.begin(), x_codes.bytes.end(), uint8_t(0x38));
  x_scales.bytes = {128, 127};
  Tensor fp8(DType::f8_e4m3, 33, 64), fp8_scales(DType::f8_e8m0, 2, 2), fp4(DType::f4_e2m1, 1, 64),
      fp4_scales(DType::f8_e8m0, 1, 2);
  std::fill(fp8.bytes.begin(), fp8.bytes.end(), uint8_t(0x38));
  std::fill(fp4.bytes.begin(), fp4.bytes.end(), uint8_t(0x22));
  fp8_scales.bytes = {130, 127, 127, 126};  // tiles: rows 0 to 31, then row 32
  fp4_scales.bytes = {126, 129};
  Tensor out(DType::f32, 1, 33), out4(DType::bf16, 1, 1);
  Linear op;
  op.x = Matrix(x_codes, x_scales, 1);
  op.weight = Matrix(fp8, fp8_scales, 32);
  op.out = out.out();
  ops().linear(queue, op);
  EXPECT_EQ(out.at(0, 0), 32 * (2 * 8 + 1 * 1));
  EXPECT_EQ(out.at(0, 32), 32 * (2 * 1 + 1 * 0.5));
  op.weight = Matrix(fp4, fp4_scales, 1);
  op.out = out4.out();
  ops().linear(queue, op);
  EXPECT_EQ(out4.at(0, 0), 32 * (2 * 0.5 + 1 * 4));
}

TEST_P(LinearTest, GroupsAreBlocksOfADiagonal) {
  const Tensor x(DType::f32, 1, 4, {1, 2, 3, 4}), weight(DType::f32, 2, 2, {1, 1, 10, 1});
  Tensor out(DType::f32, 1, 2);
  Linear op;
  op.x = AnyView(x);
  op.weight = AnyView(weight);
  op.out = out.out();
  op.groups = 2;
  ops().linear(queue, op);
  EXPECT_EQ(out.at(0, 0), 3);
  EXPECT_EQ(out.at(0, 1), 34);
}

TEST_P(LinearTest, AnExpertMultipliesItsOwnAssignments) {
  const Tensor x(DType::f32, 2, 1, {3, 5});
  const Tensor one(DType::bf16, 1, 1, {1}), idle(DType::bf16, 1, 1, {99}), ten(DType::bf16, 1, 1, {10});
  const std::vector<Matrix> weights{AnyView(one), AnyView(idle), AnyView(ten)};
  const std::vector<int32_t> x_row{1, 0, 1}, begin{0, 1, 1, 3};
  Tensor out(DType::f32, 3, 1);
  GroupedLinear op;
  op.x = AnyView(x);
  op.x_row = view(x_row);
  op.begin = view(begin);
  op.weights = weights;
  op.out = out.out();
  ops().grouped_linear(queue, op);
  EXPECT_EQ(out.at(0, 0), 5);
  EXPECT_EQ(out.at(1, 0), 30);
  EXPECT_EQ(out.at(2, 0), 50);
  const Tensor own(DType::f32, 3, 1, {1, 2, 3});
  op.x = AnyView(own);
  op.x_row = {};  // rows are the assignments themselves
  ops().grouped_linear(queue, op);
  EXPECT_EQ(out.at(2, 0), 30);
}

}  // namespace
}  // namespace fathom
