// Estimates beside what xgrammar 0.2.9 took on one core of an AMD EPYC with 129,280 tokens (docs/decisions/0010).
#include "fathom/grammar/compile_cost.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <ctime>
#include <functional>
#include <iterator>
#include <string>

#include "fathom/grammar/constraint_grammar.h"

namespace fathom::grammar {
namespace {

std::string repeated(std::string_view part, int times) {
  std::string out;
  for (int i = 0; i < times; ++i) out += part;
  return out;
}

std::string name(int i) { return "r" + std::to_string(i); }

std::string chain(int rules) {
  std::string out = "root ::= r0\n";
  for (int i = 0; i < rules; ++i) out += name(i) + " ::= [a-z ] " + name((i + 1) % rules) + " | \"x\"\n";
  return out;
}

// Every rule begins with every other one.
std::string tangle(int rules) {
  std::string out = "root ::= r0\n";
  for (int i = 0; i < rules; ++i) {
    out += name(i) + " ::= [a-z ] " + name((i * 7 + 1) % rules) + " | [a-z ]* " + name((i * 13 + 5) % rules) +
           " | \"x\"\n";
  }
  return out;
}

Constraint strict_tools(int tools, int fields) {
  Constraint out;
  out.kind = Constraint::Kind::tool_call;
  out.markup = {"｜DSML｜", " calls", " "};
  for (int i = 0; i < tools; ++i) {
    std::string properties;
    for (int k = 0; k < fields; ++k) {
      properties += std::string(k == 0 ? "" : ",") + "\"field_" + std::to_string(i) + "_" + std::to_string(k) +
                    (k % 2 == 0 ? R"(":{"type":"string"})" : R"(":{"type":"integer","minimum":0,"maximum":100})");
    }
    const auto schema =
        parse_json(R"({"type":"object","properties":{)" + properties + R"(},"additionalProperties":false})", "s");
    out.tools.push_back({"tool_" + std::to_string(i), *schema, true});
  }
  return out;
}

TEST(CompileCost, IsWhatCompilationTookWithinAFactorOfThree) {
  const struct {
    const char* what;
    std::string grammar;
    double measured;  // ms
  } cases[] = {
      {"100 rules in a circle", chain(100), 680},
      {"400 rules in a circle", chain(400), 2760},
      {"1,000 letters", "root ::= " + repeated("[a-z] ", 1'000), 1210},
      {"30 letters that may be left out", "root ::= " + repeated("[a-z]? ", 30), 670},
  };
  for (const auto& one : cases) {
    const double estimate = compile_milliseconds(one.grammar);
    EXPECT_GT(estimate, one.measured / 3) << one.what;
    EXPECT_LT(estimate, one.measured * 3) << one.what;
  }
}

// Bug: 1,000 short rules that overlap passed every limit and were still being compiled after two minutes of a core.
TEST(CompileCost, WhatTookMinutesIsRefused) {
  for (const std::string& grammar : {tangle(1'000), tangle(50), chain(4'000), "root ::= " + repeated("[a-z]? ", 15'000),
                                     "root ::= " + repeated("[a-z] ", 30'000)}) {
    Constraint constraint;
    constraint.kind = Constraint::Kind::ebnf;
    constraint.text = grammar;
    const auto made = grammar_of(constraint);
    ASSERT_FALSE(made.ok()) << grammar.substr(0, 100);
    EXPECT_EQ(made.error().code, ErrorCode::out_of_range);
    EXPECT_EQ(made.error().where, "ebnf");
    EXPECT_NE(made.error().message.find("compiling the grammar would take about"), std::string::npos);
  }
}

TEST(CompileCost, ManyStrictToolsAreCountedTogether) {
  EXPECT_TRUE(grammar_of(strict_tools(16, 10)).ok());
  EXPECT_TRUE(grammar_of(strict_tools(128, 10)).ok());
  GrammarLimits limits;
  limits.compile_milliseconds = 500;
  const auto refused = grammar_of(strict_tools(128, 10), limits);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().where, "tools");
}

double processor_seconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return double(now.tv_sec) + 1e-9 * double(now.tv_nsec);
}

// The estimate guards against texts that are made to take long: it may not be what takes long itself. Four times the
// text takes about four times as long; what took sixteen times as long would be quadratic.
TEST(CompileCost, TheEstimateTakesTimeInProportionToTheText) {
  constexpr double kTooShortToCompare = 0.02;
  using MadeOf = std::function<std::string(int)>;
  const MadeOf made[] = {
      [](int n) { return repeated("(", 200 * n); },
      [](int n) { return repeated("+", 200 * n); },
      [](int n) { return "root ::= a" + repeated("*", 200 * n); },
      [](int n) { return repeated("[", 200 * n); },
      [](int n) { return "root ::= " + repeated("root ", 50 * n); },
      [](int n) { return repeated("a ::= a | ", 25 * n); },
      [](int n) { return repeated("\"\\", 100 * n); },
      [](int n) { return tangle(5 * n); },
      [](int n) { return "root ::= " + repeated("(((((\"a\"?)?)?)?)? ", 12 * n); },
      [](int n) { return repeated("x(", 100 * n); },
  };
  for (size_t i = 0; i < std::size(made); ++i) {
    double seconds[2] = {1e9, 1e9};
    for (const int turn : {0, 1, 0, 1}) {
      const std::string text = made[i](turn == 0 ? 50 : 200);
      const double begin = processor_seconds();
      (void)compile_milliseconds(text);
      seconds[turn] = std::min(seconds[turn], processor_seconds() - begin);
    }
    EXPECT_LT(seconds[1], 10 * std::max(seconds[0], kTooShortToCompare)) << "text " << i;
  }
}

}  // namespace
}  // namespace fathom::grammar
