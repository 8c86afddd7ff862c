#include "fathom/cli/chat_request.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <sstream>

#include "fathom/base/mapped_file.h"
#include "fathom/cli/chat_history.h"

namespace fathom::cli {
namespace {

const std::string kEnd = "<｜end▁of▁sentence｜>";

std::string between(const std::string& text, const std::string& open, const std::string& close) {
  const size_t begin = text.find(open) + open.size();
  return text.substr(begin, text.find(close, begin) - begin);
}

/// What an assistant turn of a prompt says, read as the answer that it once was.
Answer read_turn(const std::string& text, bool thinking) {
  recipe::Parsing parsing;
  if (thinking) parsing.stage = recipe::ThinkingStage::reasoning_start;
  recipe::AnswerReader reader(parsing, nullptr, 1);
  Answer answer;
  const auto take = [&] {
    using Kind = recipe::Delta::Kind;
    for (const recipe::Delta& delta : reader.deltas()) {
      if (delta.kind == Kind::reasoning) answer.reasoning += delta.text;
      if (delta.kind == Kind::content) answer.text += delta.text;
      if (delta.kind == Kind::call) answer.calls.push_back({std::string(delta.id), std::string(delta.text), ""});
      if (delta.kind == Kind::arguments) answer.calls.back().arguments += delta.text;
    }
  };
  EXPECT_TRUE(reader.text(text, 1).ok());
  take();
  EXPECT_TRUE(reader.finish(recipe::BackendFinish::stop).ok());
  take();
  return answer;
}

struct Read {
  Json messages = Json::array();
  ChatFrame frame;
};

/// The conversation that a prompt of the training data was made of: the inverse of rendering.
Read read_back(std::string text) {
  const std::string system = "<｜System｜>", user = "<｜User｜>", assistant = "<｜Assistant｜>";
  Read read;
  const bool thinking = text.ends_with("<think>");
  read.frame.effort = Json::of("none");
  text = text.substr(text.find('>') + std::string(">").size());
  if (text.starts_with(system)) {
    std::string head = text.substr(system.size(), text.find(user) - system.size());
    text = text.substr(text.find(user));
    if (thinking) {
      read.frame.effort = Json::of(std::stoi(between(head, "Reasoning Effort: ", " ")));
      head = head.substr(head.find("\n\n") + 2);
    }
    if (const size_t tools = head.find("\n\n## Tools"); tools != std::string::npos) {
      std::istringstream lines(between(head, "### Available Tool Schemas\n\n", "\n\nYou MUST strictly follow"));
      for (std::string line; std::getline(lines, line);) {
        Json tool = Json::object();
        tool.set("type", Json::of("function"));
        tool.set("function", *parse_json(line, "tool"));
        read.frame.tools.push(std::move(tool));
      }
      head = head.substr(0, tools);
    }
    if (!head.empty()) read.frame.system = head;
  }
  while (!text.starts_with(assistant) || text.find(kEnd) != std::string::npos) {
    if (text.starts_with(user)) {
      const std::string block = text.substr(user.size(), text.find(assistant) - user.size());
      text = text.substr(text.find(assistant));
      if (!block.starts_with("<tool_result>")) {
        read.messages.push(chat_message("user", block));
        continue;
      }
      for (size_t at = 0; at < block.size();) {
        const size_t end = block.find("</tool_result>", at);
        const auto call = open_call(read.messages);
        EXPECT_TRUE(call.has_value());
        read.messages.push(tool_message(call ? call->id : "", block.substr(at + 13, end - at - 13)));
        at = end + 14 + 2;
      }
      continue;
    }
    std::string block = between(text, assistant, kEnd);
    text = text.substr(text.find(kEnd) + kEnd.size());
    const bool has_reasoning = block.starts_with("<think>");
    block = block.substr(block.find('>') + 1);  // of <think> or </think>
    read.messages.push(assistant_message(read_turn(block, has_reasoning)));
  }
  return read;
}

// 400 prompts of the miniature's held-out set: thinking on and off, efforts, systems, tools with calls and results.
TEST(ChatRequest, RendersThePromptsThatTheMiniatureWasTrainedOn) {
  const auto text = read_file(FATHOM_SOURCE_DIR "/models/mini/tokenizer.json");
  ASSERT_TRUE(text.ok());
  const auto tokenizer = Tokenizer::parse(*text, "tokenizer");
  ASSERT_TRUE(tokenizer.ok());
  std::ifstream file(FATHOM_SOURCE_DIR "/models/mini/eval.jsonl");
  int prompts = 0;
  for (std::string line; std::getline(file, line); ++prompts) {
    const auto row = parse_json(line, "eval");
    const std::string expected = row->find("prompt")->text;
    Read read = read_back(expected);
    const auto request = chat_request(read.messages, read.frame);
    ASSERT_TRUE(request.ok()) << "line " << prompts + 1 << ": " << request.error().message;
    std::string rendered;
    const auto question = codec_question(*request, {}, *tokenizer, 2880, &rendered);
    ASSERT_EQ(rendered, expected) << "line " << prompts + 1;
    ASSERT_TRUE(question.ok());
    Json ids = Json::array();
    for (int32_t id : question->request.ids) ids.push(Json::of(int64_t(id)));
    ASSERT_EQ(to_string(ids), to_string(*row->find("prompt_ids"))) << "line " << prompts + 1;
  }
  EXPECT_EQ(prompts, 400);
}

TEST(ChatRequest, EffortHasNamesAndNumbers) {
  const auto effort = [](const char* text) {
    ChatFrame frame;
    frame.effort = *read_effort(text);
    Json messages = Json::array();
    messages.push(chat_message("user", "x"));
    const auto request = chat_request(messages, frame);
    const auto prompt = recipe::render(request->converted, conversion()).text;
    return prompt.find("Effort") == std::string::npos ? 0 : std::stoi(between(prompt, "Reasoning Effort: ", " "));
  };
  EXPECT_EQ(effort("none"), 0);
  EXPECT_EQ(effort("low"), 50);
  EXPECT_EQ(effort("high"), 75);
  EXPECT_EQ(effort("max"), 100);
  EXPECT_EQ(effort("1"), 1);
  EXPECT_EQ(effort("100"), 100);
  for (const char* text : {"0", "101", "much", "", "50.5"}) EXPECT_FALSE(read_effort(text).ok()) << text;
}

class Files : public testing::Test {
 protected:
  std::string file(const std::string& text) {
    const std::string path = testing::TempDir() + "fathom-chat-request-" + std::to_string(::getpid()) + ".json";
    EXPECT_TRUE(write_file(path, text).ok());
    return path;
  }
};

TEST_F(Files, ToolsComeInBothForms) {
  const std::string expected = R"([{"type":"function","function":{"name":"f"}}])";
  EXPECT_EQ(to_string(*read_tools(file(R"([{"name":"f"}])"))), expected);
  EXPECT_EQ(to_string(*read_tools(file(expected))), expected);
  for (const char* wrong : {R"([{"description":"x"}])", R"({"name":"f"})", R"([{"name":"a b"}])",
                            R"([{"name":"f"},{"name":"f"}])", R"([{"name":"f","parameters":{"type":"array"}}])"}) {
    const auto read = read_tools(file(wrong));
    ASSERT_FALSE(read.ok()) << wrong;
    EXPECT_EQ(read.error().code, ErrorCode::bad_input) << wrong;
    EXPECT_FALSE(read.error().remedy.empty());
  }
}

TEST_F(Files, ASchemaAndAnExpressionBecomeAConstraint) {
  EXPECT_EQ(read_schema(file(R"({"type":5})")).error().code, ErrorCode::usage);
  EXPECT_EQ(read_regex("(").error().code, ErrorCode::usage);
  for (const auto& format : {read_schema(file(R"({"type":"object"})")), read_regex("[0-9]+")}) {
    ASSERT_TRUE(format.ok());
    ChatFrame frame;
    frame.format = *format;
    Json messages = Json::array();
    messages.push(chat_message("user", "x"));
    const auto request = chat_request(messages, frame);
    ASSERT_TRUE(request.ok());
    EXPECT_TRUE(request->converted.inference.constraint.has_value());
    EXPECT_TRUE(check_answerable(*request).ok());
  }
}

// What is promised and cannot be kept is refused, whichever member of a body promises it.
TEST(ChatRequest, BodiesThatAskForMoreThanThisBuildHasAreRefused) {
  const auto refused = [](recipe::Api api, std::string body) {
    const auto request = recipe::read_request(api, std::string_view(body), conversion());
    EXPECT_TRUE(request.ok()) << body;
    const auto answerable = check_answerable(*request);
    return answerable ? std::string() : answerable.error().where;
  };
  const std::string chat = R"({"model":"deepseek-flash","messages":[{"role":"user","content":"json"}])";
  const std::string tools = R"(,"tools":[{"type":"function","function":{"name":"f"}}])";
  const std::string strict = R"(,"tools":[{"type":"function","function":{"name":"f","strict":true}}])";
  using recipe::Api;
  EXPECT_EQ(refused(Api::chat_completions, chat + "}"), "");
  EXPECT_EQ(refused(Api::chat_completions, chat + tools + "}"), "");
  EXPECT_EQ(refused(Api::chat_completions, chat + tools + R"(,"tool_choice":"none"})"), "");
  const std::string object = R"({"type":"json_object"})", no = R"({"properties":{"a":{"not":{}}}})";
  const auto format = [](const std::string& of) { return R"(,"response_format":)" + of + "}"; };
  const auto responses = [](const std::string& of) {
    return R"({"model":"deepseek-flash","input":"json","text":{"format":)" + of + "}}";
  };
  EXPECT_EQ(refused(Api::chat_completions, chat + strict + "}"), "");
  EXPECT_EQ(refused(Api::chat_completions, chat + tools + R"(,"reasoning_effort":"none","tool_choice":"required"})"),
            "");
  EXPECT_EQ(refused(Api::chat_completions, chat + format(object)), "");
  EXPECT_EQ(refused(Api::chat_completions,
                    chat + format(R"({"type":"json_schema","json_schema":{"name":"t","schema":)" + no + "}}")),
            "response_format.json_schema.schema.properties.a.not");
  EXPECT_EQ(refused(Api::responses, responses(object)), "");
  EXPECT_EQ(refused(Api::responses, responses(R"({"type":"json_schema","name":"t","schema":)" + no + "}")),
            "text.format.schema.properties.a.not");
  EXPECT_EQ(refused(Api::chat_completions,
                    R"({"model":"deepseek-flash","messages":[{"role":"user","content":[{"type":"image_url",)"
                    R"("image_url":{"url":"data:image/png;base64,AAAA"}}]}]})"),
            "messages[0]");
}

TEST(ChatRequest, OptionsAreStrongerThanTheSettingsOfABody) {
  recipe::Inference inference;
  inference.temperature = 0.5f;
  inference.top_p = 0.25f;
  inference.frequency_penalty = 1;
  inference.seed = 7;
  inference.logprobs = true;
  SamplingSettings options;
  const Sampling plain = *to_sampling(overlaid(settings_of(inference), options), 100);
  EXPECT_EQ(plain.temperature, 0.5f);
  EXPECT_EQ(plain.top_p, 0.25f);
  EXPECT_EQ(plain.frequency_penalty, 1);
  EXPECT_EQ(plain.seed, 7u);
  EXPECT_EQ(plain.top_logprobs, 0);
  options.greedy = true;
  options.seed = 8;
  options.logprobs = 3;
  const Sampling over = *to_sampling(overlaid(settings_of(inference), options), 100);
  EXPECT_EQ(over.temperature, 0);
  EXPECT_EQ(over.top_p, 0.25f);
  EXPECT_EQ(over.seed, 8u);
  EXPECT_EQ(over.top_logprobs, 3);
}

// A plain continuation may hold anything that means something in a chat.
TEST(ChatRequest, APlainContinuationIsAllText) {
  const std::string text = "\n<think>a</think>\n\n<｜DSML｜ calls>\n<｜DSML｜ invoke name=\"f\">\n</｜DSML｜ invoke>";
  for (size_t piece = 1; piece < 20; ++piece) {
    recipe::AnswerReader reader(plain_parsing(), nullptr, 1);
    std::string read;
    const auto take = [&] {
      for (const recipe::Delta& delta : reader.deltas()) {
        ASSERT_EQ(delta.kind, recipe::Delta::Kind::content);
        read += delta.text;
      }
    };
    for (size_t at = 0; at < text.size(); at += piece) {
      ASSERT_TRUE(reader.text(std::string_view(text).substr(at, piece), 1).ok());
      take();
    }
    ASSERT_TRUE(reader.finish(recipe::BackendFinish::stop).ok());
    take();
    EXPECT_EQ(read, text) << piece;
  }
}

}  // namespace
}  // namespace fathom::cli
