// The made-up drafts have the laws that their header states.
#include "fathom/engine/simulated_drafts.h"

#include <gtest/gtest.h>

#include <cmath>

namespace fathom {
namespace {

// 100,000 rounds: an acceptance of at most 1/2 x 1/2 variance is off by at most 0.0016 (one standard error); bounds are
// 4 of these.
constexpr int kRounds = 100'000;
constexpr double kFour = 4 * 0.5 / 316.2;

TEST(SimulatedDrafts, AcceptanceByPositionIsTheRate) {
  for (const double spread : {0.0, 0.5, 1.0}) {
    const AcceptanceLaw law{{0.9, 0.75, 0.6, 0.5, 0.2}, spread, 0, 7};
    std::array<int64_t, 5> offered{}, accepted{};
    for (int i = 0; i < kRounds; ++i) {
      const DraftRound round = draw_round(law, law.rates, 3, i, 5);
      const int count = accepted_of(round, law, 3, 5);
      for (int k = 0; k < 5 && k <= count; ++k) ++offered[size_t(k)], accepted[size_t(k)] += k < count;
    }
    for (size_t k = 0; k < 5; ++k) {
      const double scale = std::sqrt(double(kRounds) / double(offered[k]));
      EXPECT_NEAR(double(accepted[k]) / double(offered[k]), law.rates[k], kFour * scale) << spread << " " << k;
    }
  }
}

TEST(SimulatedDrafts, ConfidencesWithoutBiasAreCalibrated) {
  const AcceptanceLaw law{{0.7}, 1, 0, 9};
  std::array<double, 10> told{}, accepted{}, count{};
  for (int i = 0; i < kRounds; ++i) {
    const DraftRound round = draw_round(law, law.rates, 1, i, 1);
    const auto bin = std::min<size_t>(9, size_t(round.confidence[0] * 10));
    ++count[bin];
    told[bin] += double(round.confidence[0]);
    accepted[bin] += accepted_of(round, law, 1, 1);
  }
  for (size_t bin = 0; bin < 10; ++bin) {
    ASSERT_GT(count[bin], 300) << "drafts differ, down to hopeless ones";
    EXPECT_NEAR(told[bin] / count[bin], accepted[bin] / count[bin], 4 * 0.5 / std::sqrt(count[bin]));
  }
}

TEST(SimulatedDrafts, ABiasMovesTheLogOddsOfConfidencesAndNothingElse) {
  const AcceptanceLaw right{{0.7, 0.6}, 0.5, 0, 9}, sure{{0.7, 0.6}, 0.5, 1, 9};
  const auto odds = [](float p) { return std::log(double(p) / (1 - double(p))); };
  for (int i = 0; i < 100; ++i) {
    const DraftRound a = draw_round(right, right.rates, 1, i, 2), b = draw_round(sure, sure.rates, 1, i, 2);
    EXPECT_EQ(a.chance, b.chance);
    // A float near 1 has 24 bits: its odds are told to 2^-24 / (1 - p).
    if (a.chance[0] < 0.99f) {
      EXPECT_NEAR(odds(b.confidence[0]) - odds(a.confidence[0]), 1, 1e-4);
    }
  }
}

TEST(SimulatedDrafts, DrawsDependOnTheAnswerAndItsPositionAlone) {
  const AcceptanceLaw law;
  const DraftRound round = draw_round(law, law.rates, 5, 100, 5);
  EXPECT_EQ(draw_round(law, law.rates, 5, 100, 5).chance, round.chance);
  EXPECT_NE(draw_round(law, law.rates, 6, 100, 5).chance, round.chance);
  EXPECT_NE(draw_round(law, law.rates, 5, 101, 5).chance, round.chance);
  // Fewer verified drafts accept the same ones, as far as they go.
  for (int verified = 0; verified <= 5; ++verified) {
    EXPECT_EQ(accepted_of(round, law, 5, verified), std::min(verified, accepted_of(round, law, 5, 5)));
  }
}

TEST(SimulatedDrafts, RatesForATokensPerRoundGiveThem) {
  for (const double tokens : {1.0, 2.8, 3.5, 6.0}) {
    const auto rates = rates_for(tokens, 5);
    ASSERT_TRUE(rates.ok());
    EXPECT_NEAR(tokens_of(*rates), tokens, 1e-9);
  }
  EXPECT_FALSE(rates_for(0.9, 5).ok());
  EXPECT_FALSE(rates_for(6.1, 5).ok());
}

// engine.md 7.3: rows are chosen by the round before; with a step in flight that is the newest the host has.
TEST(SimulatedDrafts, RowsAreChosenByTheRoundBeforeTheOneThatIsVerified) {
  // Rows cost 1 ms each beside 1 ms: a draft is worth its row when it is likelier than tokens / ms so far.
  CostCurve curve;
  for (int rows = 1; rows <= 12; ++rows) curve.push_back({rows, 1.0 + rows});
  AcceptanceLaw law{{1.0}, 0, 0, 1};
  SimulatedSpeculation speculation(SpeculationPolicy::scheduled, law, curve, false);
  const std::vector<double> sure{1, 1}, hopeless{0, 0};
  const auto entry = [](std::span<const double> rates, bool ahead) {
    return SimulatedSpeculation::Entry{0, 1, 2, ahead, true, rates};
  };
  speculation.draft(entry(sure, false), 1, 2);
  speculation.draft(entry(hopeless, false), 2, 2);
  // Synchronous: the older round was sure, so all three rows are taken, although the newest one is hopeless.
  std::vector<SimulatedSpeculation::Entry> entries{entry(sure, false)};
  EXPECT_EQ(speculation.decide(entries, false).rows, 3);
  // One step ahead: the newest round that the host has is the one before.
  entries[0].ahead = true;
  EXPECT_EQ(speculation.decide(entries, false).rows, 1);
}

TEST(SimulatedDrafts, APreemptedAnswerHasNoDrafts) {
  SimulatedSpeculation speculation(SpeculationPolicy::fixed, {}, {{1, 1.0}, {8, 2.0}}, true);
  const SimulatedSpeculation::Entry entry{4, 1, 5, false, true, {}};
  speculation.draft(entry, 1, 5);
  EXPECT_EQ(speculation.drafts_of(4), 5);
  std::vector<int> rows;
  speculation.split(speculation.decide(std::span(&entry, 1), false), std::span(&entry, 1), rows);
  EXPECT_EQ(rows, std::vector{6});
  speculation.forget(4);
  EXPECT_EQ(speculation.drafts_of(4), 0);
  speculation.split(speculation.decide(std::span(&entry, 1), false), std::span(&entry, 1), rows);
  EXPECT_EQ(rows, std::vector{1});
}

}  // namespace
}  // namespace fathom
