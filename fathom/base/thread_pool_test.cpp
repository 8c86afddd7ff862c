#include "fathom/base/thread_pool.h"

#include <gtest/gtest.h>

#include <numeric>

namespace fathom {
namespace {

TEST(ThreadPool, EveryElementIsVisitedOnceWhateverTheGrain) {
  for (const int threads : {1, 2, 5}) {
    ThreadPool pool(threads);
    for (const int64_t count : {0, 1, 7, 64, 1000}) {
      for (const int64_t grain : {1, 3, 64, 5000}) {
        std::vector<int> visits(size_t(count), 0);
        pool.run(count, grain, [&](int64_t begin, int64_t end, int thread) {
          EXPECT_LT(thread, threads);
          EXPECT_LE(end - begin, grain);
          for (int64_t i = begin; i < end; ++i) ++visits[size_t(i)];
        });
        EXPECT_EQ(std::accumulate(visits.begin(), visits.end(), int64_t(0)), count);
        for (const int v : visits) EXPECT_EQ(v, 1);
      }
    }
  }
}

TEST(ThreadPool, ManyShortLoopsInARowAllFinish) {
  ThreadPool pool(3);
  std::atomic<int64_t> sum = 0;
  for (int i = 0; i < 20000; ++i) pool.run(4, 1, [&](int64_t begin, int64_t, int) { sum += begin; });
  EXPECT_EQ(sum.load(), 20000 * 6);
}

TEST(ThreadPool, ThereIsAtLeastOneUsableCpu) { EXPECT_GE(usable_cpus(), 1); }

}  // namespace
}  // namespace fathom
