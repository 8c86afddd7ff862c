#include "fathom/backend/cuda/workspace_sizes.h"

#include <gtest/gtest.h>

namespace fathom::cuda {
namespace {

// 384 experts, 5,120 columns: 16 segments of 320.
TEST(WorkspaceSizes, AGateKeepsPartsOfItsSumsForFewRows) {
  const auto of = [](int64_t rows, bool invariant) {
    return workspace_bytes(GateShape{.rows = rows, .experts = 384, .columns = 5120}, invariant);
  };
  for (const bool invariant : {false, true}) {
    EXPECT_EQ(of(0, invariant), 0);
    EXPECT_EQ(of(1, invariant), 16 * 384 * 4);
    EXPECT_EQ(of(1024, invariant), 25'165'824);
    EXPECT_EQ(of(1025, invariant), 1025 * 384 * 4) << "the kernel adds them";
    EXPECT_EQ(of(2048, invariant), 2048 * 384 * 4);
  }
  EXPECT_EQ(of(8192, true), 8192 * 384 * 4);
  EXPECT_EQ(of(8192, false), 8192 * 384 * 4 + 8192 * 5120 * 2) << "as any other product: x once more";
  EXPECT_EQ(workspace_bytes(GateShape{.rows = 3, .experts = 8, .columns = 64, .tensor = false}, true), 256);
}

TEST(WorkspaceSizes, ASampledRowHasATableOrItsLaw) {
  const SampleShape flash{.rows = 261, .vocabulary = 129'280};
  EXPECT_EQ(workspace_bytes(flash), 256 * 208 * 1024) << "256 rows at once";
  EXPECT_EQ(workspace_bytes({.rows = 100, .vocabulary = 129'280}), 100 * 208 * 1024);
  EXPECT_EQ(workspace_bytes({.rows = 261, .vocabulary = 129'280, .laws = true}), 256 * 208 * 1024);
  EXPECT_EQ(workspace_bytes({.rows = 64, .vocabulary = 129'280, .lists = true}), 64 * 129'280 * 4);
  EXPECT_EQ(workspace_bytes({.rows = 64, .vocabulary = 129'280, .laws = true, .lists = true}), 0);
  EXPECT_EQ(workspace_bytes({.rows = 2, .vocabulary = 262'145}), 2'097'408) << "2 x 4 x 262,145, to a multiple of 256";
}

TEST(WorkspaceSizes, ScoresOfSomeRowsAtATimeAndTalliesOfManyEntries) {
  EXPECT_EQ(workspace_bytes(SelectShape{.rows = 2, .entries = 16'384}), 2 * 16'384 * 4);
  // 80 KB of tallies and 16 bytes; bins of few rows are the queue's counters.
  EXPECT_EQ(workspace_bytes(SelectShape{.rows = 32, .entries = 131'072}), 32 * (131'072 * 4 + 81'920 + 16));
  EXPECT_EQ(workspace_bytes(SelectShape{.rows = 16, .entries = 131'072}), 16 * (131'072 * 4 + 65'536 + 16));
  // A candidate source's blocks have a score each, in fours, and tallies of their own.
  EXPECT_EQ(workspace_bytes(SelectShape{.rows = 32, .entries = 131'072, .source_block = 8}),
            32 * (131'072 * 4 + 2 * (81'920 + 16) + (16'384 + 8) * 4));
  EXPECT_EQ(rows_together(8192, 16'384), 4096);
  EXPECT_EQ(rows_together(8192, 16'385), 512);
  EXPECT_EQ(rows_together(8192, 1 << 20), 64);
  EXPECT_EQ(rows_together(8192, int64_t(1) << 27), 1);
  EXPECT_EQ(workspace_bytes(SelectShape{.rows = 0, .entries = 5}), 0);
}

TEST(WorkspaceSizes, MixesKeepASumOfEachKilobyteOfColumns) {
  // Four streams of 5,120: 20 segments, 24 outputs and a sum of squares.
  EXPECT_EQ(workspace_bytes(MixShape{.rows = 64, .streams = 4, .columns = 20'480}), 20 * 64 * 25 * 4);
}

}  // namespace
}  // namespace fathom::cuda
