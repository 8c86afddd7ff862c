// The words and places of descriptors.h, read back by a model of the tensor core. There is no such GPU here: this shows
// that what the kernels write is what the manual says the hardware reads, not that the hardware does so.
#include "fathom/backend/cuda/sm100/descriptors.h"

#include <gtest/gtest.h>

#include <set>

#include "fathom/backend/cuda/sm100/tensor_core_model.h"
#include "fathom/backend/cuda/stored_values.h"

namespace fathom::cuda::sm100 {
namespace {

/// A step's operand and scales as the kernel's filling threads put them there.
void fill(TensorCore& model, const Stored& of, uint32_t tile, uint32_t scales) {
  const int piece_bytes = of.values.dtype == DType::f4_e2m1 ? 8 : 16;
  for (int row = 0; row < of.values.rows; ++row) {
    const uint8_t* from = of.values.bytes.data() + row * bytes_of(of.values.dtype, of.values.cols);
    for (int piece = 0; piece < 8; ++piece) {
      std::memcpy(&model.shared[tile + uint32_t(piece_place(row, piece))], from + piece * piece_bytes,
                  size_t(piece_bytes));
    }
    if (of.values.dtype == DType::bf16) continue;
    std::memcpy(&model.shared[scales + uint32_t(scale_place(row))],
                of.scales.bytes.data() + row / of.scale_rows * of.scales.cols, 4);
  }
}

/// The sums at column 0 are the product of what is stored: the same to the last bit, both add in the order of k.
void expect_product(const TensorCore& model, const Stored& weights, const Stored& x) {
  for (int64_t i = 0; i < weights.values.rows; ++i) {
    for (int64_t j = 0; j < x.values.rows; ++j) {
      double want = 0;
      for (int64_t k = 0; k < x.values.cols; ++k) want += value_of(weights, i, k) * value_of(x, j, k);
      ASSERT_EQ(model.sums[size_t(j)][size_t(i)], want) << "weight row " << i << ", row " << j;
    }
  }
}

constexpr uint32_t kX = 3 * 1024, kWeights = 64 * 1024, kScales = 128 * 1024;

// ------------------------------------------------------------------------------------------------ tests
// 16: the fewest; 160: a second block of scales, not full; 192 and 256: the most of each kind.
TEST(Sm100DescriptorsTest, AStepOfCodesWithScalesIsTheProductOfItsOperands) {
  for (const DType type : {DType::f8_e4m3, DType::f4_e2m1}) {
    for (const int rows : {16, 160, 192}) {
      SCOPED_TRACE(testing::Message() << name_of(type) << ", " << rows << " rows");
      const Stored weights = stored_weight(type, 128, 128, 1), x = stored(DType::f8_e4m3, rows, 128, 1, 2);
      std::vector<uint8_t> shared(227 * 1024, 0x5a);
      TensorCore model{shared};
      fill(model, weights, kWeights, kScales);
      fill(model, x, kX, kScales + kScaleBlockBytes);
      constexpr uint32_t kColumn = 400;
      for (int i = 0; i < 1 + scale_blocks(rows); ++i) {
        model.copy_scales(kColumn + uint32_t(i * kScaleBlockColumns),
                          describe_scales(kScales + uint32_t(i * kScaleBlockBytes)));
      }
      const Codes codes = type == DType::f4_e2m1 ? Codes::e2m1 : Codes::e4m3;
      for (int k = 0; k < 4; ++k) {
        model.multiply(0, describe_rows(kWeights) + uint64_t(2 * k), describe_rows(kX) + uint64_t(2 * k),
                       describe_scaled_product(codes, Codes::e4m3, 128, rows, k), true, kColumn,
                       kColumn + kScaleBlockColumns, k > 0);
      }
      expect_product(model, weights, x);
    }
  }
}

TEST(Sm100DescriptorsTest, AStepOfBf16IsTheProductOfItsOperands) {
  for (const int rows : {32, 256}) {
    SCOPED_TRACE(testing::Message() << rows << " rows");
    const Stored weights = stored(DType::bf16, 128, 64, 1, 1), x = stored(DType::bf16, rows, 64, 1, 2);
    std::vector<uint8_t> shared(227 * 1024, 0x5a);
    TensorCore model{shared};
    fill(model, weights, kWeights, 0);
    fill(model, x, kX, 0);
    for (int k = 0; k < 4; ++k) {
      model.multiply(0, describe_rows(kWeights) + uint64_t(2 * k), describe_rows(kX) + uint64_t(2 * k),
                     describe_bf16_product(128, rows), false, 0, 0, k > 0);
    }
    expect_product(model, weights, x);
  }
}

// Word by word. Two sources agree on every field: the tables of PTX ISA 9.0, 9.7.16.4.2, and CUTLASS's bit fields.
TEST(Sm100DescriptorsTest, InstructionsAreTheWordsOfTheTables) {
  EXPECT_EQ(describe_bf16_product(128, 256), 0x08400490u) << "D F32, A and B BF16, N 256 / 8 at 17, M 128 / 16 at 24";
  EXPECT_EQ(describe_int8_product(128, 256), 0x084004a0u) << "D S32, A and B signed";
  EXPECT_EQ(describe_scaled_product(Codes::e4m3, Codes::e4m3, 128, 32, 0), 0x08880000u) << "M 128 / 128 at 27";
  EXPECT_EQ(describe_scaled_product(Codes::e2m1, Codes::e4m3, 128, 192, 3), 0x68b002b0u) << "scales 3 of both";
}

TEST(Sm100DescriptorsTest, ATileIsFilledWholeAndEveryScaleHasAPlaceOfItsOwn) {
  std::set<int> pieces, scales;
  for (int row = 0; row < 256; ++row) {
    for (int piece = 0; piece < 8; ++piece) pieces.insert(piece_place(row, piece));
    scales.insert(scale_place(row));
  }
  EXPECT_EQ(pieces.size(), 256u * 8);
  EXPECT_EQ(*pieces.rbegin(), 256 * kTileRowBytes - 16);
  EXPECT_EQ(scales.size(), 256u);
  EXPECT_EQ(*scales.rbegin(), 2 * kScaleBlockBytes - 4);
}

// Eight threads store a piece of eight neighbouring rows at once, or the eight pieces of a row: 128 bytes, one of each
// bank group.
TEST(Sm100DescriptorsTest, StoresOfEightThreadsMeetNoBankTwice) {
  for (int fixed = 0; fixed < 8; ++fixed) {
    std::set<int> of_rows, of_row;
    for (int i = 0; i < 8; ++i) {
      of_rows.insert(piece_place(i, fixed) % 128);
      of_row.insert(piece_place(fixed, i) % 128);
    }
    EXPECT_EQ(of_rows.size(), 8u);
    EXPECT_EQ(of_row.size(), 8u);
  }
}

}  // namespace
}  // namespace fathom::cuda::sm100
