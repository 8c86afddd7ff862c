#include "fathom/backend/workspace.h"

#include <gtest/gtest.h>

#include <functional>

#include "fathom/backend/instruments.h"
#include "fathom/backend/kernel_cases.h"
#include "fathom/backend/workspace_under_test.h"

namespace fathom {
namespace {

AnyView rows_of(DType dtype, int64_t rows, int64_t cols) { return {nullptr, dtype, rows, cols}; }

// 8,192 rows of V4.1 Flash meet 384 experts in tiles of 128 rows, eight groups in tiles of 192.
TEST(Workspace, OfAProductIsThatOfItsShape) {
  const Matrix x(rows_of(DType::f8_e4m3, 8192, 5120)), weight(rows_of(DType::f4_e2m1, 2304, 5120));
  const std::vector<Matrix> weights(384, weight), part(24, weight);
  const std::vector<uint8_t> out(1);
  GroupedLinear op;
  op.x = x;
  op.weights = weights;
  op.out = AnyViewMut(nullptr, DType::bf16, 49'152, 2304);
  const int64_t rows = (49'152 + 384 * 31) / 32 * 32;  // each expert's in steps of 32
  EXPECT_EQ(device_workspace_bytes(op, true), rows * 5120 * 2);
  op.weights = part;
  op.whole = {49'152, 384};
  op.out.rows = 3000;
  EXPECT_EQ(device_workspace_bytes(op, true), rows * 5120 * 2) << "a part: no more than the whole";

  Linear linear;
  linear.x = Matrix(rows_of(DType::bf16, 70, 5120));
  linear.weight = Matrix(rows_of(DType::bf16, 129'280, 5120));
  EXPECT_EQ(device_workspace_bytes(linear, true), 96 * 5120 * 2);
  linear.weight = Matrix(rows_of(DType::f32, 129'280, 5120));
  EXPECT_EQ(device_workspace_bytes(linear, true), 0) << "in float";
  // K of 192: not in steps of 128, so Q8 rows are widened.
  linear.x = Matrix(rows_of(DType::f8_e4m3, 70, 192));
  linear.weight = Matrix(rows_of(DType::f8_e4m3, 64, 192));
  EXPECT_EQ(device_workspace_bytes(linear, true), 70 * 192 * 2);
}

// What plans that ask for the last numbers of rows only stand on. Shapes of V4.1 Flash: a weight of each kind, groups,
// experts (all, and those of one rank of 64), a gate; sizes until thousands of rows have had all their tiles.
TEST(Workspace, ManyRowsTakeNoMoreThanATileMore) {
  const auto product = [](int64_t rows, int64_t n, int64_t columns, int64_t groups, WeightKind weights) {
    return ProductShape{.rows = rows, .n = n, .columns = columns, .groups = groups, .weights = weights};
  };
  const auto experts = [](int64_t rows, int64_t count) {
    return ProductShape{.rows = rows, .assignments = rows * 6, .experts = count, .n = 2304, .columns = 5120};
  };
  struct Case {
    const char* name;
    int64_t span;
    std::function<int64_t(int64_t rows, bool invariant)> bytes;
  };
  for (const Case& c : {
           Case{"codes", kPaddedRows,
                [&](int64_t rows, bool invariant) {
                  return device_workspace_bytes(product(rows, 2304, 5120, 1, WeightKind::codes), invariant);
                }},
           Case{"groups", kPaddedRows,
                [&](int64_t rows, bool invariant) {
                  return device_workspace_bytes(product(rows, 8192, 32'768, 8, WeightKind::codes), invariant);
                }},
           Case{"head", kPaddedRows,
                [&](int64_t rows, bool invariant) {
                  return device_workspace_bytes(product(rows, 129'280, 5120, 1, WeightKind::bf16), invariant);
                }},
           Case{"experts", kPaddedRows * 384 / 6,
                [&](int64_t rows, bool invariant) { return device_workspace_bytes(experts(rows, 384), invariant); }},
           Case{"six experts", kPaddedRows,
                [&](int64_t rows, bool invariant) { return device_workspace_bytes(experts(rows, 6), invariant); }},
           Case{"gate", kPaddedRows,
                [&](int64_t rows, bool invariant) {
                  return device_workspace_bytes(GateShape{.rows = rows, .experts = 384, .columns = 5120}, invariant);
                }},
       }) {
    for (const bool invariant : {true, false}) {
      for (int64_t rows = kManyRows; rows < 20'000; ++rows) {
        ASSERT_LE(c.bytes(rows, invariant), c.bytes(rows + c.span, invariant)) << c.name << ", rows " << rows;
      }
    }
  }
}

TEST(Workspace, OperationsThatNeedNoneSayNone) {
  EXPECT_EQ(device_workspace_bytes(RmsNorm(), true), 0);
  EXPECT_EQ(device_workspace_bytes(LatentAttention(), false), 0);
  EXPECT_EQ(device_workspace_bytes(GroupedLinear(), false), 0);
}

// On a device: a fresh queue's first call takes what it says, and no more. 4 MiB: what the device gives at a time.
TEST(Workspace, OperationsTakeNoMoreThanTheySay) {
  const auto backend = cuda_backend();
  if (!backend.ok()) GTEST_SKIP() << to_string(backend.error());
  const Instruments instruments = instruments_of(*backend);
  const Operations asking = asking_operations(backend->ops);
  for (const KernelCase& c : kernel_cases(0, 0, false, instruments.allocate_migrating)) {
    const bool large = c.op == "gate" || c.op == "stream_mixes" || c.op == "sample";
    if (c.model == "flash" && !large) continue;
    const auto make = c.open();
    ASSERT_TRUE(make.ok()) << to_string(make.error());
    for (const int64_t rows : {1, 64, 1024}) {
      if (rows > c.most_rows) continue;
      const auto run = (*make)(rows);
      ASSERT_TRUE(run.ok()) << to_string(run.error());
      for (const bool invariant : {true, false}) {
        const auto call = [&](Queue& queue) {
          queue.batch_invariant = invariant;
          most_asked_workspace = 0;
          run->call(asking, queue);
          queue.wait();
        };
        const auto loaded = std::move(*backend->open_queue(1)), fresh = std::move(*backend->open_queue(1));
        call(*loaded);  // kernels take memory when they are loaded, and pages move
        instruments.settle(*loaded);
        const int64_t before = instruments.free_bytes();
        call(*fresh);
        EXPECT_LE(before - instruments.free_bytes(),
                  std::max(most_asked_workspace, kLeastWorkspace) + (int64_t(4) << 20))
            << c.op << " " << c.weights << " " << c.shape << ", rows " << rows << ", invariant " << invariant;
      }
    }
  }
}

}  // namespace
}  // namespace fathom
