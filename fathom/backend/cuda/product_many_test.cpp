// Products with so many tiles that the kernel for thousands of rows runs (tiles.h), against the definition; its edges
// and its bits. Sizes: an n of 11330 ends inside a tile of 192, inside a block of 32 scales and inside a warp's 16.
#include <gtest/gtest.h>

#include "fathom/backend/cuda/products_under_test.h"

namespace fathom {
namespace {

class ManyRowsTest : public ProductsUnderTest {
 protected:
  // Rows of the first tile, of the last one, and between.
  void compare_rows(const Stored& x, const Stored& w, DType out_type, int groups = 1) {
    ASSERT_FALSE(tiling_of(x, w, groups).pairs);
    ProductsUnderTest::compare_rows(x, w, out_type, groups, {0, 61, x.values.rows - 5});
  }
};

TEST_F(ManyRowsTest, AgreeWithTheDefinition) {
  for (const DType w : {kFp8, kFp4, kBf16}) {
    for (const DType out : {kBf16, DType::f32}) {
      for (const auto& [rows, k] : {std::pair<int64_t, int64_t>{1100, 384}, {1153, 128}, {2053, 256}}) {
        SCOPED_TRACE(testing::Message() << name_of(w) << " rows " << rows << " K " << k << " out " << name_of(out));
        compare_rows(stored(w == kBf16 ? kBf16 : kFp8, rows, k, 1, 1), stored_weight(w, 11330, k, 2), out);
      }
    }
  }
}

// Above 2 (FP4) or 2^7 (FP8) a code's factor is beyond bf16; 2^-60 leaves values far below one.
TEST_F(ManyRowsTest, ScalesOfWeightsMayBeLargeOrSmall) {
  for (const DType w : {kFp8, kFp4}) {
    for (const auto& [low, high] : {std::pair{120, 150}, {60, 80}, {127, 129}}) {
      SCOPED_TRACE(testing::Message() << name_of(w) << " scales from 2^" << low - 127);
      compare_rows(stored(kFp8, 1100, 256, 1, 3), stored_weight(w, 11330, 256, 4, low, high), DType::f32);
    }
  }
}

TEST_F(ManyRowsTest, GroupsMeetTheirOwnColumns) {
  for (const DType w : {kFp8, kFp4, kBf16}) {
    SCOPED_TRACE(name_of(w));
    compare_rows(stored(w == kBf16 ? kBf16 : kFp8, 1100, 8 * 128, 1, 5), stored_weight(w, 8 * 1440, 128, 6), kBf16, 8);
  }
}

// Rows that were not rounded to codes, as wo_a has them in the profile `reference`.
TEST_F(ManyRowsTest, RowsOfBf16MeetCodes) {
  for (const DType w : {kFp8, kFp4}) {
    for (const int groups : {1, 8}) {
      SCOPED_TRACE(testing::Message() << name_of(w) << " in " << groups << " groups");
      compare_rows(stored(kBf16, 1153, groups * 256, 1, 17), stored_weight(w, 8 * 1440, 256, 18), kBf16, groups);
    }
  }
}

// No rows, one, each number of rows that has code of its own and its neighbours, two tiles, four; on average so many
// that one kernel takes them, then the other.
TEST_F(ManyRowsTest, ExpertsHaveAnyNumberOfAssignments) {
  const std::vector<int32_t> few{0, 1, 32, 33, 64, 65, 96, 97, 128, 129, 160, 161, 0, 600, 0, 127, 0, 0},
      many{0, 256, 1, 600, 129, 160, 161, 192, 193, 128, 97, 0, 130, 131, 180, 181};
  for (const auto& [counts, most_rows] : {std::pair{few, cuda::kManySmallRows}, {many, cuda::kManyLargeRows}}) {
    std::vector<int32_t> begin{0}, x_row;
    for (const int32_t count : counts) begin.push_back(begin.back() + count);
    const int64_t all = begin.back(), x_rows = 200, n = 6402, k = 256;
    for (int64_t a = 0; a < all; ++a) x_row.push_back(int32_t(a * 89 % x_rows));
    const auto tiling = cuda::row_tiling_of_experts(all / int64_t(counts.size()), n, int64_t(counts.size()));
    ASSERT_EQ(tiling, (cuda::RowTiling{false, most_rows}));
    for (const auto& [gathered, type] : {std::pair{true, kFp4}, {true, kFp8}, {false, kFp4}, {false, kBf16}}) {
      SCOPED_TRACE(testing::Message() << name_of(type) << (gathered ? " gathered, " : ", ") << most_rows);
      const Stored x = stored(type == kBf16 ? kBf16 : kFp8, gathered ? x_rows : all, k, 1, 7);
      std::vector<Stored> owned;
      for (size_t e = 0; e < counts.size(); ++e) owned.push_back(stored_weight(type, n, k, 20 + e));
      const std::vector<Matrix> weights(owned.begin(), owned.end());
      Tensor out(kBf16, all, n);
      std::fill(out.bytes.begin(), out.bytes.end(), uint8_t(0xff));
      GroupedLinear op;
      op.x = x;
      if (gathered) op.x_row = view(x_row);
      op.begin = view(begin);
      op.weights = weights;
      op.out = out.out();
      backend->ops.grouped_linear(*queue, op);
      const Stored x_size = x.absolute();
      for (size_t e = 0; e < counts.size(); ++e) {
        const Stored w_size = owned[e].absolute();
        for (const int64_t a : {int64_t(begin[e]), int64_t(begin[e + 1]) - 1}) {
          if (counts[e] == 0) continue;
          const int64_t r = gathered ? x_row[size_t(a)] : a;
          compare(out, a, 1, Matrix(x).slice(r, 1), Matrix(x_size).slice(r, 1), owned[e], w_size);
        }
      }
    }
  }
}

TEST_F(ManyRowsTest, ATileOfAnotherSizeChangesNoBit) {
  for (const DType w : {kFp8, kFp4, kBf16}) {
    const Stored x = stored(w == kBf16 ? kBf16 : kFp8, 1153, 128, 1, 8), weight = stored_weight(w, 11330, 128, 9);
    Stored part = x;
    part.values.rows = 1100;
    EXPECT_NE(tiling_of(x, weight, 1), tiling_of(part, weight, 1));
    const Tensor all = run(x, weight, DType::f32), few = run(part, weight, DType::f32);
    for (int64_t r = 0; r < 1100; ++r) ASSERT_EQ(few.row(r), all.row(r)) << name_of(w) << " row " << r;
  }
}

TEST_F(ManyRowsTest, InABatchInvariantQueueARowHasTheBitsItHasAlone) {
  queue->batch_invariant = true;
  for (const DType w : {kFp8, kFp4, kBf16}) {
    const Stored x = stored(w == kBf16 ? kBf16 : kFp8, 1000, 2560, 1, 10), weight = stored_weight(w, 1346, 2560, 11);
    const Tensor all = run(x, weight, DType::f32);
    for (const int64_t r : {0, 7, 999}) {
      Tensor alone(DType::f32, 1, 1346);
      backend->ops.linear(*queue, {Matrix(x).slice(r, 1), weight, alone.out(), 1});
      EXPECT_EQ(alone.row(0), all.row(r)) << name_of(w) << " row " << r;
    }
  }
}

}  // namespace
}  // namespace fathom
