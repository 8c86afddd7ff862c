// The examples of codec.h and answer_stream.h as they stand there, and how an answer ends badly or late.
#include "fathom/recipe/answer_stream.h"

#include <gtest/gtest.h>

#include "fathom/recipe/codec.h"

namespace fathom::recipe {
namespace {

const Tokenizer& miniature_tokenizer() {
  static const Tokenizer tokenizer =
      Tokenizer::open(std::string(FATHOM_SOURCE_DIR) + "/models/mini/tokenizer.json").value();
  return tokenizer;
}

constexpr std::string_view kBody =
    R"({"model":"DeepSeek-V4.1-Flash","stream":true,"max_tokens":50,"messages":[{"role":"user","content":"2+2?"}]})";

CodecRequest request_of(Api api, Policy policy = Policy::lenient) {
  ConversionOptions options;
  options.policy = policy;
  const std::string body =
      api == Api::responses ? R"({"model":"DeepSeek-V4.1-Flash","stream":true,"input":"2+2?"})" : std::string(kBody);
  return read_request(api, std::string_view(body), options).value();
}

AnswerStream stream_of(const CodecRequest& request) {
  return AnswerStream(make_writer(request, {"answer-1", request.model, 1}, nullptr), request.converted.parsing, nullptr,
                      1);
}

std::string last_event(const WireEvents& out) {
  return std::string(out.events.back().name) + ' ' + std::string(out.json(out.events.back()));
}

TEST(CodecHeader, TheExampleAnswersARequest) {
  const Tokenizer& tokenizer = miniature_tokenizer();
  const Api api = Api::chat_completions;
  const std::string_view body = kBody;
  const int64_t now = 1796000000;
  const uint64_t seed = 1;

  ConversionOptions options;
  Result<CodecRequest> request = read_request(Api::chat_completions, body, options);
  if (!request) FAIL() << status_of(request.error()) << error_body(request.error(), api, options.policy);
  Prompt prompt = render(request->converted, options);
  Result<std::vector<int32_t>> ids = encode(prompt, tokenizer);
  AnswerStream stream(make_writer(*request, {"chatcmpl-1", request->model, now}, &tokenizer),
                      request->converted.parsing, &tokenizer, seed);

  ASSERT_TRUE(ids.ok());
  EXPECT_EQ(tokenizer.decode(*ids), prompt.text);
  WireEvents out;
  ASSERT_TRUE(stream.tokens(tokenizer.encode("four</think>4"), {}, out).ok());
  ASSERT_TRUE(stream.finish(BackendFinish::stop, out).ok());
  EXPECT_NE(out.text.find(R"("content":"4")"), std::string::npos) << out.text;
}

TEST(AnswerStreamHeader, TheExampleStreamsAnAnswer) {
  const Tokenizer& tokenizer = miniature_tokenizer();
  const CodecRequest request = request_of(Api::chat_completions);
  const std::vector<int32_t> ids = tokenizer.encode("four</think>4");
  const uint64_t seed = 1;
  std::string sent;
  ChatCompletionsForm form;
  form.identity = {"chatcmpl-1", request.model, 1};
  form.stream = true;

  AnswerStream stream(ChatCompletionsWriter(form), request.converted.parsing, &tokenizer, seed);
  WireEvents out;
  ASSERT_TRUE(stream.ready({.prompt_tokens = 12}, "", out).ok());
  ASSERT_TRUE(stream.tokens(ids, {}, out).ok());
  ASSERT_TRUE(stream.finish(BackendFinish::stop, out).ok());
  append_sse(sent, out);

  EXPECT_TRUE(stream.finished());
  EXPECT_TRUE(sent.starts_with("data: {")) << sent;
  EXPECT_NE(sent.find(R"("prompt_tokens":12)"), std::string::npos) << sent;
}

// Found by comparing with deepseek-recipe: docs/recipe-findings.md, answers, granularity.
TEST(AnswerStream, TokensBeginItWithTheirFirstWholeCharacter) {
  for (Policy policy : {Policy::lenient, Policy::strict}) {
    const CodecRequest request = request_of(Api::chat_completions, policy);
    AnswerStream stream(make_writer(request, {"ID", "m", 0}, nullptr), request.converted.parsing,
                        &miniature_tokenizer(), 1);
    const std::vector<int32_t> bytes = miniature_tokenizer().encode("\U0001F98A");
    ASSERT_GT(bytes.size(), 1u);  // a character of several tokens
    WireEvents out;
    ASSERT_TRUE(stream.tokens({}, {}, out).ok());
    ASSERT_TRUE(stream.tokens(std::span(bytes).first(1), {}, out).ok());
    EXPECT_TRUE(out.events.empty()) << out.text;
    ASSERT_TRUE(stream.tokens(std::span(bytes).subspan(1), {}, out).ok());
    EXPECT_EQ(out.events.size(), 2u) << out.text;
  }
}

// Found by comparing with deepseek-recipe: docs/recipe-findings.md, answers, Responses.
TEST(AnswerStream, ApplyPatchIsCustomWhenASearchFoundItSo) {
  for (const std::string model : {"DeepSeek-V4.1-Flash", "DeepSeek-V4-Pro"}) {
    const std::string body = R"({"model":")" + model +
                             R"(","tools":[{"type":"function","name":"g"}],"input":[)"
                             R"({"type":"tool_search_call","call_id":"a","arguments":{}},)"
                             R"({"type":"tool_search_output","call_id":"a","tools":[)"
                             R"({"type":"custom","name":"apply_patch"}]},{"role":"user","content":"u"}]})";
    const CodecRequest request = read_request(Api::responses, std::string_view(body), {}).value();
    AnswerStream stream = stream_of(request);
    WireEvents out;
    ASSERT_TRUE(stream.text("</think><｜DSML｜ calls>\n<｜DSML｜ invoke name=\"apply_patch\">\n", 1, out).ok());
    const bool custom = out.text.find(R"("type":"custom_tool_call")") != out.text.npos;
    EXPECT_EQ(custom, model == "DeepSeek-V4.1-Flash") << out.text;  // V4 does not have the search at all
  }
}

TEST(AnswerStream, AFailureIsTheLastEventAndNoNormalEnd) {
  const Error error{ErrorCode::failed, "the device was lost", "", ""};
  for (const Policy policy : {Policy::lenient, Policy::strict}) {
    for (
        const auto& [api, expected] :
        {std::pair(
             Api::chat_completions,
             R"( {"error":{"message":"the device was lost","type":"server_error","param":null,"code":"server_error"}})"),
         std::pair(Api::responses, R"(response.failed {"type":"response.failed")"),
         std::pair(Api::messages,
                   R"(error {"type":"error","error":{"type":"api_error","message":"the device was lost"}})")}) {
      for (const bool begun : {false, true}) {
        AnswerStream stream = stream_of(request_of(api, policy));
        WireEvents out;
        if (begun) {
          ASSERT_TRUE(stream.text("thinking", 1, out).ok());
        }
        stream.fail(error, out);
        EXPECT_TRUE(last_event(out).starts_with(expected)) << last_event(out);
        EXPECT_FALSE(stream.finished());
        const size_t events = out.events.size();
        stream.fail(error, out);  // also of what failed already
        stream.keep_alive(out);
        EXPECT_FALSE(stream.text("more", 1, out).ok());
        EXPECT_FALSE(stream.finish(BackendFinish::stop, out).ok());
        EXPECT_EQ(out.events.size(), events);
      }
    }
  }
}

TEST(AnswerStream, AReaderThatRefusesItsInputCanStillSaySo) {
  AnswerStream stream = stream_of(request_of(Api::messages));
  WireEvents out;
  const int32_t id = 5;
  const auto fed = stream.tokens({&id, 1}, {}, out);  // no tokenizer was given
  ASSERT_FALSE(fed.ok());
  stream.fail(fed.error(), out);
  EXPECT_TRUE(last_event(out).starts_with("error {")) << last_event(out);
}

TEST(AnswerStream, SignsOfLifeAreThoseOfTheApi) {
  for (const auto& [api, policy, name] :
       {std::tuple(Api::chat_completions, Policy::lenient, ""),
        std::tuple(Api::responses, Policy::lenient, "response.in_progress"),
        std::tuple(Api::responses, Policy::strict, ""), std::tuple(Api::messages, Policy::lenient, "ping")}) {
    AnswerStream stream = stream_of(request_of(api, policy));
    WireEvents out;
    stream.keep_alive(out);  // before the opening: nothing but a comment is possible
    EXPECT_TRUE(out.events.back().comment);
    ASSERT_TRUE(stream.ready({.prompt_tokens = 3}, {}, out).ok());
    stream.keep_alive(out);
    EXPECT_EQ(out.events.back().name, name);
    EXPECT_EQ(out.events.back().comment, std::string_view(name).empty());
    ASSERT_TRUE(stream.text("a</think>b", 3, out).ok());
    ASSERT_TRUE(stream.finish(BackendFinish::stop, out).ok());
    const size_t events = out.events.size();
    stream.keep_alive(out);
    stream.close();
    stream.keep_alive(out);
    stream.fail(Error{ErrorCode::failed, "late", "", ""}, out);
    EXPECT_EQ(out.events.size(), events) << "an answer that ended says nothing any more";
  }
}

}  // namespace
}  // namespace fathom::recipe
