// The request trace: docs/formats/request-trace.md says what a line means.
#include "fathom/engine/trace.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <set>

#include "fathom/engine/trace_generator.h"

namespace fathom {
namespace {

using testing::HasSubstr;

TEST(Trace, ReadsEveryKey) {
  const auto read = read_trace(
      R"({"arrival":1.5,"prompt_tokens":300,"output_tokens":40,"max_tokens":100,"answers":2,"prefix":[[7,128],[9,100]],)"
      R"("seed":11,"output_seed":12,"tenant":"a","priority":-1,"first_token_seconds":0.5,"between_tokens_seconds":0.05,)"
      R"("session":"s","pause_seconds":2,"cancel_seconds":9,"acceptance":[0.8,0.5]})",
      "t");
  ASSERT_TRUE(read.ok()) << to_string(read.error());
  TraceRequest want;
  want.arrival = 1.5;
  want.prompt_tokens = 300, want.output_tokens = 40, want.max_tokens = 100, want.answers = 2;
  want.prefix = {{7, 128}, {9, 100}};
  want.seed = 11, want.output_seed = 12;
  want.tenant = "a", want.priority = -1, want.session = "s";
  want.first_token_seconds = 0.5, want.between_tokens_seconds = 0.05;
  want.pause_seconds = 2, want.cancel_seconds = 9;
  want.acceptance = {0.8, 0.5};
  EXPECT_TRUE(*read == std::vector{want}) << write_trace(*read);
}

TEST(Trace, ARequestWithoutSeedsHasTextsOfItsOwn) {
  const auto read = read_trace(
      "{\"arrival\":0,\"prompt_tokens\":3,\"output_tokens\":2}\r\n\n"
      "{\"arrival\":0,\"prompt_tokens\":3,\"output_tokens\":2}",
      "t");
  ASSERT_TRUE(read.ok());
  ASSERT_EQ(read->size(), 2u);
  const std::set<uint64_t> seeds = {(*read)[0].seed, (*read)[0].output_seed, (*read)[1].seed, (*read)[1].output_seed};
  EXPECT_EQ(seeds.size(), 4u);
}

// One error a bad line, with line, key and remedy; the good lines between them are read.
TEST(Trace, EachBadLineHasOneErrorThatNamesLineAndKey) {
  const std::string good = R"({"arrival":0,"prompt_tokens":3,"output_tokens":2})";
  const std::vector<std::pair<std::string, std::string>> bad = {
      {R"({"prompt_tokens":3,"output_tokens":2})", "\"arrival\" is missing"},
      {R"({"arrival":-1,"prompt_tokens":3,"output_tokens":2})", "\"arrival\" is -1"},
      {R"({"arrival":"x","prompt_tokens":3,"output_tokens":2})", "\"arrival\" is \"x\""},
      {R"({"arrival":0,"output_tokens":2})", "\"prompt_tokens\" is missing"},
      {R"({"arrival":0,"prompt_tokens":0,"output_tokens":2})", "\"prompt_tokens\" is 0"},
      {R"({"arrival":0,"prompt_tokens":3.5,"output_tokens":2})", "\"prompt_tokens\" is 3.5"},
      {R"({"arrival":0,"prompt_tokens":3,"output_tokens":10000001})", "\"output_tokens\" is 10000001"},
      {R"({"arrival":0,"prompt_tokens":3,"output_tokens":5,"max_tokens":4})", "\"max_tokens\" is 4"},
      {R"({"arrival":0,"prompt_tokens":3,"output_tokens":5,"answers":65})", "\"answers\" is 65"},
      {R"({"arrival":0,"prompt_tokens":3,"output_tokens":5,"prefix":[[1,4]]})", "\"prefix\" has 4 tokens"},
      {R"({"arrival":0,"prompt_tokens":3,"output_tokens":5,"prefix":[[1]]})", "\"prefix\" is [[1]]"},
      {R"({"arrival":0,"prompt_tokens":3,"output_tokens":5,"prefix":7})", "\"prefix\" is 7"},
      {R"({"arrival":0,"prompt_tokens":3,"output_tokens":5,"prefix":[[-1,2]]})", "\"prefix\" is -1"},
      {R"({"arrival":0,"prompt_tokens":3,"output_tokens":5,"seed":-4})", "\"seed\" is -4"},
      {R"({"arrival":0,"prompt_tokens":3,"output_tokens":5,"tenant":4})", "\"tenant\" is 4"},
      {R"({"arrival":0,"prompt_tokens":3,"output_tokens":5,"priority":2000})", "\"priority\" is 2000"},
      {R"({"arrival":0,"prompt_tokens":3,"output_tokens":5,"pause_seconds":1})", "without \"session\""},
      {R"({"arrival":0,"prompt_tokens":3,"output_tokens":5,"cancel_seconds":-1})", "\"cancel_seconds\" is -1"},
      {R"({"arrival":0,"prompt_tokens":3,"output_tokens":5,"acceptance":[1.5]})", "\"acceptance\" is [1.5]"},
      {R"({"arrival":0,"prompt_tokens":3,"output_tokens":5,"prompt":3})", "unknown key \"prompt\""},
      {"[1]", "no object"},
      {"{", "line 43"},
  };
  std::string text;
  for (const auto& [line, want] : bad) text += line + "\n" + good + "\n";
  const TraceFile file = parse_trace(text, "t");
  ASSERT_EQ(file.errors.size(), bad.size());
  EXPECT_EQ(file.requests.size(), bad.size());
  for (size_t i = 0; i < bad.size(); ++i) {
    const std::string error = to_string(file.errors[i]);
    EXPECT_THAT(error, HasSubstr(bad[i].second));
    EXPECT_THAT(error, HasSubstr("t, line " + std::to_string(2 * i + 1)));
    EXPECT_EQ(error.find('\n'), std::string::npos);
  }
  const auto read = read_trace(text, "t");
  ASSERT_FALSE(read.ok());
  EXPECT_THAT(to_string(read.error()), HasSubstr("and 21 further bad lines"));
  EXPECT_THAT(to_string(read_trace("\n\n", "t").error()), HasSubstr("no request"));
}

TEST(Trace, WhatIsWrittenReadsBackTheSame) {
  for (const char* kind : {"poisson", "burst", "agent", "tenants"}) {
    const auto made = make_trace(kind, {.requests = 300});
    ASSERT_TRUE(made.ok());
    const auto read = read_trace(write_trace(*made), kind);
    ASSERT_TRUE(read.ok()) << to_string(read.error());
    EXPECT_TRUE(*read == *made) << kind;
  }
  EXPECT_THAT(to_string(make_trace("bursts", {}).error()), HasSubstr("poisson, burst, agent and tenants"));
}

TEST(Trace, AStreamIsTheSameWhereverItIsReadFrom) {
  std::vector<int32_t> whole;
  append_stream(77, 1001, 50, whole);
  ASSERT_EQ(whole.size(), 1001u);
  for (int64_t i = 0; i < 1001; ++i) {
    ASSERT_EQ(whole[size_t(i)], stream_token(77, i, 50));
    ASSERT_GE(whole[size_t(i)], 2);  // 0 and 1 are special tokens
    ASSERT_LT(whole[size_t(i)], 50);
  }
  EXPECT_NE(stream_token(78, 0, 1 << 30), stream_token(77, 0, 1 << 30));
}

// ---------------------------------------------------------------------------------------------------------- generators

TEST(TraceGenerator, TheSameSeedGivesTheSameTraceAndAnotherOneDoesNot) {
  for (const char* kind : {"poisson", "burst", "agent", "tenants"}) {
    EXPECT_TRUE(*make_trace(kind, {.seed = 3}) == *make_trace(kind, {.seed = 3}));
    EXPECT_FALSE(*make_trace(kind, {.seed = 3}) == *make_trace(kind, {.seed = 4}));
  }
}

// 10,000 gaps: their mean is off by 1 % (one standard error), lengths by 0.8 / 100 of theirs; bounds are 4 of these.
TEST(TraceGenerator, RatesAndLengthsAreThoseAskedFor) {
  const TraceShape shape{.requests = 10'000, .rate = 25, .prompt = {2000, 0.5}, .output = {300, 0.5}};
  for (const char* kind : {"poisson", "burst"}) {
    const auto trace = *make_trace(kind, shape);
    ASSERT_EQ(trace.size(), 10'000u);
    double prompts = 0, outputs = 0;
    for (size_t i = 0; i < trace.size(); ++i) {
      prompts += double(trace[i].prompt_tokens), outputs += double(trace[i].output_tokens);
      if (i > 0) {
        ASSERT_GE(trace[i].arrival, trace[i - 1].arrival);
      }
      ASSERT_LE(trace[i].prompt_tokens + trace[i].output_tokens, shape.most_tokens);
    }
    EXPECT_NEAR(10'000 / trace.back().arrival, 25, 0.04 * 25) << kind;
    EXPECT_NEAR(prompts / 10'000, 2000, 0.03 * 2000);
    EXPECT_NEAR(outputs / 10'000, 300, 0.03 * 300);
  }
}

TEST(TraceGenerator, BurstsAreFasterThanTheMeanAndPausesMakeUpForIt) {
  const auto trace = burst_trace({.requests = 1000, .rate = 10}, {.burst = 50, .factor = 10});
  // Within a burst 49 gaps at 100 a second: 0.49 s, give or take four times 0.07.
  for (size_t burst = 0; burst < 20; ++burst) {
    EXPECT_LT(trace[burst * 50 + 49].arrival - trace[burst * 50].arrival, 0.49 + 4 * 0.07);
    if (burst > 0) {
      EXPECT_GT(trace[burst * 50].arrival - trace[burst * 50 - 1].arrival, 4.5);
    }
  }
}

TEST(TraceGenerator, AnAgentsPromptBeginsWithAllThatItsSessionHasSaid) {
  const auto trace = agent_trace({.requests = 200, .seed = 5}, {.turns = 6});
  std::map<std::string, std::vector<int32_t>> said;
  std::vector<int32_t> first;
  for (const TraceRequest& one : trace) {
    const auto prompt = trace_prompt(one, 1000);
    ASSERT_EQ(int64_t(prompt.size()), one.prompt_tokens);
    auto& before = said[one.session];
    ASSERT_LE(before.size(), prompt.size());
    EXPECT_TRUE(std::equal(before.begin(), before.end(), prompt.begin())) << one.session;
    EXPECT_EQ(before.empty(), !one.pause_seconds.has_value()) << "later turns wait for the one before";
    before = prompt;
    append_stream(one.output_seed, one.output_tokens, 1000, before);
    if (first.empty()) first = prompt;
    EXPECT_TRUE(std::equal(first.begin(), first.begin() + 2048, prompt.begin())) << "all share the system prompt";
  }
  EXPECT_GT(said.size(), 30u);
}

TEST(TraceGenerator, TinyContextsHoldTheirTurns) {
  for (int64_t most = 16; most < 200; most += 3) {
    for (const TraceRequest& one : agent_trace({.requests = 20, .most_tokens = most})) {
      ASSERT_LE(one.prompt_tokens + one.output_tokens, most);
      ASSERT_GE(one.prompt_tokens, 1);
      ASSERT_GE(one.output_tokens, 1);
    }
  }
}

TEST(TraceGenerator, TenantsDifferInClassAndTargets) {
  std::map<std::string, int> count;
  double last = 0;
  for (const TraceRequest& one : tenants_trace({.requests = 1000})) {
    ++count[one.tenant];
    EXPECT_EQ(one.priority, one.tenant == "chat" ? 1 : one.tenant == "batch" ? -1 : 0);
    EXPECT_EQ(one.first_token_seconds.has_value(), one.tenant == "chat");
    EXPECT_GE(one.arrival, last);
    last = one.arrival;
  }
  EXPECT_EQ(count, (std::map<std::string, int>{{"agents", 300}, {"batch", 200}, {"chat", 500}}));
}

}  // namespace
}  // namespace fathom
