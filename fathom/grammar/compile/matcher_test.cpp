#include "fathom/grammar/compile/matcher.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "fathom/grammar/compile/testing/byte_vocabulary.h"

namespace fathom::grammar {
namespace {

using testing::json_constraint;
using testing::kStop;

// Tokens that cross the borders of grammar parts, and those of "</think>".
const Vocabulary& small() {
  static const Vocabulary vocabulary = testing::byte_vocabulary(
      {"{\"", "\":",   "\": ", "\",",      "\"}",       "true", "12", "é",     "\xc3", "</", "think",
       ">{",  ">{\"a", ">x",   "</think>", "</think>{", "k>",   "",   "a\":1", "]}",   "[[", "null}"});
  return vocabulary;
}

CompiledGrammar compiled(const Constraint& constraint) {
  auto grammar = compile(constraint, small());
  EXPECT_TRUE(grammar.ok()) << (grammar.ok() ? "" : to_string(grammar.error()));
  return *grammar;
}

std::vector<bool> allowed(Matcher& matcher) {
  std::vector<uint32_t> words(small().mask_words());
  const auto binds = matcher.mask(words);
  EXPECT_TRUE(binds.ok());
  std::vector<bool> out;
  for (int32_t id = 0; id < small().size(); ++id) out.push_back((words[size_t(id) / 32] >> (id % 32) & 1) != 0);
  EXPECT_EQ(words.back() >> (small().size() % 32), 0u);  // nothing beyond the vocabulary
  return out;
}

Constraint object_of_a() {
  return json_constraint(
      R"({"type":"object","properties":{"a":{"type":["integer","string","array"]},"b":{"type":"boolean"}},
                            "required":["a"],"additionalProperties":{"enum":[null,"é"]}})");
}

const std::vector<Constraint>& constraints() {
  static const std::vector<Constraint> all = [] {
    std::vector<Constraint> out = {object_of_a(), json_constraint(""), testing::regex_constraint("(a|é)*1{2,3}\"?")};
    out.push_back(object_of_a());
    out.back().starts_after = "</think>";
    Constraint ebnf;
    ebnf.kind = Constraint::Kind::ebnf;
    ebnf.text = "root ::= \"[\" root? \"]\" | \"é\"";
    out.push_back(ebnf);
    return out;
  }();
  return all;
}

// Every way that a generation may take is a walk of allowed tokens.
TEST(Matcher, TheMaskIsWhatAcceptTakes) {
  std::mt19937 random(7);
  for (const Constraint& constraint : constraints()) {
    const CompiledGrammar grammar = compiled(constraint);
    for (int walk = 0; walk < 12; ++walk) {
      Matcher matcher(grammar);
      for (int step = 0; step < 40 && !matcher.finished(); ++step) {
        const auto mask = allowed(matcher);
        std::vector<int32_t> next;
        for (int32_t id = 0; id < small().size(); ++id) {
          const bool taken = matcher.accept(id);
          if (taken) matcher.rollback(1);
          if (matcher.waiting() && small().bytes_of(id).empty()) continue;  // all that a mask cannot know of
          ASSERT_EQ(bool(mask[size_t(id)]), taken)
              << name_of(constraint.kind) << " token " << id << " '" << small().bytes_of(id) << "'";
          if (taken) next.push_back(id);
        }
        ASSERT_FALSE(next.empty());
        // Letters are many: prefer the longer tokens, and sometimes begin the end of the reasoning.
        int32_t id = next[random() % next.size()];
        if (random() % 2 == 0 && next.back() > kStop)
          id = *std::prev(next.end(), long(1 + random() % std::min<size_t>(4, next.size())));
        ASSERT_TRUE(matcher.accept(id));
      }
    }
  }
}

TEST(Matcher, AfterTheStopTokenNothingBinds) {
  Matcher matcher(compiled(testing::regex_constraint("a")));
  ASSERT_TRUE(matcher.accept('a'));
  EXPECT_TRUE(matcher.complete());
  EXPECT_FALSE(matcher.finished());
  ASSERT_TRUE(matcher.accept(kStop));
  EXPECT_TRUE(matcher.finished());
  std::vector<uint32_t> words(small().mask_words());
  const auto binds = matcher.mask(words);
  ASSERT_TRUE(binds.ok());
  EXPECT_FALSE(*binds);
  EXPECT_EQ(words[0], ~uint32_t(0));
  EXPECT_FALSE(matcher.accept('a'));
  matcher.rollback(1);
  EXPECT_FALSE(matcher.finished());
}

// A step verifies up to 6 rows (5 drafts and the sampled token): any number of them may be refused, by the grammar or
// by the sampler. R-38 asks for 7.
TEST(Matcher, EveryPatternOfSixRowsCanBeTakenBack) {
  for (const bool reasoning : {false, true}) {
    Constraint constraint = object_of_a();
    if (reasoning) constraint.starts_after = "</think>";
    const CompiledGrammar grammar = compiled(constraint);
    const std::string text = std::string(reasoning ? "x</think>" : "") + R"({"a":[1,"é"],"b":true,"c":null})";
    for (size_t begin = 0; begin <= text.size(); ++begin) {
      Matcher matcher(grammar);
      for (size_t i = 0; i < begin; ++i) ASSERT_TRUE(matcher.accept(int32_t(uint8_t(text[i]))));
      const auto before = allowed(matcher);
      for (unsigned pattern = 0; pattern < 64; ++pattern) {  // bit: this row's draft is one that the grammar refuses
        int accepted = 0;
        for (int row = 0; row < 6; ++row) {
          const auto mask = allowed(matcher);
          const size_t at = begin + size_t(accepted);
          const int32_t good = at < text.size() ? int32_t(uint8_t(text[at])) : kStop;
          const auto bad = std::find(mask.begin(), mask.end(), false);
          if ((pattern >> row & 1) != 0 && bad != mask.end()) {
            ASSERT_FALSE(matcher.accept(int32_t(bad - mask.begin())));
            ASSERT_EQ(allowed(matcher), mask);  // a refusal changes nothing
          } else if (at <= text.size()) {
            ASSERT_TRUE(matcher.accept(good));
            ++accepted;
          }
        }
        for (int kept = 0; kept <= accepted; kept += std::max(1, accepted)) {
          matcher.rollback(accepted - kept);
          for (int i = 0; i < kept; ++i) matcher.rollback(1);
          ASSERT_EQ(allowed(matcher), before) << "at " << begin << " pattern " << pattern;
          if (kept == 0 && accepted > 0) {
            for (int i = 0; i < accepted; ++i) {
              const size_t at = begin + size_t(i);
              ASSERT_TRUE(matcher.accept(at < text.size() ? int32_t(uint8_t(text[at])) : kStop));
            }
          }
        }
        if (accepted == 0) matcher.rollback(0);
      }
    }
  }
}

// struct-01: free text, "</think>", then the schema; "</think>" within a string is text.
TEST(Matcher, TheConstraintStartsAfterTheReasoning) {
  Constraint constraint = json_constraint(R"({"type":"object","properties":{"a":{"type":"string"}},"required":["a"]})");
  constraint.starts_after = "</think>";
  Matcher matcher(compiled(constraint));
  for (const char c : std::string("free {\"a\" </thin </th</think>")) {
    EXPECT_TRUE(matcher.waiting());
    ASSERT_TRUE(matcher.accept(int32_t(uint8_t(c))));
  }
  EXPECT_FALSE(matcher.waiting());
  EXPECT_FALSE(matcher.accept('x'));
  for (const char c : std::string(R"({"a":")")) ASSERT_TRUE(matcher.accept(int32_t(uint8_t(c))));
  ASSERT_TRUE(matcher.accept(kStop + 15));  // "</think>" as one token
  for (const char c : std::string("\"}")) ASSERT_TRUE(matcher.accept(int32_t(uint8_t(c))));
  ASSERT_TRUE(matcher.accept(kStop));
}

// Bug that this prevents: the token that ends the reasoning brings the first bytes of the answer along, unchecked.
TEST(Matcher, ATokenAcrossTheEndOfTheReasoningIsChecked) {
  Constraint constraint = object_of_a();
  constraint.starts_after = "</think>";
  Matcher matcher(compiled(constraint));
  for (const char c : std::string("</think")) ASSERT_TRUE(matcher.accept(int32_t(uint8_t(c))));
  const int32_t brace = kStop + 12, key = kStop + 13, x = kStop + 14;  // ">{", ">{"a", ">x"
  const auto mask = allowed(matcher);
  EXPECT_TRUE(mask[size_t(brace)]);
  EXPECT_TRUE(mask[size_t(key)]);
  EXPECT_FALSE(mask[size_t(x)]);
  EXPECT_FALSE(matcher.accept(x));
  ASSERT_TRUE(matcher.accept(key));
  EXPECT_FALSE(matcher.waiting());
  ASSERT_TRUE(matcher.accept('"'));
  matcher.rollback(2);
  EXPECT_TRUE(matcher.waiting());
  ASSERT_TRUE(matcher.accept('>'));
  EXPECT_FALSE(matcher.waiting());
}

TEST(Matcher, ForcedTokensAreTheLongestThatMustCome) {
  Matcher matcher(compiled(json_constraint(R"({"const":"true"})")));
  const auto forced = matcher.forced();
  std::string text;
  for (const int32_t id : forced) {
    text += small().bytes_of(id);
    ASSERT_TRUE(matcher.accept(id));
  }
  EXPECT_EQ(text.substr(0, 5), "\"true");
  EXPECT_EQ(forced[1], kStop + 6);  // "true" is one token
}

TEST(Matcher, AForkHasItsOwnFuture) {
  Matcher one(compiled(testing::regex_constraint("ab|ac")));
  ASSERT_TRUE(one.accept('a'));
  Matcher other = one.fork();
  ASSERT_TRUE(one.accept('b'));
  ASSERT_TRUE(other.accept('c'));
  EXPECT_FALSE(one.accept('c'));
  other.rollback(2);
  EXPECT_FALSE(other.accept('c'));
}

TEST(Matcher, TokensThatSteerAConversationAreNoText) {
  const Vocabulary& vocabulary = small();
  EXPECT_TRUE(vocabulary.bytes_of(kStop + 18).empty());
  Matcher matcher(compiled(json_constraint("")));
  EXPECT_FALSE(allowed(matcher)[size_t(kStop + 18)]);
  EXPECT_FALSE(matcher.accept(kStop + 18));
}

// Bug: a grammar of two rules, which compiles at once, made every token of its answer take longer than the one before,
// and a second of the engine's step after a hundred.
TEST(Matcher, AnAnswerThatTakesTooMuchTimeFailsAlone) {
  Constraint constraint;
  constraint.kind = Constraint::Kind::ebnf;
  constraint.text = "root ::= root root | \"a\"";  // of n letters, n cubed ways
  const auto grammar = compile(constraint, testing::byte_vocabulary());
  ASSERT_TRUE(grammar.ok()) << to_string(grammar.error());
  Matcher matcher(*grammar);
  std::vector<uint32_t> words(9);
  int tokens = 0;
  Result<bool> masked = matcher.mask(words);
  for (; masked.ok() && tokens < 3'000; ++tokens) {
    ASSERT_TRUE(matcher.accept('a'));
    masked = matcher.mask(words);
  }
  ASSERT_FALSE(masked.ok());
  EXPECT_EQ(masked.error().code, ErrorCode::failed);
  EXPECT_EQ(masked.error().where, "constraint");
  EXPECT_NE(masked.error().message.find("masks take too long"), std::string::npos);
  Matcher other(*grammar);
  EXPECT_TRUE(other.mask(words).ok()) << "only that answer";
}

TEST(Matcher, AGrammarWhoseFirstMasksAreSlowIsNotGivenOut) {
  Constraint constraint;
  constraint.kind = Constraint::Kind::ebnf;
  constraint.text = "root ::= x root x | x root | root x | x\nx ::= [a-z ]";
  CompileLimits limits;
  limits.first_masks = std::chrono::milliseconds(0);
  std::vector<std::string> tokens(1, "end");
  for (int i = 0; i < 8'000; ++i)
    tokens.push_back(std::string(size_t(i % 11 + 1), char('a' + i % 26)) + char('a' + i / 26 % 26));
  const auto vocabulary = Vocabulary::make(std::move(tokens), {0});
  const auto grammar = compile(constraint, *vocabulary, limits);
  ASSERT_FALSE(grammar.ok());
  EXPECT_EQ(grammar.error().code, ErrorCode::out_of_range);
  EXPECT_NE(grammar.error().message.find("masks"), std::string::npos);
}

}  // namespace
}  // namespace fathom::grammar
