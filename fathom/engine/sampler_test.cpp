#include "fathom/engine/sampler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "fathom/backend/chi_square.h"
#include "fathom/base/philox.h"

namespace fathom {
namespace {

using testing::ElementsAre;

class SamplerTest : public testing::Test {
 protected:
  SamplerState state(Sampling settings, uint64_t seed = 1, std::span<const int32_t> prompt = {}) {
    return make_sampler_state(settings, seed, 1, prompt);
  }
  /// One token of each choice without drafts.
  std::vector<int32_t> choose(const std::vector<std::vector<float>>& rows, std::vector<Choice> choices) {
    const int64_t vocabulary = int64_t(rows[0].size());
    std::vector<float> flat;
    for (const auto& row : rows) flat.insert(flat.end(), row.begin(), row.end());
    Sampler sampler(reference_operations(), *queue_, vocabulary);
    std::vector<int32_t> tokens, begin;
    sampler.choose(View<const float, 2>(flat.data(), {int64_t(rows.size()), vocabulary}), choices, tokens, begin);
    return tokens;
  }
  std::unique_ptr<Queue> queue_ = std::move(*reference_backend().open_queue(1));
};

std::vector<TokenWeight> list_of(const std::vector<uint32_t>& law) {
  std::vector<TokenWeight> out;
  for (size_t id = 0; id < law.size(); ++id) {
    if (law[id] > 0) out.push_back({int32_t(id), law[id]});
  }
  return out;
}

Sampling greedy() {
  Sampling settings;
  settings.temperature = 0;
  return settings;
}

std::vector<float> adjusted(std::vector<float> logits, const SamplerState& state, std::vector<int32_t> assumed = {},
                            int64_t generated = 0) {
  adjust_logits(logits, state, assumed, generated);
  return logits;
}

TEST_F(SamplerTest, BiasComesBeforePenaltiesAndPenaltiesBeforeForbiddenEnds) {
  Sampling s;
  s.logit_bias = {{0, 2.f}, {3, -INFINITY}};
  s.repetition_penalty = 2;
  s.frequency_penalty = 0.5f;
  s.presence_penalty = 0.25f;
  s.min_tokens = 3;
  s.stop_ids = {4};
  const std::vector<int32_t> prompt = {0, 2};
  SamplerState at = state(s, 1, prompt);
  count_token(at, 5);
  count_token(at, 5);
  // 0: (1 + 2) / 2, in the prompt only; 1: the end of text; 2: -1 * 2; 3: forbidden; 4: a stop token;
  // 5: 1 / 2 - 2 * 0.5 - 0.25; 6: untouched.
  EXPECT_THAT(adjusted({1, 1, -1, 1, 1, 1, 1}, at, {}, 2),
              ElementsAre(1.5f, -INFINITY, -2.f, -INFINITY, -INFINITY, -0.75f, 1.f));
  EXPECT_THAT(adjusted({1, 1, -1, 1, 1, 1, 1}, at, {}, 3), ElementsAre(1.5f, 1.f, -2.f, -INFINITY, 1.f, -0.75f, 1.f));
}

TEST_F(SamplerTest, DraftsBeforeARowCountAsIfTheyWereThere) {
  Sampling s;
  s.frequency_penalty = 1;
  s.presence_penalty = 0.5f;
  s.min_tokens = 4;
  SamplerState assumed = state(s), real = state(s);
  count_token(assumed, 3);
  for (const int32_t token : {3, 3, 2, 3}) count_token(real, token);
  const std::vector<float> logits = {1, 2, 3, 4};
  EXPECT_EQ(adjusted(logits, assumed, {3, 2, 3}, 1), adjusted(logits, real, {}, 4));
  EXPECT_EQ(adjusted(logits, assumed, {3, 2}, 1)[1], -INFINITY);  // the third token may not end the answer
}

TEST_F(SamplerTest, ARequestThatWantsNothingLeavesItsLogitsAlone) {
  EXPECT_FALSE(needs_adjustment(state({}), 0));
  Sampling s;
  s.min_tokens = 2;
  EXPECT_TRUE(needs_adjustment(state(s), 1));
  EXPECT_FALSE(needs_adjustment(state(s), 2));
  s.ignore_eos = true;
  EXPECT_TRUE(state(s).end_ids.empty());
}

TEST_F(SamplerTest, LogprobsAreThoseOfTheRawLogits) {
  const std::vector<float> logits = {0, std::log(2.f), std::log(5.f), std::log(2.f)};  // 0.1, 0.2, 0.5, 0.2
  const TokenLogprob plain = logprob_of(logits, 3, 0);
  EXPECT_EQ(plain.id, 3);
  EXPECT_NEAR(plain.logprob, std::log(0.2), 1e-6);
  EXPECT_TRUE(plain.top.empty());
  const TokenLogprob best = logprob_of(logits, 0, 3);
  ASSERT_EQ(best.top.size(), 3u);
  EXPECT_EQ(best.top[0].first, 2);
  EXPECT_EQ(best.top[1].first, 1);  // the lower id of two equal ones
  EXPECT_EQ(best.top[2].first, 3);
  EXPECT_NEAR(best.top[0].second, std::log(0.5), 1e-6);
  EXPECT_EQ(logprob_of(logits, 0, 1000).top.size(), 4u);
}

std::vector<RowSampling> drawn;  // names that the operations of the next test were given

// Engine.md 8.2: the key is the seed (drafts: + 1,000,000,007), the position that of the token that is drawn.
TEST_F(SamplerTest, DrawsAreNamedBySeedAndPosition) {
  Operations ops = reference_operations();
  ops.sample = [](Queue& queue, const Sample& op) {
    drawn.insert(drawn.end(), op.rows.begin(), op.rows.end());
    reference_operations().sample(queue, op);
  };
  ops.accept = [](Queue& queue, const Accept& op) {
    drawn.insert(drawn.end(), op.rows.begin(), op.rows.end());
    reference_operations().accept(queue, op);
  };
  Sampler sampler(ops, *queue_, 3);
  SamplerState at = state({}, 5);
  std::vector<float> logits = {1, 2, 3, 3, 2, 1};
  std::vector<int32_t> drafts = {0}, tokens, begin;
  const Choice draft{&at, 0, {}, 40, 2};
  drawn.clear();
  sampler.propose(View<float, 2>(logits.data(), {1, 3}), {&draft, 1}, drafts);
  ASSERT_EQ(drawn.size(), 1u);
  EXPECT_EQ(drawn[0].seed, 1'000'000'012u);
  EXPECT_EQ(drawn[0].position, 40u);
  EXPECT_EQ(drawn[0].role, 0u);
  const Choice verify{&at, 0, drafts, 40, 2};
  drawn.clear();
  sampler.choose(View<const float, 2>(logits.data(), {2, 3}), {&verify, 1}, tokens, begin);
  ASSERT_EQ(drawn.size(), 4u);  // two rows drawn, the same two verified
  for (const size_t i : {0u, 1u, 2u, 3u}) {
    EXPECT_EQ(drawn[i].seed, 5u);
    EXPECT_EQ(drawn[i].position, 40 + i % 2);
  }
}

// Case num-04: settings must have the effect that they name. 100,000 draws each.
TEST_F(SamplerTest, SettingsChangeTheLawAsTheySay) {
  const std::vector<float> logits = {2, 1, 0, -1};
  const auto law = [&](double temperature) {
    std::vector<double> out;
    for (const float x : logits) out.push_back(std::exp(double(x) / temperature));
    return out;
  };
  struct Setting {
    float temperature, top_p;
    std::vector<double> want;
  };
  const Setting settings[] = {{1, 1, law(1)}, {0.5f, 1, law(0.5)}, {1, 0.6f, {1, 0, 0, 0}}, {0, 1, {1, 0, 0, 0}}};
  for (const Setting& setting : settings) {
    Sampling s;
    s.temperature = setting.temperature;
    s.top_p = setting.top_p;
    SamplerState at = state(s, 77);
    std::vector<int64_t> seen(4, 0);
    const std::vector<std::vector<float>> rows(1'000, logits);
    for (int64_t block = 0; block < 100; ++block) {
      std::vector<Choice> choices;
      for (int64_t i = 0; i < 1'000; ++i) choices.push_back({&at, i, {}, block * 1'000 + i, 0});
      for (const int32_t token : choose(rows, choices)) ++seen[size_t(token)];
    }
    EXPECT_GT(chi_square_p(seen, setting.want), 0.001) << setting.temperature << " " << setting.top_p;
  }
}

// Case spec-02: drafts of law q verified against targets of law p. The first two tokens that come out must be
// distributed as plain sampling from p, and the first draft is accepted with probability sum of min(p, q) = 0.6.
TEST_F(SamplerTest, DraftsKeepTheTargetsJointLaw) {
  const double p[2][3] = {{0.5, 0.3, 0.2}, {0.1, 0.1, 0.8}}, q[2][3] = {{0.2, 0.2, 0.6}, {0.8, 0.1, 0.1}};
  const auto logits_of = [](const double* law) {
    return std::vector<float>{float(std::log(law[0])), float(std::log(law[1])), float(std::log(law[2]))};
  };
  std::vector<float> target;
  for (const int row : {0, 1, 1}) {
    for (const float x : logits_of(p[row])) target.push_back(x);
  }
  Sampling s;
  s.top_p = 1;
  Sampler sampler(reference_operations(), *queue_, 3);
  constexpr int64_t kDraws = 200'000;
  std::vector<int64_t> seen(9, 0);
  int64_t accepted = 0;
  for (int64_t draw = 0; draw < kDraws; ++draw) {
    SamplerState at = state(s, uint64_t(draw) * 7919);
    std::vector<int32_t> drafts, tokens, begin;
    for (int step = 0; step < 2; ++step) {
      std::vector<float> logits = logits_of(q[step]);
      const Choice choice{&at, 0, drafts, 10 + step, 0};
      int32_t id = -1;
      sampler.propose(View<float, 2>(logits.data(), {1, 3}), {&choice, 1}, {&id, 1});
      drafts.push_back(id);
    }
    const Choice verify{&at, 0, drafts, 10, 0};
    sampler.choose(View<const float, 2>(target.data(), {3, 3}), {&verify, 1}, tokens, begin);
    ASSERT_LE(tokens.size(), 3u);
    accepted += tokens.size() >= 2 || tokens[0] == drafts[0];
    if (tokens.size() == 1) {  // the next round begins with the second token
      const Choice next{&at, 1, {}, 11, 1};
      sampler.choose(View<const float, 2>(target.data(), {3, 3}), {&next, 1}, tokens, begin);
    }
    ++seen[size_t(tokens[0] * 3 + tokens[1])];
  }
  std::vector<double> law;
  for (const double a : p[0]) {
    for (const double b : p[1]) law.push_back(a * b);
  }
  EXPECT_GT(chi_square_p(seen, law), 0.001);
  EXPECT_NEAR(double(accepted) / kDraws, 0.6, 0.01);
}

// A greedy draft is accepted by comparison. It must come to what rejection sampling of one-point laws comes to.
TEST_F(SamplerTest, GreedyComparisonEqualsRejectionSampling) {
  const std::vector<std::vector<float>> rows = {{1, 3, 2}, {5, 1, 2}, {0, 1, 7}};  // 1, 0, 2
  std::vector<float> flat;
  for (const auto& row : rows) flat.insert(flat.end(), row.begin(), row.end());
  const View<const float, 2> logits(flat.data(), {3, 3});
  for (int32_t first = 0; first < 3; ++first) {
    for (int32_t second = 0; second < 3; ++second) {
      const std::vector<int32_t> drafts = {first, second};
      SamplerState at = state(greedy());
      const Choice choice{&at, 0, drafts, 4, 0};
      Sampler sampler(reference_operations(), *queue_, 3);
      std::vector<int32_t> tokens, begin;
      sampler.choose(logits, {&choice, 1}, tokens, begin);

      std::vector<RowSampling> names(3);
      for (uint32_t i = 0; i < 3; ++i) names[i] = {.temperature = 0, .seed = 1, .position = 4 + i};
      std::vector<int32_t> ids(3), draft_ids = {first, second, -1}, range = {0, 3}, accepted(1), next(1);
      std::vector<uint32_t> laws(9);
      const std::vector<TokenWeight> draft_laws = {{first, 1u << 31}, {second, 1u << 31}};
      const std::vector<int32_t> draft_begin = {0, 1, 2, 2};
      const Operations ops = reference_operations();
      ops.sample(*queue_, {logits, names, View<int32_t, 1>(ids.data(), {3}), View<uint32_t, 2>(laws.data(), {3, 3})});
      ops.accept(*queue_,
                 {View<const int32_t, 1>(range.data(), {2}), View<const uint32_t, 2>(laws.data(), {3, 3}),
                  View<const int32_t, 1>(ids.data(), {3}), View<const int32_t, 1>(draft_ids.data(), {3}),
                  View<const int32_t, 1>(draft_begin.data(), {4}), View<const TokenWeight, 1>(draft_laws.data(), {2}),
                  names, View<int32_t, 1>(accepted.data(), {1}), View<int32_t, 1>(next.data(), {1})});
      std::vector<int32_t> want(drafts.begin(), drafts.begin() + accepted[0]);
      want.push_back(next[0]);
      EXPECT_EQ(tokens, want) << first << " " << second;
    }
  }
}

// the law of a draft is cut before it is drawn, so what is kept is the law it was drawn from, to the last bit.
// With a vocabulary of 2,400 the best 299 stay; the emitted token still has the target's law although the target
// reaches beyond them.
TEST_F(SamplerTest, ACutDraftLawKeepsTheTargetsLawExactly) {
  constexpr int64_t kVocabulary = 2'400, kDraws = 12'000;
  ASSERT_EQ(most_draft_tokens(kVocabulary), 299);
  std::vector<float> target(kVocabulary), draft(kVocabulary);
  for (uint32_t v = 0; v < kVocabulary; ++v) {
    target[v] = float(philox(1, {v, 0, 0, 0})[0]) * 0x1p-30f;
    draft[v] = target[v] + float(philox(2, {v, 0, 0, 0})[0]) * 0x1p-31f;
  }
  Sampling s;
  s.top_p = 1;
  Sampler sampler(reference_operations(), *queue_, kVocabulary);
  std::vector<float> rows(target);
  rows.insert(rows.end(), target.begin(), target.end());
  std::vector<int64_t> seen(24, 0);  // tokens in groups of a hundred
  std::vector<double> law(24, 0);
  for (size_t v = 0; v < size_t(kVocabulary); ++v) law[v / 100] += std::exp(double(target[v]));
  int64_t accepted = 0;
  for (int64_t draw = 0; draw < kDraws / 100; ++draw) {  // 100 sequences at once
    std::vector<SamplerState> states;
    std::vector<Choice> choices;
    std::vector<float> logits, both;
    std::vector<int32_t> ids(100, -1), tokens, begin;
    for (int64_t i = 0; i < 100; ++i) states.push_back(state(s, uint64_t(draw * 100 + i)));
    for (int64_t i = 0; i < 100; ++i) {
      choices.push_back({&states[size_t(i)], 0, {}, 10, 0});
      logits.insert(logits.end(), draft.begin(), draft.end());
    }
    sampler.propose(View<float, 2>(logits.data(), {100, kVocabulary}), choices, ids);
    for (int64_t i = 0; i < 100; ++i) {
      const DraftLaws& kept = states[size_t(i)].draft_laws;
      ASSERT_EQ(kept.rows(), 1);
      ASSERT_EQ(kept.tokens.size(), 299u);
      ASSERT_LE(kept.bytes(), 299 * 8 + 8);
      choices[size_t(i)].drafts = std::span(ids).subspan(size_t(i), 1);
    }
    sampler.choose(View<const float, 2>(rows.data(), {2, kVocabulary}), choices, tokens, begin);
    for (size_t i = 0; i < 100; ++i) {
      const size_t first = i == 0 ? 0 : size_t(begin[i - 1]);
      ++seen[size_t(tokens[first] / 100)];
      accepted += size_t(begin[i]) - first == 2;
    }
  }
  EXPECT_GT(chi_square_p(seen, law), 0.001);
  EXPECT_GT(accepted, kDraws / 10);
  EXPECT_LT(accepted, kDraws / 2);
}

// R-27 in bytes: five rows of the model's vocabulary, the widest laws there are.
TEST(DraftLaws, TakeAtMostAQuarterOfFloats) {
  constexpr int64_t kVocabulary = 129'280;
  const std::vector<uint32_t> cut = [] {
    std::vector<uint32_t> law(kVocabulary, 0);
    for (int64_t i = 0; i < most_draft_tokens(kVocabulary); ++i) law[size_t(i * 8)] = uint32_t(i + 1);
    return law;
  }();
  DraftLaws laws;
  for (int round = 0; round < 3; ++round) {
    laws.clear();
    for (int i = 0; i < 5; ++i) laws.append(list_of(cut));
    EXPECT_LE(laws.bytes(), 5 * kVocabulary * 4 / 4);
    ASSERT_EQ(laws.rows(), 5);
    EXPECT_EQ(laws.row(4)[1], (TokenWeight{8, 2}));
  }
}

// draft and target run the same race, so equal logits give equal tokens; and no law is kept.
TEST_F(SamplerTest, ATransparentDraftIsAcceptedIffItIsTheTargetsOwnToken) {
  Sampling s;
  s.top_p = 1;
  Sampler sampler(reference_operations(), *queue_, 3);
  const std::vector<float> flat = {1, 0, 1, 0, 1, 1};
  for (uint64_t seed = 0; seed < 200; ++seed) {
    SamplerState at = make_sampler_state(s, seed, 1, {}, Verification::transparent);
    const View<const float, 2> target(flat.data(), {2, 3});
    std::vector<int32_t> own, begin;
    for (int64_t row = 0; row < 2; ++row) {
      const Choice plain{&at, row, {}, 40 + row, 0};
      sampler.choose(target, {&plain, 1}, own, begin);
    }
    std::vector<float> same(flat.begin(), flat.begin() + 3);
    std::vector<int32_t> drafts = {-1};
    const Choice draft{&at, 0, {}, 40, 0};
    sampler.propose(View<float, 2>(same.data(), {1, 3}), {&draft, 1}, drafts);
    EXPECT_EQ(drafts[0], own[0]);
    EXPECT_EQ(at.draft_laws.rows(), 0);
    for (int32_t guess = 0; guess < 3; ++guess) {
      std::vector<int32_t> tokens, ends;
      const Choice verify{&at, 0, {&guess, 1}, 40, 0};
      sampler.choose(target, {&verify, 1}, tokens, ends);
      EXPECT_EQ(tokens, guess == own[0] ? own : std::vector<int32_t>{own[0]});
    }
  }
}

// bias and penalties, then the process's blacklist, then forbidden ends. Nothing brings a forbidden token back.
TEST_F(SamplerTest, TheBlacklistForbidsWhateverTheBiasSays) {
  Sampling s;
  s.logit_bias = {{2, 100.f}};
  s.first_n_token_no_eos = 2;
  const std::vector<int32_t> blacklist = {0, 2};
  const SamplerState at = make_sampler_state(s, 1, 1, {}, Verification::rejection, blacklist);
  EXPECT_THAT(adjusted({1, 1, 1, 1}, at, {}, 0), ElementsAre(-INFINITY, -INFINITY, -INFINITY, 1.f));
  EXPECT_THAT(adjusted({1, 1, 1, 1}, at, {3}, 1), ElementsAre(-INFINITY, 1.f, -INFINITY, 1.f));  // the third token
  const SamplerState only = make_sampler_state({}, 1, 1, {}, Verification::rejection, blacklist);
  EXPECT_TRUE(needs_adjustment(only, 1'000));
}

// first_n_token_no_eos forbids the end of text only, min_tokens also stop tokens; both hold when the end is ignored.
TEST_F(SamplerTest, TheFirstTokensMayStopButNotEnd) {
  Sampling s;
  s.first_n_token_no_eos = 1;
  s.stop_ids = {2};
  EXPECT_THAT(adjusted({1, 1, 1}, state(s)), ElementsAre(1.f, -INFINITY, 1.f));
  s.ignore_eos = true;
  EXPECT_THAT(adjusted({1, 1, 1}, state(s)), ElementsAre(1.f, -INFINITY, 1.f));
  EXPECT_FALSE(needs_adjustment(state(s), 1));
}

// Teacher forcing: whatever logits, temperature, verification and bias say. A draft is accepted iff it is the token.
TEST_F(SamplerTest, GoldenTokensReplaceTheDraw) {
  const std::vector<float> flat = {1, 3, 2, 5, 1, 2, 0, 1, 7};
  const View<const float, 2> logits(flat.data(), {3, 3});
  for (const float temperature : {0.f, 1.f}) {
    for (const auto verification : {Verification::rejection, Verification::transparent}) {
      for (int32_t first = 0; first < 3; ++first) {
        for (int32_t second = 0; second < 3; ++second) {
          Sampling s;
          s.temperature = temperature;
          s.logit_bias = {{2, -INFINITY}};
          s.golden_token_ids = {-1, 2, 0, 2};
          SamplerState at = make_sampler_state(s, 3, 1, {}, verification);
          for (int row = 0; row < 2; ++row) at.draft_laws.append(list_of({7, 9, 11}));
          const std::vector<int32_t> drafts = {first, second};
          const Choice choice{&at, 0, drafts, 4, 1};  // tokens 1, 2 and 3 of the answer
          Sampler sampler(reference_operations(), *queue_, 3);
          std::vector<int32_t> tokens, begin, want = {2, 0, 2};
          sampler.choose(logits, {&choice, 1}, tokens, begin);
          want.resize(first != 2 ? 1 : second != 0 ? 2 : 3);
          EXPECT_EQ(tokens, want) << first << " " << second;
        }
      }
    }
  }
}

// the law that was drawn from, after bias, temperature and filters.
TEST_F(SamplerTest, SampledLogprobsAreThoseOfTheLawDrawnFrom) {
  Sampler sampler(reference_operations(), *queue_, 4);
  const std::vector<float> logits = {std::log(4.f), std::log(2.f), std::log(1.f), 0};
  Sampling s;
  s.top_p = 1;
  s.top_k = 2;
  s.temperature = 0.5f;  // 16 : 4
  s.logit_bias = {{3, -INFINITY}};
  const TokenLogprob got = sampler.sampled_logprob(logits, state(s), {}, 0, 1, 4);
  EXPECT_NEAR(got.logprob, std::log(0.2), 1e-6);
  ASSERT_EQ(got.top.size(), 2u) << "only what can be drawn";
  EXPECT_EQ(got.top[0].first, 0);
  EXPECT_NEAR(got.top[0].second, std::log(0.8), 1e-6);
  EXPECT_EQ(sampler.sampled_logprob(logits, state(s), {}, 0, 2, 0).logprob, kNever);
  EXPECT_EQ(sampler.sampled_logprob(logits, state(greedy()), {}, 0, 0, 0).logprob, 0.f);
}

// engine.md 2.2: the total probability of tokens ranked at or below the chosen one, by either convention of R-7. The
// four tokens have 4, 2, 2 and 1 of 9; of the two equal ones the lower id ranks higher.
TEST_F(SamplerTest, SumSmallerProbsCountsWhatRanksAtOrBelowTheToken) {
  const std::vector<float> logits = {std::log(2.f), std::log(4.f), std::log(2.f), 0};
  const double raw[] = {5. / 9, 1, 3. / 9, 1. / 9};
  const double law[] = {4. / 20, 1, 0, 0};  // top-k 2 at temperature 0.5: 16 and 4
  Sampler sampler(reference_operations(), *queue_, 4);
  Sampling s;
  s.top_p = 1;
  s.top_k = 2;
  s.temperature = 0.5f;
  for (int32_t id = 0; id < 4; ++id) {
    EXPECT_NEAR(logprob_of(logits, id, 0, true).sum_smaller_probs, raw[id], 1e-6) << id;
    EXPECT_NEAR(sampler.sampled_logprob(logits, state(s), {}, 0, id, 0, true).sum_smaller_probs, law[id], 1e-6) << id;
    EXPECT_EQ(logprob_of(logits, id, 4).sum_smaller_probs, -1) << "off";
    EXPECT_EQ(sampler.sampled_logprob(logits, state(s), {}, 0, id, 4).sum_smaller_probs, -1);
  }
}

// engine.md 7.6: 1 - the mass of max(q - p, 0), of every verified draft, those behind a refused one too. Laws are
// floor(p * 2^31): at most 7 / 2^31 is lost, and float has 2^-24.
TEST_F(SamplerTest, TheAcceptanceOfADraftIsOneMinusItsResidualMass) {
  constexpr size_t kVocabulary = 7, kDrafts = 3;
  std::vector<float> target, draft;
  for (uint32_t i = 0; i < kVocabulary * (kDrafts + 1); ++i) {
    target.push_back(float(philox(5, {i, 0, 0, 0})[0]) * 0x1p-30f);
    draft.push_back(target.back() + float(philox(6, {i, 0, 0, 0})[0]) * 0x1p-30f);
  }
  const auto law_of = [](const std::vector<float>& logits, size_t row) {
    std::vector<double> law;
    for (size_t v = 0; v < kVocabulary; ++v) law.push_back(std::exp(double(logits[row * kVocabulary + v])));
    const double sum = std::accumulate(law.begin(), law.end(), 0.);
    for (double& p : law) p /= sum;
    return law;
  };
  Sampling s;
  s.top_p = 1;
  for (uint64_t seed = 0; seed < 20; ++seed) {
    SamplerState at = state(s, seed);
    Sampler sampler(reference_operations(), *queue_, kVocabulary);
    std::vector<int32_t> drafts;
    for (size_t k = 0; k < kDrafts; ++k) {
      std::vector<float> logits(draft.begin() + ptrdiff_t(k * kVocabulary),
                                draft.begin() + ptrdiff_t((k + 1) * kVocabulary));
      std::vector<int32_t> id = {-1};
      const Choice choice{.state = &at, .drafts = drafts, .position = 10 + int64_t(k)};
      sampler.propose(View<float, 2>(logits.data(), {1, int64_t(kVocabulary)}), {&choice, 1}, id);
      drafts.push_back(id[0]);
    }
    std::array<float, kDrafts> acceptance{};
    const Choice choice{.state = &at, .drafts = drafts, .position = 10, .acceptance = acceptance};
    std::vector<int32_t> tokens, begin;
    sampler.choose(View<const float, 2>(target.data(), {int64_t(kDrafts) + 1, int64_t(kVocabulary)}), {&choice, 1},
                   tokens, begin);
    for (size_t k = 0; k < kDrafts; ++k) {
      const auto q = law_of(target, k), p = law_of(draft, k);
      double residual = 0;
      for (size_t v = 0; v < kVocabulary; ++v) residual += std::max(q[v] - p[v], 0.);
      EXPECT_NEAR(acceptance[k], 1 - residual, 7 * 0x1p-31 + 0x1p-24) << seed << " " << k;
    }
  }
}

// A greedy request has laws of one token: nothing or all of it is residual. A transparent one keeps no laws.
TEST_F(SamplerTest, WithoutLawsTheAcceptanceIsWhetherTheDraftIsTheTargetsToken) {
  const std::vector<float> flat = {1, 3, 2, 5, 1, 2, 0, 1, 7, 0, 9, 0};  // 1, 0, 2, 1
  const std::vector<int32_t> drafts = {1, 2, 2};
  std::array<float, 3> acceptance{};
  SamplerState at = state(greedy());
  const Choice choice{.state = &at, .drafts = drafts, .position = 4, .acceptance = acceptance};
  Sampler sampler(reference_operations(), *queue_, 3);
  std::vector<int32_t> tokens, begin;
  sampler.choose(View<const float, 2>(flat.data(), {4, 3}), {&choice, 1}, tokens, begin);
  EXPECT_THAT(tokens, ElementsAre(1, 0));
  EXPECT_THAT(acceptance, ElementsAre(1, 0, 1)) << "the third would be accepted if the second were";
}

// engine.md 2.2, nextn_logprob: by the law that the draft was drawn from, after its filters.
TEST_F(SamplerTest, ADraftTellsItsOwnLogprob) {
  const std::vector<float> given = {std::log(4.f), std::log(2.f), 0, std::log(3.f)};
  Sampling s;
  s.top_p = 1;
  s.top_k = 2;
  for (const auto verification : {Verification::rejection, Verification::transparent}) {
    for (uint64_t seed = 0; seed < 20; ++seed) {
      SamplerState at = make_sampler_state(s, seed, 1, {}, verification);
      Sampler sampler(reference_operations(), *queue_, 4);
      std::vector<float> logits = given;
      std::vector<int32_t> id = {-1};
      float logprob = kNoDraft;
      const Choice choice{.state = &at, .position = 3, .logprob = &logprob};
      sampler.propose(View<float, 2>(logits.data(), {1, 4}), {&choice, 1}, id);
      ASSERT_TRUE(id[0] == 0 || id[0] == 3) << "top-k 2";
      EXPECT_NEAR(logprob, std::log(id[0] == 0 ? 4. / 7 : 3. / 7), 1e-6);
      EXPECT_EQ(at.draft_laws.rows(), verification == Verification::rejection ? 1 : 0);
      // Whether it is told does not change what is drawn.
      std::vector<int32_t> again = {-1};
      SamplerState other = make_sampler_state(s, seed, 1, {}, verification);
      const Choice silent{.state = &other, .position = 3};
      logits = given;
      sampler.propose(View<float, 2>(logits.data(), {1, 4}), {&silent, 1}, again);
      EXPECT_EQ(again, id);
    }
  }
  SamplerState at = state(greedy());
  float logprob = kNoDraft;
  std::vector<int32_t> id = {-1};
  std::vector<float> logits = given;
  const Choice choice{.state = &at, .position = 3, .logprob = &logprob};
  Sampler(reference_operations(), *queue_, 4).propose(View<float, 2>(logits.data(), {1, 4}), {&choice, 1}, id);
  EXPECT_EQ(id[0], 0);
  EXPECT_EQ(logprob, 0);
}

// Greedy and sampled, changed and unchanged, with drafts and without: each chooses what it chooses alone.
TEST_F(SamplerTest, ACompanionChangesNothing) {
  Sampling sampled, biased, penalised = greedy();
  biased.logit_bias = {{2, 1.5f}};
  penalised.repetition_penalty = 1.3f;
  const std::vector<int32_t> prompt = {0, 4}, drafts = {2, 3};
  std::vector<SamplerState> states = {state(greedy(), 1), state(sampled, 2), state(biased, 3),
                                      state(penalised, 4, prompt), state(sampled, 5)};
  std::vector<std::vector<float>> rows;
  for (int r = 0; r < 11; ++r) {
    rows.push_back({});
    for (int v = 0; v < 5; ++v) rows.back().push_back(float((r * 7 + v * 3) % 11) / 3);
  }
  for (const size_t with_law : {2u, 4u}) {
    for (int row = 0; row < 2; ++row) {
      states[with_law].draft_laws.append(list_of({1u << 29, 1u << 28, 1u << 30, 1u << 27, 0u}));
    }
  }
  // Rows 0; 1; 2-4; 5-7; 8-10.
  std::vector<Choice> choices = {{&states[0], 0, {}, 7, 0},
                                 {&states[1], 1, {}, 9, 3},
                                 {&states[2], 2, drafts, 5, 1},
                                 {&states[3], 5, drafts, 6, 2},
                                 {&states[4], 8, drafts, 8, 2}};
  std::vector<int32_t> alone;
  for (const Choice& choice : choices) {
    for (const int32_t token : choose(rows, {choice})) alone.push_back(token);
  }
  EXPECT_EQ(choose(rows, choices), alone);
}

}  // namespace
}  // namespace fathom
