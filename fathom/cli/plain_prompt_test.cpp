#include "fathom/cli/plain_prompt.h"

#include <gtest/gtest.h>

#include <fstream>

#include "fathom/base/json.h"

namespace fathom::cli {
namespace {

constexpr const char* kBos = "<｜begin▁of▁sentence｜>";

std::string text_between(const std::string& text, const std::string& open, const std::string& close) {
  const size_t begin = text.find(open) + open.size();
  return text.substr(begin, text.find(close, begin) - begin);
}

/// The conversation that a rendered prompt was made of: the inverse of render(), for prompts of the training data.
Conversation read_back(std::string text) {
  Conversation conversation;
  conversation.thinking = text.ends_with("<think>");
  text = text.substr(std::string(kBos).size());
  const std::string system_token = "<｜System｜>", user = "<｜User｜>", assistant = "<｜Assistant｜>";
  if (text.starts_with(system_token)) {
    std::string head = text.substr(system_token.size(), text.find(user) - system_token.size());
    text = text.substr(text.find(user));
    if (conversation.thinking) {
      conversation.effort = std::stoi(text_between(head, "Reasoning Effort: ", " "));
      head = head.substr(head.find("\n\n") + 2);
    }
    if (const size_t tools = head.find("\n\n## Tools"); tools != std::string::npos) {
      const std::string lines = text_between(head, "### Available Tool Schemas\n\n", "\n\nYou MUST strictly follow");
      conversation.tools =
          *read_tools(*parse_json(
                          "[" +
                              [&] {
                                std::string list = lines;
                                for (size_t at = 0; (at = list.find('\n', at)) != std::string::npos; at += 2)
                                  list.replace(at, 1, ",\n");
                                return list;
                              }() +
                              "]",
                          "tools"),
                      "tools");
      head = head.substr(0, tools);
    }
    if (!head.empty()) conversation.turns.push_back({Turn::Role::system, head, {}, {}});
  }
  while (!text.starts_with(assistant) || text.find("<｜end▁of▁sentence｜>") != std::string::npos) {
    if (text.starts_with(user)) {
      std::string block = text.substr(user.size(), text.find(assistant) - user.size());
      text = text.substr(text.find(assistant));
      if (!block.starts_with("<tool_result>")) {
        conversation.turns.push_back({Turn::Role::user, block, {}, {}});
        continue;
      }
      for (size_t at = 0; at < block.size();) {
        const size_t end = block.find("</tool_result>", at);
        conversation.turns.push_back({Turn::Role::tool, block.substr(at + 13, end - at - 13), {}, {}});
        at = end + 14 + 2;
      }
      continue;
    }
    std::string block = text_between(text, assistant, "<｜end▁of▁sentence｜>");
    text = text.substr(text.find("<｜end▁of▁sentence｜>") + std::string("<｜end▁of▁sentence｜>").size());
    Turn turn;
    turn.role = Turn::Role::assistant;
    if (block.starts_with("<think>")) turn.reasoning = text_between(block, "<think>", "</think>");
    block = block.substr(block.find("</think>") + 8);
    const size_t calls = block.find("\n\n<｜DSML｜");
    if (calls != std::string::npos) turn.calls = parse_calls(block.substr(calls));
    turn.text = block.substr(0, calls);
    conversation.turns.push_back(std::move(turn));
  }
  return conversation;
}

// 400 prompts of the miniature's held-out set: thinking on and off, efforts, systems, tools with calls and results.
TEST(PlainPrompt, RendersThePromptsThatTheMiniatureWasTrainedOn) {
  std::ifstream file(FATHOM_SOURCE_DIR "/models/mini/eval.jsonl");
  int prompts = 0;
  for (std::string line; std::getline(file, line); ++prompts) {
    const std::string expected = parse_json(line, "eval")->find("prompt")->text;
    const RenderedPrompt rendered = render(read_back(expected));
    ASSERT_EQ(rendered.text, expected) << "line " << prompts + 1;
    for (const SpecialRange& range : rendered.special) {
      const std::string token = rendered.text.substr(size_t(range.begin), size_t(range.end - range.begin));
      EXPECT_TRUE(token.starts_with("<") || token == "｜DSML｜") << token;
    }
  }
  EXPECT_EQ(prompts, 400);
}

TEST(PlainPrompt, WhatAUserTypesIsNeverASpecialToken) {
  Conversation conversation;
  conversation.turns.push_back({Turn::Role::user, "<think>｜DSML｜<｜User｜>", {}, {}});
  const RenderedPrompt prompt = render(conversation);
  const auto typed = int64_t(prompt.text.find("<think>｜DSML｜"));
  for (const SpecialRange& range : prompt.special) {
    EXPECT_TRUE(range.end <= typed || range.begin >= typed + int64_t(std::string("<think>｜DSML｜<｜User｜>").size()));
  }
}

TEST(PlainPrompt, EffortHasNamesAndNumbers) {
  EXPECT_FALSE(parse_effort("none")->thinking);
  EXPECT_EQ(parse_effort("low")->number, 50);
  EXPECT_EQ(parse_effort("high")->number, 75);
  EXPECT_EQ(parse_effort("max")->number, 100);
  EXPECT_EQ(parse_effort("1")->number, 1);
  for (const char* text : {"0", "101", "much", "", "50.5"}) EXPECT_FALSE(parse_effort(text)) << text;
}

TEST(PlainPrompt, ToolsComeInBothForms) {
  const auto read = [](const char* text) { return read_tools(*parse_json(text, "t"), "t"); };
  const std::string expected = R"([{"name":"f","description":"","parameters":{}}])";
  EXPECT_EQ(to_string(*read(R"([{"name":"f"}])")), expected);
  EXPECT_EQ(to_string(*read(R"([{"type":"function","function":{"name":"f"}}])")), expected);
  EXPECT_FALSE(read(R"([{"description":"x"}])").ok());
  EXPECT_FALSE(read(R"({"name":"f"})").ok());
}

struct Parts {
  std::string reasoning, text, calls;
};

Parts split(const std::string& answer, size_t piece, AnswerSplitter::Start start, bool tools) {
  AnswerSplitter splitter(start, tools);
  Parts parts;
  const auto take = [&](const std::vector<AnswerPiece>& pieces) {
    for (const AnswerPiece& p : pieces) {
      using Channel = AnswerPiece::Channel;
      (p.channel == Channel::reasoning ? parts.reasoning
       : p.channel == Channel::text    ? parts.text
                                       : parts.calls) += p.text;
    }
  };
  for (size_t at = 0; at < answer.size(); at += piece) take(splitter.push(std::string_view(answer).substr(at, piece)));
  take(splitter.finish());
  return parts;
}

// Tokens cut an answer anywhere; a piece of 1 byte is the worst case.
TEST(AnswerSplitter, CutsDoNotChangeTheParts) {
  using Start = AnswerSplitter::Start;
  const std::string markup =
      "<｜DSML｜ calls>\n<｜DSML｜ invoke name=\"f\">\n<｜DSML｜ parameter name=\"a\" string=\"true\">x "
      "\"y\"</｜DSML｜ parameter>\n"
      "<｜DSML｜ parameter name=\"b\" string=\"false\">[1, 2]</｜DSML｜ parameter>\n</｜DSML｜ invoke>\n</｜DSML｜ "
      "calls>";
  for (size_t piece = 1; piece < 40; ++piece) {
    const Parts a = split("think </thin a\n\n</think>\nText < b", piece, Start::reasoning, false);
    EXPECT_EQ(a.reasoning, "think </thin a");
    EXPECT_EQ(a.text, "Text < b");
    const Parts b = split("Text\n\n" + markup, piece, Start::text, true);
    EXPECT_EQ(b.text, "Text");
    const auto calls = parse_calls(b.calls);
    ASSERT_EQ(calls.size(), 1u);
    EXPECT_EQ(calls[0].name, "f");
    EXPECT_EQ(calls[0].arguments, R"({"a": "x \"y\"", "b": [1, 2]})");
    // Without tools markup is ordinary text, and a plain continuation is never split.
    EXPECT_EQ(split("a\n\n" + markup, piece, Start::text, false).text, "a\n\n" + markup);
    EXPECT_EQ(split("\na</think>b", piece, Start::plain, true).text, "\na</think>b");
  }
}

TEST(AnswerSplitter, WhatIsHeldComesAtTheEnd) {
  const Parts cut = split("abc\n</thi", 1, AnswerSplitter::Start::reasoning, true);
  EXPECT_EQ(cut.reasoning, "abc\n</thi");
}

}  // namespace
}  // namespace fathom::cli
