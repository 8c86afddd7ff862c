#include "fathom/cli/endpoint_request.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace fathom::cli {
namespace {

TraceRequest request_with(std::vector<TextPart> prefix, int64_t prompt_tokens) {
  TraceRequest request;
  request.prompt_tokens = prompt_tokens;
  request.prefix = std::move(prefix);
  request.seed = 99;
  return request;
}

int64_t words_in(const std::string& text) { return std::count(text.begin(), text.end(), ' '); }

TEST(EndpointPrompt, HasAWordForEachTokenAndSharesWhatTheTraceShares) {
  const auto one = prompt_of(request_with({{7, 40}}, 60), {}),
             other = prompt_of(request_with({{7, 40}, {8, 5}}, 60), {});
  ASSERT_EQ(one.size(), 1u);
  EXPECT_EQ(words_in(one[0].text), 60);
  std::string shared;
  append_words(7, 40, shared);
  EXPECT_TRUE(one[0].text.starts_with(shared));
  EXPECT_TRUE(other[0].text.starts_with(shared));
  EXPECT_NE(one[0].text, other[0].text);
}

TEST(EndpointPrompt, HasFewerWordsWhereAWordIsSeveralTokens) {
  EXPECT_EQ(words_in(prompt_of(request_with({{7, 40}}, 60), {}, 2)[0].text), 30);
}

TEST(EndpointPrompt, RepeatsWhatWasAnswered) {
  const auto parts = prompt_of(request_with({{7, 10}, {12, 5}}, 20), {{12, "It was said."}});
  ASSERT_EQ(parts.size(), 3u);
  EXPECT_FALSE(parts[0].answer);
  EXPECT_TRUE(parts[1].answer);
  EXPECT_EQ(parts[1].text, "It was said.");
  EXPECT_EQ(words_in(parts[2].text), 5);
}

TEST(EndpointBody, OfAChatHasTheMessagesAndAsksForUsage) {
  const std::vector<PromptPart> prompt = {{false, "a"}, {true, "b"}, {false, "c"}};
  EXPECT_EQ(body_of(EndpointApi::chat, "m", prompt, 7, nullptr, Json::object().set("temperature", Json::of(0))),
            R"({"model":"m","messages":[{"role":"user","content":"a"},{"role":"assistant","content":"b"},)"
            R"({"role":"user","content":"c"}],"max_tokens":7,"stream":true,"stream_options":{"include_usage":true},)"
            R"("temperature":0})");
  EXPECT_EQ(body_of(EndpointApi::completions, "m", prompt, 7, nullptr, Json::object().set("max_tokens", Json::of(9))),
            R"({"model":"m","prompt":"abc","max_tokens":9,"stream":true,"stream_options":{"include_usage":true}})");
}

TEST(EndpointBody, OfAPromptFileKeepsItsFields) {
  const auto prompts = read_prompts("{\"prompt\": \"Hi\", \"max_tokens\": 3}\n\n{\"messages\": []}\n", "p.jsonl");
  ASSERT_TRUE(prompts.ok());
  ASSERT_EQ(prompts->size(), 2u);
  EXPECT_EQ(body_of(EndpointApi::chat, "m", {}, 7, &(*prompts)[0], Json::object()),
            R"({"model":"m","max_tokens":3,"messages":[{"role":"user","content":"Hi"}],"stream":true,)"
            R"("stream_options":{"include_usage":true}})");
  EXPECT_EQ(read_prompts("one\r\ntwo\n", "p.txt")->at(1).find("prompt")->text, "two");
}

TEST(EndpointBody, ABadLineOfAPromptFileIsNamed) {
  EXPECT_EQ(read_prompts("{\"prompt\":\"a\"}\n{\"text\":\"b\"}\n", "p.jsonl").error().where, "p.jsonl:2");
  EXPECT_EQ(read_prompts("\n \n", "p.txt").error().message, "the file has no prompt");
}

TEST(EndpointEvent, TextReasoningAndCallsAreWhatTheReaderGets) {
  EXPECT_EQ(read_event(R"({"choices":[{"delta":{"content":"Hi"}}]})")->text, "Hi");
  EXPECT_EQ(read_event(R"({"choices":[{"text":" there"}]})")->text, " there");
  EXPECT_TRUE(read_event(R"({"choices":[{"delta":{"reasoning_content":"so"}}]})")->brings_text);
  EXPECT_TRUE(read_event(R"({"choices":[{"delta":{"tool_calls":[{"index":0}]}}]})")->brings_text);
  EXPECT_FALSE(read_event(R"({"choices":[{"delta":{"role":"assistant","content":""}}]})")->brings_text);
  EXPECT_TRUE(read_event("[DONE]")->done);
}

TEST(EndpointEvent, TellsUsageAndErrors) {
  const auto usage = read_event(R"({"choices":[],"usage":{"prompt_tokens":5,"completion_tokens":7,)"
                                R"("prompt_tokens_details":{"cached_tokens":3}}})");
  EXPECT_EQ(usage->prompt_tokens, 5);
  EXPECT_EQ(usage->output_tokens, 7);
  EXPECT_EQ(usage->cached_tokens, 3);
  const auto error = read_event(R"({"error":{"message":"the engine\nfailed","type":"server_error"}})");
  EXPECT_EQ(error->error, "the engine failed");
  EXPECT_EQ(error->error_type, "server_error");
  EXPECT_FALSE(read_event("{").ok());
  EXPECT_FALSE(read_event("[]").ok());
}

}  // namespace
}  // namespace fathom::cli
