// Calls across the rooms: what the codec writes into prompts is what the grammar takes, and whatever the grammar lets a
// model write is what the codec reads as calls whose arguments follow their schemas (spec/recipe.md 6.3, 8.1; R-38).
#include <gtest/gtest.h>

#include <random>

#include "fathom/grammar/compile/testing/byte_vocabulary.h"
#include "fathom/grammar/compile/testing/schema_oracle.h"
#include "fathom/recipe/answer_parser.h"
#include "fathom/recipe/conversation.h"
#include "fathom/recipe/tool_markup.h"

namespace fathom {
namespace {

using grammar::Constraint;
using grammar::testing::accepts;
using recipe::ModelVersion;

const grammar::Vocabulary& bytes() {
  static const grammar::Vocabulary vocabulary = grammar::testing::byte_vocabulary();
  return vocabulary;
}

constexpr const char* kBook =
    R"({"type":"object","properties":{"title":{"type":"string"},"count":{"type":"integer","minimum":1,"maximum":99},
  "kind":{"enum":["a","b",3,null]},"when":{"type":["string","null"],"pattern":"^[0-9]{2}:[0-9]{2}$"},
  "more":{"type":"object","properties":{"tags":{"type":"array","items":{"type":"string"}}},"required":["tags"],"additionalProperties":false}},
  "required":["title","count"],"additionalProperties":false})";

Constraint constraint_of(Constraint::Kind kind, ModelVersion version, bool strict) {
  Constraint constraint;
  constraint.kind = kind;
  constraint.markup = recipe::call_markup(version, recipe::TokenSpellings());
  constraint.tools = {
      {"book", *parse_json(kBook, "book"), strict},
      {"ping", *parse_json(R"({"type":"object","properties":{},"additionalProperties":false})", "ping"), strict},
      {"any", Json::object(), false}};
  return constraint;
}

grammar::CompiledGrammar compiled(Constraint::Kind kind, ModelVersion version, bool strict) {
  auto out = grammar::compile(constraint_of(kind, version, strict), bytes());
  EXPECT_TRUE(out.ok()) << (out.ok() ? "" : to_string(out.error()));
  return *out;
}

std::string written(ModelVersion version, const std::vector<recipe::ToolCall>& calls) {
  const recipe::TokenSpellings spellings;
  recipe::PromptWriter writer(version, spellings, 100);
  std::vector<const recipe::ToolCall*> list;
  for (const auto& call : calls) list.push_back(&call);
  recipe::write_calls(writer, list);
  return writer.take().text;
}

TEST(Constraints, WhatPromptsSpellIsAccepted) {
  const std::vector<std::vector<recipe::ToolCall>> cases = {
      {{"", "ping", "{}"}},
      {{"", "book", R"({"title":"x <b> \"y\" </ D","count":7})"}},
      {{"", "book", R"({"title":"","count":99,"kind":"a","when":"12:30","more":{"tags":["x","｜"]}})"}},
      {{"", "book", R"({"title":"1","count":1,"kind":null,"when":null})"},
       {"", "ping", "{}"},
       {"", "any", R"({"q":{"w":[1,true]},"s":"t"})"}},
      {{"", "any", "no object"}},
  };
  for (const ModelVersion version : {ModelVersion::v4, ModelVersion::v41}) {
    for (const bool strict : {true, false}) {
      const auto open = compiled(Constraint::Kind::tool_call, version, strict);
      const auto required = compiled(Constraint::Kind::tool_call_required, version, strict);
      for (const auto& calls : cases) {
        std::string block = written(version, calls);
        // The character that begins the marker stands in JSON strings as its escape.
        if (const size_t at = block.find("\"｜\""); at != std::string::npos) block.replace(at + 1, 3, "\\uff5c");
        EXPECT_TRUE(accepts(open, "thinking</think>Text < and </ more.\n\n" + block)) << block;
        EXPECT_TRUE(accepts(required, block.substr(block.find('\n') + 1))) << block;
        EXPECT_FALSE(accepts(open, block + "x"));
        EXPECT_FALSE(accepts(open, block.substr(0, block.size() - 3)));
      }
    }
  }
}

TEST(Constraints, FreeTextNeedsNoCall) {
  const auto open = compiled(Constraint::Kind::tool_call, ModelVersion::v41, true);
  EXPECT_TRUE(accepts(open, "Just < text <｜DSM and more <｜"));
  EXPECT_TRUE(accepts(open, ""));
  EXPECT_FALSE(accepts(compiled(Constraint::Kind::tool_call_required, ModelVersion::v41, true), "Text"));
}

TEST(Constraints, MalformedCallsAreRefused) {
  const auto open = compiled(Constraint::Kind::tool_call, ModelVersion::v41, true);
  const std::string good = written(ModelVersion::v41, {{"", "book", R"({"title":"t","count":7,"when":"12:30"})"}});
  ASSERT_TRUE(accepts(open, good));
  struct Change {
    const char *from, *to;
  };
  const Change changes[] = {
      {" calls>\n", "calls>\n"},                   // the wrapper's name
      {"name=\"book\"", "name=\"bok\""},           // no such tool
      {"name=\"book\"", "name=\"book\" x=\"1\""},  // another attribute
      {"name=\"title\"", "name=\"titel\""},        // no such parameter
      {"name=\"title\" string=\"true\"", "name=\"title\" string=\"false\""},
      {"name=\"title\" string=\"true\"", "name=\"title\""},
      {"name=\"count\" string=\"false\">7", "name=\"count\" string=\"true\">7"},
      {"string=\"false\">7", "string=\"false\">700"},
      {"string=\"false\">7", "string=\"false\">seven"},
      {"12:30", "noon"},
      {"</｜DSML｜ invoke>", "</｜DSML｜ parameter>"},
  };
  for (const Change& change : changes) {
    std::string bad = good;
    const size_t at = bad.find(change.from);
    ASSERT_NE(at, std::string::npos) << change.from;
    bad.replace(at, std::string_view(change.from).size(), change.to);
    EXPECT_FALSE(accepts(open, bad)) << bad;
  }
}

// A walk that closes what it opened now and then; between, any ASCII that the mask has (the decoder in front of the
// parser makes characters of all else).
std::string walk(const grammar::CompiledGrammar& compiled, uint32_t seed) {
  std::mt19937 random(seed);
  grammar::Matcher matcher(compiled);
  std::vector<uint32_t> words(bytes().mask_words());
  std::string text;
  for (int step = 0; step < 5000; ++step) {
    if (random() % 30 == 0) {  // the end of a value, as a whole: byte by byte it would hardly ever come
      int taken = 0;
      const std::string end = "</｜DSML｜";
      while (size_t(taken) < end.size() && matcher.accept(int32_t(uint8_t(end[size_t(taken)])))) ++taken;
      if (size_t(taken) < end.size()) {
        matcher.rollback(taken);
      } else {
        text += end;
      }
    }
    EXPECT_TRUE(matcher.mask(words).ok());
    const auto allowed = [&](int32_t id) { return (words[size_t(id) / 32] >> (id % 32) & 1) != 0; };
    std::vector<int32_t> usual;
    for (int32_t id = 0; id < 256; ++id) {
      if (allowed(id) && (id >= 32 || id == '\n') && id < 128) usual.push_back(id);
    }
    int32_t next = usual.empty() ? -1 : usual[random() % usual.size()];
    for (const char c : std::string("</\"]}>")) {
      if (allowed(int32_t(uint8_t(c))) && random() % 5 == 0) next = int32_t(uint8_t(c));
    }
    if (next < 0 || (allowed(grammar::testing::kStop) && step > 20)) {
      if (allowed(grammar::testing::kStop)) return text;
      for (next = 0; next < 256 && !allowed(next);) ++next;
    }
    EXPECT_TRUE(matcher.accept(next));
    text += char(next);
  }
  return {};  // it did not find an end
}

TEST(Constraints, WhateverTheMaskAllowsIsReadAsCallsThatFollowTheirSchemas) {
  for (const ModelVersion version : {ModelVersion::v4, ModelVersion::v41}) {
    const Constraint constraint = constraint_of(Constraint::Kind::tool_call_required, version, true);
    const auto grammar = grammar::compile(constraint, bytes());
    ASSERT_TRUE(grammar.ok());
    int answers = 0, books = 0;
    for (uint32_t seed = 0; seed < 150; ++seed) {
      const std::string text = walk(*grammar, seed);
      if (text.empty()) continue;
      ++answers;
      recipe::Parsing parsing;
      parsing.starts_in_tool_calls = true;
      recipe::AnswerParser parser(parsing);
      std::vector<std::pair<std::string, std::string>> calls;
      const auto collect = [&] {
        for (const auto& run : parser.runs()) {
          if (run.kind == recipe::Delta::Kind::call) calls.emplace_back(parser.text(run), "");
          if (run.kind == recipe::Delta::Kind::arguments) calls.back().second += parser.text(run);
          EXPECT_NE(run.kind, recipe::Delta::Kind::content);
          EXPECT_NE(run.kind, recipe::Delta::Kind::call_dropped);
        }
      };
      parser.push(text);
      collect();
      parser.finish();
      collect();
      ASSERT_FALSE(calls.empty()) << text;
      EXPECT_EQ(parser.calls_complete(), int(calls.size())) << text;
      EXPECT_EQ(parser.arguments_repaired(), 0) << text;
      for (const auto& [name, arguments] : calls) {
        const auto value = parse_json(arguments, "arguments");
        ASSERT_TRUE(value.ok()) << arguments << "\nof " << text;
        for (const auto& tool : constraint.tools) {
          if (tool.name != name) continue;
          EXPECT_TRUE(grammar::testing::valid(tool.parameters, *value, tool.parameters)) << name << arguments;
          books += name == "book";
        }
      }
    }
    EXPECT_GT(answers, 50);
    EXPECT_GT(books, 10);
  }
}

}  // namespace
}  // namespace fathom
