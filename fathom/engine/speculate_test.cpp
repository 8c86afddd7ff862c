// Verification lengths against spec/engine.md 7.3 and 7.4.
#include "fathom/engine/speculate.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

namespace fathom {
namespace {

struct Drafts {
  std::vector<float> values;
  std::vector<int> counts;
  int64_t most = 5;
  Confidences view() const { return {View<const float, 2>(values.data(), {int64_t(counts.size()), most}), counts}; }
};

// The worked example of 7.3.
const Drafts kExample{
    {.9f, .8f, .7f, .6f, .5f, .95f, .9f, .9f, .8f, .7f, .5f, .5f, .5f, .5f, .5f, .3f, .2f, .1f, .1f, .1f},
    {5, 5, 5, 5}};
const std::vector<CostPoint> kCurve{{1, 10.0}, {2, 10.2}, {4, 10.6}, {8, 11.2}, {16, 12.8}, {24, 14.4}};
const StepCost kCost{kCurve, 0.02, 0.5};

// E(b) by the text of the specification.
double expected_tokens(const Drafts& drafts, int rows) {
  std::vector<double> all;
  for (size_t i = 0; i < drafts.counts.size(); ++i) {
    double product = 1;
    for (int k = 0; k < drafts.counts[i]; ++k) {
      const float c = drafts.values[i * size_t(drafts.most) + size_t(k)];
      all.push_back(product *= std::isnan(c) ? 1 : double(c));
    }
  }
  std::sort(all.rbegin(), all.rend());
  double sum = double(drafts.counts.size());
  for (int i = 0; i < rows - int(drafts.counts.size()); ++i) sum += all[size_t(i)];
  return sum;
}

TEST(Speculate, TheWorkedExampleOfTheSpecificationToTheDigit) {
  const auto rate = [&](int rows) { return expected_tokens(kExample, rows) / step_milliseconds(kCost, rows); };
  EXPECT_NEAR(step_milliseconds(kCost, 4), 11.18, 1e-9);
  EXPECT_NEAR(step_milliseconds(kCost, 8), 11.86, 1e-9);
  for (const int rows : {9, 12, 16}) EXPECT_NEAR(step_milliseconds(kCost, rows), 13.62, 1e-9);
  for (const int rows : {17, 24}) EXPECT_NEAR(step_milliseconds(kCost, rows), 15.38, 1e-9);
  const double half = 0.5e-4;  // of the last printed digit
  EXPECT_NEAR(rate(4), .3578, half);
  EXPECT_NEAR(expected_tokens(kExample, 8), 7.4745, half);
  EXPECT_NEAR(rate(8), .6302, half);
  EXPECT_NEAR(expected_tokens(kExample, 9), 8.1945, half);
  EXPECT_NEAR(rate(9), .6017, half);
  EXPECT_NEAR(rate(12), .7206, half);
  EXPECT_NEAR(expected_tokens(kExample, 16), 11.0974, half);
  EXPECT_NEAR(rate(16), .8148, half);
  EXPECT_NEAR(expected_tokens(kExample, 17), 11.2486, half);
  EXPECT_NEAR(rate(17), .7314, half);
  EXPECT_NEAR(rate(24), .7499, half);

  VerificationPlanner planner;
  const RowChoice choice = planner.choose_rows(kCost, kExample.view());
  EXPECT_EQ(choice.rows, 16);
  EXPECT_NEAR(choice.expected_tokens, 11.0974, half);
  EXPECT_NEAR(choice.expected_tokens / choice.milliseconds, .8148, half);
  std::vector<int> rows(4);
  planner.split_rows(choice.rows, kExample.view(), rows);
  EXPECT_EQ(rows, (std::vector<int>{5, 6, 3, 2}));
}

TEST(Speculate, NothingRunsBeyondTheLargestSize) {
  VerificationPlanner planner;
  const std::vector<CostPoint> small{{1, 1.0}, {6, 1.0}};
  EXPECT_EQ(planner.choose_rows({small, 0, 0}, kExample.view()).rows, 6);
  EXPECT_TRUE(std::isinf(step_milliseconds({small, 0, 0}, 7)));
  const std::vector<CostPoint> smaller{{2, 1.0}};
  const RowChoice none = planner.choose_rows({smaller, 0, 0}, kExample.view());
  EXPECT_EQ(none.rows, 4);
  EXPECT_TRUE(std::isinf(none.milliseconds));
}

TEST(Speculate, ANegativeSlopeCountsAsNone) { EXPECT_EQ(step_milliseconds({kCurve, -1, 0}, 8), 11.2); }

TEST(Speculate, BetweenPointsTimeIsLinearWhereStepsAreNotPadded) {
  const StepCost cost{kCurve, 0.02, 0.5, false};
  EXPECT_NEAR(step_milliseconds(cost, 12), 12.0 + 0.24 + 0.5, 1e-9);
  EXPECT_NEAR(step_milliseconds(cost, 16), 13.62, 1e-9);
  const std::vector<CostPoint> late{{8, 4.0}, {16, 8.0}};
  EXPECT_NEAR(step_milliseconds({late, 0, 0, false}, 3), 4.0, 1e-9);  // no extrapolation towards 0
}

// Missing confidences of drafts that exist count 1, drafts that do not exist get no row, whatever is asked for.
TEST(Speculate, MissingValuesCountOneAndMissingDraftsNothing) {
  Drafts drafts{{NAN, NAN, NAN, NAN, NAN, .9f, .9f, .9f, .9f, .9f, .8f, NAN, 0, 0, 0}, {2, 0, 5}};
  VerificationPlanner planner;
  std::vector<int> rows(3);
  planner.split_rows(5, drafts.view(), rows);
  EXPECT_EQ(rows, (std::vector<int>{3, 1, 1}));
  planner.split_rows(7, drafts.view(), rows);
  EXPECT_EQ(rows, (std::vector<int>{3, 1, 3}));
  planner.split_rows(100, drafts.view(), rows);
  EXPECT_EQ(rows, (std::vector<int>{3, 1, 6}));
  const std::vector<CostPoint> flat{{64, 1.0}};
  const RowChoice choice = planner.choose_rows({flat, 0, 0}, drafts.view());
  EXPECT_EQ(choice.rows, 7) << "drafts of probability 0 bring nothing: the first maximum";
  EXPECT_NEAR(choice.expected_tokens, 3 + 2 + 1.6, 1e-6);
  planner.split_rows(3, drafts.view(), rows);
  EXPECT_EQ(rows, (std::vector<int>{1, 1, 1}));
}

Drafts random_drafts(std::mt19937& random, int sequences, int most) {
  Drafts out;
  out.most = most;
  for (int i = 0; i < sequences; ++i) {
    out.counts.push_back(int(random() % unsigned(most + 1)));
    for (int k = 0; k < most; ++k) {
      const unsigned kind = random() % 16;  // ties, ends and missing values are common
      out.values.push_back(kind == 0   ? NAN
                           : kind == 1 ? 1.f
                           : kind == 2 ? 0.f
                           : kind == 3 ? .5f
                                       : std::sqrt(float(random() >> 8) * 0x1p-24f));
    }
  }
  return out;
}

// 7.4: what a device kernel computes by ranks is the host's split, also with ties; and it is a prefix of each
// sequence's drafts by construction.
TEST(Speculate, TheDevicesSplitIsTheHosts) {
  std::mt19937 random(5);
  VerificationPlanner planner;
  for (int trial = 0; trial < 3'000; ++trial) {
    const int sequences = 1 + int(random() % (trial % 100 == 0 ? 60 : 12));
    const Drafts drafts = random_drafts(random, sequences, 5);
    int all = sequences;
    for (const int count : drafts.counts) all += count;
    const int total = sequences + int(random() % unsigned(all - sequences + 1));
    std::vector<int> host(static_cast<size_t>(sequences)), device(host);
    planner.split_rows(total, drafts.view(), host);
    split_rows_by_rank(total, drafts.view(), device);
    ASSERT_EQ(host, device) << trial;
    int sum = 0;
    for (size_t i = 0; i < host.size(); ++i) {
      sum += host[i];
      ASSERT_LE(host[i], 1 + drafts.counts[i]);
    }
    ASSERT_EQ(sum, total);
  }
}

// against every way to give rows to sequences, tokens and times recomputed for each.
TEST(Speculate, TheChoiceIsWithinOnePercentOfTheBestOfAllChoices) {
  std::mt19937 random(7);
  VerificationPlanner planner;
  for (int trial = 0; trial < 100'000; ++trial) {
    const int sequences = 1 + trial % 3, most = 1 + int(random() % 5);
    const Drafts drafts = random_drafts(random, sequences, most);
    std::vector<CostPoint> curve;
    double time = 1 + double(random() % 100) / 10;
    for (int rows = 1 + int(random() % 3); rows <= 18; rows += 1 + int(random() % 6)) {
      curve.push_back({rows, time *= 0.97 + double(random() % 64) / 100});  // not always rising: measured
    }
    if (curve.back().rows < sequences) curve.push_back({sequences, time});
    const StepCost cost{curve, double(random() % 5) / 100 - 0.01, double(random() % 3), trial % 4 != 3};

    std::vector<int> rows(static_cast<size_t>(sequences), 1);
    double best = 0;
    while (true) {
      double tokens = 0;
      int total = 0;
      for (size_t i = 0; i < rows.size(); ++i) {
        double product = 1;
        tokens += 1;
        for (int k = 0; k + 1 < rows[i]; ++k) {
          const float c = drafts.values[i * size_t(most) + size_t(k)];
          tokens += product *= std::isnan(c) ? 1 : double(c);
        }
        total += rows[i];
      }
      best = std::max(best, tokens / step_milliseconds(cost, total));
      size_t at = 0;
      while (at < rows.size() && rows[at] == 1 + drafts.counts[at]) rows[at++] = 1;
      if (at == rows.size()) break;
      ++rows[at];
    }
    const RowChoice choice = planner.choose_rows(cost, drafts.view());
    ASSERT_GE(choice.expected_tokens / choice.milliseconds, 0.99 * best) << trial;
    // What it promises is what its split brings.
    planner.split_rows(choice.rows, drafts.view(), rows);
    double tokens = 0;
    for (size_t i = 0; i < rows.size(); ++i) {
      double product = 1;
      tokens += 1;
      for (int k = 0; k + 1 < rows[i]; ++k) {
        const float c = drafts.values[i * size_t(most) + size_t(k)];
        tokens += product *= std::isnan(c) ? 1 : double(c);
      }
    }
    ASSERT_NEAR(tokens, choice.expected_tokens, 1e-4);
  }
}

// Large steps take the other way to sort; the choice is that of looking at every b.
TEST(Speculate, LargeStepsChooseWhatAScanOfEverySizeChooses) {
  std::mt19937 random(11);
  VerificationPlanner planner;
  for (int trial = 0; trial < 300; ++trial) {
    const int sequences = 16 + int(random() % 240);
    const Drafts drafts = random_drafts(random, sequences, 5);
    std::vector<CostPoint> curve;
    for (int rows = 8; rows <= 1'536; rows += 8) {
      curve.push_back({rows, 10 + 0.01 * rows + double(random() % 100) / 100});
    }
    const StepCost cost{curve, 0.001, 0.5, trial % 2 == 0};
    int all = sequences;
    for (const int count : drafts.counts) all += count;
    double best = 0;
    for (int rows = sequences; rows <= all; ++rows) {
      if (rows % 7 != 0 && rows % 8 != 0 && rows != all) continue;  // a scan is slow
      best = std::max(best, expected_tokens(drafts, rows) / step_milliseconds(cost, rows));
    }
    const RowChoice choice = planner.choose_rows(cost, drafts.view());
    ASSERT_GE(choice.expected_tokens / choice.milliseconds, (1 - 1e-6) * best) << trial;
  }
}

}  // namespace
}  // namespace fathom
