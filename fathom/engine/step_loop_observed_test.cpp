// What the loop tells besides events: statistics, the log of steps, a record of every decision that replays to the same
// plans, and the state of everything that runs. Case obs-03: a step is named by its number and shape.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "fathom/engine/loop_under_test.h"
#include "fathom/engine/schedule_replay.h"

namespace fathom {
namespace {

using testing::HasSubstr;

class Observed : public testing::TestWithParam<bool> {
 protected:
  Observed() : statistics(metrics, nullptr) {
    settings.asynchronous = GetParam();
    settings.sequences = 6;
    settings.blocks = 8;
    settings.overcommit = 3;
    settings.step_rows = 64;
    settings.prefix_cache = true;
    settings.statistics = &statistics;
    settings.step_log = &steps;
  }
  Settings settings;
  Metrics metrics;
  EngineStatistics statistics;
  StepLog steps;
};
INSTANTIATE_TEST_SUITE_P(Loops, Observed, testing::Bool(),
                         [](const auto& info) { return info.param ? "asynchronous" : "synchronous"; });

void run_load(Loop& loop) {
  for (uint32_t i = 0; i < 40; ++i) {
    Request request = greedy(i % 9, 20 + 60 * int64_t(i % 5), 1 + int64_t(i) * 3);
    request.sampling.ignore_eos = true;
    request.answers = 1 + int(i % 7 == 3);
    const auto id = loop.submit(std::move(request));
    loop.step();
    if (i % 11 == 5) loop.loop.cancel(id);
  }
  Request wrong = greedy(1, 10, 5);
  wrong.ids[3] = 99;
  EXPECT_FALSE(loop.loop.submit(wrong).ok());
  loop.finish();
}

TEST_P(Observed, CountsEveryRequestAndToken) {
  Loop loop(settings);
  run_load(loop);
  int64_t tokens = 0, cancelled = 0;
  for (const auto& [id, answer] : loop.answers) {
    tokens += answer.finish->usage.generated_tokens;
    cancelled += answer.finish->reason == FinishReason::cancelled;
  }
  const WindowReport report = statistics.report(1e9);
  for (const RequestState state : {RequestState::loading, RequestState::waiting, RequestState::running}) {
    EXPECT_EQ(report.requests[size_t(state)], 0) << name_of(state);
  }
  EXPECT_FALSE(statistics.stalled(1e9));
  const std::string text = metrics.prometheus_text();
  EXPECT_THAT(text, HasSubstr("fathom_engine_generated_tokens_total " + std::to_string(tokens) + "\n"));
  EXPECT_THAT(text, HasSubstr("reason=\"cancelled\"} " + std::to_string(cancelled) + "\n"));
  EXPECT_THAT(text, HasSubstr("reason=\"rejected\"} 1\n"));
}

TEST_P(Observed, KeepsTheLastStepsWithWhatEachSequenceDid) {
  Loop loop(settings);
  run_load(loop);
  std::map<SequenceId, int64_t> kept;
  for (size_t i = 0; i < steps.size(); ++i) {
    const auto entries = steps.entries(i);
    ASSERT_TRUE(entries);
    for (size_t k = 0; k < entries->size(); ++k) kept[(*entries)[k].sequence] += (*entries)[k].kept;
    EXPECT_THAT(shape_of(steps.summary(i)), HasSubstr("step=" + std::to_string(i + 1)));
  }
  for (const auto& [id, answer] : loop.answers) EXPECT_EQ(kept[id], answer.finish->usage.generated_tokens) << id;
}

TEST_P(Observed, ARecordReplaysToTheSamePlans) {
  const std::string path = testing::TempDir() + "schedule-" + std::to_string(GetParam()) + ".jsonl";
  std::filesystem::remove(path);
  Loop loop(settings);
  ASSERT_TRUE(loop.loop.record_to(path).ok());
  run_load(loop);
  EXPECT_GT(loop.loop.scheduler().counts().preempted, 0);
  ASSERT_TRUE(loop.loop.stop_recording().ok());
  const auto report = replay_schedule(path);
  ASSERT_TRUE(report.ok()) << to_string(report.error());
  EXPECT_FALSE(report->difference) << to_string(*report);
  EXPECT_GT(report->plans, 50);
}

TEST_P(Observed, TellsWhatRunsAndWaits) {
  Loop loop(settings);
  for (uint32_t i = 0; i < 12; ++i) loop.submit(greedy(i, 100, 100));
  for (int i = 0; i < 4; ++i) loop.step();
  const Json state = loop.loop.state();
  const size_t running = state.find("running")->items.size(), waiting = state.find("waiting")->items.size();
  EXPECT_GT(running, 0u);
  EXPECT_EQ(running + waiting, 12u);
  EXPECT_EQ(to_string(state).find("token_ids"), std::string::npos);
}

// Case obs-03: a read out of range in step 100 is told with the step, the phase and the shape of the batch.
TEST(ObservedDeathTest, ACheckThatFailsInAStepNamesStepPhaseAndShape) {
  Settings settings;
  settings.drafts = 0;
  FakeModel model(settings.shape);
  ModelPort port = model.port();
  int64_t calls = 0;
  port.forward = [&, forward = port.forward](const Batch& batch) {
    check(++calls < 100, "a row lies in the cache");
    return forward(batch);
  };
  const auto queue = std::move(*reference_backend().open_queue(1));
  StepLoop loop(options_of(settings), port, reference_operations(), *queue);
  Request request = greedy(1, 20, 900);
  request.sampling.ignore_eos = true;
  ASSERT_TRUE(loop.submit(std::move(request)).ok());
  EXPECT_DEATH(
      {
        for (int step = 0; step < 101; ++step) loop.step();
      },
      "a row lies in the cache.* while step=100 phase=4 \\(forward\\) prompt_pieces=0 prompt_rows=0 "
      "decode_sequences=1 decode_rows=1");
}

}  // namespace
}  // namespace fathom
