// Products with so many rows that the kernel for pairs of blocks runs (tiles.h), against the definition; its edges and
// its bits.
// Sizes: an n of 1346 ends inside a tile of 128 (of a pair: 256), inside a block of 32 scales and inside a warp's 16.
#include <gtest/gtest.h>

#include <array>
#include "fathom/backend/cuda/products_under_test.h"

namespace fathom {
namespace {

class PairRowsTest : public ProductsUnderTest {
 protected:
  // Rows of the first tile, of the last one, and between.
  void compare_rows(const Stored& x, const Stored& w, DType out_type, int groups = 1) {
    ASSERT_TRUE(tiling_of(x, w, groups).pairs);
    ProductsUnderTest::compare_rows(x, w, out_type, groups, {0, x.values.rows / 2, x.values.rows - 5});
  }
};

TEST_F(PairRowsTest, AgreeWithTheDefinition) {
  for (const DType w : {kFp8, kFp4, kBf16}) {
    for (const DType out : {kBf16, DType::f32}) {
      for (const auto& [rows, k] : {std::pair<int64_t, int64_t>{1000, 384}, {517, 128}, {2053, 1280}}) {
        SCOPED_TRACE(testing::Message() << name_of(w) << " rows " << rows << " K " << k << " out " << name_of(out));
        compare_rows(stored(w == kBf16 ? kBf16 : kFp8, rows, k, 1, 1), stored_weight(w, 1346, k, 2), out);
      }
    }
  }
}

// Each number of rows that has code of its own and its neighbours; two and three row tiles. Up to 64: experts, below.
TEST_F(PairRowsTest, AnyNumberOfRowsFillsItsTiles) {
  for (const DType w : {kFp8, kFp4, kBf16}) {
    const Stored weight = stored_weight(w, 142, 256, 13);
    for (const int64_t rows :
         {65, 96, 97, 128, 129, 160, 161, 192, 200, 224, 225, 255, 256, 257, 320, 321, 511, 512, 513, 700, 1024}) {
      SCOPED_TRACE(testing::Message() << name_of(w) << " rows " << rows);
      compare_rows(stored(w == kBf16 ? kBf16 : kFp8, rows, 256, 1, uint64_t(rows)), weight, DType::f32);
    }
  }
}

// Few tiles, so that clusters share them: in four parts, in two of unequal lengths, with groups. The same bits each
// time.
TEST_F(PairRowsTest, PartsOfKAreAddedInTheirOrder) {
  for (const DType w : {kFp8, kFp4, kBf16}) {
    for (const auto& [rows, n, k, groups] : std::vector<std::array<int64_t, 4>>{
             {70, 40, 5120, 1}, {256, 512, 2304, 1}, {200, 6144, 2432, 1}, {100, 512, 2304, 2}}) {
      SCOPED_TRACE(testing::Message() << name_of(w) << ' ' << rows << " x " << n << " x " << k);
      const int64_t tiles = cuda::row_tiles(int(rows), cuda::kPairRows) * cuda::divide_up(n / groups, 256) * groups;
      ASSERT_GT(cuda::pair_parts(tiles, k / (w == kBf16 ? 64 : 128), {}), 1);
      const Stored x = stored(w == kBf16 ? kBf16 : kFp8, rows, k * groups, 1, 15), weight = stored_weight(w, n, k, 16);
      compare_rows(x, weight, DType::f32, int(groups));
      const Tensor one = run(x, weight, DType::f32, int(groups));
      for (int i = 0; i < 5; ++i) EXPECT_EQ(run(x, weight, DType::f32, int(groups)).bytes, one.bytes);
    }
  }
}

// Above 2 (FP4) or 2^7 (FP8) a code's factor is beyond bf16; 2^-60 leaves values far below one.
TEST_F(PairRowsTest, ScalesOfWeightsMayBeLargeOrSmall) {
  for (const DType w : {kFp8, kFp4}) {
    for (const auto& [low, high] : {std::pair{120, 150}, {60, 80}, {127, 129}}) {
      SCOPED_TRACE(testing::Message() << name_of(w) << " scales from 2^" << low - 127);
      compare_rows(stored(kFp8, 600, 256, 1, 3), stored_weight(w, 1346, 256, 4, low, high), DType::f32);
    }
  }
}

TEST_F(PairRowsTest, GroupsMeetTheirOwnColumns) {
  for (const DType w : {kFp8, kFp4, kBf16}) {
    SCOPED_TRACE(name_of(w));
    compare_rows(stored(w == kBf16 ? kBf16 : kFp8, 300, 8 * 128, 1, 5), stored_weight(w, 8 * 288, 128, 6), kBf16, 8);
  }
}

// As wo_a has it: 32 tiles, so that row tiles of half the rows use twice as many blocks.
TEST_F(PairRowsTest, RowTilesAreSmallerWhereTilesAreFew) {
  for (const DType w : {kFp8, kFp4, kBf16}) {
    for (const auto& [rows, most_rows] : {std::pair{256, 128}, {199, 128}, {120, 64}}) {
      SCOPED_TRACE(testing::Message() << name_of(w) << " rows " << rows);
      const Stored x = stored(w == kBf16 ? kBf16 : kFp8, rows, 8 * 256, 1, 19),
                   weight = stored_weight(w, 8 * 1024, 256, 20);
      ASSERT_EQ(tiling_of(x, weight, 8), (cuda::RowTiling{true, most_rows}));
      compare_rows(x, weight, kBf16, 8);
    }
  }
}

// Rows that were not rounded to codes, as wo_a has them in the profile `reference`.
TEST_F(PairRowsTest, RowsOfBf16MeetCodes) {
  for (const DType w : {kFp8, kFp4}) {
    for (const int groups : {1, 8}) {
      SCOPED_TRACE(testing::Message() << name_of(w) << " in " << groups << " groups");
      compare_rows(stored(kBf16, 300, groups * 256, 1, 17), stored_weight(w, 8 * 288, 256, 18), kBf16, groups);
    }
  }
}

// No rows, one, a tile less one, a tile, a tile and one, several; all of them on one; the least numbers of rows; many
// experts with few each.
TEST_F(PairRowsTest, ExpertsHaveAnyNumberOfAssignments) {
  for (const std::vector<int32_t>& counts : {std::vector<int32_t>{0, 256, 1, 600, 257, 255, 0, 64},
                                             {0, 0, 300, 0},
                                             {17},
                                             {31},
                                             {33},
                                             {64},
                                             std::vector<int32_t>(40, 18)}) {
    std::vector<int32_t> begin{0}, x_row;
    for (const int32_t n : counts) begin.push_back(begin.back() + n);
    const int64_t all = begin.back(), x_rows = 200, n = 346, k = 256;
    for (int64_t a = 0; a < all; ++a) x_row.push_back(int32_t(a * 89 % x_rows));
    ASSERT_TRUE(cuda::row_tiling_of_experts(all / int64_t(counts.size()), n, int64_t(counts.size())).pairs);
    for (const bool gathered : {true, false}) {
      for (const DType type : {kFp4, kFp8, kBf16}) {
        SCOPED_TRACE(testing::Message() << name_of(type) << (gathered ? " gathered, " : ", ") << counts.size());
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
          for (const int64_t a : {int64_t(begin[e]), int64_t(begin[e] + begin[e + 1]) / 2, int64_t(begin[e + 1]) - 1}) {
            if (counts[e] == 0) continue;
            const int64_t r = gathered ? x_row[size_t(a)] : a;
            compare(out, a, 1, Matrix(x).slice(r, 1), Matrix(x_size).slice(r, 1), owned[e], w_size);
          }
        }
      }
    }
  }
}

// A short K, which is not shared: what a tile's other rows are changes nothing.
TEST_F(PairRowsTest, ATileOfAnotherSizeChangesNoBit) {
  for (const DType w : {kFp8, kFp4, kBf16}) {
    const Stored x = stored(w == kBf16 ? kBf16 : kFp8, 1100, 128, 1, 8), weight = stored_weight(w, 1346, 128, 9);
    Stored part = x;
    part.values.rows = 300;
    const Tensor all = run(x, weight, DType::f32), few = run(part, weight, DType::f32);
    for (int64_t r = 0; r < 300; ++r) ASSERT_EQ(few.row(r), all.row(r)) << name_of(w) << " row " << r;
  }
}

}  // namespace
}  // namespace fathom
