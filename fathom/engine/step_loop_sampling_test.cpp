// The loop on a model made of a hash: what requests ask of their sampling, and text that does not depend on drafts.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <random>

#include "fathom/engine/loop_under_test.h"

namespace fathom {
namespace {

// ----------------------------------------------------------------------------------------------------- transparent
Request transparent(uint32_t name, uint64_t seed) {
  Request request = greedy(name, 20 + name % 7, 60);
  request.sampling.temperature = 0.5f + 0.5f * float(name % 3);
  request.sampling.top_p = name % 2 ? 0.95f : 1;
  request.sampling.frequency_penalty = name % 5 == 0 ? 0.3f : 0;
  request.sampling.seed = seed;
  request.verification = Verification::transparent;
  return request;
}

TEST(StepLoop, TransparentRequestsAreRefusedWhereDraftsChangeBits) {
  Settings settings;
  settings.batch_invariant = false;
  Loop loop(settings);
  Request request = transparent(1, 5);
  const auto refused = loop.loop.submit(request);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::usage);
  EXPECT_THAT(to_string(refused.error()), testing::HasSubstr("batch_invariant"));
  request.verification = {};
  EXPECT_FALSE(loop.answer(request).ids.empty());
}

// same seed, same text with drafts off, fixed at every number, and of random number in every round.
TEST(StepLoop, TransparentTextDoesNotDependOnDrafts) {
  Settings settings;
  settings.sequences = 12;
  std::map<int, std::vector<std::vector<int32_t>>> texts;  // by number of drafts
  int64_t accepted = 0;
  for (const int drafts : {0, 1, 3, 5}) {
    settings.drafts = drafts;
    Loop loop(settings);
    std::vector<RequestId> ids;
    for (uint32_t i = 0; i < 12; ++i) ids.push_back(loop.submit(transparent(i, 1000 + i)));
    loop.finish();
    for (const RequestId id : ids) {
      texts[drafts].push_back(loop.answers[id].ids);
      accepted += loop.answers[id].finish->usage.accepted[0];
    }
  }
  EXPECT_GT(accepted, 100) << "drafts take part";
  for (const int drafts : {1, 3, 5}) EXPECT_EQ(texts[drafts], texts[0]) << drafts;

  FakeModel model(settings.shape);
  const auto queue = std::move(*reference_backend().open_queue(1));
  Runner runner(model.port(), reference_operations(), *queue);
  Scheduler scheduler(
      {.context = 1'000, .sequences = 12, .step_rows = 2'048, .blocks = 64, .shape = settings.shape.replay});
  std::map<SequenceId, LiveSequence> live;
  for (uint32_t i = 0; i < 12; ++i) {
    const Request request = transparent(i, 1000 + i);
    LiveSequence& one = live[i + 1];
    one.ids = request.ids;
    one.prompt_tokens = int64_t(request.ids.size());
    one.max_tokens = request.sampling.max_tokens;
    one.drafts = 5;
    one.sampler = make_sampler_state(request.sampling, 1000 + i, 1, request.ids, Verification::transparent);
    one.stop_ids = one.sampler.end_ids;
    Sequence sequence;
    sequence.id = i + 1;
    sequence.ids = request.ids;
    sequence.prompt_tokens = one.prompt_tokens;
    sequence.max_tokens = one.max_tokens;
    sequence.drafts = 5;
    sequence.mode = settings.replay;
    sequence.stop_ids = one.stop_ids;
    scheduler.submit(std::move(sequence));
  }
  std::mt19937 random(1);
  std::map<SequenceId, std::vector<int32_t>> varied;
  StepWork work;
  for (int steps = 0; !scheduler.idle() && steps < 10'000; ++steps) {
    work.clear();
    work.plan = scheduler.plan(0);
    for (size_t i = 0; i < work.plan.rows.size(); ++i) {
      Sequence& sequence = *scheduler.find(work.plan.rows[i].sequence);
      work.live.push_back(&live[sequence.id]);
      if (sequence.cached == 0)
        work.begins.push_back({i, sequence.prefill_tokens, 0, sequence.replay, sequence.cache.slot});
      const auto& blocks = sequence.cache.blocks;
      work.new_blocks.push_back({i, 0, blocks.size()});
      work.block_ids.insert(work.block_ids.end(), blocks.begin(), blocks.end());
    }
    work.policy = DraftPolicy(random() % 3);
    work.verify_rows = int(work.plan.rows.size() + random() % 50);
    runner.run(work);
    const auto outcomes = scheduler.commit(work.plan, work.result);
    for (size_t i = 0; i < outcomes.size(); ++i) {
      const auto kept = work.result.of(i).first(size_t(outcomes[i].kept));
      auto& text = varied[outcomes[i].sequence];
      text.insert(text.end(), kept.begin(), kept.end());
    }
  }
  for (uint32_t i = 0; i < 12; ++i) EXPECT_EQ(varied[i + 1], texts[0][i]) << i;
}

TEST(StepLoop, TransparentGreedyTextIsTheGreedyText) {
  Loop loop({});
  Request request = greedy(7, 30, 40);
  const auto plain = loop.answer(request).ids;
  request.verification = Verification::transparent;
  EXPECT_EQ(loop.answer(request).ids, plain);
}

// ---------------------------------------------------------------------------------------------------- other wishes
TEST(StepLoop, GoldenTokensForceTheAnswerAndTheRestIsFree) {
  for (const int drafts : {0, 5}) {
    for (const float temperature : {0.f, 1.f}) {
      Settings settings;
      settings.drafts = drafts;
      Loop loop(settings);
      Request request = greedy(37, 30, 20);
      request.sampling.temperature = temperature;
      request.sampling.ignore_eos = true;
      request.sampling.top_logprobs = 0;
      request.sampling.logprobs_of = LogprobsOf::sampled;
      request.sampling.golden_token_ids = {3, 9, -1, 5, 5, 5, 5, 2};
      const Answer& answer = loop.answer(request);
      ASSERT_EQ(answer.ids.size(), 20u);
      for (const size_t i : {0u, 1u, 3u, 4u, 5u, 6u, 7u}) {
        EXPECT_EQ(answer.ids[i], request.sampling.golden_token_ids[i]) << i;
      }
      ASSERT_EQ(answer.logprobs.size(), 20u);
      if (temperature == 0) {  // the third is what the model itself says after the two
        auto before = request.ids;
        before.insert(before.end(), {3, 9});
        EXPECT_EQ(answer.ids[2], loop.model.greedy(before, 1, -1)[0]);
        EXPECT_EQ(answer.logprobs[2].logprob, 0);  // of a greedy choice; a forced token may be one that never comes
      }
    }
  }
}

TEST(StepLoop, PromptAndAnswerStayWithinTheirTotal) {
  Loop loop({});
  Request request = greedy(41, 30, 500);
  request.sampling.ignore_eos = true;
  request.sampling.max_total_tokens = 42;
  const Answer& answer = loop.answer(request);
  EXPECT_EQ(answer.ids.size(), 12u);
  EXPECT_EQ(answer.finish->reason, FinishReason::length);
}

TEST(StepLoop, NoRequestDrawsATokenOfTheBlacklist) {
  Settings settings;
  FakeModel model(settings.shape);
  const auto queue = std::move(*reference_backend().open_queue(1));
  StepLoop loop(
      {.limits = {.context = 1'000, .sequences = 8, .step_rows = 2'048, .blocks = 64, .shape = settings.shape.replay},
       .replay = settings.replay,
       .drafts = 5,
       .eos_id = 1,
       .verification = Verification::rejection,
       .token_blacklist = {3, 4, 5, 6, 7}},
      model.port(), reference_operations(), *queue);
  for (uint32_t i = 0; i < 6; ++i) {
    Request request = greedy(50 + i, 30, 60);
    request.sampling.temperature = float(i % 3);
    request.sampling.ignore_eos = true;
    ASSERT_TRUE(loop.submit(request).ok());
  }
  int64_t tokens = 0;
  while (!loop.idle()) {
    for (const Event& event : loop.step()) {
      for (const int32_t id : event.ids) EXPECT_TRUE(id < 3 || id > 7) << id;
      tokens += int64_t(event.ids.size());
    }
  }
  EXPECT_EQ(tokens, 360);
}

// R-7, the other convention: with drafts the law of each token is that of the text before it.
TEST(StepLoop, SampledLogprobsBelongToTheirTokens) {
  for (const int drafts : {0, 5}) {
    Settings settings;
    settings.drafts = drafts;
    Loop loop(settings);
    Request request = greedy(29, 200, 20);
    request.sampling.temperature = 0.7f;
    request.sampling.top_k = 6;
    request.sampling.frequency_penalty = 0.4f;
    request.sampling.seed = 5;
    request.sampling.ignore_eos = true;
    request.sampling.top_logprobs = 3;
    request.sampling.logprobs_of = LogprobsOf::sampled;
    const Answer& answer = loop.answer(request);
    ASSERT_EQ(answer.logprobs.size(), 20u);
    Sampler alone(reference_operations(), *loop.queue, 17);
    SamplerState state = make_sampler_state(request.sampling, 5, 1, request.ids);
    std::vector<int32_t> text = request.ids;
    for (size_t i = 0; i < 20; ++i) {
      const TokenLogprob want =
          alone.sampled_logprob(loop.model.logits_after(text), state, {}, int64_t(i), answer.ids[i], 3);
      EXPECT_EQ(answer.logprobs[i].logprob, want.logprob) << i;
      EXPECT_EQ(answer.logprobs[i].top, want.top) << i;
      EXPECT_GT(want.logprob, kNever);
      count_token(state, answer.ids[i]);
      text.push_back(answer.ids[i]);
    }
  }
}

// engine.md 2.2: of an accepted draft, and of nothing else, the log-probability by the law that the draft was drawn
// from; here the whole softmax of the draft's logits, as the vocabulary is small. The same in both verifications.
TEST(StepLoop, AcceptedDraftsTellTheirOwnLogprob) {
  for (const auto verification : {Verification::rejection, Verification::transparent}) {
    for (const bool asynchronous : {false, true}) {
      Settings settings;
      settings.asynchronous = asynchronous;
      Loop loop(settings);
      Request request = greedy(31, 200, 60);
      request.sampling.temperature = 1;
      request.sampling.top_p = 1;
      request.sampling.seed = 6;
      request.sampling.ignore_eos = true;
      request.sampling.top_logprobs = 0;
      request.sampling.sum_smaller_probs = true;
      request.verification = verification;
      const Answer& answer = loop.answer(request);
      ASSERT_EQ(answer.logprobs.size(), 60u);
      int64_t told = 0, accepted = 0;
      uint64_t hash = FakeModel::hash_of(request.ids);
      for (const TokenLogprob& one : answer.logprobs) {
        EXPECT_GT(one.sum_smaller_probs, 0);
        EXPECT_LE(one.sum_smaller_probs, 1 + 1e-6f);
        if (one.nextn_logprob != kNoDraft) {
          ++told;
          std::vector<float> logits;
          for (int64_t token = 0; token < 17; ++token) logits.push_back(loop.model.draft_logit(hash, token));
          EXPECT_NEAR(one.nextn_logprob, logprob_of(logits, one.id, 0).logprob, 1e-5);
        }
        hash = FakeModel::extend(hash, one.id);
      }
      for (const int64_t count : answer.finish->usage.accepted) accepted += count;
      EXPECT_GT(told, 20);
      EXPECT_LE(told, accepted);
      EXPECT_GE(told, accepted - 5) << "those behind the limit are not emitted";
    }
  }
}

// 7.6 in the loop: the fake model's confidence is always 0.5; its drafts equal the target without noise, so that every
// estimated acceptance is 1 and every error 0.5, whatever was drawn.
TEST(StepLoop, TheConfidenceErrorIsTakenFromTheResidualMass) {
  Settings settings;
  settings.shape.draft_noise = 0;
  Metrics metrics;
  EngineStatistics statistics(metrics, nullptr);
  settings.statistics = &statistics;
  Loop loop(settings);
  Request request = greedy(33, 40, 50);
  request.sampling.temperature = 1;
  request.sampling.ignore_eos = true;
  loop.answer(request);
  const WindowReport report = statistics.report(1);
  EXPECT_GT(report.rounds, 5);
  EXPECT_NEAR(report.confidence_error, 0.5, 1e-6);  // 17 floors of 2^-31
  EXPECT_NEAR(report.acceptance_ratio, 1, 0.1);
}

}  // namespace
}  // namespace fathom
