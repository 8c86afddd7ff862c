// What is worth a call of the other threads follows from what calls cost.
#include "fathom/backend/cpu/calls.h"

#include <gtest/gtest.h>

#include <vector>

namespace fathom::cpu {
namespace {

TEST(CallCost, LoopsThatOneThreadEndsBeforeHelpComesAreNotWorthIt) {
  CallCost near, far;
  for (int i = 0; i < 100; ++i) {
    near.learn(100);
    far.learn(800);
  }
  EXPECT_TRUE(near.worth(2'000));
  EXPECT_FALSE(near.worth(500));
  EXPECT_TRUE(far.worth(20'000));
  EXPECT_FALSE(far.worth(2'000));
}

TEST(CallCost, OneLateAnswerIsNotTheRule) {
  CallCost cost;
  for (int i = 0; i < 100; ++i) cost.learn(100);
  cost.learn(1e9);
  EXPECT_TRUE(cost.worth(10'000));
}

TEST(CallCost, SleepersStopSmallLoopsForAWhileOnly) {
  CallCost cost;
  for (int i = 0; i < 100; ++i) cost.learn(1e9);
  int refused = 0;
  while (!cost.worth(2'000)) ++refused;
  EXPECT_GT(refused, 500);
  EXPECT_LT(refused, 200'000);
  // Whoever answers quickly is believed soon.
  for (int i = 0; i < 100; ++i) cost.learn(1e9);
  for (int i = 0; i < 10; ++i) cost.learn(100);
  EXPECT_TRUE(cost.worth(2'000));
}

TEST(CallCost, ACostIsNeverNothing) {
  CallCost cost;
  for (int i = 0; i < 1000; ++i) cost.learn(0);
  EXPECT_FALSE(cost.worth(100));
}

TEST(CallThreads, EveryPieceIsDoneOnceTimedOrNot) {
  ThreadPool pool(3);
  for (int call = 0; call < 20; ++call) {
    std::vector<int> visits(100, 0);
    call_threads(pool, 100, 7, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) ++visits[size_t(i)];
    });
    EXPECT_EQ(visits, std::vector<int>(100, 1));
  }
}

TEST(CallThreads, OneThreadHasNobodyToCall) {
  EXPECT_FALSE(worth_threads(ThreadPool(1), 1e9));
  EXPECT_TRUE(worth_threads(ThreadPool(2), 1e9));
}

}  // namespace
}  // namespace fathom::cpu
