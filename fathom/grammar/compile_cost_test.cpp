// Estimates beside what xgrammar 0.2.9 took on one core of an AMD EPYC with 129,280 tokens (docs/decisions/0010).
#include "fathom/grammar/compile_cost.h"

#include <gtest/gtest.h>

#include <chrono>
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

TEST(CompileCost, TheEstimateItselfIsQuickWhateverTheText) {
  const auto begin = std::chrono::steady_clock::now();
  for (const std::string& text :
       {repeated("(", 200'000), repeated("+", 200'000), "root ::= a" + repeated("*", 200'000), repeated("[", 200'000),
        "root ::= " + repeated("root ", 50'000), repeated("a ::= a | ", 25'000), repeated("\"\\", 100'000),
        tangle(5'000), "root ::= " + repeated("(((((\"a\"?)?)?)?)? ", 12'000), repeated("x(", 100'000)}) {
    (void)compile_milliseconds(text);
  }
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(20));
}

}  // namespace
}  // namespace fathom::grammar
