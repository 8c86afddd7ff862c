// Records of random traces, replayed: every plan comes out again (issue 5 item 1, R-40); and what damaged files do.
#include "fathom/engine/schedule_replay.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <deque>
#include <filesystem>
#include <map>
#include <random>
#include <set>

#include "fathom/base/mapped_file.h"
#include "fathom/engine/schedule_recorder.h"

namespace fathom {
namespace {

struct Trace {
  uint32_t seed = 1;
  int sequences = 16;
  int64_t step_rows = 64;
  int32_t blocks = 40;
  double overcommit = 0;
  size_t in_flight = 0;  // steps planned before the oldest is committed
  bool prefixes = false;
  bool snapshots = false;
  int requests = 400;
};

struct Recorded {
  std::string text;
  int64_t plans = 0, steps = 0, commits = 0, preempted = 0, hit_tokens = 0, restores = 0;
};

std::string temporary_path() {
  static int number = 0;
  return (std::filesystem::temp_directory_path() /
          ("fathom_schedule_" + std::to_string(getpid()) + "_" + std::to_string(++number)))
      .string();
}

PrefixRoot root_of(const std::string& salt) {
  PrefixRoot root;
  root.model = "a model whose name is not written";
  root.salt = salt;
  return root;
}

// A made-up device: what each sequence still has to say, and where it ends.
struct Truth {
  int64_t left = 0;
  bool done = false;
};

Recorded record(const Trace& trace) {
  std::mt19937 random(trace.seed);
  const auto one_in = [&](uint32_t n) { return random() % n == 0; };
  SchedulerLimits limits{.context = int64_t(trace.blocks) * kBlockTokens,
                         .sequences = trace.sequences,
                         .step_rows = trace.step_rows,
                         .blocks = trace.blocks,
                         .overcommit = trace.overcommit};
  limits.shape = {32, 6, 4, 4};
  if (trace.snapshots) limits.snapshot_bytes = 100, limits.snapshots.budget_bytes = 100'000;
  Scheduler scheduler(limits);
  ScheduleRecorder recorder(scheduler);
  const std::string path = temporary_path();
  const auto started = recorder.start(path);
  EXPECT_TRUE(started.ok()) << to_string(started.error());

  Recorded out;
  std::map<SequenceId, Truth> device;
  std::map<SequenceId, int64_t> prefill;
  std::deque<StepPlan> planned;
  std::set<SequenceId> open, compiling;
  SequenceId next = 1;
  int32_t account = 0;
  if (trace.prefixes) account = recorder.add_account({.floor_blocks = 3, .time_to_live = std::chrono::seconds(500)});

  const auto submit = [&] {
    const int64_t length = std::min<int64_t>(one_in(6) ? 1 + random() % 700 : 1 + random() % 90, limits.context - 1);
    Sequence one;
    one.id = next++;
    one.prompt_tokens = length;
    one.max_tokens =
        std::max<int64_t>(1, std::min<int64_t>(one_in(10) ? 300 : 1 + random() % 40, limits.context - length));
    one.ids.resize(size_t(length));
    const int32_t family = int32_t(random() % 3);  // of prompts that begin alike
    for (size_t i = 0; i < one.ids.size(); ++i) one.ids[i] = i < 300 ? family : int32_t(random() % 50'000);
    one.stop_ids = {1};
    one.drafts = int(random() % 6);
    one.priority = int(random() % 3);
    one.tenant = random() % 4;
    one.arrived = double(out.plans) + 0.125;
    if (one_in(5)) one.first_token_by = one.arrived + 3;
    if (one_in(5)) one.between_tokens = 0.05;
    if (one_in(10)) one.ready = false, compiling.insert(one.id);
    if (one_in(4)) one.mode = ReplayMode::halo;
    if (trace.prefixes && !one_in(5)) {
      PrefixRoot root = root_of("tenant " + std::to_string(one.tenant));
      root.replay = replay_class_of(one.mode);
      const int32_t pays = one.tenant == 0 ? account : 0;
      one.chain.root = scheduler.pools().prefixes.open_root(root, one_in(3) ? sha256_key : xxh3_key, pays);
    } else if (one_in(6) && !open.empty()) {
      const Sequence* parent = scheduler.find(*open.rbegin());
      if (parent != nullptr && parent->generated() == 0 && parent->mode == one.mode) {
        one.parent = parent->id;
        one.ids = parent->ids;
        one.prompt_tokens = parent->prompt_tokens;
        one.max_tokens = parent->max_tokens;
      }
    }
    device[one.id] = {one.max_tokens, false};
    open.insert(one.id);
    recorder.submit(std::move(one));
  };
  const auto execute = [&](const StepPlan& plan) {
    StepResult result;
    result.begin = {0};
    for (const StepPlan::Rows& rows : plan.rows) {
      Truth& truth = device[rows.sequence];
      bool goes_on = false;
      if (!truth.done && rows.first + rows.count >= prefill[rows.sequence]) {
        const int drafts = int(std::min<int64_t>(rows.drafts, truth.left - 1));
        const int accepted = drafts <= 0 ? 0 : int(random() % uint32_t(drafts + 1));
        for (int i = 0; i <= accepted; ++i) {  // what follows a stop is computed too, and dropped
          const int32_t token = one_in(60) ? 1 : int32_t(2 + random() % 100);
          result.tokens.push_back(token);
          --truth.left;
          truth.done |= token == 1 || truth.left == 0;
        }
        goes_on = !truth.done;
      }
      result.begin.push_back(int32_t(result.tokens.size()));
      const Sequence* sequence = scheduler.find(rows.sequence);
      const int most = goes_on && sequence != nullptr ? drafts_for(truth.left, sequence->drafts) : 0;
      result.proposed.push_back(most > 0 ? int(random() % uint32_t(most + 1)) : 0);
    }
    return result;
  };

  while (next <= SequenceId(trace.requests) || !scheduler.idle() || !planned.empty()) {
    if (out.plans > 200'000) {
      ADD_FAILURE() << "the trace does not end";
      break;
    }
    while (next <= SequenceId(trace.requests) && open.size() < 40 && !one_in(3)) submit();
    if (one_in(40) && !open.empty()) {
      const SequenceId id = *std::next(open.begin(), long(random() % open.size()));
      recorder.cancel(id);
      device[id].done = true;
      open.erase(id), compiling.erase(id);
    }
    if (!compiling.empty() && (one_in(4) || open.size() == compiling.size())) {
      recorder.make_ready(*compiling.begin());
      compiling.erase(compiling.begin());
    }
    if (trace.overcommit > 0 && one_in(30) && !open.empty()) recorder.preempt(*open.begin());
    if (one_in(20)) recorder.set_cost({.decode_seconds = 0.01, .prompt_row_seconds = 0.001 * double(1 + random() % 9)});
    const StepPlan plan = recorder.plan(double(out.plans++) + 0.1);
    out.preempted += int64_t(plan.preempted.size());
    out.restores += int64_t(plan.restores.size());
    for (const StepPlan::Rows& rows : plan.rows) prefill[rows.sequence] = scheduler.find(rows.sequence)->prefill_tokens;
    if (!plan.empty()) planned.push_back(plan), ++out.steps;
    if (planned.empty() || (!plan.empty() && planned.size() <= trace.in_flight)) continue;
    const StepPlan oldest = planned.front();
    planned.pop_front();
    ++out.commits;
    const auto outcomes = recorder.commit(oldest, execute(oldest));
    std::vector<SequenceId> running;
    for (const Outcome& outcome : outcomes) {
      if (outcome.finish) open.erase(outcome.sequence);
      running.push_back(outcome.sequence);
    }
    for (const SequenceId id : running) {
      const Sequence* sequence = trace.snapshots ? scheduler.find(id) : nullptr;
      if (sequence == nullptr || sequence->cached < kBlockTokens || !one_in(3)) continue;
      recorder.put_snapshot(id, sequence->cached / kBlockTokens * kBlockTokens, [](std::span<uint8_t>) {});
    }
    const auto state = scheduler.verify();
    EXPECT_TRUE(state.ok()) << to_string(state.error());
  }
  out.hit_tokens = scheduler.counts().hit_tokens;
  const auto stopped = recorder.stop();
  EXPECT_TRUE(stopped.ok());
  out.text = read_file(path).value();
  std::filesystem::remove(path);
  return out;
}

class ScheduleReplay : public testing::TestWithParam<Trace> {};

TEST_P(ScheduleReplay, ARecordedTraceIsDecidedTheSameWayAgain) {
  const Recorded recorded = record(GetParam());
  const auto report = replay_schedule_text(recorded.text, "trace");
  ASSERT_TRUE(report.ok()) << to_string(report.error());
  ASSERT_FALSE(report->difference) << to_string(*report);
  EXPECT_EQ(report->requests, GetParam().requests);
  EXPECT_EQ(report->plans, recorded.plans);
  EXPECT_EQ(report->steps, recorded.steps);
  EXPECT_EQ(report->commits, recorded.commits);
  EXPECT_EQ(report->preempted, recorded.preempted);
  EXPECT_FALSE(report->cut);
  // The trace does what it is there for.
  if (GetParam().overcommit > 0) {
    EXPECT_GT(recorded.preempted, 0);
  }
  if (GetParam().prefixes) {
    EXPECT_GT(recorded.hit_tokens, 0);
  }
  if (GetParam().snapshots) {
    EXPECT_GT(recorded.restores, 0);
  }
}

// Alone; blocks short and overcommitted, so that some are preempted; steps in flight; both; prefixes; with snapshots;
// all of it; one sequence.
INSTANTIATE_TEST_SUITE_P(Traces, ScheduleReplay,
                         testing::Values(Trace{}, Trace{.seed = 2, .blocks = 12, .overcommit = 1},
                                         Trace{.seed = 3, .in_flight = 1},
                                         Trace{.seed = 4, .blocks = 12, .overcommit = 1, .in_flight = 2},
                                         Trace{.seed = 5, .step_rows = 500, .prefixes = true},
                                         Trace{.seed = 6, .step_rows = 500, .prefixes = true, .snapshots = true},
                                         Trace{.seed = 7,
                                               .step_rows = 500,
                                               .blocks = 26,
                                               .overcommit = 3,
                                               .in_flight = 1,
                                               .prefixes = true,
                                               .snapshots = true,
                                               .requests = 2'000},
                                         Trace{.seed = 8, .sequences = 1, .step_rows = 200, .prefixes = true}));

TEST(ScheduleRecord, HoldsNoTokenAndNoNameOfAnybody) {
  const Trace trace{.seed = 9, .step_rows = 500, .prefixes = true, .requests = 30};
  const std::string one = record(trace).text, two = record(trace).text;
  EXPECT_EQ(one.find("tenant 1"), std::string::npos);
  EXPECT_EQ(one.find("model"), std::string::npos);
  EXPECT_NE(one.find("\"blocks\":[\""), std::string::npos) << "blocks have names";
  EXPECT_NE(one, two) << "under a key of each record";
  EXPECT_EQ(one.size(), two.size());
}

TEST(ScheduleReplayReport, TheFirstDifferenceIsNamedByStepAndLine) {
  std::string text = record({.requests = 20}).text;
  size_t at = 0;
  for (int step = 1; step < 6; ++step) at = text.find("\"rows\":[[", at) + 1;  // the fifth plan that has rows
  const int64_t line = 1 + std::count(text.begin(), text.begin() + long(at), '\n');
  const size_t comma = text.find(',', at + 8);
  text.insert(comma + 1, "1");  // another first position
  const auto report = replay_schedule_text(text, "trace");
  ASSERT_TRUE(report.ok()) << to_string(report.error());
  ASSERT_TRUE(report->difference);
  EXPECT_EQ(report->difference->step, 5);
  EXPECT_EQ(report->difference->line, line);
  EXPECT_EQ(report->difference->what, "rows");
  EXPECT_NE(report->difference->recorded, report->difference->replayed);
  EXPECT_NE(to_string(*report).find("step 5"), std::string::npos);
}

TEST(ScheduleReplayReport, ARecordThatBreaksOffIsReplayedUpToThere) {
  std::string text = record({.requests = 20}).text;
  text.resize(text.size() * 2 / 3);
  while (text.back() == '\n' || text.back() == '}') text.pop_back();
  const auto report = replay_schedule_text(text, "trace");
  ASSERT_TRUE(report.ok()) << to_string(report.error());
  EXPECT_TRUE(report->cut);
  EXPECT_FALSE(report->difference);
  EXPECT_GT(report->commits, 0);
}

Error error_of(const std::string& text) {
  const auto report = replay_schedule_text(text, "a.jsonl");
  return report.ok() ? Error{ErrorCode::usage, "no error: " + to_string(*report), "", ""} : report.error();
}

TEST(ScheduleReplayErrors, NameTheLineAndTheField) {
  const std::string header =
      to_string(schedule_header({.context = 1'000, .sequences = 4, .step_rows = 64, .blocks = 8})) + "\n";
  const std::string submit = R"({"submit":{"id":1,"prompt":10,"max":5,"arrived":0,"mode":"compact"}})"
                             "\n";
  const std::string plan = R"({"plan":{"now":0,"rows":[[1,0,10,10,0,1]]}})"
                           "\n";
  const std::vector<std::array<std::string, 3>> cases = {
      {"", "this is no record of a scheduler", "a.jsonl"},
      {"{}\n", "this is no record of a scheduler", "a.jsonl:1"},
      {"not JSON\n", "", "a.jsonl:1"},
      {R"({"format":"fathom schedule","version":3,"limits":{}})"
       "\n",
       "record of version 3", "a.jsonl:1"},
      {R"({"format":"fathom schedule","version":0,"limits":{}})"
       "\n",
       "record of version 0", "a.jsonl:1"},
      {R"({"format":"fathom schedule","version":2,"group":[4,4],"limits":{"context":2}})"
       "\n",
       "group is no whole number from 0 to 3", "a.jsonl:1"},
      {R"({"format":"fathom schedule","version":2,"group":[0],"limits":{"context":2}})"
       "\n",
       "group is no pair of rank and ranks", "a.jsonl:1"},
      {header + R"({"group":"busy"})"
                "\n",
       "group is no kind of step", "a.jsonl:2"},
      {header + R"({"plan":{"now":0,"take":"all"}})"
                "\n",
       "plan.take is no choice of rows", "a.jsonl:2"},
      {R"({"format":"fathom schedule","version":1,"limits":{"context":0}})"
       "\n",
       "limits.context is no whole number from 2 to 67108864", "a.jsonl:1"},
      {header + "[]\n", "the line is no object", "a.jsonl:2"},
      {header + R"({"sing":1})"
                "\n",
       "sing is no call", "a.jsonl:2"},
      {header + R"({"cancel":"x"})"
                "\n",
       "", "a.jsonl:2"},
      {header + R"({"submit":{"id":1,"prompt":10,"max":5,"arrived":0,"mode":"quick"}})"
                "\n",
       "submit.mode is no mode of replay", "a.jsonl:2"},
      {header + R"({"submit":{"id":1,"prompt":999,"max":5,"arrived":0,"mode":"off"}})"
                "\n",
       "submit.max does not fit into the context", "a.jsonl:2"},
      {header + submit + submit, "submit.id was there before", "a.jsonl:3"},
      {header + R"({"commit":{"tokens":[]}})"
                "\n",
       "commit commits a step that was not planned", "a.jsonl:2"},
      {header + submit + plan +
           R"({"commit":{"tokens":[1,1]}})"
           "\n",
       "commit.tokens is not of the planned step", "a.jsonl:4"},
      {header + submit + plan +
           R"({"commit":{"tokens":[4]}})"
           "\n",
       "commit.tokens is no result of its step", "a.jsonl:4"},
      {header + submit + plan +
           R"({"commit":{"tokens":[1],"blocks":[[0,"0123456789abcdef"]]}})"
           "\n",
       "commit.blocks names a block that is not filled", "a.jsonl:4"},
      {header + submit + plan +
           R"({"plan":{"now":-1}})"
           "\n",
       "plan.now goes back", "a.jsonl:4"},
      {header + R"({"snapshot":[1,128]})"
                "\n",
       "snapshot is taken where there are none", "a.jsonl:2"},
  };
  for (const auto& [text, message, where] : cases) {
    const Error error = error_of(text);
    if (!message.empty()) {
      EXPECT_EQ(error.message, message) << text;
    }
    EXPECT_EQ(error.where, where) << to_string(error);
    EXPECT_NE(error.code, ErrorCode::usage) << to_string(error);
  }
  EXPECT_EQ(error_of(header + submit + plan +
                     R"({"commit":{"tokens":[1]}})"
                     "\n")
                .code,
            ErrorCode::usage)
      << "is fine";
}

// As the fuzzer does, in small: bytes changed, lines dropped, doubled and swapped. One error or a report, never an
// abort.
TEST(ScheduleReplayErrors, DamagedFilesGiveOneErrorOrADifference) {
  const std::string whole = record({.seed = 11,
                                    .blocks = 14,
                                    .overcommit = 1,
                                    .in_flight = 1,
                                    .prefixes = true,
                                    .snapshots = true,
                                    .requests = 40})
                                .text;
  std::vector<std::string> lines;
  for (size_t at = 0; at < whole.size();) {
    const size_t end = whole.find('\n', at);
    lines.push_back(whole.substr(at, end - at + 1));
    at = end + 1;
  }
  std::mt19937 random(5);
  int errors = 0, differences = 0, equal = 0;
  for (int round = 0; round < 400; ++round) {
    std::vector<std::string> damaged = lines;
    for (uint32_t i = 0; i <= random() % 3; ++i) {
      const size_t line = random() % damaged.size();
      std::string& text = damaged[line];
      switch (random() % 5) {
        case 0: text[random() % text.size()] = char(random() % 256); break;
        case 1: {  // another digit
          const size_t at = text.find_first_of("0123456789", random() % text.size());
          if (at != std::string::npos) text[at] = char('0' + random() % 10);
          break;
        }
        case 2: text.clear(); break;
        case 3: text += text; break;
        case 4: std::swap(text, damaged[random() % damaged.size()]); break;
      }
    }
    std::string text;
    for (const std::string& line : damaged) text += line;
    const auto report = replay_schedule_text(text, "damaged", {.blocks = 4'096, .sequences = 256});
    if (!report.ok()) {
      ++errors;
      EXPECT_FALSE(report.error().message.empty());
    } else {
      ++(report->difference ? differences : equal);
    }
  }
  EXPECT_GT(errors, 50);
  EXPECT_GT(differences, 50);
  EXPECT_LT(equal, 200);
}

// 18.1 with R-40: each of four ranks writes its own record; each replays to the same plans, with the rows that the
// group agreed on and the kinds that it noted, and the records agree about every step.
TEST(ScheduleRecorder, RanksOfAGroupRecordWhatTheyAgreedOn) {
  constexpr size_t kRanks = 4;
  std::mt19937 random(3);
  SchedulerLimits limits{.context = 2'000, .sequences = 6, .step_rows = 128, .blocks = 60, .overcommit = 0};
  limits.separate = true;
  std::vector<std::unique_ptr<Scheduler>> ranks;
  std::vector<std::unique_ptr<ScheduleRecorder>> recorders;
  std::vector<std::string> paths;
  for (size_t r = 0; r < kRanks; ++r) {
    ranks.push_back(std::make_unique<Scheduler>(limits));
    recorders.push_back(std::make_unique<ScheduleRecorder>(*ranks.back()));
    paths.push_back(temporary_path());
    ASSERT_TRUE(recorders[r]->start(paths[r], {int(r), int(kRanks)}).ok());
  }
  SequenceId next = 1;
  int64_t ended = 0, steps = 0;
  for (; ended < 100; ++steps) {
    ASSERT_LT(steps, 100'000);
    const double now = double(steps) * 0.02;
    for (size_t r = 0; r < kRanks && next <= 100; ++r) {
      if (random() % 6 != 0) continue;
      Sequence one;
      one.id = next++;
      one.ids.assign(1 + random() % 400, 5);
      one.prompt_tokens = int64_t(one.ids.size());
      one.max_tokens = 1 + int64_t(random() % 60);
      one.arrived = now;
      recorders[r]->submit(std::move(one));
    }
    std::vector<StepDescriptor> wishes, done;
    for (const auto& rank : ranks) wishes.push_back(rank->wish(now));
    const bool prompts = runs_prompts(wishes);
    std::vector<StepPlan> plans;
    for (size_t r = 0; r < kRanks; ++r) {
      plans.push_back(recorders[r]->plan(now, prompts ? StepRows::prompts : StepRows::decode));
      done.push_back(describe(plans[r], *ranks[r]));
    }
    if (prompts && agree(done).kind == StepKind::idle) {  // the second vote
      for (size_t r = 0; r < kRanks; ++r) {
        plans[r] = recorders[r]->plan(now, StepRows::decode);
        done[r] = describe(plans[r], *ranks[r]);
      }
    }
    for (size_t r = 0; r < kRanks; ++r) {
      StepResult result;
      result.begin = {0};
      for (const StepPlan::Rows& rows : plans[r].rows) {
        if (rows.first + rows.count >= ranks[r]->find(rows.sequence)->prefill_tokens) result.tokens.push_back(9);
        result.begin.push_back(int32_t(result.tokens.size()));
      }
      if (plans[r].empty()) continue;
      for (const Outcome& outcome : recorders[r]->commit(plans[r], result)) ended += outcome.finish.has_value();
    }
    for (auto& recorder : recorders) recorder->note_group_step(agree(done).kind);
  }
  std::vector<ReplayReport> reports;
  for (size_t r = 0; r < kRanks; ++r) {
    ASSERT_TRUE(recorders[r]->stop().ok());
    const auto report = replay_schedule(paths[r]);
    std::filesystem::remove(paths[r]);
    ASSERT_TRUE(report.ok()) << to_string(report.error());
    ASSERT_FALSE(report->difference) << to_string(*report);
    EXPECT_EQ(report->group, (RankGroup{int(r), int(kRanks)}));
    EXPECT_EQ(int64_t(report->group_steps.size()), steps);
    EXPECT_EQ(to_string(*report).find("rank " + std::to_string(r) + " of 4: "), 0u);
    reports.push_back(*report);
  }
  EXPECT_EQ(first_disagreement(reports), std::nullopt);
  StepKind& changed = reports[2].group_steps[11];
  changed = changed == StepKind::idle ? StepKind::decode : StepKind::idle;
  ASSERT_TRUE(first_disagreement(reports));
  EXPECT_EQ(first_disagreement(reports)->find("step 12 is "), 0u) << *first_disagreement(reports);
  EXPECT_NE(first_disagreement(reports)->find(" for rank 2"), std::string::npos);
}

TEST(ScheduleReplayReport, ARecordOfVersionOneIsReadAsAGroupOfOne) {
  std::string text = record({.requests = 20}).text;
  const size_t at = text.find("\"version\":2");
  ASSERT_NE(at, std::string::npos);
  text[at + 10] = '1';
  const auto report = replay_schedule_text(text, "old");
  ASSERT_TRUE(report.ok()) << to_string(report.error());
  EXPECT_FALSE(report->difference) << to_string(*report);
  EXPECT_EQ(report->group, RankGroup{});
  EXPECT_EQ(to_string(*report).find("rank"), std::string::npos);
}

TEST(ScheduleRecorder, BeginsOnlyBeforeTheFirstDecision) {
  Scheduler scheduler({.context = 1'000, .sequences = 4, .step_rows = 64, .blocks = 8});
  ScheduleRecorder recorder(scheduler);
  EXPECT_FALSE(recorder.recording());
  Sequence one;
  one.id = 1;
  one.ids = {2, 3};
  one.prompt_tokens = 2;
  recorder.submit(one);
  EXPECT_EQ(recorder.plan(0).rows.size(), 1u) << "without a record it just passes on";
  const auto started = recorder.start(temporary_path());
  ASSERT_FALSE(started.ok());
  EXPECT_EQ(started.error().code, ErrorCode::usage);
  EXPECT_TRUE(recorder.stop().ok());
}

TEST(ScheduleRecorder, AFileThatCannotBeWrittenIsAnErrorAtTheEndAndNotBefore) {
  Scheduler scheduler({.context = 1'000, .sequences = 4, .step_rows = 64, .blocks = 8});
  ScheduleRecorder recorder(scheduler);
  EXPECT_EQ(recorder.start("/nowhere/at/all").error().code, ErrorCode::not_found);
  if (!std::filesystem::exists("/dev/full")) GTEST_SKIP() << "no /dev/full here";
  ASSERT_TRUE(recorder.start("/dev/full").ok());
  for (int i = 0; i < 20'000; ++i) recorder.plan(i);
  const auto stopped = recorder.stop();
  ASSERT_FALSE(stopped.ok());
  EXPECT_EQ(stopped.error().code, ErrorCode::failed);
  EXPECT_EQ(stopped.error().where, "/dev/full");
}

}  // namespace
}  // namespace fathom
