// The loop on a model made of a hash (fake_model.h): one wrong row, block, position or rollback changes the text.
#include "fathom/engine/step_loop.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "fathom/backend/chi_square.h"
#include "fathom/engine/loop_under_test.h"

namespace fathom {
namespace {

// ------------------------------------------------------------------------------------------------------------- text
TEST(StepLoop, GreedyTextIsTheModelsAloneInABatchInPiecesWithAndWithoutDrafts) {
  const FakeModel plain({});
  for (const int64_t step_rows : {1, 7, 64, 2'048}) {
    for (const int companions : {0, 1, 3, 8}) {
      for (const int drafts : {0, 1, 5}) {
        Settings settings;
        settings.step_rows = step_rows;
        settings.drafts = drafts;
        Loop loop(settings);
        std::vector<std::pair<RequestId, std::vector<int32_t>>> want;
        for (int i = 0; i <= companions; ++i) {
          const Request request = greedy(uint32_t(100 + i), 20 + 53 * (i % 4), 40);
          want.push_back({loop.submit(request), plain.greedy(request.ids, 40, 1)});
          if (i % 2 == 1) loop.step();  // some come later than others
        }
        loop.finish();
        for (const auto& [id, ids] : want) {
          ASSERT_EQ(loop.answers[id].ids, ids) << step_rows << " rows, " << companions << " companions, " << drafts;
          const FinishReason reason = ids.back() == 1 ? FinishReason::stop : FinishReason::length;
          ASSERT_EQ(loop.answers[id].finish->reason, reason);
        }
      }
    }
  }
}

TEST(StepLoop, EveryReplayModeRunsTheSameRowsOfTheFakeModel) {
  const FakeModel plain({});
  for (const auto mode : {ReplayMode::off, ReplayMode::mask, ReplayMode::compact, ReplayMode::halo}) {
    Settings settings;
    settings.replay = mode;
    Loop loop(settings);
    const Request request = greedy(3, 300, 30);
    EXPECT_EQ(loop.answer(request).ids, plain.greedy(request.ids, 30, 1)) << name_of(mode);
  }
}

// Case spec-01: drafts that equal the target are all accepted, at every position.
TEST(StepLoop, PerfectDraftsGiveSixTokensARound) {
  Settings settings;
  settings.shape.draft_noise = 0;
  settings.shape.vocabulary = 300;  // so that the end of text does not come by chance
  Loop loop(settings);
  Request request = greedy(5, 40, 61);  // the prompt gives 1 token, then 10 rounds of 6
  request.sampling.ignore_eos = true;
  const Answer& answer = loop.answer(request);
  const Usage& usage = answer.finish->usage;
  EXPECT_EQ(usage.generated_tokens, 61);
  EXPECT_EQ(usage.rounds, 10);
  for (size_t i = 0; i < 5; ++i) {
    EXPECT_EQ(usage.offered[i], 10) << i;
    EXPECT_EQ(usage.accepted[i], 10) << i;
  }
  EXPECT_EQ(answer.events, 11);
}

TEST(StepLoop, ASampledRequestWithPerfectDraftsAcceptsThemAllToo) {
  Settings settings;
  settings.shape.draft_noise = 0;
  Loop loop(settings);
  Request request = greedy(5, 40, 61);
  request.sampling.temperature = 1;
  request.sampling.ignore_eos = true;
  request.sampling.seed = 9;
  const Usage usage = loop.answer(request).finish->usage;
  EXPECT_EQ(usage.rounds, 10);
  EXPECT_EQ(usage.accepted, usage.offered);
}

// Case spec-03: the same seed gives the same tokens, whatever runs beside it and however prompts are cut.
TEST(StepLoop, SeededRequestsRepeatThemselves) {
  std::vector<int32_t> first;
  for (const int neighbours : {0, 5, 13}) {
    for (const int64_t step_rows : {7, 2'048}) {
      Settings settings;
      settings.step_rows = step_rows;
      settings.sequences = 6;
      Loop loop(settings);
      for (int i = 0; i < neighbours; ++i) {
        Request other = greedy(uint32_t(50 + i + neighbours), 10 + 17 * i, 30);
        other.sampling.temperature = float(i % 3);
        loop.submit(other);
        if (i % 4 == 3) loop.step();
      }
      Request request = greedy(7, 60, 64);
      request.sampling.temperature = 1;
      request.sampling.seed = 42;
      const auto ids = loop.answer(request).ids;
      if (first.empty()) first = ids;
      EXPECT_EQ(ids, first) << neighbours << " neighbours, " << step_rows << " rows";
    }
  }
  Settings settings;
  Loop loop(settings);
  Request request = greedy(7, 60, 64);
  request.sampling.temperature = 1;
  request.sampling.seed = 43;
  EXPECT_NE(loop.answer(request).ids, first);
}

TEST(StepLoop, RequestsWithoutASeedDiffer) {
  Loop loop({});
  Request request = greedy(7, 20, 40);
  request.sampling.temperature = 1;
  request.sampling.ignore_eos = true;
  const auto first = loop.answer(request).ids;
  EXPECT_NE(loop.answer(request).ids, first);
}

// Penalties see the drafts before a row, so that text does not depend on drafts.
TEST(StepLoop, PenaltiesAndBiasGiveTheSameTextWithAndWithoutDrafts) {
  std::vector<std::vector<int32_t>> texts;
  for (const int drafts : {0, 1, 5}) {
    Settings settings;
    settings.drafts = drafts;
    settings.shape.draft_noise = 0.5f;
    Loop loop(settings);
    Request request = greedy(11, 30, 50);
    request.sampling.repetition_penalty = 1.4f;
    request.sampling.frequency_penalty = 0.2f;
    request.sampling.presence_penalty = 0.1f;
    request.sampling.logit_bias = {{4, 0.5f}, {6, -INFINITY}};
    request.sampling.min_tokens = 25;
    texts.push_back(loop.answer(request).ids);
    EXPECT_EQ(std::count(texts.back().begin(), texts.back().end(), 6), 0);
    EXPECT_GE(texts.back().size(), 25u);
    if (drafts > 0) {
      EXPECT_GT(loop.answers.begin()->second.finish->usage.accepted[0], 0);
    }
  }
  EXPECT_EQ(texts[1], texts[0]);
  EXPECT_EQ(texts[2], texts[0]);
}

// ------------------------------------------------------------------------------------------------------------- ends
TEST(StepLoop, TheAnswerEndsAtItsLimitAndAtTheContext) {
  for (const int drafts : {0, 5}) {
    for (int64_t most = 1; most <= 9; ++most) {
      Settings settings;
      settings.drafts = drafts;
      Loop loop(settings);
      Request request = greedy(13, 50, most);
      request.sampling.ignore_eos = true;
      const Answer& answer = loop.answer(request);
      EXPECT_EQ(int64_t(answer.ids.size()), most);
      EXPECT_EQ(answer.finish->reason, FinishReason::length);
    }
    Settings settings;
    settings.drafts = drafts;
    settings.context = 100;
    Loop loop(settings);
    Request request = greedy(13, 90, 0);  // 0: what fits
    request.sampling.ignore_eos = true;
    const Answer& answer = loop.answer(request);
    EXPECT_EQ(answer.ids.size(), 10u);
    EXPECT_EQ(answer.finish->reason, FinishReason::length);
  }
}

TEST(StepLoop, TokensBehindAStopTokenAreDropped) {
  Settings settings;
  settings.shape.draft_noise = 0;
  const FakeModel plain(settings.shape);
  Request request = greedy(17, 20, 40);
  request.sampling.ignore_eos = true;
  const auto text = plain.greedy(request.ids, 40, -1);
  for (size_t at = 0; at < 14; ++at) {  // inside the prompt's step and at each place of a round
    if (std::find(text.begin(), text.begin() + long(at), text[at]) != text.begin() + long(at)) continue;
    Loop loop(settings);
    request.sampling.stop_ids = {text[at]};
    const Answer& answer = loop.answer(request);
    EXPECT_EQ(answer.ids, std::vector<int32_t>(text.begin(), text.begin() + long(at) + 1));
    EXPECT_EQ(answer.finish->reason, FinishReason::stop);
    EXPECT_EQ(answer.finish->usage.generated_tokens, int64_t(at) + 1);
  }
}

TEST(StepLoop, CancelEndsARequestInEveryStateWithOneEvent) {
  Settings settings;
  settings.step_rows = 64;
  settings.sequences = 2;
  Loop loop(settings);
  Request request = greedy(19, 30, 500);
  request.sampling.ignore_eos = true;
  const RequestId decoding = loop.submit(request);
  request.ids = prompt_of(20, 300);
  const RequestId in_prompt = loop.submit(request), waiting = loop.submit(request), fresh = loop.submit(request);
  loop.step();
  loop.step();
  loop.loop.cancel(999);  // unknown
  for (const RequestId id : {waiting, in_prompt, decoding}) {
    loop.loop.cancel(id);
    loop.loop.cancel(id);  // twice is once
    EXPECT_FALSE(loop.loop.idle());
    loop.step();
    ASSERT_TRUE(loop.answers[id].finish) << "within one step (R-3)";
    EXPECT_EQ(loop.answers[id].finish->reason, FinishReason::cancelled);
  }
  EXPECT_GT(loop.answers[decoding].finish->usage.generated_tokens, 0);
  EXPECT_EQ(loop.answers[decoding].finish->usage.generated_tokens, int64_t(loop.answers[decoding].ids.size()));
  EXPECT_EQ(loop.answers[waiting].finish->usage.encoder_rows, 0);
  loop.finish();
  EXPECT_EQ(loop.answers[fresh].finish->reason, FinishReason::length);
  loop.loop.cancel(fresh);  // finished
  EXPECT_TRUE(loop.loop.idle());
  EXPECT_TRUE(loop.loop.step().empty());
  EXPECT_EQ(loop.loop.scheduler().pools().blocks.free_count(), settings.blocks);
}

TEST(StepLoop, AWrongRequestIsRefusedAndNothingIsQueued) {
  Loop loop({});
  Request request = greedy(21, 10, 5);
  request.ids[3] = 17;
  const auto result = loop.loop.submit(request);
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.error().where, "ids[3]");
  EXPECT_TRUE(loop.loop.idle());
}

// ------------------------------------------------------------------------------------------------- usage, logprobs
TEST(StepLoop, UsageCountsWhatWasComputed) {
  Settings settings;
  settings.step_rows = 64;
  Loop loop(settings);
  Request request = greedy(23, 150, 10);
  request.sampling.ignore_eos = true;
  const Answer& answer = loop.answer(request);
  const Usage& usage = answer.finish->usage;
  EXPECT_EQ(usage.prompt_tokens, 150);
  EXPECT_EQ(usage.generated_tokens, 10);
  EXPECT_EQ(usage.encoder_rows, 150);
  EXPECT_EQ(usage.decoder_rows, 44);  // K = W + 2 B = 32 + 12
  EXPECT_EQ(usage.cached_tokens, 0);
  int64_t accepted = 0;
  for (size_t i = 0; i < kMaxDrafts; ++i) {
    EXPECT_LE(usage.accepted[i], usage.offered[i]);
    if (i > 0) {
      EXPECT_LE(usage.accepted[i], usage.accepted[i - 1]);
    }
    accepted += usage.accepted[i];
  }
  EXPECT_EQ(accepted + (answer.events - 1) + 1, 10);  // one token beside the drafts each round, and the prompt's
  EXPECT_GE(usage.queue_seconds, 0);
  EXPECT_GE(usage.first_token_seconds, usage.queue_seconds);
  EXPECT_GE(usage.total_seconds, usage.first_token_seconds);
}

TEST(StepLoop, LogprobsBelongToTheirTokens) {
  const FakeModel plain({});
  for (const int drafts : {0, 5}) {
    Settings settings;
    settings.drafts = drafts;
    Loop loop(settings);
    Request request = greedy(29, 200, 20);
    request.sampling.top_logprobs = 2;
    const Answer& answer = loop.answer(request);
    ASSERT_EQ(answer.logprobs.size(), answer.ids.size());
    std::vector<int32_t> tokens = request.ids;
    for (size_t i = 0; i < answer.ids.size(); ++i) {
      const TokenLogprob want = logprob_of(plain.logits_after(tokens), answer.ids[i], 2);
      EXPECT_EQ(answer.logprobs[i].id, answer.ids[i]);
      EXPECT_EQ(answer.logprobs[i].logprob, want.logprob);
      EXPECT_EQ(answer.logprobs[i].top, want.top);
      tokens.push_back(answer.ids[i]);
    }
  }
}

TEST(StepLoop, PromptLogprobsComeWithTheFirstTokenAndForceEveryRow) {
  const FakeModel plain({});
  Settings settings;
  settings.step_rows = 64;
  Loop loop(settings);
  Request request = greedy(31, 150, 3);
  request.prompt_logprobs = true;
  const Answer& answer = loop.answer(request);
  ASSERT_EQ(answer.prompt_logprobs.size(), 149u);
  for (size_t i = 0; i < 149; ++i) {
    const std::vector<int32_t> before(request.ids.begin(), request.ids.begin() + long(i) + 1);
    EXPECT_EQ(answer.prompt_logprobs[i].id, request.ids[i + 1]);
    EXPECT_EQ(answer.prompt_logprobs[i].logprob, logprob_of(plain.logits_after(before), request.ids[i + 1], 0).logprob);
  }
  EXPECT_EQ(answer.finish->usage.decoder_rows, 150);
  EXPECT_TRUE(answer.logprobs.empty());  // not asked for
}

// ------------------------------------------------------------------------------------------------------------- law
// R-29 through the whole loop: the joint law of three tokens with drafts is that of plain sampling, for mixtures of
// settings. A million tokens in all. The exact law is the product of the integer laws of engine.md 8.1.
TEST(StepLoop, SampledTextWithDraftsHasTheTargetsLaw) {
  constexpr int64_t kVocabulary = 4, kRequests = 67'000;
  std::vector<Sampling> all(5);
  all[0].top_p = 1;
  all[1].temperature = 0.7f;
  all[1].top_p = 0.8f;
  all[2].top_k = 2;
  all[2].top_p = 1;
  all[3].min_p = 0.3f;
  all[4].temperature = 1.5f;
  all[4].top_k = 3;
  all[4].top_p = 0.9f;
  all[4].frequency_penalty = 0.8f;
  const size_t rejection = all.size();
  for (const size_t again : {0u, 4u}) all.push_back(all[again]);  // the same, transparent
  int64_t tokens = 0;
  for (size_t setting = 0; setting < all.size(); ++setting) {
    Settings settings;
    settings.shape = {.vocabulary = kVocabulary, .spread = 3, .draft_noise = 3};
    settings.sequences = 64;
    settings.blocks = 128;
    Loop loop(settings);
    const std::vector<int32_t> prompt = {2, 3, 0, int32_t(setting % 4)};

    std::vector<double> law(64, 0);
    for (int cell = 0; cell < 64; ++cell) {
      double chance = 1;
      std::vector<int32_t> text = prompt;
      SamplerState state = make_sampler_state(all[setting], 0, -1, {});
      state.end_ids.clear();
      for (const int32_t token : {cell / 16, cell / 4 % 4, cell % 4}) {
        auto logits = loop.model.logits_after(text);
        adjust_logits(logits, state, {}, int64_t(text.size() - prompt.size()));
        std::vector<uint32_t> row(kVocabulary);
        const RowSampling name{all[setting].temperature, all[setting].top_p, all[setting].min_p, all[setting].top_k};
        reference_operations().sample(*loop.queue, {View<const float, 2>(logits.data(), {1, kVocabulary}),
                                                    {&name, 1},
                                                    {},
                                                    View<uint32_t, 2>(row.data(), {1, kVocabulary})});
        chance *= double(row[size_t(token)]) / 0x1p31;
        text.push_back(token);
        count_token(state, token);
      }
      law[size_t(cell)] = chance;
    }

    std::vector<int64_t> seen(64, 0);
    std::map<RequestId, int> partial;
    int64_t submitted = 0, accepted = 0;
    while (submitted < kRequests || !loop.loop.idle()) {
      while (submitted < kRequests && loop.loop.scheduler().waiting() < 64) {
        Request request;
        request.ids = prompt;
        request.sampling = all[setting];
        if (setting >= rejection) request.verification = Verification::transparent;
        request.sampling.ignore_eos = true;
        request.sampling.seed = uint64_t(submitted++) * 0x9E3779B97F4A7C15u + setting;
        request.sampling.max_tokens = 6;  // long enough for a round of several drafts behind the first token
        ASSERT_TRUE(loop.loop.submit(std::move(request)).ok());
      }
      for (const Event& event : loop.loop.step()) {
        std::vector<int32_t>& ids = loop.answers[event.request].ids;
        ids.insert(ids.end(), event.ids.begin(), event.ids.end());
        if (!event.finish) continue;
        ++seen[size_t(ids[0] * 16 + ids[1] * 4 + ids[2])];
        tokens += 3;
        accepted += event.finish->usage.accepted[0];
        loop.answers.erase(event.request);
      }
    }
    EXPECT_GT(chi_square_p(seen, law), 0.001) << "setting " << setting;
    EXPECT_GT(accepted, kRequests / 4) << "drafts take part";
  }
  EXPECT_GE(tokens, 1'000'000);
}

// R-29 with varying lengths: how many drafts are verified follows confidences that depend on the drafts themselves, and
// the accepted text must not lean towards what the confidence head likes (7.3). Without seeds, which would verify all
// drafts; so the bound is one in a million, not in a thousand.
TEST(StepLoop, SampledTextWithScheduledDraftsHasTheTargetsLaw) {
  constexpr int64_t kVocabulary = 4, kRequests = 67'000;
  Settings settings;
  settings.shape = {.vocabulary = kVocabulary, .spread = 3, .draft_noise = 3, .vary_confidence = true};
  settings.sequences = 64;
  settings.blocks = 128;
  settings.curve = CostCurve{{1, 8}, {64, 10}, {384, 30}};  // a row is worth some drafts and not others
  Loop loop(settings);
  const std::vector<int32_t> prompt = {2, 3, 0, 1};
  std::vector<double> law(64, 0);
  for (int cell = 0; cell < 64; ++cell) {
    double chance = 1;
    std::vector<int32_t> text = prompt;
    for (const int32_t token : {cell / 16, cell / 4 % 4, cell % 4}) {
      chance *= std::exp(double(logprob_of(loop.model.logits_after(text), token, 0).logprob));
      text.push_back(token);
    }
    law[size_t(cell)] = chance;
  }
  std::vector<int64_t> seen(64, 0);
  int64_t submitted = 0;
  std::array<int64_t, kMaxDrafts> offered{};
  while (submitted < kRequests || !loop.loop.idle()) {
    while (submitted < kRequests && loop.loop.scheduler().waiting() < 64) {
      Request request;
      request.ids = prompt;
      request.sampling.top_p = 1;
      request.sampling.ignore_eos = true;
      request.sampling.max_tokens = 6;
      ASSERT_TRUE(loop.loop.submit(std::move(request)).ok());
      ++submitted;
    }
    for (const Event& event : loop.loop.step()) {
      std::vector<int32_t>& ids = loop.answers[event.request].ids;
      ids.insert(ids.end(), event.ids.begin(), event.ids.end());
      if (!event.finish) continue;
      ++seen[size_t(ids[0] * 16 + ids[1] * 4 + ids[2])];
      for (size_t k = 0; k < offered.size(); ++k) offered[k] += event.finish->usage.offered[k];
      loop.answers.erase(event.request);
    }
  }
  EXPECT_GT(chi_square_p(seen, law), 1e-6);
  EXPECT_GT(offered[0], kRequests / 4) << "drafts take part";
  EXPECT_LT(offered[3], offered[0]) << "and not all of them";
}

}  // namespace
}  // namespace fathom
