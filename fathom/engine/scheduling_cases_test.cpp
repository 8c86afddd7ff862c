// Reported cases of the scheduler that need time: they run in the simulator, through the scheduler that serves.
#include <gtest/gtest.h>

#include <algorithm>

#include "fathom/engine/simulator.h"

namespace fathom {
namespace {

// A step reads weights for 10 ms; a decode row adds 0.05 ms, a prompt row 0.1 ms.
SimulationOptions options_of(int64_t chunk) {
  SimulationOptions out;
  out.machine.name = "plain";
  out.machine.weights = {{1, 10.0}, {100, 15.0}};
  out.machine.contexts = {{0, 0, 0, 0.1}};
  out.machine.overlaps = false;
  out.machine.padded_to = 0;
  out.machine.step_ms = out.machine.host_ms = out.machine.host_sequence_ms = 0;
  out.machine.sequences = 32;
  out.limits.context = 200'000;
  out.limits.step_rows = chunk;
  out.limits.shape = {128, 6, 20, 20};
  out.policy = SpeculationPolicy::none;
  out.keep_answers = true;
  return out;
}

TraceRequest request(double arrival, int64_t prompt, int64_t output, uint64_t seed) {
  TraceRequest one;
  one.arrival = arrival;
  one.prompt_tokens = prompt;
  one.output_tokens = output;
  one.seed = 2 * seed;
  one.output_seed = 2 * seed + 1;
  return one;
}

// 16 running answers, then a prompt of 131,072 tokens in chunks of 4,096: nobody waits longer for a token than two
// chunks with their decode step, and the long prompt has its first token within 1.5 of its time alone.
TEST(SchedulingCases, Sched05ALongPromptNextToRunningAnswers) {
  constexpr int64_t kChunk = 4'096;
  std::vector<TraceRequest> trace;
  for (uint64_t i = 0; i < 16; ++i) trace.push_back(request(0, 200, 600, i + 1));
  trace.push_back(request(1, 131'072, 16, 99));
  const auto together = simulate(trace, options_of(kChunk));
  ASSERT_TRUE(together.ok()) << to_string(together.error());
  const auto alone = simulate(std::vector{request(1, 131'072, 16, 99)}, options_of(kChunk));
  ASSERT_TRUE(alone.ok()) << to_string(alone.error());

  const double chunk = double(kChunk) * 0.1e-3, decode = 10e-3 + 16 * 0.05e-3;
  EXPECT_LE(together->load.gap.p99, 2 * (chunk + decode));
  const AnswerRecord& with = together->answers.back();
  const AnswerRecord& without = alone->answers.back();
  EXPECT_EQ(with.prompt_tokens, 131'072);
  EXPECT_LE(with.first_token - with.arrived, 1.5 * (without.first_token - without.arrived));
  EXPECT_EQ(together->load.finished, 17);
}

// With a target between tokens the chunks shrink until it is met (R-8, decode protection).
TEST(SchedulingCases, Sched05ATargetBetweenTokensMakesTheChunksSmaller) {
  std::vector<TraceRequest> trace;
  for (uint64_t i = 0; i < 16; ++i) {
    trace.push_back(request(0, 200, 600, i + 1));
    trace.back().between_tokens_seconds = 0.050;
  }
  trace.push_back(request(1, 50'000, 16, 99));
  trace.back().first_token_seconds = 1e6;  // it can wait
  const auto report = simulate(trace, options_of(4'096));
  ASSERT_TRUE(report.ok()) << to_string(report.error());
  EXPECT_LE(report->load.gap.p99, 0.060) << "a target, not a limit: costs are estimates";
  EXPECT_EQ(report->load.finished, 17);
}

}  // namespace
}  // namespace fathom
