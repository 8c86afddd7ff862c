// The asynchronous loop on a model made of a hash, which checks every row, block and window that it is given: steps are
// planned before the results of the ones before them are known, and nobody can tell from the text (engine.md 4, R-14,
// 18.2). Also the answers of one prompt, and scheduled drafts.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <random>

#include "fathom/engine/loop_under_test.h"

namespace fathom {
namespace {

struct Workload {
  uint32_t seed = 0;
  Settings settings;
  int requests = 30;
  bool cancels = false;
  uint32_t long_ones = 4;  // one prompt in so many is long
};

// Random requests of every kind that arrive while others run; what each answered, in the order of arrival.
std::vector<Answer> run(const Workload& workload, bool asynchronous, int64_t* preempted = nullptr) {
  std::mt19937 random(workload.seed);
  Settings settings = workload.settings;
  settings.asynchronous = asynchronous;
  Loop loop(settings);
  std::vector<RequestId> ids;
  for (int i = 0; i < workload.requests;) {
    for (uint32_t arrivals = uint32_t(random() % 4); arrivals > 0 && i < workload.requests; --arrivals, ++i) {
      Request request =
          greedy(uint32_t(300 + i), 1 + int64_t(random() % (random() % workload.long_ones == 0 ? 300 : 40)),
                 1 + int64_t(random() % 60));
      const auto kind = uint32_t(random());
      if (kind % 3 > 0) request.sampling.temperature = 0.4f + 0.3f * float(kind % 5);
      request.sampling.seed = kind;
      if (kind % 7 == 0) request.sampling.frequency_penalty = 0.4f;
      if (kind % 11 == 0) request.verification = Verification::transparent;
      if (kind % 5 == 0) request.sampling.top_logprobs = 2;
      if (kind % 13 == 0) request.prompt_logprobs = true;
      request.priority = int(kind % 3);
      ids.push_back(loop.submit(std::move(request)));
    }
    loop.step();
    if (workload.cancels && random() % 6 == 0) loop.loop.cancel(ids[random() % ids.size()]);
  }
  loop.finish();
  EXPECT_EQ(loop.loop.scheduler().pools().blocks.available(), settings.blocks) << "no block is lost";
  if (preempted != nullptr) *preempted += loop.loop.scheduler().counts().preempted;
  std::vector<Answer> out;
  for (const RequestId id : ids) out.push_back(loop.answers.at(id));
  return out;
}

void expect_equal(const Workload& workload, const std::string& what) {
  const auto one = run(workload, false), other = run(workload, true);
  for (size_t i = 0; i < one.size(); ++i) {
    ASSERT_EQ(other[i].ids, one[i].ids) << what << ", request " << i;
    ASSERT_EQ(other[i].finish->reason, one[i].finish->reason);
    ASSERT_EQ(other[i].logprobs.size(), one[i].logprobs.size());
    for (size_t t = 0; t < one[i].logprobs.size(); ++t) {
      ASSERT_EQ(other[i].logprobs[t].logprob, one[i].logprobs[t].logprob);
    }
    ASSERT_EQ(other[i].prompt_logprobs.size(), one[i].prompt_logprobs.size());
    ASSERT_EQ(other[i].finish->usage.generated_tokens, one[i].finish->usage.generated_tokens);
    ASSERT_EQ(other[i].finish->usage.offered, one[i].finish->usage.offered);
    ASSERT_EQ(other[i].finish->usage.accepted, one[i].finish->usage.accepted);
  }
}

// A round of drafts is drawn before anybody has seen its first one, unless somebody must.
TEST(DraftsAtOnce, StreamsAreThoseOfOneDraftAfterTheOther) {
  for (uint32_t seed = 0; seed < 6; ++seed) {
    Workload workload;
    workload.seed = seed;
    workload.settings.shape.vocabulary = seed % 2 == 0 ? 17 : 400;  // more than the law of a draft may have
    const auto want = run(workload, false);
    workload.settings.shape.at_once = true;
    for (const bool asynchronous : {false, true}) {
      const auto got = run(workload, asynchronous);
      for (size_t i = 0; i < want.size(); ++i) {
        ASSERT_EQ(got[i].ids, want[i].ids) << "request " << i;
        ASSERT_EQ(got[i].logprobs.size(), want[i].logprobs.size());
        for (size_t t = 0; t < want[i].logprobs.size(); ++t) {
          ASSERT_EQ(got[i].logprobs[t].logprob, want[i].logprobs[t].logprob);
          ASSERT_EQ(got[i].logprobs[t].nextn_logprob, want[i].logprobs[t].nextn_logprob);
        }
        ASSERT_EQ(got[i].finish->usage.accepted, want[i].finish->usage.accepted);
      }
    }
  }
}

TEST(ForeseenSteps, AreTheOnesThatComeWhileEverySequenceGoesOn) {
  for (const int drafts : {0, 5}) {
    Settings settings;
    settings.drafts = drafts;
    settings.shape.at_once = true;
    Loop loop(settings);
    for (uint32_t name = 0; name < 4; ++name) loop.submit(greedy(name, 20, 50));
    loop.finish();
    // Not: the prompts, and the steps behind the end of a sequence.
    EXPECT_GE(loop.model.foreseen, loop.model.calls - 6) << drafts << " drafts";
    EXPECT_GT(loop.model.calls, 10);
  }
}

TEST(AsynchronousLoop, StreamsAreThoseOfTheSynchronousOne) {
  for (const int drafts : {0, 1, 5}) {
    for (const int64_t step_rows : {7, 64, 2'048}) {
      for (uint32_t seed = 0; seed < 3; ++seed) {
        Workload workload;
        workload.seed = seed;
        workload.settings.drafts = drafts;
        workload.settings.step_rows = step_rows;
        expect_equal(workload, std::to_string(drafts) + " drafts, " + std::to_string(step_rows) + " rows");
      }
    }
  }
}

// A small pool: blocks change hands at once, and a row that read one too late would find another text in it.
TEST(AsynchronousLoop, BlocksThatAreFreedInFlightAreNotGivenToOthersTooEarly) {
  int64_t preempted = 0;
  for (const bool prefixes : {false, true}) {
    for (uint32_t seed = 10; seed < 14; ++seed) {
      Workload workload;
      workload.seed = seed;
      workload.requests = 60;
      workload.long_ones = 2;
      workload.settings.sequences = 8;
      workload.settings.blocks = 8;
      workload.settings.overcommit = 5;  // somebody is preempted
      workload.settings.step_rows = 64;
      workload.settings.prefix_cache = prefixes;
      // Sampled text under rejection depends on drafts, and a preemption drops them: transparent text does not.
      workload.settings.drafts = 0;
      expect_equal(workload, "preemption");
      run(workload, true, &preempted);
    }
  }
  EXPECT_GT(preempted, 0);  // how many depends on the clock: waiting makes a class higher
}

TEST(AsynchronousLoop, CancelledOnesLeaveNothingBehind) {
  for (uint32_t seed = 20; seed < 26; ++seed) {
    Workload workload;
    workload.seed = seed;
    workload.cancels = true;
    workload.settings.blocks = 12;
    workload.settings.step_rows = 64;
    for (const Answer& answer : run(workload, true)) ASSERT_TRUE(answer.finish);
  }
}

// Stop lag: the step after the last token of a request has been planned, but no row of it is run.
TEST(AsynchronousLoop, AnEndedSequenceRunsNoFurtherRow) {
  int64_t calls[2] = {};
  for (const bool asynchronous : {false, true}) {
    Settings settings;
    settings.asynchronous = asynchronous;
    settings.drafts = 0;
    Loop loop(settings);
    Request request = greedy(1, 20, 30);
    request.sampling.ignore_eos = true;
    loop.answer(request);
    calls[asynchronous] = loop.model.calls;
  }
  EXPECT_EQ(calls[0], 30);
  EXPECT_EQ(calls[1], 30);
}

TEST(AsynchronousLoop, TheEndOfAnEngineWithStepsInFlightIsClean) {
  Settings settings;
  settings.asynchronous = true;
  Loop loop(settings);
  for (uint32_t i = 0; i < 5; ++i) loop.submit(greedy(i, 100, 50));
  for (int i = 0; i < 3; ++i) loop.step();
}

// --------------------------------------------------------------------------------------------------- several answers
TEST(Answers, OfOnePromptAreThoseOfTheirSeedsAndThePromptIsRunOnce) {
  for (const bool asynchronous : {false, true}) {
    for (const int64_t prompt : {5, 128, 200}) {
      Settings settings;
      settings.asynchronous = asynchronous;
      Request request = greedy(9, prompt, 40);
      request.sampling.temperature = 1;
      request.sampling.seed = 70;
      request.sampling.ignore_eos = true;  // the others share what the first has, as long as it is there
      std::vector<std::vector<int32_t>> want;
      for (uint64_t i = 0; i < 4; ++i) {
        Loop alone(settings);
        Request one = request;
        one.sampling.seed = 70 + i;
        want.push_back(alone.answer(one).ids);
      }
      Loop loop(settings);
      request.answers = 4;
      const RequestId first = loop.submit(request);
      loop.finish();
      int64_t rows = 0;
      for (uint64_t i = 0; i < 4; ++i) {
        EXPECT_EQ(loop.answers.at(first + i).ids, want[i]) << "answer " << i << " of a prompt of " << prompt;
        rows += loop.answers.at(first + i).finish->usage.encoder_rows;
      }
      EXPECT_EQ(rows, prompt + 3) << "the others run its last token for logits of their own";
    }
  }
}

TEST(Answers, OneMayBeCancelledAndTheOthersGoOn) {
  for (int gone = 0; gone < 3; ++gone) {
    Loop loop({});
    Request request = greedy(9, 150, 40);
    request.answers = 3;
    const RequestId first = loop.submit(request);
    if (gone > 0) loop.step();
    loop.loop.cancel(first + uint64_t(gone));
    loop.finish();
    for (int i = 0; i < 3; ++i) {
      const Answer& answer = loop.answers.at(first + uint64_t(i));
      if (i == gone) {
        EXPECT_EQ(answer.finish->reason, FinishReason::cancelled);
      } else {
        EXPECT_EQ(answer.ids, loop.model.greedy(request.ids, 40, 1));
      }
    }
  }
}

// -------------------------------------------------------------------------------------------------- scheduled drafts
double verified_per_round(const Loop& loop) {
  int64_t offered = 0, rounds = 0;
  for (const auto& [id, answer] : loop.answers) {
    rounds += answer.finish->usage.rounds;
    for (const int64_t count : answer.finish->usage.offered) offered += count;
  }
  return rounds == 0 ? 0 : double(offered) / double(rounds);
}

// The fake model says 0.5 of every draft, so that cumulative confidences are 0.5, 0.25, ...
TEST(ScheduledDrafts, FollowTheCostOfRowsAndChangeNoText) {
  std::map<double, double> verified;
  for (const double milliseconds_a_row : {0.0, 1.0}) {
    Settings settings;
    settings.curve = CostCurve{{1, 10 + milliseconds_a_row}, {64, 10 + 64 * milliseconds_a_row}};
    if (milliseconds_a_row > 0) settings.curve = CostCurve{{1, 1}, {64, 64}};
    Loop loop(settings);
    std::vector<std::pair<RequestId, std::vector<int32_t>>> want;
    for (uint32_t i = 0; i < 8; ++i) {
      Request request = greedy(i, 20, 60);
      request.sampling.ignore_eos = true;
      want.push_back({loop.submit(request), loop.model.greedy(request.ids, 60, -1)});
    }
    loop.finish();
    for (const auto& [id, ids] : want) EXPECT_EQ(loop.answers.at(id).ids, ids);
    verified[milliseconds_a_row] = verified_per_round(loop);
    ASSERT_NE(loop.loop.draft_schedule(), nullptr);
  }
  EXPECT_GT(verified[0], verified[1]) << "dear rows are given to fewer drafts";
}

// Case spec-03: what a seed promised does not depend on measured times.
TEST(ScheduledDrafts, ASeedUnderRejectionVerifiesAllItsDrafts) {
  Settings settings;
  Request request = greedy(7, 60, 64);
  request.sampling.temperature = 1;
  request.sampling.seed = 42;
  Loop fixed(settings);
  const auto want = fixed.answer(request).ids;
  for (const bool asynchronous : {false, true}) {
    settings.asynchronous = asynchronous;
    settings.curve = CostCurve{{1, 1}, {64, 64}};
    Loop loop(settings);
    for (uint32_t i = 0; i < 5; ++i) loop.submit(greedy(i, 30, 80));
    EXPECT_EQ(loop.answer(request).ids, want);
  }
}

TEST(ScheduledDrafts, StepsHaveSizesOfTheCurveWhereADeviceHasRecordedThem) {
  Settings settings;
  settings.shape.vary_confidence = true;
  settings.curve = CostCurve{{1, 1}, {4, 1.1}, {8, 1.2}, {16, 2}, {24, 4}};
  settings.sizes_of_curve = true;
  StepLog log;
  settings.step_log = &log;
  Loop loop(settings);
  for (uint32_t name = 0; name < 4; ++name) {
    Request request = greedy(name, 20, 60);
    request.sampling.ignore_eos = true;
    loop.submit(std::move(request));
  }
  loop.finish();
  std::map<int, int> seen;
  int others = 0;
  for (size_t i = 0; i < log.size(); ++i) {
    const StepSummary& step = log.summary(i);
    if (step.prompt_rows > 0 || step.decode_sequences != 4) continue;
    const bool size =
        step.decode_rows == 4 || step.decode_rows == 8 || step.decode_rows == 16 || step.decode_rows == 24;
    size ? ++seen[int(step.decode_rows)] : ++others;
  }
  EXPECT_GE(seen.size(), 1u);
  EXPECT_LE(others, 3) << "where fewer drafts are left than a size wants";
}

TEST(ScheduledDrafts, ARequestThatNamesItsNumberGetsIt) {
  Settings settings;
  settings.curve = CostCurve{{1, 1}, {64, 64}};
  Loop loop(settings);
  Request request = greedy(7, 60, 64);
  request.sampling.ignore_eos = true;
  request.drafts = 3;
  const Usage usage = loop.answer(request).finish->usage;
  EXPECT_GE(usage.offered[2], usage.rounds - 2) << "fewer only before the end";
  EXPECT_EQ(usage.offered[3], 0);
}

}  // namespace
}  // namespace fathom
