#include "fathom/backend/cuda/tiles.h"

#include <gtest/gtest.h>

namespace fathom::cuda {
namespace {

TEST(TilesTest, ARowHasWholeWarpsAndNoMoreThanItNeeds) {
  EXPECT_EQ(row_threads(1), 32);
  EXPECT_EQ(row_threads(33), 64);
  EXPECT_EQ(row_threads(640), 256);
  EXPECT_EQ(row_threads(640, 1024), 1024);
}

TEST(TilesTest, EightElementsAtOnceNeedAddressesOfSixteenBytes) {
  EXPECT_EQ(vector_width(0x1000, 10240, 5120), 8);
  EXPECT_EQ(vector_width(0x1008, 10240, 5120), 1);
  EXPECT_EQ(vector_width(0x1000, 10244, 5120), 1);
  EXPECT_EQ(vector_width(0x1000, 10240, 5121), 1);
}

// The model's depths, the miniature's, and what is left over.
TEST(TilesTest, SegmentsAreWholeChunksThatCoverK) {
  for (const int64_t k : {64, 128, 256, 1280, 1344, 2304, 4096, 5120, 8192, 20480, 32768}) {
    const int64_t columns = segment_columns(k);
    EXPECT_EQ(columns % 128, 0) << k;
    EXPECT_LE(columns, 1280) << k;
    EXPECT_LT((segments(k) - 1) * columns, k) << k;
    EXPECT_GE(segments(k) * columns, k) << k;
  }
  EXPECT_EQ(segments(5120), 4);
  EXPECT_EQ(segments(2304), 2);
  EXPECT_EQ(segments(64), 1);
}

TEST(TilesTest, FewRowsSplitTheSumAndManyFillTheTile) {
  for (const int64_t rows : {1, 8, 9, 16, 17, 32, 33, 64, 96}) {
    const ProductTile tile = product_tile(rows, 4608, 1);
    EXPECT_TRUE(tile.split) << rows;
    EXPECT_GE(tile.x_rows(), std::min<int64_t>(rows, 64)) << rows;
    EXPECT_EQ(tile.weight_rows(), 64) << rows;
  }
  EXPECT_FALSE(product_tile(2048, 4608, 1).split);
  EXPECT_EQ(product_tile(8192, 4608, 1).weight_rows(), 128);
  EXPECT_EQ(product_tile(8192, 4608, 1).x_rows(), 128);
  EXPECT_TRUE(product_tile(256, 384, 1).split) << "six large tiles would leave the GPU idle";
  EXPECT_FALSE(product_tile(128, 2304, 384).split);
}

TEST(TilesTest, FewRowsComeEightOrSixteenAtATime) {
  EXPECT_EQ(few_rows(1, 4608, 5120), 8);
  EXPECT_EQ(few_rows(8, 4608, 5120), 8);
  EXPECT_EQ(few_rows(9, 4608, 5120), 16);
  EXPECT_EQ(few_rows(17, 4608, 5120), 0);
  EXPECT_EQ(few_rows(64, 1280, 5120), 16) << "a small weight";
  EXPECT_EQ(few_rows(65, 1280, 5120), 0);
  EXPECT_EQ(few_rows(64, 2304, 5120), 0);
  EXPECT_EQ(few_rows_in_chains(8, 5120), 8);
  EXPECT_EQ(few_rows_in_chains(9, 5120), 0);
  EXPECT_EQ(few_rows_in_chains(16, 4096), 16);
  EXPECT_EQ(few_rows_in_chains(17, 512), 0);
  EXPECT_EQ(few_rows_of_experts(6, 384), 8);
  EXPECT_EQ(few_rows_of_experts(256 * 6, 384), 8);
  EXPECT_EQ(few_rows_of_experts(512 * 6, 384), 16);
  EXPECT_EQ(few_rows_of_experts(8192 * 6, 384), 0);
}

// As measured: pairs of blocks, or one of the tiles for thousands of rows where its turns are as full.
TEST(TilesTest, ManyRowsHaveTilesOfTheirOwn) {
  constexpr RowTiling kPairs{true, kPairRows}, k128{false, 128}, k192{false, 192};
  EXPECT_EQ(row_tiling(8192, 4608, 1, 40), k192) << "43 x 24 tiles are eight for each multiprocessor";
  for (const int64_t rows : {1, 17, 64, 256, 320}) EXPECT_EQ(row_tiling(rows, 4608, 1, 40), kPairs) << rows;
  for (const int64_t rows : {512, 1024}) EXPECT_EQ(row_tiling(rows, 4608, 1, 40), k128) << rows;
  EXPECT_EQ(row_tiling(2048, 4608, 1, 40), k192) << "two full turns";
  EXPECT_EQ(row_tiling(512, 2304, 1, 40), kPairs) << "48 tiles";
  EXPECT_EQ(row_tiling(512, 32768, 1, 10), kPairs);
  EXPECT_EQ(row_tiling(8192, 1024, 8, 32), k192) << "wo_a";
  EXPECT_EQ(row_tiling(256, 129280, 1, 40), kPairs) << "one row tile of pairs";
  EXPECT_EQ(row_tiling(8192, 512, 1, 40), kPairs) << "few tiles";
}

// wo_a has 32 tiles for 66 pairs of blocks; a weight whose K is shared, or that has many tiles, gains nothing.
TEST(TilesTest, ARowTileIsHalvedWhereTilesAreFew) {
  EXPECT_EQ(row_tiling(256, 1024, 8, 32), (RowTiling{true, 128}));
  EXPECT_EQ(row_tiling(129, 1024, 8, 32), (RowTiling{true, 128}));
  EXPECT_EQ(row_tiling(128, 1024, 8, 32), (RowTiling{true, 64}));
  EXPECT_EQ(row_tiling(64, 1024, 8, 32), (RowTiling{true, kPairRows})) << "less than 64 rows take as long";
  EXPECT_EQ(row_tiling(256, 32768, 1, 10), (RowTiling{true, kPairRows})) << "two turns as it is";
  EXPECT_EQ(row_tiling(256, 512, 1, 40), (RowTiling{true, kPairRows})) << "clusters share K";
}

// 384 experts have 128 rows on average of 8,192 with six each; half of them have more.
TEST(TilesTest, ExpertsHaveRoomForWhatChanceGivesThem) {
  EXPECT_EQ(row_tiling_of_experts(128, 2304, 384), (RowTiling{false, 160}));
  EXPECT_EQ(row_tiling_of_experts(60, 2304, 384), (RowTiling{false, 160}));
  EXPECT_EQ(row_tiling_of_experts(150, 2304, 384), (RowTiling{false, 192}));
  EXPECT_EQ(row_tiling_of_experts(180, 2304, 384), (RowTiling{false, 192}));
  EXPECT_EQ(row_tiling_of_experts(256, 2304, 384), (RowTiling{false, 160})) << "two tiles of 160 or less";
  EXPECT_EQ(row_tiling_of_experts(256, 2304, 6), (RowTiling{true, kPairRows})) << "few experts";
  for (const int most : {kManyLargeRows, kManySmallRows}) {
    for (int rows = 1; rows <= most; ++rows) {
      const int multiplied = many_multiplied_rows(most, padded_rows(rows));
      ASSERT_GE(multiplied, rows);
      ASSERT_LE(multiplied, most);
    }
  }
}

// What clusters of the device share at up to 256 rows; the numbers are part of what results are, so of every record.
TEST(TilesTest, APartOfKBelongsToTheWeight) {
  EXPECT_EQ(sum_parts(2304, 1, 40), 4);
  EXPECT_EQ(sum_parts(5120, 1, 64), 2);
  EXPECT_EQ(sum_parts(1024, 8, 32), 1) << "wo_a: groups are tiles too";
  EXPECT_EQ(sum_parts(32768, 1, 10), 1);
  EXPECT_EQ(sum_parts(129280, 1, 80), 1);
}

TEST(TilesTest, RowTilesAreAsEqualAsTheyCanBe) {
  EXPECT_EQ(row_tiles(0, 256), 0);
  EXPECT_EQ(tile_rows(1, 256), 32);
  EXPECT_EQ(tile_rows(256, 256), 256);
  EXPECT_EQ(tile_rows(257, 256), 160) << "not 256 and one";
  EXPECT_EQ(tile_rows(8192, 256), 256);
  for (const int most : {64, 128, kManySmallRows, kManyLargeRows, kScaledRows, kPairRows}) {
    for (int rows = 1; rows < 3000; ++rows) {
      SCOPED_TRACE(testing::Message() << rows << " rows in tiles of " << most);
      const int tiles = row_tiles(rows, most), own = tile_rows(rows, most);
      ASSERT_EQ(own % kRowStep, 0);
      ASSERT_LE(own, most);
      ASSERT_LT((tiles - 1) * own, rows);
      ASSERT_GE(tiles * own, rows);
    }
  }
}

// 64 steps are K = 8192, 40 K = 5120, 18 K = 2304, 10 K = 1280.
TEST(TilesTest, FewTilesAreSharedSoThatTheyUseTheWholeGpu) {
  const PairClusters clusters;
  EXPECT_EQ(pair_parts(20, 64, clusters), 2) << "N = 5120; four parts would take two turns";
  EXPECT_EQ(pair_parts(9, 40, clusters), 4) << "N = 2304";
  EXPECT_EQ(pair_parts(32, 32, clusters), 1) << "eight groups of N = 1024: more than clusters of two pairs";
  EXPECT_EQ(pair_parts(20, 18, clusters), 2) << "N = 5120 of a short K";
  EXPECT_EQ(pair_parts(16, 10, clusters), 1) << "sharing costs as much as it gains";
  EXPECT_EQ(pair_parts(66, 40, clusters), 1);
  EXPECT_EQ(pair_parts(128, 10, clusters), 1) << "two turns are full as they are";
  EXPECT_EQ(pair_parts(1, 1, clusters), 1) << "a K of 128 cannot be shared";
  EXPECT_EQ(pair_parts(0, 40, clusters), 1);
  EXPECT_EQ(pair_parts(9, 40, {{66, 0, 0}}), 1) << "a device without large clusters";
}

// 8,192 rows of V4.1 Flash: six assignments each of 5,120 columns, and for each of 384 experts up to 31 rows that
// nobody has.
TEST(TilesTest, ProductsTakeAWorkspaceOfTheirInputsAsTheKernelReadsThem) {
  const ProductShape experts{.rows = 8192, .assignments = 49152, .experts = 384, .n = 2304, .columns = 5120};
  const int64_t steps = (49152 + 384 * 31) / 32;
  for (const bool invariant : {false, true}) {
    EXPECT_EQ(product_workspace_bytes(experts, invariant), steps * 32 * 5120 * 2);
    const ProductShape groups{.rows = 8192, .n = 8192, .columns = 32768, .groups = 8};
    EXPECT_EQ(product_workspace_bytes(groups, invariant), 8192 * int64_t(32768) * 2);
    EXPECT_EQ(product_workspace_bytes({.rows = 8, .n = 5120, .columns = 8192}, invariant), 0) << "read as they lie";
    EXPECT_EQ(product_workspace_bytes({.rows = 70, .n = 5120, .columns = 8192}, invariant), 96 * 8192 * 2);
  }
  EXPECT_EQ(product_workspace_bytes({.rows = 64, .n = 1280, .columns = 5120}, false), 0) << "a small weight";
  EXPECT_EQ(product_workspace_bytes({.rows = 64, .n = 1280, .columns = 5120}, true), 64 * 5120 * 2);
}

}  // namespace
}  // namespace fathom::cuda
