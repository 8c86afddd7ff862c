#include "fathom/backend/copy_lane.h"

#include <gtest/gtest.h>

#include <vector>

namespace fathom {
namespace {

class CopyLaneTest : public testing::TestWithParam<const char*> {};

// The queue's operations read a slot behind its copy, and the slot is filled again behind them, round after round.
TEST_P(CopyLaneTest, AnOperationFindsWhatWasCopiedForItAndNothingLater) {
  const auto backend = GetParam() == std::string("cuda") ? cuda_backend() : cpu_backend();
  if (!backend.ok()) GTEST_SKIP() << to_string(backend.error());
  const Memory& memory = backend->memory;
  constexpr int64_t kRows = 256, kCols = 4096, kBytes = kRows * kCols * 4, kRounds = 20, kSlots = 2;
  const auto queue = *backend->open_queue(1);
  const auto lane = *open_copy_lane(*backend);
  const auto host = *allocate_host(memory, kRounds * kBytes), slots = *memory.allocate(kSlots * kBytes),
             out = *memory.allocate(kRounds * kBytes), rows = *memory.shared(kRows * 4);
  for (int64_t i = 0; i < kRounds * kBytes / 4; ++i) reinterpret_cast<int32_t*>(host.data())[i] = int32_t(i);
  const View<int32_t, 1> index(reinterpret_cast<int32_t*>(rows.data()), {kRows});
  for (int32_t r = 0; r < kRows; ++r) index[r] = r;
  uint8_t waited = 0;
  memory.copy(&waited, slots.data(), 1);  // fresh memory has been cleared
  int64_t point[kSlots] = {};
  for (int64_t i = 0; i < kRounds; ++i) {
    uint8_t* slot = slots.data() + i % kSlots * kBytes;
    const int64_t copy = lane->copy(slot, host.data() + i * kBytes, kBytes, point[i % kSlots]);
    EXPECT_EQ(copy, i + 1);
    lane->await(*queue, copy);
    backend->ops.gather_rows(*queue, {AnyView(slot, DType::i32, kRows, kCols), index,
                                      AnyViewMut(out.data() + i * kBytes, DType::i32, kRows, kCols)});
    point[i % kSlots] = lane->point(*queue);
  }
  queue->wait();
  EXPECT_TRUE(lane->done(kRounds));
  std::vector<int32_t> got(size_t(kRounds * kBytes / 4));
  memory.copy(got.data(), out.data(), kRounds * kBytes);
  for (size_t i = 0; i < got.size(); ++i) ASSERT_EQ(got[i], int32_t(i));
}

INSTANTIATE_TEST_SUITE_P(Of, CopyLaneTest, testing::Values("cpu", "cuda"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace fathom
