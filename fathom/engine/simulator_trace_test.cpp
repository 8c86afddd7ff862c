// Random traces through the real scheduler: engine.md 18.1 on one rank. Every request ends, no block is lost, no
// invariant breaks (simulate() itself looks and fails), budgets are kept, and nobody starves. FATHOM_LONG=1 takes
// 100,000 requests for every trace, and looks at every invariant more often.
//
// How long a request can wait, derived. A step is planned whenever work is left and memory is not all in flight, and
// each step that runs does one of these for somebody who is not finished: it gives a decoding answer a token at least,
// or it gives the first prompt that has begun a piece of `step_rows` rows (or its rest), or it runs rows of what has
// just ended or was preempted (once for each answer and each preemption, when planned ahead). So with
//
//   work(i) = ceil(prompt_i / step_rows) + output_i + 1     steps, and again as many for each preemption of i, at most
//
// whoever is in front of a request R is through after sum of work(i) steps, wherever memory puts them. In front of R
// are
//   - those that arrived before R's horizon and had not ended when R came. Horizon: arrival + (C - c + 1) x ageing,
//   where
//     C is the highest class and c that of R; who comes later has a lower class with age than R for ever.
//   - those that pass over somebody who does not fit: 64 for each of these (SchedulerLimits::passed_over).
// Therefore, with L the longest step:
//
//   wait(R) <= (C - c + 1) x ageing + L x (work of all in front, preemptions included) + 2 L
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <random>

#include <cstdlib>
#include "fathom/base/test_size.h"
#include "fathom/engine/simulator.h"
#include "fathom/engine/trace_generator.h"

namespace fathom {
namespace {

struct Case {
  uint32_t seed;
  int sequences;
  int64_t step_rows;
  int32_t blocks;
  double overcommit;
  bool ahead;
  SpeculationPolicy policy;
  double load;  // requests a second, beside what the machine does
  int64_t requests;
};

MachineCost machine_of(int sequences) {
  MachineCost machine;
  machine.weights = {{1, 5.0}, {64, 7.0}, {512, 20.0}};
  machine.contexts = {{0, 0.001, 0, 0.02}, {10'000, 0.01, 0, 0.03}};
  machine.draft = {{1, 0.5}, {64, 1.5}};
  machine.overlaps = false;
  machine.step_ms = 0.1;
  machine.sequences = sequences;
  return machine;
}

// Four tenants, three classes, sessions that grow, branches, cancellations, answers that stop before their limit.
std::vector<TraceRequest> random_trace(const Case& one) {
  std::mt19937 random(one.seed);
  const auto between = [&](int64_t low, int64_t high) { return low + int64_t(random() % uint64_t(high - low + 1)); };
  std::vector<TraceRequest> trace = agent_trace({.requests = one.requests / 3,
                                                 .rate = one.load / 3,
                                                 .prompt = {120, 0.8},
                                                 .output = {24, 0.7},
                                                 .most_tokens = 1000,
                                                 .seed = one.seed},
                                                {.turns = 5, .system_tokens = 140, .tool = {60, 0.7}});
  const auto others = burst_trace({.requests = one.requests - int64_t(trace.size()),
                                   .rate = one.load * 2 / 3,
                                   .prompt = {90, 1.0},
                                   .output = {20, 0.8},
                                   .most_tokens = 1000,
                                   .seed = one.seed + 1},
                                  {.burst = 40, .factor = 5});
  trace.insert(trace.end(), others.begin(), others.end());
  for (TraceRequest& request : trace) {
    if (request.session.empty()) request.tenant = std::string(1, char('a' + random() % 4));
    request.priority = int(random() % 3);
    if (random() % 10 == 0) request.cancel_seconds = double(between(0, 2000)) / 1000;
    if (random() % 12 == 0 && request.session.empty()) request.answers = int(between(2, 3));
    if (random() % 4 == 0) request.max_tokens = std::min(request.output_tokens * 3, 1000 - request.prompt_tokens);
  }
  std::stable_sort(trace.begin(), trace.end(), [](const auto& a, const auto& b) { return a.arrival < b.arrival; });
  return trace;
}

/// Of each answer's wait as a share of the bound above, the largest.
double worst_wait(const SimulationReport& report, const Case& one, double ageing) {
  std::vector<std::pair<double, double>> arrived, ended;  // time, work
  double most_work = 0;
  for (const AnswerRecord& answer : report.answers) {
    const double work = double((answer.prompt_tokens + one.step_rows - 1) / one.step_rows + answer.output_tokens + 1);
    most_work = std::max(most_work, work);
    arrived.push_back({answer.arrived, work});
    ended.push_back({answer.ended, work});
  }
  const auto accumulate = [](std::vector<std::pair<double, double>>& times) {
    std::sort(times.begin(), times.end());
    double sum = 0;
    for (auto& [time, work] : times) work = sum += work;
  };
  accumulate(arrived);
  accumulate(ended);
  const auto until = [](const std::vector<std::pair<double, double>>& times, double time) {
    const auto at = std::upper_bound(times.begin(), times.end(), std::pair(time, 1e300));
    return std::pair(at == times.begin() ? 0 : (at - 1)->second, double(at - times.begin()));
  };
  double worst = 0;
  for (size_t i = 0; i < report.answers.size(); ++i) {
    const AnswerRecord& answer = report.answers[i];
    if (answer.begun < 0) continue;      // cancelled while it waited
    const double patience = 3 * ageing;  // of the lowest of three classes
    const auto [came, came_count] = until(arrived, answer.arrived + patience);
    const auto [gone, gone_count] = until(ended, std::nextafter(answer.arrived, 0.0));
    const double overtakers = std::min(64 * (1 + came_count - gone_count), double(report.passed_over));
    const double again = double(report.preempted) * most_work;
    const double bound = patience + report.longest_step_seconds * (came - gone + overtakers * most_work + again + 2);
    worst = std::max(worst, (answer.begun - answer.arrived) / bound);
  }
  return worst;
}

class SimulatorTrace : public testing::TestWithParam<Case> {};

TEST_P(SimulatorTrace, EveryAnswerEndsNobodyStarvesAndNothingIsLost) {
  const bool full = is_set("FATHOM_LONG");
  Case one = GetParam();
  if (full) one.requests = 100'000;
  const auto trace = random_trace(one);
  SimulationOptions options;
  options.machine = machine_of(one.sequences);
  options.limits = {.context = 1000,
                    .sequences = one.sequences,
                    .step_rows = one.step_rows,
                    .blocks = one.blocks,
                    .overcommit = one.overcommit,
                    .shape = {128, 6, 20, 20}};
  options.limits.queue.ageing_seconds = 2;
  options.policy = one.policy;
  options.ahead = one.ahead;
  options.jitter = 0.02;
  options.preempt_share = one.overcommit > 0 ? 0.002 : 0;
  options.verify_every = full ? 64 : 256;
  options.keep_answers = true;
  const auto report = simulate(trace, options);
  ASSERT_TRUE(report.ok()) << to_string(report.error());
  EXPECT_EQ(report->load.finished + report->load.cancelled, int64_t(report->answers.size()));
  EXPECT_EQ(report->load.rejected, 0);
  int64_t wanted = 0;
  for (const TraceRequest& request : trace) wanted += request.answers;
  EXPECT_EQ(int64_t(report->answers.size()), wanted);
  EXPECT_LE(report->most_running, one.sequences);
  if (one.overcommit == 0) {
    EXPECT_EQ(report->preempted, 0);
  }
  const double worst = worst_wait(*report, one, options.limits.queue.ageing_seconds);
  EXPECT_LE(worst, 1);
  if (std::getenv("FATHOM_SHOW") != nullptr) {
    std::printf(
        "steps %ld, busy %.2f, most waiting %d, preempted %ld, passed over %ld, hit %.2f, longest wait %.2f s, "
        "%.3f of its bound\n",
        long(report->steps), report->busy_seconds / report->load.seconds, report->most_waiting, long(report->preempted),
        long(report->passed_over), report->load.hit_rate(), report->load.queue.most, worst);
  }
}

// Blocks so few that memory decides; all ample; overcommitted, with preemptions, 100,000 requests; rows so few that a
// prompt takes many steps; one sequence at a time; more requests than the machine can serve.
INSTANTIATE_TEST_SUITE_P(Limits, SimulatorTrace,
                         testing::Values(Case{1, 32, 512, 40, 0, false, SpeculationPolicy::scheduled, 60, 20'000},
                                         Case{2, 64, 2048, 2000, 0.3, true, SpeculationPolicy::guarded, 90, 20'000},
                                         Case{3, 32, 512, 30, 1.0, true, SpeculationPolicy::scheduled, 60, 100'000},
                                         Case{4, 16, 16, 60, 0.3, true, SpeculationPolicy::fixed, 15, 10'000},
                                         Case{5, 1, 256, 8, 0, true, SpeculationPolicy::none, 4, 2'000},
                                         Case{6, 24, 256, 64, 1.0, false, SpeculationPolicy::guarded, 400, 18'000}));

// 20 requests of class 2 a second, where the machine does 10 (a prompt of 1,000 rows is a step of 100 ms), and one of
// class 0 in the first second. Its horizon is 1 + (2 - 0 + 1) x 2 = 7 s: at most the 140 that came until then are in
// front of it, so it begins by 14 s and a step; by its class alone it would wait for all 1,200.
TEST(SimulatorStarvation, ALowClassIsServedByItsAgeWhileHigherOnesKeepComing) {
  SimulationOptions options;
  options.machine.weights = {{1, 10.0}, {1000, 10.0}};
  options.machine.contexts = {{0, 0, 0, 0.1}};
  options.machine.overlaps = false;
  options.machine.step_ms = options.machine.host_ms = options.machine.host_sequence_ms = 0;
  options.limits = {.context = 2000, .sequences = 8, .step_rows = 1000, .shape = {128, 6, 20, 20}};
  options.limits.queue.ageing_seconds = 2;
  options.policy = SpeculationPolicy::none;
  options.prefix_cache = false;
  options.keep_answers = true;
  std::vector<TraceRequest> trace;
  for (int i = 0; i < 1200; ++i) {
    TraceRequest one;
    one.arrival = 0.05 * i;
    one.prompt_tokens = 1000;
    one.priority = 2;
    one.seed = uint64_t(i);
    trace.push_back(one);
  }
  trace[20].priority = 0;  // at 1 s
  for (const bool ahead : {false, true}) {
    options.ahead = ahead;
    const auto report = simulate(trace, options);
    ASSERT_TRUE(report.ok()) << to_string(report.error());
    EXPECT_LE(report->answers[20].begun, 14.1);
    EXPECT_GE(report->answers[20].begun, 5) << "two classes are worth 4 s of waiting";
  }
}

}  // namespace
}  // namespace fathom
