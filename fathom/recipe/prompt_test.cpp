#include "fathom/recipe/prompt.h"

#include <gtest/gtest.h>

#include <random>

#include "fathom/tokenizer/sample_tokenizer.h"

namespace fathom::recipe {
namespace {

Message message_of(Message::Role role, std::string text) {
  Message message;
  message.role = role;
  message.content = std::move(text);
  return message;
}
Message user(std::string text) { return message_of(Message::Role::user, std::move(text)); }
Message system(std::string text) { return message_of(Message::Role::system, std::move(text)); }
Message result(std::string id, std::string text) {
  Message message = message_of(Message::Role::tool, std::move(text));
  message.call_id = std::move(id);
  return message;
}
Message assistant(std::string text, std::optional<std::string> reasoning = {},
                  std::optional<std::vector<ToolCall>> calls = {}) {
  Message message = message_of(Message::Role::assistant, std::move(text));
  message.reasoning = std::move(reasoning);
  message.calls = std::move(calls);
  return message;
}
std::vector<ToolDefinition> tool_f() {
  std::vector<ToolDefinition> tools(1);
  tools[0].name = "f";
  return tools;
}
std::vector<ImageSource> image_at(int64_t offset) {
  std::vector<ImageSource> images(1);
  images[0].offset = offset;
  return images;
}

std::string text_of(const Conversation& conversation, ModelVersion version = ModelVersion::v41) {
  return render(conversation, version).text;
}

TEST(Prompt, ContentOfAllRolesStandsBehindItsToken) {
  Conversation talk;
  talk.thinking = false;
  talk.messages = {system("S1\n\nS2"), user("q")};
  EXPECT_EQ(text_of(talk), "<｜begin▁of▁sentence｜><｜System｜>S1\n\nS2<｜User｜>q<｜Assistant｜></think>");
  EXPECT_EQ(text_of(talk, ModelVersion::v4), "<｜begin▁of▁sentence｜>S1\n\nS2<｜User｜>q<｜Assistant｜></think>");
}

TEST(Prompt, WithoutMessagesThereIsOnlyTheHeader) {
  EXPECT_EQ(text_of({}), "<｜begin▁of▁sentence｜><｜Assistant｜><think>");
}

// Case codec-02.
TEST(Prompt, WithoutToolsOldReasoningIsDropped) {
  Conversation talk;
  talk.effort = Effort::high;
  talk.messages = {user("a"), assistant("b", "LONG OLD REASONING"), user("c")};
  EXPECT_NE(text_of(talk).find("<｜Assistant｜></think>b<｜end▁of▁sentence｜>"), std::string::npos);
  EXPECT_EQ(text_of(talk).find("LONG OLD"), std::string::npos);
  talk.tools = tool_f();
  EXPECT_NE(text_of(talk).find("<think>LONG OLD REASONING</think>b"), std::string::npos);
}

TEST(Prompt, ResultsStandInTheOrderOfTheCalls) {
  Conversation talk;
  talk.thinking = false;
  talk.messages = {user("hi"), assistant("", {}, {{{"c2", "f", "{}"}, {"c1", "g", "{}"}}}), result("c1", "B"),
                   result("c2", "A")};
  const std::string text = text_of(talk);
  EXPECT_NE(text.find("<｜User｜><tool_result>A</tool_result>\n\n<tool_result>B</tool_result>"), std::string::npos);
  EXPECT_LT(text.find("invoke name=\"f\""), text.find("invoke name=\"g\""));
  // V4 sorts the calls by their ids, and the results with them.
  const std::string sorted = text_of(talk, ModelVersion::v4);
  EXPECT_NE(sorted.find("<｜User｜><tool_result>B</tool_result>\n\n<tool_result>A</tool_result>"), std::string::npos);
  EXPECT_GT(sorted.find("invoke name=\"f\""), sorted.find("invoke name=\"g\""));
}

TEST(Prompt, ArgumentsThatAreNoObjectAreOneParameter) {
  Conversation talk;
  talk.thinking = false;
  for (const char* raw : {"", "[1]", "5", "not json", "{\"a\":1}x", "{\"a\":1e400}", "{\"a\":\"\\ud83d\"}"}) {
    talk.messages = {assistant("", {}, {{{"c", "f", raw}}})};
    const std::string whole =
        std::string("parameter name=\"arguments\" string=\"true\">") + raw + "</｜DSML｜ parameter>\n";
    EXPECT_NE(text_of(talk).find(whole), std::string::npos) << raw;
  }
  talk.messages = {assistant("", {}, {{{"c", "f", R"({"a":"x\ny","b":[1,2.50],"a":"z"})"}}})};
  EXPECT_NE(
      text_of(talk).find("<｜DSML｜ invoke name=\"f\">\n<｜DSML｜ parameter name=\"a\" string=\"true\">z</｜DSML｜ "
                         "parameter>\n<｜DSML｜ parameter name=\"b\" string=\"false\">[1, 2.5]</｜DSML｜ parameter>\n"
                         "</｜DSML｜ invoke>\n</｜DSML｜ calls><｜end▁of▁sentence｜>"),
      std::string::npos);
}

// Found by comparing with deepseek-recipe: docs/recipe-findings.md, prompt.
TEST(Prompt, SmallNumbersAreSpeltAsTheVersionSpellsThem) {
  Conversation talk;
  talk.tools = tool_f();
  talk.tools[0].parameters = *parse_json(R"({"x":[1e-5,3e-7,1e16,1e-4]})", "");
  talk.messages = {user("u"), assistant("", "", std::vector<ToolCall>{{"1", "f", R"({"n":3e-7,"m":[0.00001]})"}})};
  const std::string v4 = text_of(talk, ModelVersion::v4), v41 = text_of(talk, ModelVersion::v41);
  for (const char* spelt : {R"("x": [0.00001, 3e-7, 1e+16, 0.0001])", R"(false">3e-7<)", R"(false">[0.00001]<)"}) {
    EXPECT_NE(v4.find(spelt), v4.npos) << spelt << "\n" << v4;
  }
  for (const char* spelt : {R"("x": [1e-05, 3e-07, 1e+16, 0.0001])", R"(false">3e-07<)", R"(false">[1e-05]<)"}) {
    EXPECT_NE(v41.find(spelt), v41.npos) << spelt << "\n" << v41;
  }
}

TEST(Prompt, ARequiredCallIsOpened) {
  Conversation talk;
  talk.thinking = false;
  talk.messages = {user("hi")};
  talk.tools = tool_f();
  talk.tool_choice = ToolChoice::required;
  EXPECT_TRUE(text_of(talk).ends_with("<｜Assistant｜></think>\n\n<｜DSML｜ calls>\n"));
  EXPECT_TRUE(text_of(talk, ModelVersion::v4).ends_with("<｜Assistant｜></think>\n\n<｜DSML｜tool_calls>\n"));
}

// D-6.
TEST(Prompt, ANumberReplacesTheOneOfTheEffort) {
  Conversation talk;
  talk.messages = {user("hi")};
  talk.effort = Effort::max;
  EXPECT_NE(text_of(talk).find("Reasoning Effort: 100 (range"), std::string::npos);
  talk.effort_number = 37;
  EXPECT_NE(text_of(talk).find("Reasoning Effort: 37 (range"), std::string::npos);
}

TEST(Prompt, SpellingsFollowTheTable) {
  TokenSpellings spellings;
  spellings[SpecialToken::dsml] = "<<D>>";
  spellings[SpecialToken::thinking_end] = "[/t]";
  spellings[SpecialToken::image] = "<img>";
  Conversation talk;
  talk.thinking = false;
  talk.tools = tool_f();
  talk.messages = {user("<img><img>")};
  talk.messages[0].images = image_at(5);
  const Prompt prompt = render(talk, ModelVersion::v41, spellings);
  EXPECT_EQ(prompt.text.find("｜DSML｜"), std::string::npos);
  EXPECT_EQ(prompt.text.find("</think>"), std::string::npos);
  std::vector<std::string> images;
  for (const SpecialRange& range : prompt.special) {
    const std::string spelt = prompt.text.substr(size_t(range.begin), size_t(range.end - range.begin));
    if (spelt == "<img>") images.push_back(prompt.text.substr(size_t(range.begin) - 5, 5));
  }
  EXPECT_EQ(images, std::vector<std::string>{"<img>"});  // the second one is the image, the first is text
}

TEST(Prompt, AnImageWhoseTokenIsNotThereHasNoPlace) {
  Conversation talk;
  talk.messages = {user("plain")};
  for (const int64_t offset : {int64_t(-1), int64_t(0), int64_t(5), int64_t(1) << 60}) {
    talk.messages[0].images = image_at(offset);
    const Prompt prompt = render(talk, ModelVersion::v41);
    EXPECT_EQ(prompt.images.size(), 1u);
    EXPECT_EQ(prompt.text.find("<｜image｜>"), std::string::npos);
  }
}

// -- properties of any conversation ---------------------------------------------------------------------------------

// Texts in which hostile pieces may stand; `tame` puts harmless bytes of the same number in their places.
class RandomConversation {
 public:
  RandomConversation(unsigned seed, bool tame) : random_(seed), tame_(tame) {}

  Conversation make() {
    Conversation talk;
    for (int n = below(8); n > 0; --n) talk.messages.push_back(message());
    talk.thinking = below(2);
    talk.tools = tools(below(3));
    talk.tool_choice = ToolChoice(below(3));
    if (below(2)) talk.effort = Effort(below(4));
    talk.format.kind = ResponseFormat::Kind(below(4));
    talk.format.schema = schema();
    return talk;
  }

 private:
  std::mt19937 random_;
  bool tame_;

  int below(int n) { return int(random_() % unsigned(n)); }

  std::string text() {
    static const TokenSpellings spellings;
    std::string out;
    for (int n = below(4); n > 0; --n) {
      const int piece = below(kSpecialTokens + 6);
      if (piece < kSpecialTokens) {
        const std::string& hostile = spellings.spelling[size_t(piece)];
        out += tame_ ? std::string(hostile.size(), 'x') : hostile;
      } else {
        static const char* kPlain[] = {"", "a", "\n", " ü ", "\n\n", "</"};
        out += kPlain[piece - kSpecialTokens];
      }
    }
    return out;
  }

  Json schema() {
    Json out = Json::object();
    for (int n = below(3); n > 0; --n) out.set("k" + std::to_string(n) + text(), Json::of(text()));
    return out;
  }

  std::vector<ToolDefinition> tools(int n) {
    std::vector<ToolDefinition> tools;
    for (; n > 0; --n) {
      ToolDefinition tool;
      tool.name = text();
      if (below(2)) tool.description = text();
      tool.parameters = schema();
      tool.defer_loading = below(4) == 0;
      tools.push_back(std::move(tool));
    }
    return tools;
  }

  Message message() {
    Message message;
    message.role = Message::Role(below(5));
    message.content = text();
    switch (message.role) {
      case Message::Role::system:
        if (below(4) == 0) message.tools = tools(below(3));
        break;
      case Message::Role::assistant:
        if (below(2)) message.reasoning = text();
        if (below(2)) {
          message.calls.emplace();
          for (int n = below(4); n > 0; --n) {
            std::string arguments = below(3) ? to_string(schema()) : text();
            message.calls->push_back({"c" + std::to_string(below(4)), text(), std::move(arguments)});
          }
        }
        message.prefix = below(5) == 0;
        break;
      case Message::Role::tool:
        if (below(5)) message.call_id = "c" + std::to_string(below(4));
        break;
      default: break;
    }
    return message;
  }
};

TEST(Prompt, WhatPeopleWriteNeverBecomesASpecialToken) {
  for (unsigned seed = 0; seed < 3000; ++seed) {
    const ModelVersion version = seed % 2 ? ModelVersion::v4 : ModelVersion::v41;
    const Prompt hostile = render(RandomConversation(seed, false).make(), version);
    const Prompt tame = render(RandomConversation(seed, true).make(), version);
    ASSERT_EQ(hostile.text.size(), tame.text.size()) << seed;
    ASSERT_EQ(hostile.special.size(), tame.special.size()) << seed;
    for (size_t i = 0; i < tame.special.size(); ++i) {
      ASSERT_EQ(hostile.special[i].begin, tame.special[i].begin) << seed;
      ASSERT_EQ(hostile.special[i].end, tame.special[i].end) << seed;
    }
  }
}

TEST(Prompt, RangesAscendAndEachSpellsAToken) {
  const TokenSpellings spellings;
  for (unsigned seed = 0; seed < 1000; ++seed) {
    const Prompt prompt =
        render(RandomConversation(seed, false).make(), seed % 2 ? ModelVersion::v4 : ModelVersion::v41);
    int64_t end = 0;
    for (const SpecialRange& range : prompt.special) {
      ASSERT_LE(end, range.begin);
      end = range.end;
      const std::string spelt = prompt.text.substr(size_t(range.begin), size_t(range.end - range.begin));
      ASSERT_NE(std::find(spellings.spelling.begin(), spellings.spelling.end(), spelt), spellings.spelling.end())
          << spelt;
    }
    ASSERT_LE(end, int64_t(prompt.text.size()));
  }
}

// -- ids ------------------------------------------------------------------------------------------------------------

TEST(EncodePrompt, OnlyRangesAreAddedTokens) {
  const auto tokenizer = Tokenizer::parse(sample::tokenizer_json(), "sample");
  ASSERT_TRUE(tokenizer.ok());
  const Prompt prompt{.text = "<think><think>", .special = {{7, 14}}, .images = {}};
  const auto ids = encode(prompt, *tokenizer);
  ASSERT_TRUE(ids.ok());
  EXPECT_EQ(ids->back(), 264);
  EXPECT_EQ(std::count(ids->begin(), ids->end(), 264), 1);
  const auto missing = encode({.text = "<｜User｜>", .special = {{0, 12}}, .images = {}}, *tokenizer);
  ASSERT_FALSE(missing.ok());
  EXPECT_EQ(missing.error().code, ErrorCode::bad_input);
  EXPECT_EQ(missing.error().message, "special token \"<｜User｜>\" is not in the added vocabulary");
}

TEST(ExpandImages, RepeatsEachImageTokenAsOftenAsItsImageTakes) {
  const std::vector<int32_t> ids = {1, 9, 2, 9};
  const std::vector<int> tokens = {3, 1};
  const auto expanded = expand_images(ids, 9, tokens);
  ASSERT_TRUE(expanded.ok());
  EXPECT_EQ(*expanded, (std::vector<int32_t>{1, 9, 9, 9, 2, 9}));
  for (const std::vector<int>& wrong : {std::vector<int>{}, {3}, {1, 1, 1}}) {
    const auto refused = expand_images(ids, 9, wrong);
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(refused.error().code, ErrorCode::usage);
  }
}

}  // namespace
}  // namespace fathom::recipe
