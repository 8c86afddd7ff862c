#include "fathom/server/text_completion.h"

#include "fathom/server/service_fixture.h"

namespace fathom {
namespace {

struct TextCompletionTest : ServiceTest {
  static std::string body(std::string_view prompt, std::string_view more = "") {
    return R"({"model":"DeepSeek-V4.1-Flash","prompt":)" + std::string(prompt) + std::string(more) + "}";
  }
  Request seen;
  TextCompletionTest() {
    fake.answer = [this](const Request& request) {
      seen = request;
      return says(" world again");
    };
  }
};

TEST_F(TextCompletionTest, ATextIsContinuedAfterTheBeginToken) {
  const auto answer = ask("POST", "/v1/completions", body(R"("Hello")"));
  EXPECT_EQ(answer->status, 200) << answer->body;
  EXPECT_EQ(answer->at("object").text, "text_completion");
  EXPECT_EQ(answer->at("choices", 0, "text").text, " world again");
  EXPECT_EQ(answer->at("choices", 0, "finish_reason").text, "stop");
  EXPECT_EQ(seen.ids[0], Tokenizer::kBegin);
  EXPECT_EQ(seen.sampling.max_tokens, 16);
  EXPECT_EQ(answer->at("usage", "prompt_tokens").as_int64(), int64_t(seen.ids.size()));
}

TEST_F(TextCompletionTest, IdsAreTakenAsTheyAre) {
  ask("POST", "/v1/completions", body("[5,6,7]"));
  EXPECT_EQ(seen.ids, (std::vector<int32_t>{5, 6, 7}));
  ask("POST", "/v1/completions", body("[[5,6,7]]"));
  EXPECT_EQ(seen.ids, (std::vector<int32_t>{5, 6, 7}));
}

TEST_F(TextCompletionTest, SpelledTokensOfARawPromptAreTokens) {
  ask("POST", "/v1/completions", body(R"("<｜User｜>hi<｜Assistant｜></think>","add_special_tokens":false)"));
  const Tokenizer& tokenizer = mini_tokenizer();
  EXPECT_EQ(seen.ids.front(), tokenizer.added_id_of("<｜User｜>"));
  EXPECT_EQ(seen.ids.back(), tokenizer.added_id_of("</think>"));
  EXPECT_EQ(seen.ids.at(seen.ids.size() - 2), tokenizer.added_id_of("<｜Assistant｜>"));
}

TEST_F(TextCompletionTest, AStreamEndsWithUsageAndDone) {
  const auto answer =
      ask("POST", "/v1/completions", body(R"("Hello")", R"(,"stream":true,"stream_options":{"include_usage":true})"));
  const auto events = answer->events();
  ASSERT_GE(events.size(), 3u);
  EXPECT_EQ(events.back().data, "[DONE]");
  const auto usage = parse_json(events[events.size() - 2].data, "event");
  ASSERT_TRUE(usage);
  EXPECT_TRUE(usage->find("choices")->items.empty());
  EXPECT_GT(*usage->find("usage")->find("completion_tokens")->as_int64(), 0);
}

TEST_F(TextCompletionTest, AStopTextEndsIt) {
  const auto answer = ask("POST", "/v1/completions", body(R"("Hello")", R"(,"stop":" again")"));
  EXPECT_EQ(answer->at("choices", 0, "text").text, " world");
}

TEST_F(TextCompletionTest, MarkersOfThinkingAreOrdinaryText) {
  fake.answer = [this](const Request&) { return says("a</think>b"); };
  EXPECT_EQ(ask("POST", "/v1/completions", body(R"("Hello")"))->at("choices", 0, "text").text, "a</think>b");
}

TEST_F(TextCompletionTest, SettingsReachTheEngine) {
  ask("POST", "/v1/completions",
      body(
          R"("Hello")",
          R"(,"top_k":7,"min_p":0.25,"repetition_penalty":1.5,"logit_bias":{"9":-100},"stop_token_ids":[11],"min_tokens":2,"ignore_eos":true,"logprobs":3,"seed":5,"temperature":0)"));
  const Sampling& s = seen.sampling;
  EXPECT_EQ(s.top_k, 7);
  EXPECT_EQ(s.min_p, 0.25f);
  EXPECT_EQ(s.repetition_penalty, 1.5f);
  EXPECT_EQ(s.logit_bias, (std::vector<std::pair<int32_t, float>>{{9, -100.f}}));
  EXPECT_EQ(s.stop_ids, (std::vector<int32_t>{11}));
  EXPECT_EQ(s.min_tokens, 2);
  EXPECT_TRUE(s.ignore_eos);
  EXPECT_EQ(s.top_logprobs, 3);
  EXPECT_EQ(s.seed, 5u);
  EXPECT_EQ(s.temperature, 0);
}

TEST_F(TextCompletionTest, WhatIsWrongIsNamedByItsPath) {
  struct Row {
    std::string text;
    const char* param;
  };
  for (const Row& row :
       {Row{body("5"), "prompt"}, Row{body("[]"), "prompt"}, Row{body(R"(["a","b"])"), "prompt"},
        Row{body(R"([5,"x"])"), "prompt[1]"}, Row{body(R"("x")", R"(,"n":2)"), "n"},
        Row{body(R"("x")", R"(,"echo":true)"), "echo"}, Row{body(R"("x")", R"(,"top_p":2)"), "top_p"},
        Row{body(R"("x")", R"(,"max_tokens":0)"), "max_tokens"},
        Row{body(R"("x")", R"(,"logit_bias":{"a":1})"), "logit_bias"}, Row{body(R"("x")", R"(,"stop":[""])"), "stop"},
        Row{R"({"model":"gpt","prompt":"x"})", "model"}, Row{R"({"prompt":"x"})", "model"}}) {
    const auto refused = ask("POST", "/v1/completions", row.text);
    EXPECT_EQ(refused->status, 400) << row.text << refused->body;
    EXPECT_EQ(refused->at("error", "param").text, row.param) << row.text << refused->body;
  }
  const auto long_one = ask("POST", "/v1/completions", body(R"("x")", R"(,"max_tokens":5000)"));
  EXPECT_EQ(long_one->at("error", "code").text, "context_length_exceeded");
}

}  // namespace
}  // namespace fathom
