// R-1, R-2, R-40 and the table of section 14, from the specification; no engine runs here.
#include "fathom/engine/statistics.h"
#include "fathom/engine/loop_under_test.h"
#include "fathom/engine/replay_meter.h"
#include "fathom/engine/stream_series.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <set>
#include <sstream>

#include "fathom/base/mapped_file.h"
#include "fathom/engine/counted_allocations.h"

namespace fathom {
namespace {

// A series' value by its line in Prometheus text: `name` or `name{label="value"}`.
double value_of(const Metrics& metrics, const std::string& series) {
  std::istringstream text(metrics.prometheus_text());
  for (std::string line; std::getline(text, line);) {
    if (line.starts_with(series + " ")) return std::stod(line.substr(series.size() + 1));
  }
  ADD_FAILURE() << "no series " << series;
  return -1;
}

struct Fixture {
  Metrics metrics;
  std::mutex mutex;
  std::vector<std::string> lines;
  Log log;
  EngineStatistics statistics;

  explicit Fixture(LogLevel level = LogLevel::info, StatisticsOptions options = {})
      : log({.level = level,
             .times = false,
             .write =
                 [this](std::string_view line) {
                   const std::lock_guard lock(mutex);
                   lines.emplace_back(line);
                 }}),
        statistics(metrics, &log, options) {}
  double value(const std::string& series) const { return value_of(metrics, series); }
};

Finish finish_of(FinishReason reason, int64_t prompt = 0, int64_t generated = 0) {
  Finish out;
  out.reason = reason;
  out.usage.prompt_tokens = prompt;
  out.usage.generated_tokens = generated;
  return out;
}

StepSummary step_of(uint64_t number, double ended, double seconds) {
  StepSummary out;
  out.step = number;
  out.ended = ended;
  out.step_seconds = float(seconds);
  return out;
}

TEST(EngineStatistics, EveryChangeOfARequestsStateIsCountedAndLoggedAtDebugLevel) {
  Fixture f(LogLevel::debug);
  RequestProgress one, two;
  f.statistics.arrive(one, 7, 1.0, true);  // its grammar is compiled
  f.statistics.arrive(two, 8, 1.0, false);
  EXPECT_EQ(f.value("fathom_engine_requests{state=\"loading\"}"), 1);
  EXPECT_EQ(f.value("fathom_engine_requests{state=\"waiting\"}"), 1);
  f.statistics.ready(one, 1.5);
  f.statistics.start(one, 2.0);
  f.statistics.preempt(one, 2.5);
  f.statistics.start(one, 3.0);
  EXPECT_EQ(f.value("fathom_engine_requests{state=\"running\"}"), 1);
  f.statistics.finish(one, 4.0, finish_of(FinishReason::stop));
  f.statistics.finish(two, 4.0, finish_of(FinishReason::cancelled));
  const std::map<std::string, double> want = {
      {"{from=\"submitted\",to=\"loading\"}", 1}, {"{from=\"submitted\",to=\"waiting\"}", 1},
      {"{from=\"loading\",to=\"waiting\"}", 1},   {"{from=\"waiting\",to=\"running\"}", 2},
      {"{from=\"running\",to=\"waiting\"}", 1},   {"{from=\"running\",to=\"finished\"}", 1},
      {"{from=\"waiting\",to=\"finished\"}", 1},  {"{from=\"loading\",to=\"finished\"}", 0}};
  for (const auto& [labels, count] : want) {
    EXPECT_EQ(f.value("fathom_engine_transitions_total" + labels), count) << labels;
  }
  for (const char* state : {"loading", "waiting", "running"}) {
    EXPECT_EQ(f.value("fathom_engine_requests{state=\"" + std::string(state) + "\"}"), 0) << state;
  }
  EXPECT_EQ(f.value("fathom_engine_requests_finished_total{reason=\"stop\"}"), 1);
  EXPECT_EQ(f.value("fathom_engine_requests_finished_total{reason=\"cancelled\"}"), 1);
  f.log.flush();
  EXPECT_EQ(std::count_if(f.lines.begin(), f.lines.end(),
                          [](const std::string& line) { return line.starts_with("level=debug request="); }),
            8);
  EXPECT_EQ(f.lines[0], "level=debug request=7 from=submitted to=loading\n");
}

TEST(EngineStatistics, ARefusedRequestIsCountedByItsError) {
  Fixture f;
  f.statistics.reject({ErrorCode::out_of_range, "too long", "ids", ""});
  EXPECT_EQ(f.value("fathom_engine_requests_finished_total{reason=\"rejected\"}"), 1);
  EXPECT_EQ(f.value("fathom_engine_failures_total{code=\"out_of_range\"}"), 1);
  EXPECT_EQ(f.value("fathom_engine_transitions_total{from=\"submitted\",to=\"finished\"}"), 1);
}

TEST(EngineStatistics, WhoRunsAndBeginsAgainWasPutBackBetweenTwoSteps) {
  Fixture f;
  RequestProgress one;
  f.statistics.arrive(one, 1, 0, false);
  f.statistics.start(one, 1);
  f.statistics.start(one, 2);  // Scheduler::preempt(), which no plan tells of
  EXPECT_EQ(f.value("fathom_engine_transitions_total{from=\"running\",to=\"waiting\"}"), 1);
  EXPECT_EQ(f.value("fathom_engine_requests{state=\"running\"}"), 1);
}

TEST(EngineStatisticsDeath, AChangeThatR1DoesNotHaveIsABug) {
  Metrics metrics;
  EngineStatistics statistics(metrics, nullptr);
  RequestProgress one;
  statistics.arrive(one, 1, 0, true);
  EXPECT_DEATH(statistics.start(one, 1), "R-1");
}

TEST(EngineStatistics, QueueTimeFirstTokenAndGapsAreMeasuredFromArrival) {
  Fixture f;
  RequestProgress one;
  f.statistics.arrive(one, 1, 10.0, false);
  f.statistics.start(one, 10.25);
  f.statistics.bring(one, 10.75, 1);
  f.statistics.bring(one, 10.875, 4);  // a round with 3 accepted drafts: 4 tokens in 125 ms
  f.statistics.preempt(one, 10.9);
  f.statistics.start(one, 11.0);  // the queue is left once
  f.statistics.finish(one, 12.0, finish_of(FinishReason::length, 30, 5));
  EXPECT_EQ(f.value("fathom_engine_queue_seconds_count"), 1);
  EXPECT_DOUBLE_EQ(f.value("fathom_engine_queue_seconds_sum"), 0.25);
  EXPECT_DOUBLE_EQ(f.value("fathom_engine_first_token_seconds_sum"), 0.75);
  EXPECT_EQ(f.value("fathom_engine_token_gap_seconds_count"), 1);
  EXPECT_DOUBLE_EQ(f.value("fathom_engine_token_gap_seconds_sum"), 0.125);
  EXPECT_EQ(f.value("fathom_engine_inter_token_seconds_count"), 4);
  EXPECT_DOUBLE_EQ(f.value("fathom_engine_inter_token_seconds_sum"), 0.125);
  EXPECT_DOUBLE_EQ(f.value("fathom_engine_request_seconds_sum"), 2);
  EXPECT_EQ(f.value("fathom_engine_generated_tokens_total"), 5);
  EXPECT_EQ(f.value("fathom_engine_prompt_tokens_total"), 30);
}

TEST(EngineStatistics, DraftsAreCountedByPositionAndRoundsByAcceptedLength) {
  Fixture f;
  StepSummary s = step_of(1, 1.0, 0.01);
  add_round(s, 6, 5, 5);  // rows, drafts, accepted
  add_round(s, 6, 5, 0);
  add_round(s, 4, 3, 2);
  add_round(s, 1, 0, 0);  // no drafts: no round
  s.confidence_error = 0.5f;
  s.confidences = 13;
  s.policy = DraftPolicy::scheduled;
  EXPECT_EQ(s.decode_rows, 17);
  f.statistics.step(s);
  const std::vector<int> offered = {3, 3, 3, 2, 2, 0, 0, 0}, accepted = {2, 2, 1, 1, 1, 0, 0, 0};
  for (size_t i = 0; i < offered.size(); ++i) {
    const std::string position = "{position=\"" + std::to_string(i + 1) + "\"}";
    EXPECT_EQ(f.value("fathom_engine_drafts_offered_total" + position), offered[i]);
    EXPECT_EQ(f.value("fathom_engine_drafts_accepted_total" + position), accepted[i]);
  }
  EXPECT_EQ(f.value("fathom_engine_accepted_length_count"), 3);
  EXPECT_EQ(f.value("fathom_engine_accepted_length_sum"), 7);
  EXPECT_EQ(f.value("fathom_engine_accepted_length_bucket{le=\"0\"}"), 1);
  EXPECT_EQ(f.value("fathom_engine_accepted_length_bucket{le=\"2\"}"), 2);
  EXPECT_EQ(f.value("fathom_engine_accepted_length_bucket{le=\"4\"}"), 2);
  EXPECT_EQ(f.value("fathom_engine_accepted_length_bucket{le=\"5\"}"), 3);
  EXPECT_EQ(f.value("fathom_engine_draft_policy_steps_total{policy=\"scheduled\"}"), 1);
  const WindowReport report = f.statistics.report(1.0);
  EXPECT_EQ(report.rounds, 3);
  EXPECT_DOUBLE_EQ(report.acceptance_ratio, 7.0 / 13);
  EXPECT_DOUBLE_EQ(report.acceptance[0], 2.0 / 3);
  EXPECT_DOUBLE_EQ(report.acceptance[4], 0.5);
  EXPECT_DOUBLE_EQ(report.verified_mean, 13.0 / 3);
  EXPECT_NEAR(report.confidence_error, 0.5 / 13, 1e-12);
}

TEST(EngineStatistics, RatesAreOfTheWindowAndFallWhileNothingRuns) {
  Fixture f(LogLevel::info, {.window_steps = 4, .line_every = 0});
  double now = 100;
  for (uint64_t i = 1; i <= 10; ++i) {  // 0.5 s each; the first 6 bring 100 tokens, the last 4 bring 8
    StepSummary s = step_of(i, now += 0.5, 0.5);
    s.tokens = i <= 6 ? 100 : 8;
    add_prompt_piece(s, 50, 10, 10);
    f.statistics.step(s);
  }
  const WindowReport report = f.statistics.report(now);
  EXPECT_EQ(report.steps, 4);
  EXPECT_DOUBLE_EQ(report.seconds, 2);
  EXPECT_DOUBLE_EQ(report.steps_per_second, 2);
  EXPECT_DOUBLE_EQ(report.tokens_per_second, 16);
  EXPECT_DOUBLE_EQ(report.prompt_rows_per_second, 100);
  EXPECT_DOUBLE_EQ(report.prompt_time_ratio, 1);
  EXPECT_DOUBLE_EQ(f.statistics.report(now + 6).tokens_per_second, 4) << "32 tokens in 8 s";
}

TEST(EngineStatistics, TheFirstStepIsTheOriginOfTheWindow) {
  Fixture f;
  EXPECT_EQ(f.statistics.report(5).tokens_per_second, 0) << "before anything ran";
  StepSummary s = step_of(1, 1'000.0, 0.5);
  s.tokens = 10;
  f.statistics.step(s);
  EXPECT_DOUBLE_EQ(f.statistics.report(1'000.0).tokens_per_second, 20) << "of 0.5 s, not of 1,000";
}

TEST(EngineStatistics, TheLongestWaitForAFirstTokenLeavesTheWindowWithItsStep) {
  Fixture f(LogLevel::info, {.window_steps = 2, .line_every = 0});
  double now = 0;
  for (int i = 0; i < 3; ++i) {
    if (i == 0) {
      RequestProgress slow, fast;
      f.statistics.arrive(slow, 1, 0, false), f.statistics.arrive(fast, 2, 0.5, false);
      f.statistics.start(slow, 0.5), f.statistics.start(fast, 0.5);
      f.statistics.bring(slow, 1, 1), f.statistics.bring(fast, 1, 1);
    }
    f.statistics.step(step_of(uint64_t(i + 1), now += 1, 1));
    EXPECT_EQ(f.statistics.report(now).first_token_max_seconds, i < 2 ? 1.0 : 0.0) << i;
    EXPECT_EQ(f.statistics.report(now).first_token_mean_seconds, i < 2 ? 0.75 : 0.0) << i;
  }
}

TEST(EngineStatistics, FoundTokensCountAgainstComputedOnesAndReplayedRowsDoNot) {
  Fixture f;
  StepSummary s = step_of(1, 1, 0.1);
  add_prompt_piece(s, 312, 140, 128);  // architecture.md 4: 2,816 found, 184 new, 128 replayed
  s.hit_tokens = 2'816;
  f.statistics.step(s);
  EXPECT_DOUBLE_EQ(f.statistics.report(1).cached_ratio, 2'816.0 / 3'000);
  EXPECT_EQ(f.value("fathom_engine_rows_total{kind=\"prompt\"}"), 184);
  EXPECT_EQ(f.value("fathom_engine_rows_total{kind=\"replayed\"}"), 128);
  EXPECT_EQ(f.value("fathom_engine_prompt_decoder_rows_total"), 140);
  EXPECT_EQ(f.value("fathom_engine_cached_tokens_total"), 2'816);
}

TEST(EngineStatistics, TheCachesCountsAreShownByTierAndEvent) {
  Fixture f;
  PrefixStatistics prefixes;
  prefixes.prompts = 10, prefixes.hits = 4, prefixes.hit_tokens = {1'000, 200, 0, 0}, prefixes.evicted = 3;
  SnapshotStatistics snapshots;
  snapshots.put = 5;
  f.statistics.cache(prefixes, snapshots, 1'351'680);
  prefixes.hit_tokens[1] = 300;
  prefixes.evicted = 1;  // an account went with its counts: a counter never falls
  f.statistics.cache(prefixes, snapshots, 0);
  EXPECT_EQ(f.value("fathom_engine_prefix_hit_tokens_total{tier=\"device\"}"), 1'000);
  EXPECT_EQ(f.value("fathom_engine_prefix_hit_tokens_total{tier=\"ram\"}"), 300);
  EXPECT_EQ(f.value("fathom_engine_prefix_blocks_total{event=\"evicted\"}"), 3);
  EXPECT_EQ(f.value("fathom_engine_snapshots_total{event=\"put\"}"), 5);
  EXPECT_EQ(f.value("fathom_engine_snapshot_bytes"), 0);
}

TEST(EngineStatistics, AStatisticsLineComesEveryNStepsAndSaysThatMoreIsDue) {
  Fixture f(LogLevel::info, {.window_steps = 100, .line_every = 10});
  for (uint64_t i = 1; i <= 25; ++i) {
    StepSummary s = step_of(i, double(i) * 0.01, 0.01);
    add_round(s, 6, 5, 3);
    s.tokens = 4;
    s.used_blocks = 30, s.idle_blocks = 20, s.free_blocks = 50, s.used_slots = 1, s.free_slots = 7;
    EXPECT_EQ(f.statistics.step(s), i % 10 == 0) << i;
  }
  f.log.flush();
  ASSERT_EQ(f.lines.size(), 2u);
  const std::string line = f.lines[1];
  EXPECT_TRUE(line.starts_with("level=info step=20 steps_per_s=100 tokens_per_s=400 ")) << line;
  for (const char* part :
       {"blocks_used_percent=30 ", "blocks_idle_percent=20 ", "slots_used_percent=12.5", "drafts_verified=5 ",
        "drafts_accepted=3 ", "accepted_percent=60 ", "accepted_percent_by_position=100/100/100/0/0"}) {
    EXPECT_NE(line.find(part), std::string::npos) << part << " in " << line;
  }
  EXPECT_NEAR(f.value("fathom_engine_window_tokens_per_second"), 400, 1e-3) << "step times are floats";
  EXPECT_EQ(f.value("fathom_engine_blocks{state=\"idle\"}"), 20);
}

TEST(RequestLine, SaysWhereTimeAndRowsWent) {
  Finish finish = finish_of(FinishReason::stop, 3'000, 101);
  Usage& usage = finish.usage;
  usage.cached_tokens = 2'816, usage.replayed_tokens = 128, usage.encoder_rows = 312, usage.decoder_rows = 140;
  usage.offered = {30, 30, 30, 30, 30}, usage.accepted = {28, 20, 10, 9, 4}, usage.rounds = 30;
  usage.queue_seconds = 0.0012, usage.first_token_seconds = 0.25, usage.total_seconds = 1.25;
  EXPECT_EQ(request_line(12, finish),
            "request=12 reason=stop queue_ms=1.2 prompt_tokens=3000 cached_tokens=2816 computed_rows=184 "
            "replayed_rows=128 decoder_rows=140 generated_tokens=101 drafts=150 drafts_accepted=71 "
            "first_token_ms=250 tokens_per_s=100 total_ms=1250");
  const Json json = json_of(12, finish);
  EXPECT_EQ(json.find("computed_rows")->as_int64(), 184);
  EXPECT_EQ(to_string(*json.find("drafts_accepted")), "[28,20,10,9,4]");
  finish.reason = FinishReason::failed;
  finish.error = Error{ErrorCode::failed, "device \"0\"\nis gone", "step 8", "restart"};
  EXPECT_TRUE(request_line(12, finish).ends_with(R"( code=failed error="device \"0\"\nis gone (step 8): restart")"));
}

TEST(RequestLine, OfARequestThatEndedBeforeItBeganHasNoRate) {
  EXPECT_NE(request_line(1, finish_of(FinishReason::cancelled, 10)).find(" tokens_per_s=0 "), std::string::npos);
}

// Case obs-01: a device call blocks for ever with 2 running requests; not ready after 30 s, for "no step".
TEST(EngineStatistics, Obs01ALoopThatHangsIsNotReadyAndAnIdleOneIs) {
  Fixture f;
  EXPECT_FALSE(f.statistics.stalled(1'000)) << "nobody asks for anything";
  RequestProgress requests[5];
  for (int i = 0; i < 2; ++i) {
    f.statistics.arrive(requests[i], RequestId(i + 1), 1'000, false);
    f.statistics.start(requests[i], 1'000);
  }
  f.statistics.step(step_of(1, 1'001, 0.01));
  EXPECT_FALSE(f.statistics.stalled(1'030));
  for (int i = 2; i < 5; ++i) f.statistics.arrive(requests[i], RequestId(i + 1), 1'020 + i, false);
  const auto reason = f.statistics.stalled(1'032);
  ASSERT_TRUE(reason) << "those who come later are no progress";
  EXPECT_EQ(*reason, "no step for 31 s with 2 running and 3 waiting requests");
  f.statistics.step(step_of(2, 1'033, 0.01));
  EXPECT_FALSE(f.statistics.stalled(1'034));
}

TEST(EngineStatistics, StepsAndTokensNeitherAllocateNorFormatWhileNothingIsLogged) {
  Fixture f(LogLevel::warn, {.window_steps = 100, .line_every = 10});
  std::vector<RequestProgress> requests(256);
  for (size_t i = 0; i < requests.size(); ++i) {
    f.statistics.arrive(requests[i], i + 1, 0, false);
    f.statistics.start(requests[i], 0);
  }
  const int64_t before = allocations_of_this_thread();
  double now = 0;
  for (uint64_t i = 1; i <= 300; ++i) {
    StepSummary s = step_of(i, now += 0.02, 0.02);
    for (RequestProgress& one : requests) {
      f.statistics.bring(one, now, 3);
      add_round(s, 6, 5, 2);
    }
    if (f.statistics.step(s)) f.statistics.cache({}, {}, 0), f.statistics.draft_rates({});
  }
  EXPECT_EQ(allocations_of_this_thread(), before);
}

// Of experts in host memory a device waits, and its seconds are not known: they are not told as none.
TEST(EngineMetrics, SecondsThatNobodyCountsAreNotTold) {
  const auto names = [](const Metrics& metrics) {
    std::set<std::string> out;
    for (const MetricInfo& one : metrics.list()) out.insert(one.name);
    return out;
  };
  constexpr const char* kSeconds = "fathom_engine_expert_wait_seconds_total";
  for (const bool over_bus : {false, true}) {
    Metrics metrics;
    StreamSeries stream(metrics, over_bus);
    StreamStatistics counts;
    counts.over_bus = over_bus;
    counts.waits = 3;
    stream.show(counts);
    EXPECT_EQ(names(metrics).contains(kSeconds), !over_bus);
    EXPECT_TRUE(names(metrics).contains("fathom_engine_expert_waits_total"));
    const std::string json = to_string(to_json(counts));
    EXPECT_EQ(json.find("wait_seconds") != std::string::npos, !over_bus) << json;
    EXPECT_NE(json.find("\"waits\":3"), std::string::npos) << json;
  }
}

// docs/metrics.md has a row for each metric: | `name` | kind | labels | … |.
TEST(EngineMetrics, AreTheOnesThatTheDocumentationExplains) {
  Metrics metrics;
  const EngineStatistics statistics(metrics, nullptr);
  Loop loop({});
  const ReplayMeter meter(loop.loop, ReplayMode::compact, {}, &metrics);
  const StreamSeries stream(metrics);
  const auto text = read_file(std::string(FATHOM_SOURCE_DIR) + "/docs/metrics.md");
  ASSERT_TRUE(text.ok()) << to_string(text.error());
  std::map<std::string, std::pair<std::string, std::string>> documented;
  std::istringstream lines(*text);
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with("| `fathom_engine_")) continue;
    std::vector<std::string> cells;
    std::istringstream row(line.substr(2));
    for (std::string cell; std::getline(row, cell, '|');) {
      while (!cell.empty() && (cell.back() == ' ' || cell.back() == '`')) cell.pop_back();
      cells.push_back(cell.substr(std::min(cell.size(), cell.find_first_not_of(" `"))));
    }
    ASSERT_GE(cells.size(), 6u) << line;
    EXPECT_FALSE(cells[4].empty() || cells[5].empty()) << cells[0] << " has a meaning and says what to do";
    EXPECT_TRUE(documented.emplace(cells[0], std::pair{cells[1], cells[2]}).second) << cells[0] << " twice";
  }
  std::set<std::string> registered;
  for (const MetricInfo& one : metrics.list()) {
    registered.insert(one.name);
    ASSERT_TRUE(documented.contains(one.name)) << one.name << " is not in docs/metrics.md";
    EXPECT_EQ(documented[one.name].first, name_of(one.kind)) << one.name;
    std::string labels;
    for (const std::string& label : one.labels) labels += (labels.empty() ? "" : ", ") + label;
    EXPECT_EQ(documented[one.name].second, labels) << one.name;
  }
  for (const auto& [name, row] : documented) EXPECT_TRUE(registered.contains(name)) << name << " does not exist";
}

}  // namespace
}  // namespace fathom
