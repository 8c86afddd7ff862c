// Expressions against std::regex (ECMAScript), on random texts of a few letters.
#include "fathom/grammar/expression.h"

#include <gtest/gtest.h>

#include <random>
#include <regex>

#include "fathom/grammar/compile/testing/byte_vocabulary.h"

namespace fathom::grammar {
namespace {

using testing::accepts;

const Vocabulary& bytes() {
  static const Vocabulary vocabulary = testing::byte_vocabulary();
  return vocabulary;
}

// A random expression over a, b, ", \ and line breaks.
class Draw {
 public:
  explicit Draw(uint32_t seed) : random_(seed) {}
  int below(int n) { return int(random_() % uint32_t(n)); }
  std::string expression(int depth) {
    std::string out;
    for (int i = 0, n = 1 + below(3); i < n; ++i) out += term(depth);
    if (depth > 0 && below(4) == 0) out += "|" + expression(depth - 1);
    return out;
  }
  std::string text() {
    std::string out;
    for (int i = 0, n = below(7); i < n; ++i) out += "aab\"\\\n1 "[below(8)];
    return out;
  }

 private:
  std::string term(int depth) {
    static const char* const kAtoms[] = {"a",   "b",   "\"",  "\\\\",   "[ab]",  "[^a]", ".",      "\\d",
                                         "\\s", "\\w", "\\n", "[\"-b]", "\\x61", "a{",   "\\u0062"};
    static const char* const kCounts[] = {"", "", "*", "+", "?", "{2}", "{1,3}", "{0,1}?", "{2,}", "*?"};
    std::string atom =
        depth > 0 && below(3) == 0 ? (below(2) ? "(" : "(?:") + expression(depth - 1) + ")" : kAtoms[below(15)];
    if (atom == "a{") return "a";
    return atom + kCounts[below(10)];
  }
  std::mt19937 random_;
};

TEST(Expression, WholeAnswersAgreeWithStdRegex) {
  int matched = 0;
  for (uint32_t seed = 0; seed < 300; ++seed) {
    Draw draw(seed);
    const std::string expression = draw.expression(2);
    const auto grammar = compile(testing::regex_constraint(expression), bytes());
    ASSERT_TRUE(grammar.ok()) << expression << to_string(grammar.error());
    const std::regex oracle(expression);
    for (int i = 0; i < 25; ++i) {
      const std::string text = draw.text();
      const bool matches = std::regex_match(text, oracle);
      ASSERT_EQ(accepts(*grammar, text), matches) << expression << " on " << text << " seed " << seed;
      matched += matches;
    }
  }
  EXPECT_GT(matched, 200);
}

TEST(Expression, PatternsAgreeWithStdRegexAnywhereInTheText) {
  int matched = 0;
  for (uint32_t seed = 0; seed < 300; ++seed) {
    Draw draw(1000 + seed);
    const std::string pattern = (draw.below(3) ? "" : "^") + draw.expression(1) + (draw.below(3) ? "" : "$");
    Json schema = Json::object();
    schema.set("type", Json::of("string"));
    schema.set("pattern", Json::of(pattern));
    const auto grammar = compile(testing::json_constraint(to_string(schema)), bytes());
    ASSERT_TRUE(grammar.ok()) << pattern << to_string(grammar.error());
    const std::regex oracle(pattern);
    for (int i = 0; i < 25; ++i) {
      const std::string text = draw.text();
      std::string quoted;
      append_json_string(quoted, text);
      const bool matches = std::regex_search(text, oracle);
      ASSERT_EQ(accepts(*grammar, quoted), matches) << pattern << " on " << quoted << " seed " << seed;
      matched += matches;
    }
  }
  EXPECT_GT(matched, 1000);
}

TEST(Expression, AnchorsStandAtTheEnds) {
  const auto inner = compile(testing::json_constraint(R"({"type":"string","pattern":"^(a|b)$|^(^c)|d$"})"), bytes());
  ASSERT_TRUE(inner.ok());
  for (const char* text : {"\"a\"", "\"cx\"", "\"xd\""}) EXPECT_TRUE(accepts(*inner, text)) << text;
  for (const char* text : {"\"ax\"", "\"xc\"", "\"dx\""}) EXPECT_FALSE(accepts(*inner, text)) << text;
}

TEST(Expression, CharactersBeyondAsciiAreOne) {
  const auto grammar = compile(testing::regex_constraint("[α-ω]{2}|\\u{1F600}|[^a]"), bytes());
  ASSERT_TRUE(grammar.ok());
  for (const char* text : {"αω", "😀", "é"}) EXPECT_TRUE(accepts(*grammar, text)) << text;
  for (const char* text : {"a", "αa", "😀😀"}) EXPECT_FALSE(accepts(*grammar, text)) << text;
}

}  // namespace
}  // namespace fathom::grammar
