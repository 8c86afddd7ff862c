#include "fathom/engine/step_agreement.h"

#include <gtest/gtest.h>

#include <random>

#include "fathom/base/test_size.h"
#include "fathom/engine/scheduler.h"

namespace fathom {
namespace {

StepDescriptor decoding(int64_t steps, bool prompts, double usage = 0.5) {
  return {StepKind::decode, 8, prompts, false, usage, steps};
}

TEST(StepAgreement, AMixedRankMakesTheStepMixedForAll) {
  const StepDescriptor ranks[] = {{StepKind::idle, 0}, {StepKind::mixed, 2'048}, {StepKind::decode, 96}};
  EXPECT_EQ(agree(ranks).kind, StepKind::mixed);
  EXPECT_EQ(agree(ranks).rows, 2'048);
  EXPECT_EQ(agree(std::span(ranks).first(1)).kind, StepKind::idle);
  EXPECT_EQ(agree(std::span(ranks).last(1)).kind, StepKind::decode);
}

// The votes of 3.3: all ranks every 70 steps, any rank every 100.
TEST(StepAgreement, SeparateStepsFollowTheVotes) {
  for (int64_t steps = 0; steps <= 300; ++steps) {
    const StepDescriptor both[] = {decoding(steps, true), decoding(steps, true)};
    const StepDescriptor one[] = {decoding(steps, true), decoding(steps, false)};
    const StepDescriptor none[] = {decoding(steps, false), decoding(steps, false)};
    EXPECT_EQ(runs_prompts(both), steps % 70 == 0 || steps % 100 == 0) << steps;
    EXPECT_EQ(runs_prompts(one), steps % 100 == 0) << steps;
    EXPECT_FALSE(runs_prompts(none));
  }
  const StepDescriptor full[] = {decoding(0, true), decoding(0, true, 0.95)};
  EXPECT_FALSE(runs_prompts(full)) << "cache usage above 0.9";
  StepDescriptor late[] = {decoding(33, true), decoding(33, false)};
  late[0].overdue = true;
  EXPECT_TRUE(runs_prompts(late)) << "intervals adapt to the age of the queue";
  const StepDescriptor idle[] = {{StepKind::idle, 0, true, false, 0.99, 33}, {}};
  EXPECT_TRUE(runs_prompts(idle)) << "nobody decodes";
}

// 18.1: four ranks with random requests agree in every step, under both policies, and everybody ends. FATHOM_LONG=1
// takes 100,000 requests.
TEST(StepAgreement, RanksOfAGroupAlwaysRunTheSameKindOfStep) {
  const SequenceId requests = is_set("FATHOM_LONG") ? 100'000 : 400;
  for (const bool separate : {false, true}) {
    std::mt19937 random(separate ? 1 : 2);
    constexpr size_t kRanks = 4;
    std::vector<Scheduler> ranks;
    SchedulerLimits limits{.context = 2'000, .sequences = 6, .step_rows = 128, .blocks = 60, .overcommit = 0};
    limits.separate = separate;
    for (size_t r = 0; r < kRanks; ++r) ranks.emplace_back(limits);
    SequenceId next = 1;
    int64_t ended = 0, steps = 0, kinds[3] = {};
    for (; ended < int64_t(requests); ++steps) {
      ASSERT_LT(steps, int64_t(requests) * 500);
      for (size_t r = 0; r < kRanks && next <= requests; ++r) {
        if (random() % 6 != 0) continue;
        Sequence one;
        one.id = next++;
        one.ids.assign(1 + random() % 400, 5);
        one.prompt_tokens = int64_t(one.ids.size());
        one.max_tokens = 1 + int64_t(random() % 60);
        one.arrived = double(steps) * 0.02;
        ranks[r].submit(std::move(one));
      }
      const double now = double(steps) * 0.02;
      std::vector<StepDescriptor> wishes;
      for (const Scheduler& rank : ranks) wishes.push_back(rank.wish(now));
      const bool prompts = runs_prompts(wishes);
      std::vector<StepPlan> plans;
      std::vector<StepDescriptor> done;
      for (Scheduler& rank : ranks) {
        plans.push_back(separate ? rank.plan(now, prompts ? StepRows::prompts : StepRows::decode) : rank.plan(now));
        done.push_back(describe(plans.back(), rank));
      }
      if (separate && prompts && agree(done).kind == StepKind::idle) {  // the second vote: then the group decodes
        for (size_t r = 0; r < kRanks; ++r) {
          plans[r] = ranks[r].plan(now, StepRows::decode);
          done[r] = describe(plans[r], ranks[r]);
        }
      }
      const StepKind kind = agree(done).kind;
      ++kinds[size_t(kind)];
      for (size_t r = 0; r < kRanks; ++r) {
        if (separate) {
          ASSERT_TRUE(done[r].kind == kind || done[r].kind == StepKind::idle) << "rank " << r << " in step " << steps;
        }
        StepResult result;
        result.begin = {0};
        for (const StepPlan::Rows& rows : plans[r].rows) {
          if (rows.first + rows.count >= ranks[r].find(rows.sequence)->prefill_tokens) result.tokens.push_back(9);
          result.begin.push_back(int32_t(result.tokens.size()));
        }
        if (plans[r].empty()) continue;
        for (const Outcome& outcome : ranks[r].commit(plans[r], result)) ended += outcome.finish.has_value();
      }
      for (Scheduler& rank : ranks) rank.note_group_step(kind);
    }
    EXPECT_GT(kinds[size_t(StepKind::decode)], 0);
    EXPECT_GT(kinds[size_t(StepKind::mixed)], 0);
  }
}

}  // namespace
}  // namespace fathom
