#include "fathom/backend/run_sum.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <vector>

namespace fathom {
namespace {

// Sums `all` in runs as the header says, with guesses of each run's exponent that are wrong by a factor now and then;
// joins runs in fours. `by_number` counts the runs that were added number by number.
double in_runs(const std::vector<double>& all, size_t run, int wrong_every, int& by_number) {
  std::vector<CrossingRun> runs;
  double guess = 0;
  for (size_t first = 0; first < all.size(); first += run) {
    const double before = runs.size() % size_t(wrong_every) == 1 ? guess * 3 : guess;
    double own = 0;
    for (size_t i = first; i < std::min(all.size(), first + run); ++i) own += all[i];
    RunMaker maker(before, before + own);
    for (size_t i = first; i < std::min(all.size(), first + run); ++i) {
      maker.add([&] { return all[i]; }, [&](uint32_t) { return all[i]; });
    }
    guess += own;
    runs.push_back(maker.run());
  }
  double sum = 0;
  for (size_t r = 0; r < runs.size(); r += 4) {
    RunStep four = no_step();
    const auto joins = [&](size_t k) { return runs[k].next_field == 0 && runs[k].field == runs[r].field; };
    if (r + 4 <= runs.size() && joins(r) && joins(r + 1) && joins(r + 2) && joins(r + 3)) {
      const uint32_t field = runs[r].field;
      four = join_steps(field, join_steps(field, runs[r].step, runs[r + 1].step),
                        join_steps(field, runs[r + 2].step, runs[r + 3].step));
    }
    if (take_step(sum, runs[r].field, four)) continue;
    for (size_t k = r; k < std::min(runs.size(), r + 4); ++k) {
      if (take_run(sum, runs[k])) continue;
      ++by_number;
      for (size_t i = k * run; i < std::min(all.size(), (k + 1) * run); ++i) sum += all[i];
    }
  }
  return sum;
}

// Numbers with few bits make ties at every second step; small ones beside large ones vanish; some are zero.
TEST(RunSum, IsTheSequentialSumToTheLastBit) {
  std::mt19937_64 random(5);
  for (int trial = 0; trial < 3000; ++trial) {
    const int bits = 1 + trial % 53, span = trial % 7 == 0 ? 900 : trial % 5 == 0 ? 60 : 4;
    std::vector<double> all(500 + random() % 3000);
    for (double& v : all) {
      const double mantissa = double(random() >> (64 - bits)) * std::ldexp(1.0, -bits);
      v = std::ldexp(mantissa, -int(random() % uint64_t(span)));
      if (trial % 11 == 0 && random() % 3 != 0) v = trial % 2 ? 0 : 0x1p-1010;
    }
    double want = 0;
    for (const double v : all) want += v;
    int by_number = 0;
    EXPECT_EQ(in_runs(all, 32, trial % 3 == 0 ? 5 : 1 << 20, by_number), want) << trial;
    if (trial % 3 != 0 && span == 4) {
      EXPECT_LT(by_number, 5) << trial;  // the first ones only
    }
  }
}

TEST(RunSum, ASumThatEndsAtAPowerOfTwoIsNotTaken) {
  double sum = 1.5;
  EXPECT_FALSE(take_step(sum, exponent_field(1.0), {0.5, 0.5}));
  EXPECT_EQ(sum, 1.5);
  EXPECT_TRUE(take_step(sum, exponent_field(1.0), {0.25, 0.5}));
  EXPECT_EQ(sum, 1.75);
  EXPECT_FALSE(take_step(sum, 0, {1, 1}));  // field 0: only of the sum 0
}

}  // namespace
}  // namespace fathom
