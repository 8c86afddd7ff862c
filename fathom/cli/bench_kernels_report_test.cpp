#include "fathom/cli/bench_kernels_report.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace fathom::cli {
namespace {

// A device has one cache that keeps something between kernels.
TEST(KernelPeakRows, ACacheThatWasNotReadHasNone) {
  MachinePeaks peaks;
  peaks.memory = peaks.memory_large_pages = 4e12;
  peaks.l3 = peaks.l2 = peaks.l1 = 6e12;
  peaks.memory_read = 1 << 30;
  peaks.l3_read = 1 << 24;
  peaks.bf16 = peaks.int8 = peaks.f32 = 1e15;
  const auto rows = rows_of(peaks);
  const auto named = [&](const std::string& op) {
    return std::count_if(rows.begin(), rows.end(), [&](const KernelBenchRow& row) { return row.op == op; });
  };
  EXPECT_EQ(named("peak l3"), 1);
  EXPECT_EQ(named("peak l2"), 0);
  EXPECT_EQ(named("peak l1"), 0);
  for (const KernelBenchRow& row : rows) EXPECT_EQ(row.gbps > 0, row.bound != "compute") << row.op;
  peaks.l2_read = peaks.l1_read = 1 << 16;
  EXPECT_EQ(rows_of(peaks).size(), rows.size() + 2);
}

}  // namespace
}  // namespace fathom::cli
