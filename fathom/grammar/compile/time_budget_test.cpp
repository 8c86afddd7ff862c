#include "fathom/grammar/compile/time_budget.h"

#include <gtest/gtest.h>

namespace fathom::grammar {
namespace {

// Takes this long of the processor, however busy the machine is.
bool work(std::chrono::microseconds time) {
  const auto end = processor_time() + time;
  while (processor_time() < end) {
  }
  return true;
}

// Whether the balance is used up after so many masks, each with a token, which take this long.
bool used_up_by(int masks, std::chrono::microseconds mask, std::chrono::microseconds token) {
  TimeBudget budget;
  for (int i = 0; i < masks && !budget.used_up(); ++i) {
    budget.earn();
    budget.spend([&] { return work(mask); });
    budget.spend([&] { return work(token); });
  }
  return budget.used_up();
}

// Bug: each call was measured only when the one before it was slow, so slow ones that took turns with fast ones were
// free.
TEST(TimeBudget, SlowCallsAreCountedWhateverIsBetweenThem) {
  constexpr std::chrono::microseconds kSlow{2000}, kNone{0};
  EXPECT_TRUE(used_up_by(100, kSlow, kSlow));
  EXPECT_TRUE(used_up_by(100, kSlow, kNone));
  EXPECT_TRUE(used_up_by(100, kNone, kSlow));
}

TEST(TimeBudget, WhatAMaskMayTakeIsNeverTooMuch) {
  EXPECT_FALSE(used_up_by(500, std::chrono::microseconds(150), std::chrono::microseconds(0)));
}

}  // namespace
}  // namespace fathom::grammar
