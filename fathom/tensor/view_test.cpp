#include "fathom/tensor/view.h"

#include <gtest/gtest.h>

#include <numeric>
#include <vector>

namespace fathom {
namespace {

std::vector<float> counting(size_t count) {
  std::vector<float> out(count);
  std::iota(out.begin(), out.end(), 0.0f);
  return out;
}

TEST(View, DenseMemoryIsRowMajor) {
  auto memory = counting(24);
  const View<float, 3> view(memory.data(), {2, 3, 4});
  EXPECT_EQ(view.size(), 24);
  EXPECT_EQ(view(1, 2, 3), 23);
  EXPECT_EQ(view.row(1)(2, 3), 23);
  EXPECT_EQ(view.row(1).row(0)[3], 15);
}

TEST(View, RowsMayLieApart) {
  auto memory = counting(20);
  const View<float, 2> left_half(memory.data(), {4, 2}, {5, 1});
  EXPECT_EQ(left_half(3, 1), 16);
  EXPECT_EQ(left_half.row(2)[0], 10);
  EXPECT_EQ(left_half.row(2).size(), 2u);
}

TEST(View, AMutableViewIsAReadOnlyOne) {
  auto memory = counting(6);
  const View<float, 2> view(memory.data(), {2, 3});
  view(1, 1) = 9;
  const View<const float, 2> read_only = view;
  EXPECT_EQ(read_only(1, 1), 9);
}

TEST(View, IsEmptyWithoutMemoryOrElements) {
  float one = 0;
  EXPECT_TRUE((View<float, 2>().empty()));
  EXPECT_TRUE((View<float, 2>(&one, {0, 4}).empty()));
  EXPECT_FALSE((View<float, 1>(&one, {1}).empty()));
}

TEST(AnyView, SlicesRowsAndColumnsOfEveryElementWidth) {
  std::vector<uint8_t> memory(4 * 64 * 8);
  // 4 bits: two elements a byte; 8, 16, 32, 64 bits: whole bytes.
  for (const DType dtype : {DType::f4_e2m1, DType::f8_e4m3, DType::bf16, DType::f32, DType::i64}) {
    const int64_t bits = bits_of(dtype);
    const AnyViewMut view(memory.data(), dtype, 4, 32, 64);
    EXPECT_EQ(view.row(3) - memory.data(), 3 * 64 * bits / 8);
    const auto slice = view.slice(1, 2);
    EXPECT_EQ(slice.row(1), view.row(2));
    EXPECT_EQ(slice.rows, 2);
    const auto columns = view.columns(16, 8);
    EXPECT_EQ(columns.row(1) - view.row(1), 16 * bits / 8);
    EXPECT_EQ(columns.cols, 8);
    EXPECT_EQ(columns.row_stride, 64);
  }
}

TEST(AnyView, ReshapesDenseRowsOnly) {
  auto memory = counting(24);
  const AnyView view(reinterpret_cast<const uint8_t*>(memory.data()), DType::f32, 4, 6);
  EXPECT_EQ(view.reshape(8, 3).as<float>()(7, 2), 23);
  EXPECT_DEATH((void)view.columns(0, 3).reshape(3, 4), "reshape needs dense rows");
  EXPECT_DEATH((void)view.reshape(5, 5), "the same size");
}

TEST(AnyView, RefusesAnElementOfAnotherSize) {
  auto memory = counting(4);
  const AnyView view(reinterpret_cast<const uint8_t*>(memory.data()), DType::f32, 2, 2);
  EXPECT_DEATH((void)view.as<uint16_t>(), "element size fits");
}

TEST(Matrix, ASliceTakesItsScalesAlong) {
  std::vector<uint8_t> codes(96 * 64), exponents(3 * 2);
  const Matrix matrix(AnyView(codes.data(), DType::f8_e4m3, 96, 64), AnyView(exponents.data(), DType::f8_e8m0, 3, 2),
                      32);
  const Matrix slice = matrix.slice(32, 40);  // one whole tile and a quarter of the next
  EXPECT_EQ(slice.values.data, codes.data() + 32 * 64);
  EXPECT_EQ(slice.scales.data, exponents.data() + 2);
  EXPECT_EQ(slice.scales.rows, 2);
  EXPECT_DEATH((void)matrix.slice(16, 32), "starts at a scale tile");
}

}  // namespace
}  // namespace fathom
