#include "fathom/backend/operation_work.h"

#include <gtest/gtest.h>

#include <vector>

namespace fathom {
namespace {

const WorkReader work_of{Memory{}};
uint8_t* const kNowhere = reinterpret_cast<uint8_t*>(uintptr_t(64));  // values that are not read

Matrix fp4(int64_t rows, int64_t cols) {
  return Matrix(AnyView(kNowhere, DType::f4_e2m1, rows, cols), AnyView(kNowhere, DType::f8_e8m0, rows, cols / 32), 1);
}

// spec/memory.md 3: a routed expert takes 18,800,640 bytes in three matrices of one size; rows that read 5,120 values
// of Q8 and write 2,304 of bf16 move 5,280 and 4,608 bytes.
TEST(OperationWork, OnlyExpertsThatSomebodyChoseAreRead) {
  const std::vector<Matrix> weights(4, fp4(2304, 5120));
  const std::vector<int32_t> begin = {0, 3, 3, 3, 5}, x_row(5, 0);
  GroupedLinear op;
  op.x = Matrix(AnyView(kNowhere, DType::f8_e4m3, 2, 5120), AnyView(kNowhere, DType::f8_e8m0, 2, 160), 1);
  op.x_row = View<const int32_t, 1>(x_row.data(), {5});
  op.begin = View<const int32_t, 1>(begin.data(), {5});
  op.weights = weights;
  op.out = AnyViewMut(kNowhere, DType::bf16, 5, 2304);
  const KernelWork work = work_of(op);
  EXPECT_EQ(work.memory_bytes, 2 * 18800640 / 3);
  EXPECT_EQ(work.cache_bytes, 2 * 5280 + 5 * 4608 + 5 * 4);
  EXPECT_DOUBLE_EQ(work.operations, 2.0 * 5 * 2304 * 5120);
  EXPECT_EQ(work.arithmetic, Arithmetic::bf16);
}

// Rows of two sequences: the first has rows 1,000 and 1,001, the second row 9.
struct Rows {
  std::vector<int64_t> positions = {1000, 1001, 9};
  std::vector<int32_t> sequence = {0, 0, 1}, begin = {0, 2, 3};
  RowSet set() const {
    return {View<const int64_t, 1>(positions.data(), {3}), View<const int32_t, 1>(sequence.data(), {3}),
            View<const int32_t, 1>(begin.data(), {3})};
  }
};

// spec/memory.md 5 and 6: 8,192 operations and 68 bytes a key; the rows of a sequence share a scan.
TEST(OperationWork, RowsOfASequenceShareAScanOfItsKeysButNotCandidates) {
  const Rows rows;
  SelectRows op;
  op.rows = rows.set();
  op.heads = 32;
  op.channels = 128;
  op.format = RowFormat::q4i;
  op.ratio = 2;
  KernelWork work = work_of(op);
  EXPECT_EQ(work.memory_bytes, 68 * (501 + 5));  // positions 0 to 1,001 make 501 groups of two
  EXPECT_DOUBLE_EQ(work.operations, 8192.0 * (500 + 501 + 5));
  EXPECT_EQ(work.arithmetic, Arithmetic::int8);
  const std::vector<int32_t> blocks = {10, 20, 2};
  op.ratio = 1;
  op.block_size = 8;
  op.block_count = View<int32_t, 1>(const_cast<int32_t*>(blocks.data()), {3});
  work = work_of(op);
  EXPECT_EQ(work.memory_bytes, 68 * (80 + 160 + 10));  // the last row sees 10 keys of its 16 candidates
  EXPECT_DOUBLE_EQ(work.operations, 8192.0 * (80 + 160 + 10));
}

// spec/memory.md 5 and 6: 131,072 operations a key of 64 heads; 528 bytes a window row and 288 a latent. Window rows of
// this step are activations, rows before it are read once for a sequence.
TEST(OperationWork, AttentionReadsTheRingOnceForASequenceAndEntriesForEachRow) {
  const Rows rows;
  const std::vector<int64_t> from = {873, 874, 0}, to = {1001, 1002, 10};
  const std::vector<int32_t> count = {100, 512, 0}, entries(3 * 512);
  LatentAttention op;
  op.rows = op.fresh_rows = rows.set();
  op.queries = AnyView(kNowhere, DType::bf16, 3, 64 * 512);
  op.out = AnyViewMut(kNowhere, DType::bf16, 3, 64 * 512);
  op.heads = 64;
  op.ring.entry_bytes = 528;
  op.latents.entry_bytes = 288;
  op.window_begin = View<const int64_t, 1>(from.data(), {3});
  op.window_end = View<const int64_t, 1>(to.data(), {3});
  op.entries = View<const int32_t, 2>(entries.data(), {3, 512});
  op.count = View<const int32_t, 1>(count.data(), {3});
  const KernelWork work = work_of(op);
  EXPECT_DOUBLE_EQ(work.operations, 131072.0 * (128 + 128 + 10 + 612));
  EXPECT_EQ(work.memory_bytes, 528 * (127 + 9) + 288 * 612);  // positions 873 to 999, and 0 to 8
}

// Two rows of four streams of 64: y is 128 bytes a row, the streams 512, codes with scales 66.
TEST(OperationWork, AStepThatIsTakenAlongCostsItsWorkButNotTheWayToMemoryAndBack) {
  const std::vector<float> mixes(2 * 16);
  const View<const float, 2> pre(mixes.data(), {2, 4}), comb(mixes.data(), {2, 16});
  const AnyView y(kNowhere, DType::bf16, 2, 64), weight(kNowhere, DType::bf16, 1, 64);
  const AnyViewMut streams(kNowhere, DType::bf16, 2, 256), u(kNowhere, DType::bf16, 2, 64);
  const Q8Rows q8{{kNowhere, DType::f8_e4m3, 2, 64}, {kNowhere, DType::f8_e8m0, 2, 2}};
  StreamSpread op{y, pre, comb, streams};
  const KernelWork spread = work_of(op);
  const KernelWork collapse = work_of(StreamCollapse{streams, pre, u});
  const KernelWork norm = work_of(RmsNorm{u, weight, u, 0});
  const KernelWork rounding = work_of(QuantizeRows{u, q8.codes, q8.scales});
  op.next = {{}, pre, u, {weight, 0}, q8};
  const KernelWork all = work_of(op);
  EXPECT_DOUBLE_EQ(all.operations, spread.operations + collapse.operations + norm.operations + rounding.operations);
  EXPECT_EQ(spread.cache_bytes, 2 * (128 + 16 + 64 + 2 * 512));
  EXPECT_EQ(all.cache_bytes, spread.cache_bytes + 2 * (16 + 128 + 66) + 128);  // pre, u, its codes; the norm's weight
}

TEST(OperationWork, APeakThatIsNotThereBoundsNothing) {
  MachinePeaks peaks;  // of a device: no caches of a core
  peaks.l3_bytes = 1000;
  peaks.l3 = 1000;
  peaks.memory = 100;
  peaks.f32 = 1;
  EXPECT_DOUBLE_EQ(bound_of({.cache_bytes = 500, .cache_footprint = 500}, peaks).seconds, 0.5);
  // Half of 2,000 bytes fits: 1 s from the cache, and 10 s from memory.
  EXPECT_DOUBLE_EQ(bound_of({.cache_bytes = 2000, .cache_footprint = 2000}, peaks).seconds, 10);
}

TEST(OperationWork, WeightsThatACacheHoldsAreNotReadFromMemory) {
  MachinePeaks peaks;
  peaks.l3_bytes = 1000;
  peaks.l3 = 1000;
  peaks.memory = 100;
  peaks.f32 = 1;
  EXPECT_DOUBLE_EQ(bound_of({.memory_bytes = 500}, peaks).seconds, 5);  // of how many is not known
  EXPECT_DOUBLE_EQ(bound_of({.memory_bytes = 500, .memory_footprint = 800}, peaks).seconds, 0.5);
  // Of 4,000 bytes at best a quarter is still there: 375 come from memory.
  EXPECT_DOUBLE_EQ(bound_of({.memory_bytes = 500, .memory_footprint = 4000}, peaks).seconds, 3.75);
}

}  // namespace
}  // namespace fathom
