#include "fathom/backend/timed_operations.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "fathom/backend/operation_list.h"

namespace fathom {
namespace {

// A clock that counts marks: a call takes one second.
class CountingClock : public QueueClock {
 public:
  int64_t mark() override { return next_++; }
  double seconds(int64_t from, int64_t to) override { return double(to - from); }
  void restart() override { next_ = 0; }

 private:
  int64_t next_ = 0;
};

struct Sum {
  std::vector<float> a = {1, 2}, b = {10, 20}, out = {0, 0};
  AddRows op{{a.data(), {1, 2}}, {b.data(), {1, 2}}, {out.data(), {1, 2}}};
};

TEST(TimedOperationsTest, CallsAreTimedByTheClockAndComputeWhatTheTableComputes) {
  const Operations timed = timed_operations(reference_operations());
  Queue queue{1};
  CountingClock clock;
  Sum sum;
  timed.add_rows(queue, sum.op);
  EXPECT_TRUE(take_operation_times().empty()) << "nobody asked";
  time_operations(&clock);
  timed.add_rows(queue, sum.op);
  timed.add_rows(queue, sum.op);
  EXPECT_EQ(sum.out, (std::vector<float>{11, 22}));
  const auto times = take_operation_times();
  ASSERT_EQ(times.size(), 1u);
  EXPECT_EQ(times[0].name, "add_rows");
  EXPECT_EQ(times[0].calls, 2);
  EXPECT_DOUBLE_EQ(times[0].seconds, 2);
  EXPECT_TRUE(take_operation_times().empty()) << "a take starts anew";
  time_operations(nullptr);
  timed.add_rows(queue, sum.op);
  EXPECT_TRUE(take_operation_times().empty());
}

// Two products of one shape are one line, another shape is another: x [1, 4] in bf16, weights of 3 and 2 rows.
TEST(TimedOperationsTest, ProductsAreKeptApartByTheirWeights) {
  const Operations timed = timed_operations(reference_operations());
  Queue queue{1};
  CountingClock clock;
  time_operations(&clock);
  const std::vector<uint16_t> x(4, 0x3f80), weight(12, 0x3f80);
  std::vector<uint16_t> out(3);
  const auto bytes = [](const std::vector<uint16_t>& v) { return reinterpret_cast<const uint8_t*>(v.data()); };
  for (const int64_t rows : {3, 2, 3}) {
    timed.linear(queue,
                 {Matrix(AnyView(bytes(x), DType::bf16, 1, 4)), Matrix(AnyView(bytes(weight), DType::bf16, rows, 4)),
                  AnyViewMut(reinterpret_cast<uint8_t*>(out.data()), DType::bf16, 1, rows), 1});
  }
  const auto times = take_operation_times();
  time_operations(nullptr);
  ASSERT_EQ(times.size(), 2u);
  EXPECT_EQ(times[0].shape, "bf16 3x4");
  EXPECT_EQ(times[0].calls, 2);
  EXPECT_EQ(times[1].shape, "bf16 2x4");
  EXPECT_EQ(times[1].calls, 1);
}

// A second is 1,000 bytes: two arrays of 8 bytes are read and one is written.
TEST(TimedOperationsTest, CountedCallsSayWhatTheyWouldTakeAtBest) {
  const Operations timed = timed_operations(reference_operations());
  Queue queue{1};
  Sum sum;
  MachinePeaks peaks;
  peaks.memory = 1000;
  peaks.f32 = 1e9;
  const Memory memory;
  count_operations(&memory, &peaks);
  timed.add_rows(queue, sum.op);
  count_operations(nullptr, nullptr);
  const auto times = take_operation_times();
  ASSERT_EQ(times.size(), 1u);
  EXPECT_EQ(times[0].cache_bytes, 24);
  EXPECT_DOUBLE_EQ(times[0].operations, 2);
  EXPECT_DOUBLE_EQ(times[0].bound_seconds, 0.024);
}

// Weights of 12 and 8 elements of bf16 in each of two steps: 40 bytes that a cache of 80 holds, of 20 half.
TEST(TimedOperationsTest, WhatAStepReadsLiesInTheCachesAsFarAsTheyReach) {
  const Operations timed = timed_operations(reference_operations());
  Queue queue{1};
  const std::vector<uint16_t> x(4, 0x3f80), weight(12, 0x3f80);
  std::vector<uint16_t> out(3);
  const auto bytes = [](const std::vector<uint16_t>& v) { return reinterpret_cast<const uint8_t*>(v.data()); };
  const Memory memory;
  for (const int64_t cache : {0, 20, 80}) {
    MachinePeaks peaks;
    peaks.l3_bytes = cache;
    peaks.l3 = 1e6;
    peaks.memory = 1;
    peaks.f32 = peaks.bf16 = 1e9;
    count_operations(&memory, &peaks);
    for (const int64_t rows : {3, 2, 3, 2}) {
      timed.linear(queue,
                   {Matrix(AnyView(bytes(x), DType::bf16, 1, 4)), Matrix(AnyView(bytes(weight), DType::bf16, rows, 4)),
                    AnyViewMut(reinterpret_cast<uint8_t*>(out.data()), DType::bf16, 1, rows), 1});
    }
    const auto times = take_operation_times(2);
    count_operations(nullptr, nullptr);
    ASSERT_EQ(times.size(), 2u);
    EXPECT_EQ(times[0].memory_bytes, 48);
    // Two calls of 24 bytes; activations of 14 bytes come from memory where there is no cache.
    EXPECT_NEAR(times[0].bound_seconds, cache == 0 ? 2 * (24 + 14) : cache == 20 ? 24 : 0, 1e-3);
  }
}

TEST(TimedOperationsTest, AMissingEntryStaysMissing) {
  Operations table = reference_operations();
  table.sample = nullptr;
  const Operations timed = timed_operations(table);
  EXPECT_EQ(timed.sample, nullptr);
  EXPECT_NE(timed.accept, nullptr);
}

}  // namespace
}  // namespace fathom
