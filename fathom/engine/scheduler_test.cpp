// The scheduler alone: results are made up, no model runs.
#include "fathom/engine/scheduler.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <set>

namespace fathom {
namespace {

Sequence sequence_of(SequenceId id, int64_t prompt, int64_t max_tokens, int drafts = 0) {
  Sequence sequence;
  sequence.id = id;
  sequence.ids.assign(size_t(prompt), 3);
  sequence.prompt_tokens = prompt;
  sequence.max_tokens = max_tokens;
  sequence.stop_ids = {1};
  sequence.drafts = drafts;
  return sequence;
}

// Every entry that asks for a token gets `token`, and `accepted` of its drafts before it.
StepResult answer(const StepPlan& plan, Scheduler& scheduler, int32_t token, int accepted = 0) {
  StepResult result;
  result.begin = {0};
  for (const StepPlan::Rows& rows : plan.rows) {
    const Sequence& sequence = *scheduler.find(rows.sequence);
    if (rows.first + rows.count >= sequence.prompt_tokens) {
      for (int i = 0; i < std::min(accepted, rows.drafts); ++i) result.tokens.push_back(sequence.proposed[size_t(i)]);
      result.tokens.push_back(token);
    }
    result.begin.push_back(int32_t(result.tokens.size()));
  }
  return result;
}

SchedulerLimits limits_of(int sequences, int64_t step_rows, int32_t blocks) {
  return {.context = 10'000, .sequences = sequences, .step_rows = step_rows, .blocks = blocks};
}

TEST(Scheduler, DecodeRowsComeFirstAndPromptPiecesFillTheBudget) {
  Scheduler scheduler(limits_of(4, 100, 64));
  scheduler.submit(sequence_of(1, 30, 10, 2));
  scheduler.commit(scheduler.plan(), answer(scheduler.plan(), scheduler, 5));
  scheduler.find(1)->proposed = {7, 8};
  scheduler.submit(sequence_of(2, 250, 10));
  scheduler.submit(sequence_of(3, 20, 10));
  StepPlan want;
  want.rows = {{1, 30, 3, 3, 2, 3}, {2, 0, 100, 100, 0, 0}};
  EXPECT_EQ(scheduler.plan(), want) << to_string(scheduler.plan());
  scheduler.commit(want, answer(want, scheduler, 5, 1));
  EXPECT_EQ(scheduler.find(1)->cached, 32);  // the newest token and one draft
  want.rows = {{1, 32, 1, 1, 0, 1}, {2, 100, 100, 100, 0, 0}};
  EXPECT_EQ(scheduler.plan(), want) << to_string(scheduler.plan());
  scheduler.commit(want, answer(want, scheduler, 5));
  want.rows = {{1, 33, 1, 1, 0, 1}, {2, 200, 50, 50, 0, 1}, {3, 0, 20, 20, 0, 1}};
  EXPECT_EQ(scheduler.plan(), want) << to_string(scheduler.plan());
}

TEST(Scheduler, OnlyTheLastRowsOfAPromptRunTheDecoder) {
  Scheduler scheduler(limits_of(1, 100, 64));
  Sequence sequence = sequence_of(1, 250, 10);
  sequence.replay = plan_replay({32, 6, 4, 4}, ReplayMode::compact, 250);  // K = 44: from row 206 on
  scheduler.submit(std::move(sequence));
  for (const auto& [decoder, logits] : {std::pair{0, 0}, {0, 0}, {44, 1}}) {
    const StepPlan plan = scheduler.plan();
    EXPECT_EQ(plan.rows[0].decoder_count, decoder);
    EXPECT_EQ(plan.rows[0].logit_rows, logits);
    scheduler.commit(plan, answer(plan, scheduler, 5));
  }
}

TEST(Scheduler, PiecesOfAnySizeCoverAPromptOnce) {
  for (int64_t rows = 1; rows <= 130; ++rows) {
    Scheduler scheduler(limits_of(3, rows, 64));
    for (SequenceId id = 1; id <= 3; ++id) scheduler.submit(sequence_of(id, 40 * int64_t(id), 1));
    std::map<SequenceId, int64_t> covered;
    int64_t total = 0;
    while (!scheduler.idle()) {
      const StepPlan plan = scheduler.plan();
      int64_t used = 0;
      for (const StepPlan::Rows& piece : plan.rows) {
        ASSERT_EQ(piece.first, covered[piece.sequence]);
        covered[piece.sequence] += piece.count;
        used += piece.count;
      }
      total += used;
      ASSERT_TRUE(used == rows || total == 240) << "a step before the last is full";
      scheduler.commit(plan, answer(plan, scheduler, 5));
    }
    for (SequenceId id = 1; id <= 3; ++id) ASSERT_EQ(covered[id], 40 * int64_t(id));
  }
}

TEST(Scheduler, PromptsWhoseEveryLogitIsWantedGoInSmallerPieces) {
  SchedulerLimits limits = limits_of(2, 1'000, 64);
  limits.prompt_logit_rows = 64;
  Scheduler scheduler(limits);
  Sequence sequence = sequence_of(1, 200, 1);
  sequence.prompt_logits = true;
  scheduler.submit(std::move(sequence));
  scheduler.submit(sequence_of(2, 300, 1));
  StepPlan want;
  want.rows = {{1, 0, 64, 64, 0, 64}, {2, 0, 300, 300, 0, 1}};
  EXPECT_EQ(scheduler.plan(), want) << to_string(scheduler.plan());
}

TEST(Scheduler, AStopTokenEndsTheAnswerAndDropsWhatFollows) {
  Scheduler scheduler(limits_of(1, 100, 64));
  scheduler.submit(sequence_of(1, 10, 20, 3));
  scheduler.commit(scheduler.plan(), answer(scheduler.plan(), scheduler, 5));
  scheduler.find(1)->proposed = {6, 1, 7};
  const StepPlan plan = scheduler.plan();
  const auto outcomes = scheduler.commit(plan, answer(plan, scheduler, 8, 3));
  ASSERT_EQ(outcomes.size(), 1u);
  EXPECT_EQ(outcomes[0].kept, 2);
  EXPECT_EQ(outcomes[0].finish, FinishReason::stop);
  EXPECT_TRUE(scheduler.idle());
  EXPECT_EQ(scheduler.pools().blocks.free_count(), 64);
}

TEST(Scheduler, TheLimitEndsTheAnswerAndDraftsShrinkBeforeIt) {
  Scheduler scheduler(limits_of(1, 100, 64));
  scheduler.submit(sequence_of(1, 10, 4, 5));
  EXPECT_EQ(drafts_for(*scheduler.find(1)), 3);
  scheduler.commit(scheduler.plan(), answer(scheduler.plan(), scheduler, 5));
  EXPECT_EQ(drafts_for(*scheduler.find(1)), 2);
  scheduler.find(1)->proposed = {6, 6};
  const StepPlan plan = scheduler.plan();
  const auto outcomes = scheduler.commit(plan, answer(plan, scheduler, 7, 2));
  EXPECT_EQ(outcomes[0].kept, 3);
  EXPECT_EQ(outcomes[0].finish, FinishReason::length);
}

TEST(Scheduler, NobodyOvertakesAndWhoIsAdmittedCanFinish) {
  Scheduler scheduler(limits_of(8, 1'000, 10));
  scheduler.submit(sequence_of(1, 100, 600));  // promises 6 blocks, takes 1
  scheduler.submit(sequence_of(2, 100, 500));  // 5: does not fit beside it
  scheduler.submit(sequence_of(3, 100, 20));   // 1: would fit, but waits its turn
  const StepPlan plan = scheduler.plan();
  ASSERT_EQ(plan.rows.size(), 1u);
  EXPECT_EQ(scheduler.waiting(), 2u);
  EXPECT_EQ(scheduler.pools().blocks.free_count(), 9);
  scheduler.commit(plan, answer(plan, scheduler, 1));  // it ends
  EXPECT_EQ(scheduler.plan().rows.size(), 2u);
}

TEST(Scheduler, CancelFreesEverythingInEveryState) {
  Scheduler scheduler(limits_of(2, 64, 64));
  EXPECT_FALSE(scheduler.cancel(1));  // unknown
  for (SequenceId id = 1; id <= 3; ++id) scheduler.submit(sequence_of(id, id == 2 ? 150 : 20, 50, 2));
  scheduler.commit(scheduler.plan(), answer(scheduler.plan(), scheduler, 5));
  scheduler.find(1)->proposed = {6, 6};
  ASSERT_FALSE(scheduler.find(1)->in_prompt());
  ASSERT_TRUE(scheduler.find(2)->in_prompt());
  ASSERT_EQ(scheduler.waiting(), 1u);
  for (const SequenceId id : {2, 3, 1}) {  // in its prompt, waiting, decoding with drafts
    EXPECT_TRUE(scheduler.cancel(id));
    EXPECT_TRUE(scheduler.verify().ok());
    EXPECT_EQ(scheduler.find(id), nullptr);
    EXPECT_FALSE(scheduler.cancel(id));  // a second time
  }
  EXPECT_TRUE(scheduler.idle());
  EXPECT_TRUE(scheduler.plan().empty());
  EXPECT_EQ(scheduler.pools().blocks.free_count(), 64);
  EXPECT_EQ(scheduler.pools().slots.free_count(), 2);
}

struct Trace {
  uint32_t seed;
  int sequences;
  int64_t step_rows;
  int32_t blocks;
};

// Engine.md 18.1, as far as this scheduler goes: random arrivals, lengths, acceptance and cancellations.
class SchedulerTrace : public testing::TestWithParam<Trace> {};

TEST_P(SchedulerTrace, EveryRequestEndsAndNoInvariantBreaks) {
  const Trace& trace = GetParam();
  std::mt19937 random(trace.seed);
  SchedulerLimits limits = limits_of(trace.sequences, trace.step_rows, trace.blocks);
  limits.context = int64_t(trace.blocks) * kBlockTokens;
  Scheduler scheduler(limits);
  constexpr SequenceId kRequests = 1'500;
  SequenceId next = 1;
  std::vector<SequenceId> started;
  std::map<SequenceId, int64_t> emitted;
  std::set<SequenceId> open, ended;
  for (int64_t step = 0; next <= kRequests || !scheduler.idle(); ++step) {
    ASSERT_LT(step, 1'000'000) << "no step is empty while work is left, so this ends";
    while (next <= kRequests && random() % 4 != 0) {
      const int64_t prompt = random() % 20 == 0 ? 1 + random() % 700 : 1 + random() % 90;
      const int64_t room = limits.context - prompt;
      const int64_t most = std::min<int64_t>(random() % 30 == 0 ? 500 : 1 + random() % 40, room);
      scheduler.submit(sequence_of(next, prompt, std::max<int64_t>(most, 1), int(random() % 6)));
      open.insert(next++);
    }
    if (random() % 10 == 0 && !open.empty()) {
      const SequenceId victim = *std::next(open.begin(), long(random() % open.size()));
      ASSERT_TRUE(scheduler.cancel(victim));
      open.erase(victim);
      ended.insert(victim);
    }
    const StepPlan plan = scheduler.plan();
    ASSERT_EQ(plan, scheduler.plan()) << "planning twice plans the same";
    ASSERT_EQ(plan.empty(), scheduler.idle());
    const auto state = scheduler.verify();
    ASSERT_TRUE(state.ok()) << to_string(state.error());
    int64_t prompt_rows = 0;
    bool prompts = false;
    std::set<SequenceId> seen;
    StepResult result;
    result.begin = {0};
    for (const StepPlan::Rows& rows : plan.rows) {
      const Sequence& sequence = *scheduler.find(rows.sequence);
      ASSERT_TRUE(seen.insert(rows.sequence).second);
      ASSERT_EQ(rows.first, sequence.cached);
      ASSERT_LT(rows.first + rows.count, limits.context);
      ASSERT_LE(rows.first + rows.count, int64_t(sequence.cache.blocks.size()) * kBlockTokens);
      if (sequence.in_prompt()) {
        prompts = true;
        prompt_rows += rows.count;
        if (rows.first == 0) started.push_back(rows.sequence);
      } else {
        ASSERT_FALSE(prompts) << "decode rows come first";
        ASSERT_EQ(rows.count, 1 + int(sequence.proposed.size()));
      }
      if (rows.first + rows.count >= sequence.prompt_tokens) {
        const int accepted = rows.drafts == 0 ? 0 : int(random() % uint32_t(rows.drafts + 1));
        for (int i = 0; i < accepted; ++i) result.tokens.push_back(sequence.proposed[size_t(i)]);
        result.tokens.push_back(random() % 40 == 0 ? 1 : 9);
      }
      result.begin.push_back(int32_t(result.tokens.size()));
    }
    ASSERT_LE(prompt_rows, limits.step_rows);
    ASSERT_LE(seen.size(), size_t(limits.sequences));
    for (const Outcome& outcome : scheduler.commit(plan, result)) {
      emitted[outcome.sequence] += outcome.kept;
      if (outcome.finish) {
        ASSERT_TRUE(ended.insert(outcome.sequence).second);
        open.erase(outcome.sequence);
        ASSERT_GT(emitted[outcome.sequence], 0);
      } else if (Sequence* sequence = scheduler.find(outcome.sequence); !sequence->in_prompt()) {
        sequence->proposed.assign(size_t(random() % uint32_t(drafts_for(*sequence) + 1)), 9);
        ASSERT_EQ(sequence->cached, int64_t(sequence->ids.size()) - 1);
      }
    }
  }
  EXPECT_EQ(ended.size(), kRequests);
  EXPECT_TRUE(std::is_sorted(started.begin(), started.end())) << "requests start in order of submission";
  EXPECT_EQ(scheduler.pools().blocks.free_count(), trace.blocks);
  EXPECT_EQ(scheduler.pools().slots.free_count(), trace.sequences);
}

// One sequence; blocks so few that the pool, not the count, limits; rows so few that prompts take many steps; all
// ample.
INSTANTIATE_TEST_SUITE_P(Limits, SchedulerTrace,
                         testing::Values(Trace{1, 1, 64, 16}, Trace{2, 16, 64, 8}, Trace{3, 16, 1, 40},
                                         Trace{4, 16, 2048, 200}, Trace{5, 3, 17, 9}));

}  // namespace
}  // namespace fathom
