#include "fathom/recipe/api/chat_completions/answer.h"

#include <gtest/gtest.h>

#include "fathom/tokenizer/sample_tokenizer.h"

namespace fathom::recipe {
namespace {

ChatCompletionsForm form(bool thinking = false) {
  ChatCompletionsForm form;
  form.identity = {"c-1", "m \"q\"", 7};
  form.thinking = thinking;
  return form;
}

std::string body_of(const ChatCompletionsBody& body) {
  std::string out;
  body.append_to(out);
  return out;
}

constexpr std::string_view kHead =
    R"({"id":"c-1","object":"chat.completion.chunk","created":7,"model":"m \"q\"","system_fingerprint":null,"choices":[)";

TEST(ChatCompletionsWriterTest, ACallThatWasDroppedStaysInTheStreamAndLeavesTheBody) {
  ChatCompletionsWriter writer(form());
  ChatCompletionsBody body(form());
  WireEvents out;
  writer.start({}, out);
  body.start({});
  out.clear();
  const Delta deltas[] = {{Delta::Kind::call, 0, "f", "call_00_a", {}},  {Delta::Kind::arguments, 0, "{}", "", {}},
                          {Delta::Kind::call_end, 0, "", "", {}},        {Delta::Kind::call, 1, "g", "call_01_b", {}},
                          {Delta::Kind::arguments, 1, "{\"k\"", "", {}}, {Delta::Kind::call_dropped, 1, "", "", {}}};
  for (const Delta& delta : deltas) {
    writer.write(delta, out);
    body.write(delta);
  }
  ASSERT_EQ(out.events.size(), 4u);
  EXPECT_EQ(out.json(out.events[3]),
            std::string(kHead) + R"({"index":0,"delta":{"tool_calls":[{"index":1,"function":)" +
                R"({"arguments":"{\"k\""}}]},"logprobs":null,"finish_reason":null}],)" + R"("usage":null})");
  AnswerEnd end;
  end.reason = FinishReason::tool_calls;
  body.finish(end);
  EXPECT_NE(
      body_of(body).find(
          R"("tool_calls":[{"index":0,"id":"call_00_a","type":"function","function":{"name":"f","arguments":"{}"}}]})"),
      std::string::npos);
}

TEST(ChatCompletionsWriterTest, ABodyWhoseOnlyCallWasDroppedHasNoCalls) {
  ChatCompletionsBody body(form(true));
  body.start({});
  body.write({Delta::Kind::call, 0, "f", "call_00_a", {}});
  body.write({Delta::Kind::call_dropped, 0, "", "", {}});
  body.finish({});
  EXPECT_NE(body_of(body).find(R"("message":{"role":"assistant","content":"","reasoning_content":""},"logprobs":null)"),
            std::string::npos);
}

TEST(ChatCompletionsWriterTest, AFailureEndsTheStreamWithAnErrorAndNoFinishReason) {
  ChatCompletionsWriter writer(form());
  WireEvents out;
  writer.start({}, out);
  out.clear();
  writer.keep_alive(out);
  writer.fail({ErrorCode::failed, "the device said \"no\"", "gpu 0", ""}, out);
  std::string sse;
  append_sse(sse, out);
  EXPECT_EQ(sse,
            ": keep-alive\n\ndata: {\"error\":{\"message\":\"the device said \\\"no\\\"\",\"type\":\"server_error\","
            "\"param\":null,\"code\":\"server_error\"}}\n\n");
}

TEST(ChatCompletionsWriterTest, LogprobsStandAtTheDeltaOfTheirTokensAndTogetherInTheBody) {
  const auto tokenizer = Tokenizer::parse(sample::tokenizer_json(), "sample");
  ASSERT_TRUE(tokenizer.ok());
  ChatCompletionsForm with = form(true);
  with.tokenizer = &*tokenizer;
  ChatCompletionsWriter writer(with);
  ChatCompletionsBody body(with);
  WireEvents out;
  writer.start({}, out);
  body.start({});
  out.clear();
  // Ids of single bytes are the byte + 3; 0xf0 alone is no text; 999999 is nobody.
  const std::vector<TokenLogprob> reasoning = {{'t' + 3, -0.5f, {}}};
  const std::vector<TokenLogprob> first = {{259, -1e-7f, {{259, -1e-7f}, {999999, -3.5f}}}};
  const std::vector<TokenLogprob> second = {{0xf0 + 3, -2.0f, {}}};
  for (const Delta& delta :
       {Delta{Delta::Kind::reasoning, 0, "t", "", reasoning}, Delta{Delta::Kind::content, 0, "he", "", first},
        Delta{Delta::Kind::content, 0, "x", "", second}}) {
    writer.write(delta, out);
    body.write(delta);
  }
  const std::string t = R"({"token":"t","logprob":-0.5,"bytes":[116],"top_logprobs":[]})";
  const std::string he =
      R"({"token":"he","logprob":-1e-7,"bytes":[104,101],"top_logprobs":[{"token":"he","logprob":-1e-7,"bytes":[104,101]},)"
      R"({"token":"","logprob":-3.5,"bytes":[]}]})";
  const std::string f0 = R"({"token":"\\xf0","logprob":-2.0,"bytes":[240],"top_logprobs":[]})";
  const std::string tail = R"(,"finish_reason":null}],"usage":null})";
  EXPECT_EQ(out.json(out.events[0]), std::string(kHead) +
                                         R"({"index":0,"delta":{"content":null,"reasoning_content":"t"},"logprobs":)" +
                                         R"({"reasoning_content":[)" + t + "]}" + tail);
  EXPECT_EQ(out.json(out.events[1]), std::string(kHead) +
                                         R"({"index":0,"delta":{"content":"he","reasoning_content":null},"logprobs":)" +
                                         R"({"content":[)" + he + "]}" + tail);
  body.finish({});
  EXPECT_NE(body_of(body).find(R"("logprobs":{"content":[)" + he + "," + f0 + R"(],"reasoning_content":[)" + t + "]}"),
            std::string::npos);
}

}  // namespace
}  // namespace fathom::recipe
