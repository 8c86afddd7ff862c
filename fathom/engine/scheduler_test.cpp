// The scheduler alone: results are made up, no model runs.
#include "fathom/engine/scheduler.h"

#include <gtest/gtest.h>

#include <deque>
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
    if (rows.first + rows.count >= sequence.prefill_tokens) {
      for (int i = 0; i < std::min(accepted, rows.drafts); ++i) result.tokens.push_back(6);
      result.tokens.push_back(token);
    }
    result.begin.push_back(int32_t(result.tokens.size()));
  }
  return result;
}

// Plans a step and answers it.
std::vector<Outcome> run(Scheduler& scheduler, int32_t token, int accepted = 0, double now = 0) {
  const StepPlan plan = scheduler.plan(now);
  const auto outcomes = scheduler.commit(plan, answer(plan, scheduler, token, accepted));
  const auto state = scheduler.verify();
  EXPECT_TRUE(state.ok()) << to_string(state.error());
  return {outcomes.begin(), outcomes.end()};
}

SchedulerLimits limits_of(int sequences, int64_t step_rows, int32_t blocks) {
  return {.context = 10'000, .sequences = sequences, .step_rows = step_rows, .blocks = blocks, .overcommit = 0};
}

void expect_plan(Scheduler& scheduler, std::vector<StepPlan::Rows> rows, int accepted = 0) {
  const StepPlan plan = scheduler.plan(0);
  EXPECT_EQ(plan.rows, rows) << to_string(plan);
  scheduler.commit(plan, answer(plan, scheduler, 5, accepted));
}

// -------------------------------------------------------------------------------------------------------- rows of a
// step

TEST(Scheduler, DecodeRowsComeFirstAndPromptPiecesFillTheBudget) {
  Scheduler scheduler(limits_of(4, 100, 64));
  scheduler.submit(sequence_of(1, 30, 10, 2));
  run(scheduler, 5);
  scheduler.find(1)->proposed = 2;
  scheduler.submit(sequence_of(2, 250, 10));
  scheduler.submit(sequence_of(3, 20, 10));
  expect_plan(scheduler, {{1, 30, 3, 3, 2, 3}, {2, 0, 100, 100, 0, 0}}, 1);
  EXPECT_EQ(scheduler.find(1)->cached, 32);  // the newest token and one draft
  expect_plan(scheduler, {{1, 32, 1, 1, 0, 1}, {2, 100, 100, 100, 0, 0}});
  expect_plan(scheduler, {{1, 33, 1, 1, 0, 1}, {2, 200, 50, 50, 0, 1}, {3, 0, 20, 20, 0, 1}});
}

TEST(Scheduler, OnlyTheLastRowsOfAPromptRunTheDecoder) {
  SchedulerLimits limits = limits_of(1, 100, 64);
  limits.shape = {32, 6, 4, 4};  // K = 44: from row 206 on
  Scheduler scheduler(limits);
  scheduler.submit(sequence_of(1, 250, 10));
  for (const auto& [decoder, logits] : {std::pair{0, 0}, {0, 0}, {44, 1}}) {
    const StepPlan plan = scheduler.plan(0);
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
      const StepPlan plan = scheduler.plan(0);
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
  expect_plan(scheduler, {{1, 0, 64, 64, 0, 64}, {2, 0, 300, 300, 0, 1}});
}

TEST(Scheduler, PromptRowsLeaveRoomForTheTightestTargetBetweenTokens) {
  Scheduler scheduler(limits_of(4, 2'048, 64));
  Sequence hurried = sequence_of(1, 30, 100);
  hurried.between_tokens = 0.050;
  scheduler.submit(std::move(hurried));
  run(scheduler, 5);
  scheduler.set_cost({.decode_seconds = 0.010, .prompt_row_seconds = 0.0001});  // 40 ms of 0.1 ms rows
  scheduler.submit(sequence_of(2, 3'000, 10));
  const StepPlan plan = scheduler.plan(0);
  ASSERT_EQ(plan.rows.size(), 2u);
  EXPECT_EQ(plan.rows[1].count, 400);
  scheduler.commit(plan, answer(plan, scheduler, 5));
  scheduler.cancel(1);
  EXPECT_EQ(scheduler.plan(0).rows[0].count, 2'048) << "nobody else waits for tokens";
}

TEST(Scheduler, SeparateStepsNeverMixAndPromptsComeEverySeventySteps) {
  SchedulerLimits limits = limits_of(4, 100, 64);
  limits.separate = true;
  Scheduler scheduler(limits);
  scheduler.submit(sequence_of(1, 30, 400));
  int64_t since = 0, second_after = -1;
  for (int step = 0; step < 300; ++step) {
    if (step == 10) {
      Sequence late = sequence_of(2, 150, 50);
      late.arrived = 0.1;  // and not overdue before 0.6
      scheduler.submit(std::move(late));
    }
    const StepPlan plan = scheduler.plan(0.2);
    bool prompt = false, decode = false;
    for (const StepPlan::Rows& rows : plan.rows) {
      const bool in_prompt = rows.first < scheduler.find(rows.sequence)->prefill_tokens;
      (in_prompt ? prompt : decode) = true;
      if (in_prompt && rows.sequence == 2 && second_after < 0) second_after = since;
    }
    ASSERT_FALSE(prompt && decode);
    since = prompt ? 0 : since + 1;
    scheduler.commit(plan, answer(plan, scheduler, 5));
  }
  EXPECT_EQ(second_after, 70);
}

// ------------------------------------------------------------------------------------------------------------ the end

TEST(Scheduler, AStopTokenEndsTheAnswerAndDropsWhatFollows) {
  Scheduler scheduler(limits_of(1, 100, 64));
  scheduler.submit(sequence_of(1, 10, 20, 3));
  run(scheduler, 5);
  scheduler.find(1)->proposed = 3;
  const StepPlan plan = scheduler.plan(0);
  const auto outcomes = scheduler.commit(plan, {{6, 1, 7, 8}, {0, 4}, {}});
  ASSERT_EQ(outcomes.size(), 1u);
  EXPECT_EQ(outcomes[0].kept, 2);
  EXPECT_EQ(outcomes[0].finish, FinishReason::stop);
  EXPECT_TRUE(scheduler.idle());
  EXPECT_EQ(scheduler.pools().blocks.free_count(), 64);
}

TEST(Scheduler, TheLimitEndsTheAnswerAndDraftsShrinkBeforeIt) {
  Scheduler scheduler(limits_of(1, 100, 64));
  scheduler.submit(sequence_of(1, 10, 4, 5));
  run(scheduler, 5);
  EXPECT_EQ(drafts_for(scheduler.find(1)->remaining(), 5), 2);
  scheduler.find(1)->proposed = 2;
  const auto outcomes = run(scheduler, 7, 2);
  EXPECT_EQ(outcomes[0].kept, 3);
  EXPECT_EQ(outcomes[0].finish, FinishReason::length);
}

TEST(Scheduler, CancelFreesEverythingInEveryState) {
  Scheduler scheduler(limits_of(2, 64, 64));
  EXPECT_FALSE(scheduler.cancel(1));  // unknown
  for (SequenceId id = 1; id <= 3; ++id) scheduler.submit(sequence_of(id, id == 2 ? 150 : 20, 50, 2));
  run(scheduler, 5);
  scheduler.find(1)->proposed = 2;
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
  EXPECT_TRUE(scheduler.plan(0).empty());
  EXPECT_EQ(scheduler.pools().blocks.free_count(), 64);
  EXPECT_EQ(scheduler.pools().slots.free_count(), 2);
}

// ----------------------------------------------------------------------------------------------------------- admission

TEST(Scheduler, WhatDoesNotFitIsPassedOverUntilItsPatienceEnds) {
  SchedulerLimits limits = limits_of(8, 1'000, 10);
  limits.passed_over = 3;
  Scheduler scheduler(limits);
  scheduler.submit(sequence_of(1, 100, 600));                                         // promises 6 blocks, takes 1
  scheduler.submit(sequence_of(2, 100, 500));                                         // 5: does not fit beside it
  for (SequenceId id = 3; id <= 20; ++id) scheduler.submit(sequence_of(id, 100, 1));  // 1 each
  std::set<SequenceId> began;
  bool second_began = false;
  for (int step = 0; step < 40 && !second_began; ++step) {
    const StepPlan plan = scheduler.plan(0);
    for (const StepPlan::Rows& rows : plan.rows) second_began |= rows.sequence == 2;
    for (const StepPlan::Rows& rows : plan.rows) {
      if (rows.sequence > 2 && !second_began) began.insert(rows.sequence);
    }
    scheduler.commit(plan, answer(plan, scheduler, step == 10 ? 1 : 5));  // then 1 ends
  }
  EXPECT_TRUE(second_began);
  EXPECT_GE(began.size(), 3u) << "a blocked head does not hold up the small ones at once";
  EXPECT_LE(began.size(), 4u) << "but not everybody goes before it";
}

TEST(Scheduler, WithoutOvercommitmentNobodyIsEverPreempted) {
  Scheduler scheduler(limits_of(16, 1'000, 20));
  for (SequenceId id = 1; id <= 30; ++id) scheduler.submit(sequence_of(id, 200, 500));
  while (!scheduler.idle()) run(scheduler, 5);
  EXPECT_EQ(scheduler.counts().preempted, 0);
}

TEST(Scheduler, SchedOneAndTwoAPoolMuchSmallerThanTheDemandIsSharedInTurns) {
  // sched-01: 16 x (2048 + 2048) tokens in a pool of 16,384; sched-02: 9 x (384 + 256) in 4,096.
  for (const auto& [requests, prompt, output, tokens] :
       {std::tuple{16, 2048, 2048, 16384}, {9, 384, 256, 4096}, {9, 384, 256, 1024}}) {
    SchedulerLimits limits = limits_of(16, 2'048, tokens / 128);
    limits.overcommit = 1.0;  // more than the default, so that it happens
    Scheduler scheduler(limits);
    std::map<SequenceId, int> preemptions;
    for (SequenceId id = 1; id <= SequenceId(requests); ++id) scheduler.submit(sequence_of(id, prompt, output));
    int finished = 0;
    for (int step = 0; !scheduler.idle(); ++step) {
      ASSERT_LT(step, 200'000);
      const StepPlan plan = scheduler.plan(0);
      ASSERT_FALSE(plan.empty()) << "work is left and none is done";
      for (const SequenceId id : plan.preempted) ++preemptions[id];
      for (const Outcome& outcome : scheduler.commit(plan, answer(plan, scheduler, 5)))
        finished += bool(outcome.finish);
      if (step % 64 == 0) {
        ASSERT_TRUE(scheduler.verify().ok());
      }
    }
    EXPECT_EQ(finished, requests);
    for (const auto& [id, count] : preemptions) EXPECT_LE(count, 4) << id;
  }
}

TEST(Scheduler, ThePreemptedOneIsOfTheLowestClassAndTheCheapestInIt) {
  SchedulerLimits limits = limits_of(4, 1'000, 6);
  limits.overcommit = 10;
  Scheduler scheduler(limits);
  const auto add = [&](SequenceId id, int64_t prompt, int priority) {
    Sequence one = sequence_of(id, prompt, 300);
    one.priority = priority;
    scheduler.submit(std::move(one));
  };
  add(1, 250, 1), add(2, 120, 0), add(3, 100, 0);  // 2, 1 and 1 blocks; 6 in all
  std::vector<SequenceId> preempted;
  for (int step = 0; step < 400 && preempted.empty(); ++step) {
    const StepPlan plan = scheduler.plan(0);
    preempted = plan.preempted;
    scheduler.commit(plan, answer(plan, scheduler, 5));
  }
  ASSERT_FALSE(preempted.empty());
  EXPECT_EQ(preempted[0], 3) << "class 0, with fewer rows than 2";
  EXPECT_EQ(scheduler.find(3)->preemptions, 1);
  EXPECT_GT(scheduler.find(3)->generated(), 0) << "what it has said stays";
}

TEST(Scheduler, WhatIsNotReadyIsPassedBy) {
  Scheduler scheduler(limits_of(4, 1'000, 64));
  Sequence compiling = sequence_of(1, 10, 5);
  compiling.ready = false;
  scheduler.submit(std::move(compiling));
  scheduler.submit(sequence_of(2, 10, 5));
  EXPECT_EQ(scheduler.plan(0).rows[0].sequence, 2u);
  scheduler.make_ready(1);
  EXPECT_NE(scheduler.find(1), nullptr);
}

// ------------------------------------------------------------------------------------------------------------ prefixes

PrefixRoot root_of(const std::string& salt) {
  PrefixRoot root;
  root.model = "m";
  root.salt = salt;
  return root;
}

Sequence cached_sequence(Scheduler& scheduler, SequenceId id, std::vector<int32_t> ids, int64_t max_tokens) {
  Sequence one = sequence_of(id, 1, max_tokens);
  one.ids = std::move(ids);
  one.prompt_tokens = int64_t(one.ids.size());
  one.chain.root = scheduler.pools().prefixes.open_root(root_of("s"), xxh3_key, 0);
  return one;
}

TEST(Scheduler, AnEarlierPromptIsFoundAndOnlyItsReplayAndItsTailAreRun) {
  SchedulerLimits limits = limits_of(2, 10'000, 100);
  limits.shape = {128, 6, 20, 20};
  Scheduler scheduler(limits);
  std::vector<int32_t> ids;
  for (int i = 0; i < 5300; ++i) ids.push_back(i % 1000);
  scheduler.submit(cached_sequence(scheduler, 1, ids, 1));
  run(scheduler, 1);
  scheduler.submit(cached_sequence(scheduler, 2, ids, 1));
  // h = 5248, no snapshot: start 5120, 180 encoder rows, 128 of them replay, the last 140 in the decoder
  // (engine.md 6.2)
  expect_plan(scheduler, {{2, 5120, 180, 140, 0, 1}});
  EXPECT_EQ(scheduler.counts().hit_tokens, 5248);
  EXPECT_EQ(scheduler.counts().replayed_rows, 128);
  EXPECT_TRUE(scheduler.verify().ok());
}

TEST(Scheduler, WhatNobodyHasUsedForItsTimeToLiveIsFoundNoMore) {
  Scheduler scheduler(limits_of(2, 10'000, 100));
  const int32_t account = scheduler.pools().blocks.idle().add_account({.time_to_live = std::chrono::seconds(60)});
  Sequence one = sequence_of(1, 300, 1);
  one.chain.root = scheduler.pools().prefixes.open_root(root_of("t"), xxh3_key, account);
  scheduler.submit(std::move(one));
  run(scheduler, 1, 0, 10);
  EXPECT_EQ(scheduler.pools().prefixes.size(), 2);
  scheduler.plan(60);
  EXPECT_EQ(scheduler.pools().prefixes.size(), 2);
  scheduler.plan(80);
  EXPECT_EQ(scheduler.pools().prefixes.size(), 0);
  EXPECT_EQ(scheduler.pools().blocks.free_count(), 100);
}

TEST(Scheduler, ABranchSharesThePromptAndRunsItsLastTokenAgain) {
  Scheduler scheduler(limits_of(4, 1'000, 64));
  scheduler.submit(sequence_of(1, 300, 10));
  Sequence branch = sequence_of(2, 300, 10);
  branch.parent = 1;
  scheduler.submit(std::move(branch));
  EXPECT_EQ(run(scheduler, 5).size(), 1u) << "the parent's prompt first";
  const StepPlan plan = scheduler.plan(0);
  EXPECT_EQ(plan.rows, (std::vector<StepPlan::Rows>{{1, 300, 1, 1, 0, 1}, {2, 299, 1, 1, 0, 1}})) << to_string(plan);
  EXPECT_EQ(plan.copies.size(), 1u);
  EXPECT_EQ(plan.slot_copies.size(), 1u);
  EXPECT_EQ(scheduler.find(1)->cache.blocks[1], scheduler.find(2)->cache.blocks[1]);
  EXPECT_NE(scheduler.find(1)->cache.blocks[2], scheduler.find(2)->cache.blocks[2]);
  scheduler.commit(plan, answer(plan, scheduler, 6));
  while (!scheduler.idle()) run(scheduler, 5);
  EXPECT_EQ(scheduler.pools().blocks.free_count(), 64);
}

// -------------------------------------------------------------------------------------------------------------- traces

struct Trace {
  uint32_t seed;
  int sequences;
  int64_t step_rows;
  int32_t blocks;
  double overcommit = 0;
  int in_flight = 0;  // steps planned before the oldest is committed
  bool prefixes = false;
  int requests = 1'500;
};

// Engine.md 18.1 on one rank: random arrivals, lengths, classes, tenants, acceptance, cancellations, branches. And
// 18.2: what a step in flight may read is nobody's but its own until it is committed: every block and slot in the
// tables that the device was given keeps its reference, whoever ends, is cancelled or preempted meanwhile.
class SchedulerTrace : public testing::TestWithParam<Trace> {};

TEST_P(SchedulerTrace, EveryRequestEndsAndNoInvariantBreaks) {
  const Trace& trace = GetParam();
  std::mt19937 random(trace.seed);
  SchedulerLimits limits = limits_of(trace.sequences, trace.step_rows, trace.blocks);
  limits.context = int64_t(trace.blocks) * kBlockTokens;
  limits.overcommit = trace.overcommit;
  Scheduler scheduler(limits);
  SequenceId next = 1;
  std::map<SequenceId, int64_t> emitted;
  std::map<SequenceId, int64_t> submitted;  // step
  std::set<SequenceId> open, ended;
  std::deque<StepPlan> planned;
  // The device's truth: tokens of a sequence and whether it has ended.
  struct Truth {
    int64_t length = 0, prefill = 0, left = 0;
    int drafts = 0;
    bool done = false;
  };
  std::map<SequenceId, Truth> device;
  int64_t longest = 0;
  struct Reads {
    std::vector<int32_t> blocks, slots;
  };
  std::deque<Reads> reads;  // of each planned step
  int64_t watched = 0;
  const auto nothing_is_freed = [&] {
    for (const Reads& step : reads) {
      for (const int32_t block : step.blocks) EXPECT_GT(scheduler.pools().blocks.references(block), 0) << block;
      for (const int32_t slot : step.slots) EXPECT_GT(scheduler.pools().slots.references(slot), 0) << slot;
      watched += int64_t(step.blocks.size());
    }
  };

  const auto execute = [&](const StepPlan& plan) {
    StepResult result;
    result.begin = {0};
    for (const StepPlan::Rows& rows : plan.rows) {
      Truth& truth = device[rows.sequence];
      if (!truth.done && rows.first + rows.count >= truth.prefill) {
        const int drafts = int(std::min<int64_t>(rows.drafts, truth.left - 1));
        const int accepted = drafts <= 0 ? 0 : int(random() % uint32_t(drafts + 1));
        for (int i = 0; i <= accepted && !truth.done; ++i) {
          const int32_t token = random() % 40 == 0 ? 1 : 9;
          result.tokens.push_back(token);
          --truth.left;
          truth.done = token == 1 || truth.left == 0;
        }
      }
      result.begin.push_back(int32_t(result.tokens.size()));
    }
    return result;
  };

  for (int64_t step = 0; next <= SequenceId(trace.requests) || !scheduler.idle() || !planned.empty(); ++step) {
    ASSERT_LT(step, 3'000'000) << "no step is empty while work is left, so this ends";
    while (next <= SequenceId(trace.requests) && open.size() < 200 && random() % 4 != 0) {
      const int64_t prompt = random() % 20 == 0 ? 1 + random() % 700 : 1 + random() % 90;
      const int64_t length = std::min(prompt, limits.context - 1);
      const int64_t most = std::min<int64_t>(random() % 30 == 0 ? 500 : 1 + random() % 40, limits.context - length);
      Sequence one = sequence_of(next, length, std::max<int64_t>(most, 1), int(random() % 6));
      one.priority = int(random() % 3);
      one.tenant = random() % 4;
      one.arrived = double(step);
      if (trace.prefixes) {
        for (size_t i = 0; i < one.ids.size(); ++i) one.ids[i] = int32_t(i % 50);  // prompts share prefixes
        one.tenant = 0;
        one.chain.root = scheduler.pools().prefixes.open_root(root_of("s"), xxh3_key, 0);
      }
      if (random() % 8 == 0 && !open.empty() && !trace.prefixes) {
        const SequenceId parent = *open.rbegin();
        if (const Sequence* other = scheduler.find(parent); other != nullptr && other->generated() == 0) {
          one.parent = parent;
          one.ids = other->ids;
          one.prompt_tokens = other->prompt_tokens;
          one.max_tokens = other->max_tokens;
        }
      }
      device[next] = {0, 0, one.max_tokens, one.drafts, false};
      submitted[next] = step;
      scheduler.submit(std::move(one));
      open.insert(next++);
    }
    if (random() % 10 == 0 && !open.empty()) {
      const SequenceId victim = *std::next(open.begin(), long(random() % open.size()));
      ASSERT_TRUE(scheduler.cancel(victim));
      nothing_is_freed();
      device[victim].done = true;
      open.erase(victim);
      ended.insert(victim);
    }
    if (random() % 50 == 0 && !open.empty() && trace.overcommit > 0) {
      scheduler.preempt(*std::next(open.begin(), long(random() % open.size())));
      nothing_is_freed();
    }
    const StepPlan plan = scheduler.plan(double(step));
    nothing_is_freed();
    ASSERT_FALSE(testing::Test::HasFailure()) << "at step " << step;
    const auto state = scheduler.verify();
    ASSERT_TRUE(state.ok()) << to_string(state.error()) << " at step " << step;
    if (plan.empty() && planned.empty()) {
      ASSERT_TRUE(scheduler.idle()) << "work is left and nothing is in flight";
    }
    int64_t prompt_rows = 0;
    std::set<SequenceId> seen;
    for (const StepPlan::Rows& rows : plan.rows) {
      const Sequence& sequence = *scheduler.find(rows.sequence);
      ASSERT_TRUE(seen.insert(rows.sequence).second);
      Truth& truth = device[rows.sequence];
      truth.prefill = sequence.prefill_tokens;
      const int64_t end = std::min(rows.first + rows.count, sequence.most_tokens());
      ASSERT_LE(end, int64_t(sequence.cache.blocks.size()) * kBlockTokens);
      if (rows.first < sequence.prefill_tokens) prompt_rows += rows.count;
      if (submitted.contains(rows.sequence)) {
        longest = std::max(longest, step - submitted[rows.sequence]);
        submitted.erase(rows.sequence);
      }
    }
    ASSERT_LE(prompt_rows, limits.step_rows);
    ASSERT_LE(seen.size(), size_t(limits.sequences));
    const bool planned_something = !plan.empty();
    if (planned_something) {
      planned.push_back(plan);
      Reads& now = reads.emplace_back();
      for (const StepPlan::Rows& rows : plan.rows) {
        const SequenceCache& cache = scheduler.find(rows.sequence)->cache;
        now.blocks.insert(now.blocks.end(), cache.blocks.begin(), cache.blocks.end());
        now.slots.push_back(cache.slot);
      }
    }
    if (planned.empty() || (planned_something && planned.size() <= size_t(trace.in_flight))) continue;
    const StepPlan oldest = planned.front();
    planned.pop_front();
    reads.pop_front();
    const auto outcomes = scheduler.commit(oldest, execute(oldest));
    nothing_is_freed();
    for (const Outcome& outcome : outcomes) {
      emitted[outcome.sequence] += outcome.kept;
      if (outcome.finish) {
        ASSERT_TRUE(ended.insert(outcome.sequence).second);
        open.erase(outcome.sequence);
        ASSERT_GT(emitted[outcome.sequence], 0);
      } else if (Sequence* sequence = scheduler.find(outcome.sequence);
                 sequence != nullptr && outcome.kept > 0 && sequence->in_flight_steps == 0) {
        sequence->proposed = int(random() % uint32_t(drafts_for(sequence->remaining(), sequence->drafts) + 1));
        ASSERT_EQ(sequence->cached, int64_t(sequence->ids.size()) - 1);
      }
    }
  }
  EXPECT_EQ(ended.size(), size_t(trace.requests));
  EXPECT_EQ(scheduler.pools().blocks.available(), trace.blocks) << "no block is lost";
  EXPECT_EQ(scheduler.pools().slots.free_count(), trace.sequences);
  if (!trace.prefixes) {
    EXPECT_EQ(scheduler.pools().blocks.free_count(), trace.blocks);
  }
  EXPECT_LT(longest, 20'000) << "steps until a request began";
  if (trace.in_flight > 0) {
    EXPECT_GT(watched, 10'000);
  }
  if (trace.overcommit == 0) {
    EXPECT_EQ(scheduler.counts().preempted, 0);
  }
}

// One sequence; blocks so few that the pool, not the count, limits; rows so few that prompts take many steps; all
// ample; overcommitted; with steps in flight; with shared prefixes; all of it.
INSTANTIATE_TEST_SUITE_P(Limits, SchedulerTrace,
                         testing::Values(Trace{1, 1, 64, 16}, Trace{2, 16, 64, 8}, Trace{3, 16, 1, 40},
                                         Trace{4, 16, 2048, 200}, Trace{5, 3, 17, 9}, Trace{6, 16, 64, 12, 1.0},
                                         Trace{7, 16, 64, 12, 0, 1}, Trace{8, 16, 64, 12, 1.0, 1},
                                         Trace{9, 16, 64, 30, 0, 0, true}, Trace{10, 16, 64, 12, 1.0, 0, true},
                                         Trace{11, 16, 64, 12, 1.0, 1, true}));

}  // namespace
}  // namespace fathom
