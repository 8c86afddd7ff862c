#include <gtest/gtest.h>

#include "fathom/backend/cpu/isa.h"
#include "fathom/backend/tables_under_test.h"

namespace fathom::cpu {
namespace {

class QuantizeRowsTest : public testing::TestWithParam<size_t> {
 protected:
  Operations ops = cpu_operations(runnable_processors()[GetParam()]);
  Queue queue{2};

  /// Bytes of every row against encode_row, which defines the format.
  void compare(const Tensor& x) {
    Tensor codes(DType::f8_e4m3, x.rows, x.cols), scales(DType::f8_e8m0, x.rows, x.cols / 32);
    QuantizeRows op;
    op.x = x;
    op.codes = codes.out();
    op.scales = scales.out();
    ops.quantize_rows(queue, op);
    std::vector<float> row(size_t(x.cols), 0.0f);
    std::vector<uint8_t> want(size_t(row_bytes(RowFormat::q8, x.cols)));
    for (int64_t r = 0; r < x.rows; ++r) {
      for (int64_t c = 0; c < x.cols; ++c) row[size_t(c)] = x.at(r, c);
      encode_row(RowFormat::q8, row, want.data());
      const auto split = want.begin() + x.cols;
      ASSERT_EQ(codes.row(r), std::vector<uint8_t>(want.begin(), split)) << "row " << r;
      ASSERT_EQ(scales.row(r), std::vector<uint8_t>(split, want.end())) << "row " << r;
    }
  }
};

INSTANTIATE_TEST_SUITE_P(Processors, QuantizeRowsTest, testing::Range(size_t(0), runnable_processors().size()),
                         [](const auto& info) {
                           const Processor p = runnable_processors()[info.param];
                           return std::string(name_of(p.isa)) + (p.bf16_dot ? "_bf16" : "");
                         });

TEST_P(QuantizeRowsTest, EveryBf16ValueIsRoundedAsTheFormatSays) {
  // In order, 32 neighbours have about one magnitude; shuffled by an odd factor, a group holds all magnitudes, and NaN.
  for (const uint32_t step : {1u, 32771u}) {
    Tensor x(DType::bf16, 64, 1024);
    for (uint32_t i = 0; i < 65536; ++i) {
      reinterpret_cast<uint16_t*>(x.bytes.data())[i] = uint16_t(i * step);
    }
    compare(x);
  }
}

TEST_P(QuantizeRowsTest, FloatsOfAnyBitsAreRoundedAsTheFormatSays) {
  Tensor x(DType::f32, 256, 256);
  auto* words = reinterpret_cast<uint32_t*>(x.bytes.data());
  for (uint32_t i = 0; i < 65536; ++i) {
    const uint32_t bits = philox(1, {i, 0, 0, 0})[0];
    // Any bits; then magnitudes within 2^-16 .. 2^16 of each other, so that most codes occur.
    words[i] = i < 32768 ? bits : (bits & 0x807fffffu) | (111 + bits % 31) << 23;
  }
  compare(x);
}

TEST_P(QuantizeRowsTest, TiesGoToTheEvenCodeAndTheLargestFits) {
  // 448 in a group makes the scale 1: then every midpoint between two codes is a tie, and its neighbours are not.
  std::vector<float> values;
  for (int code = 0; code < 126; ++code) {
    const float middle = (e4m3_to_float(uint8_t(code)) + e4m3_to_float(uint8_t(code + 1))) / 2;
    for (const float v : {middle, std::nextafter(middle, 0.0f), std::nextafter(middle, 448.0f)}) {
      values.push_back(v);
      values.push_back(-v);
    }
  }
  Tensor x(DType::f32, 1, 26 * 32);
  for (size_t i = 0, v = 0; i < 26 * 32; ++i) {
    const float value = i % 32 == 0 ? 448.0f : v < values.size() ? values[v++] : 0.0f;
    store(DType::f32, x.bytes.data(), int64_t(i), value);
  }
  compare(x);
}

TEST_P(QuantizeRowsTest, RowsMayLieApart) {
  const Tensor wide = noise(DType::bf16, 3, 100, 1);
  Tensor codes(DType::f8_e4m3, 3, 80), scales(DType::f8_e8m0, 3, 5);
  QuantizeRows op;
  op.x = AnyView(wide).columns(3, 64);
  op.codes = codes.out().columns(5, 64);
  op.scales = scales.out().columns(1, 2);
  ops.quantize_rows(queue, op);
  std::vector<float> row(64);
  std::vector<uint8_t> want(66);
  for (int64_t r = 0; r < 3; ++r) {
    for (int64_t c = 0; c < 64; ++c) row[size_t(c)] = wide.at(r, c + 3);
    encode_row(RowFormat::q8, row, want.data());
    for (int64_t c = 0; c < 64; ++c) EXPECT_EQ(codes.bytes[size_t(r * 80 + c + 5)], want[size_t(c)]);
    for (int64_t g = 0; g < 2; ++g) EXPECT_EQ(scales.bytes[size_t(r * 5 + g + 1)], want[size_t(g + 64)]);
    EXPECT_EQ(codes.bytes[size_t(r * 80 + 4)], 0);
    EXPECT_EQ(codes.bytes[size_t(r * 80 + 69)], 0);
  }
}

}  // namespace
}  // namespace fathom::cpu
