#include "fathom/engine/replay_quality.h"

#include <gtest/gtest.h>

#include <cmath>

namespace fathom {
namespace {

ReplaySample sample(std::vector<int32_t> ids, std::vector<float> logprobs, bool greedy = true) {
  ReplaySample out;
  out.prompt_tokens = int64_t(ids.size() - logprobs.size());
  out.ids = std::move(ids);
  out.greedy = greedy;
  out.scores.logprobs = std::move(logprobs);
  return out;
}

TEST(ReplayQuality, ComparesTokenByToken) {
  const auto one = compare_replay(sample({9, 9, 5, 6, 7}, {-0.5f, -1, -2}), {{-0.75f, -1, -1.5f}, {5, 6, 8}, {}});
  ASSERT_TRUE(one.ok());
  EXPECT_EQ(one->tokens, 3);
  EXPECT_DOUBLE_EQ(one->mean_logprob(), 0.25);
  EXPECT_DOUBLE_EQ(one->logprob_worst, 0.5);
  EXPECT_DOUBLE_EQ(one->top1_agreement(), 2.0 / 3);
  EXPECT_EQ(one->changed_answers, 1);
  EXPECT_EQ(one->kl_tokens, 0);
}

TEST(ReplayQuality, ASampledAnswerIsNotChangedByAnotherBestToken) {
  ReplaySample drawn = sample({9, 5, 6}, {-3, -4}, false);
  drawn.scores.best = {7, 7};
  const auto one = compare_replay(drawn, {{-3, -4}, {7, 8}, {}});
  EXPECT_EQ(one->greedy_answers, 0);
  EXPECT_EQ(one->changed_answers, 0);
  EXPECT_EQ(one->compared_best, 2);
  EXPECT_EQ(one->same_best, 1);
}

TEST(ReplayQuality, DivergenceOfLawsIsThatOfTheDefinition) {
  const float half = std::log(0.5f), quarter = std::log(0.25f), three = std::log(0.75f);
  ReplaySample given = sample({9, 0}, {half});
  given.scores.laws = {{half, half}};
  const auto one = compare_replay(given, {{quarter}, {1}, {{quarter, three}}});
  EXPECT_NEAR(one->mean_kl(), 0.25 * std::log(0.5) + 0.75 * std::log(1.5), 1e-6);  // of exact against given
  const auto impossible = compare_replay(given, {{half}, {0}, {{-INFINITY, 0}}});
  EXPECT_NEAR(impossible->mean_kl(), std::log(2.0), 1e-6);
}

TEST(ReplayQuality, ScoresThatAreNotOneATokenAreAnError) {
  EXPECT_FALSE(compare_replay(sample({9, 5}, {-1}), {{-1, -2}, {}, {}}).ok());
  EXPECT_FALSE(compare_replay(sample({9, 5}, {-1}), {{-1}, {5, 6}, {}}).ok());
}

TEST(ReplayQuality, KeepsASampleOfBoundedSizeWithEqualChances) {
  constexpr int kRuns = 4'000, kOffers = 20, kKept = 5;
  std::vector<int> kept(kOffers, 0);
  for (uint64_t seed = 0; seed < kRuns; ++seed) {
    ReplayQuality quality({.samples = kKept, .most_tokens = 10, .seed = seed});
    for (int32_t i = 0; i < kOffers; ++i) quality.offer(sample({9, i}, {-1}));
    EXPECT_EQ(quality.waiting(), size_t(kKept));
    while (quality.pending()) {
      EXPECT_TRUE(quality
                      .measure_one([&](std::span<const int32_t> ids, int64_t from) -> Result<TokenScores> {
                        ++kept[size_t(ids[size_t(from)])];
                        return TokenScores{{-1}, {}, {}};
                      })
                      .ok());
    }
  }
  // Binomial with p = 1/4: 4,000 runs have a standard deviation of 27; five of them either way.
  for (const int count : kept) EXPECT_NEAR(count, kRuns * kKept / kOffers, 137);
}

TEST(ReplayQuality, LongAnswersAreCountedNotKept) {
  ReplayQuality quality({.samples = 2, .most_tokens = 3, .seed = 1});
  quality.offer(sample({1, 2, 3, 4}, {-1}));
  EXPECT_FALSE(quality.pending());
  EXPECT_EQ(quality.too_long(), 1);
}

TEST(ReplayQuality, AnAnswerThatCannotBeScoredIsDropped) {
  ReplayQuality quality;
  quality.offer(sample({1, 2}, {-1}));
  const auto failed = quality.measure_one([](auto, int64_t) -> Result<TokenScores> {
    return Error{ErrorCode::failed, "no", "here", ""};
  });
  EXPECT_FALSE(failed.ok());
  EXPECT_FALSE(quality.pending());
  EXPECT_EQ(quality.of(ReplayCause::compact).answers, 0);
  EXPECT_TRUE(quality.measure_one({}).ok()) << "nothing waits";
}

TEST(ReplayQuality, CausesAreThoseOfTheModes) {
  EXPECT_EQ(replay_cause_of(ReplayMode::compact, false), ReplayCause::compact);
  EXPECT_EQ(replay_cause_of(ReplayMode::mask, false), ReplayCause::compact);
  EXPECT_EQ(replay_cause_of(ReplayMode::halo, false), ReplayCause::halo);
  EXPECT_EQ(replay_cause_of(ReplayMode::compact, true), ReplayCause::hit);
  EXPECT_EQ(replay_cause_of(ReplayMode::off, false), ReplayCause::off);
}

}  // namespace
}  // namespace fathom
