#include "fathom/server/service.h"

#include <set>

#include "fathom/server/openapi_document.h"
#include "fathom/server/route.h"
#include "fathom/server/service_fixture.h"
#include "fathom/server/web_page.h"

namespace fathom {
namespace {

TEST_F(ServiceTest, Case_http_05_TheBodyIsTheObjectItself) {
  EXPECT_EQ(ask("POST", "/v1/chat/completions", chat())->at("object").text, "chat.completion");
  EXPECT_EQ(ask("POST", "/v1/responses", responses())->at("object").text, "response");
  EXPECT_EQ(ask("POST", "/v1/messages", messages())->at("type").text, "message");
  const auto refused = ask("POST", "/v1/messages", R"({"model":"x"})");
  EXPECT_EQ(refused->status, 400);
  EXPECT_EQ(refused->at("type").text, "error");
}

TEST_F(ServiceTest, ACompleteChatAnswerHasTheTextAndTrueCounts) {
  fake.answer = [this](const Request&) { return says("Hello there", 4); };
  const auto answer = ask("POST", "/v1/chat/completions", chat());
  EXPECT_EQ(answer->status, 200);
  EXPECT_EQ(answer->field("content-type"), "application/json");
  EXPECT_EQ(answer->at("choices", 0, "message", "content").text, "Hello there");
  EXPECT_EQ(answer->at("choices", 0, "finish_reason").text, "stop");
  const auto generated = int64_t(mini_tokenizer().encode("Hello there").size()) + 1;  // and the end token
  EXPECT_EQ(answer->at("usage", "completion_tokens").as_int64(), generated);
  EXPECT_EQ(answer->at("usage", "prompt_tokens").as_int64(), 5);  // codec-01: one token between the markers
  EXPECT_EQ(answer->at("usage", "prompt_cache_hit_tokens").as_int64(), 4);
  EXPECT_TRUE(answer->json().find("fathom") == nullptr);
}

// The chunks, the usage and the logged line of one answer agree.
TEST_F(ServiceTest, Case_obs_02_CachedTokensAreInEveryUsageObject) {
  fake.answer = [this](const Request&) { return says("ok", 4); };
  EXPECT_EQ(
      ask("POST", "/v1/chat/completions", chat())->at("usage", "prompt_tokens_details", "cached_tokens").as_int64(), 4);
  EXPECT_EQ(ask("POST", "/v1/responses", responses())->at("usage", "input_tokens_details", "cached_tokens").as_int64(),
            4);
  EXPECT_EQ(ask("POST", "/v1/messages", messages())->at("usage", "cache_read_input_tokens").as_int64(), 4);
  EXPECT_EQ(ask("POST", "/v1/completions", R"({"model":"deepseek-flash","prompt":"hi hi hi hi"})")
                ->at("usage", "prompt_tokens_details", "cached_tokens")
                .as_int64(),
            4);
  EXPECT_TRUE(logs("cached_tokens=4"));
}

TEST_F(ServiceTest, Case_http_03_InputTokensOfMessagesAreThoseThatWereNotCached) {
  fake.answer = [this](const Request&) { return says("ok", 3); };
  const auto answer = ask("POST", "/v1/messages", messages());
  EXPECT_EQ(answer->at("usage", "input_tokens").as_int64(), 2);
  EXPECT_EQ(answer->at("usage", "cache_read_input_tokens").as_int64(), 3);
  EXPECT_EQ(answer->at("usage", "cache_creation_input_tokens").as_int64(), 0);
}

TEST_F(ServiceTest, Case_http_02_CountTokensEqualsTheInputOfTheCall) {
  const std::string tools =
      R"(,"system":"You are X.","tools":[{"name":"f","description":"d","input_schema":{"type":"object","properties":{"a":{"type":"string"}}}}])";
  fake.answer = [this](const Request&) { return says("ok", 2); };
  const auto counted = ask("POST", "/v1/messages/count_tokens", messages(tools))->at("input_tokens").as_int64();
  const auto usage = ask("POST", "/v1/messages", messages(tools))->at("usage");
  ASSERT_TRUE(counted);
  EXPECT_EQ(*counted, *usage.find("input_tokens")->as_int64() + *usage.find("cache_read_input_tokens")->as_int64() +
                          *usage.find("cache_creation_input_tokens")->as_int64());
}

TEST_F(ServiceTest, Case_http_01_APromptLongerThanTheContextIsToldWithItsNumbers) {
  fake.limits.context = 4096;
  // Each "a a a …" word is a token of its own or so; the exact count is what tokenize says.
  std::string words;
  while (true) {
    words += " zebra";
    if (words.size() > 60'000) break;
  }
  const std::string body =
      R"({"model":"DeepSeek-V4.1-Flash","max_tokens":100,"messages":[{"role":"user","content":")" + words + R"("}]})";
  const auto counted = ask("POST", "/v1/tokenize", body)->at("count").as_int64();
  ASSERT_TRUE(counted);
  ASSERT_GT(*counted, 4096);
  for (const char* path : {"/v1/chat/completions", "/v1/messages"}) {
    const auto refused = ask("POST", path, body);
    EXPECT_EQ(refused->status, 400);
    EXPECT_EQ(refused->at("error", "type").text, "invalid_request_error");
    const std::string message = refused->at("error", "message").text;
    for (const std::string& number : {std::to_string(*counted), std::string("4096"), std::string("100")}) {
      EXPECT_NE(message.find(number), std::string::npos) << message;
    }
  }
  EXPECT_EQ(ask("POST", "/v1/chat/completions", body)->at("error", "code").text, "context_length_exceeded");
  EXPECT_EQ(fake.submitted, 0);
}

// Counting 2 MiB of one letter takes 60 MB. That it has too many tokens is certain before.
TEST_F(ServiceTest, WhatCannotFitIsRefusedWithoutCountingIt) {
  const std::string text = "\"" + std::string(size_t(2) << 20, 'a') + "\"";
  for (const auto& [path, body] :
       {std::pair("/v1/chat/completions", R"({"model":"DeepSeek-V4.1-Flash","messages":[{"role":"user","content":)" +
                                              text + R"(}],"max_tokens":5})"),
        std::pair("/v1/completions", R"({"model":"DeepSeek-V4.1-Flash","prompt":)" + text + R"(,"max_tokens":5})")}) {
    const auto refused = ask("POST", path, body);
    EXPECT_EQ(refused->status, 400);
    EXPECT_EQ(refused->at("error", "code").text, "context_length_exceeded");
    const std::string message = refused->at("error", "message").text;
    const std::string before = "However, you requested at least ";
    ASSERT_NE(message.find(before), std::string::npos) << message;
    const int64_t least = std::stoll(message.substr(message.find(before) + before.size()));
    EXPECT_GT(least, 4096) << message;
    EXPECT_LE(least, int64_t(mini_tokenizer().encode_plain(text).size())) << message;
  }
}

TEST_F(ServiceTest, Case_http_07_UnsupportedValuesAreRefusedAtOnce) {
  std::string stops = R"(,"stop":[)";
  for (int i = 0; i < 17; ++i) stops += std::string(i > 0 ? "," : "") + "\"s" + std::to_string(i) + "\"";
  for (const std::string& more : {std::string(R"(,"n":2)"), std::string(R"(,"logprobs":true,"top_logprobs":21)"),
                                  stops + "]", std::string(R"(,"temperature":5)"), std::string(R"(,"max_tokens":0)"),
                                  std::string(R"(,"max_tokens":500000)")}) {
    EXPECT_EQ(ask("POST", "/v1/chat/completions", chat(more))->status, 400) << more;
  }
  EXPECT_EQ(fake.submitted, 0);
}

TEST_F(ServiceTest, Case_sec_01_ImageAddressesThatPointInsideAreRefused) {
  for (const char* url : {"http://169.254.169.254/latest/meta-data/", "http://127.0.0.1:8000/metrics", "http://[::1]/",
                          "file:///some/file", "https://redirect.example/to-127.0.0.1"}) {
    const auto refused = ask(
        "POST", "/v1/chat/completions",
        R"({"model":"DeepSeek-V4.1-Flash","messages":[{"role":"user","content":[{"type":"text","text":"see"},{"type":"image_url","image_url":{"url":")" +
            std::string(url) + R"("}}]}]})");
    EXPECT_EQ(refused->status, 400) << url;
    EXPECT_EQ(refused->at("error", "type").text, "invalid_request_error");
  }
  EXPECT_EQ(fake.submitted, 0);
}

TEST_F(ServiceTest, Case_sec_02_ADeeplyNestedBodyIsRefusedAndTheServerLives) {
  EXPECT_EQ(ask("POST", "/v1/chat/completions", std::string(30'000, '['))->status, 400);
  EXPECT_EQ(ask("GET", "/health")->status, 200);
}

TEST_F(ServiceTest, Case_codec_04_AnUnpairedSurrogateIsNamedByItsPath) {
  const auto refused =
      ask("POST", "/v1/chat/completions",
          R"({"model":"DeepSeek-V4.1-Flash","messages":[{"role":"user","content":"ok \ud83d tail"}]})");
  EXPECT_EQ(refused->status, 400);
  EXPECT_NE(refused->at("error", "message").text.find("messages[0].content"), std::string::npos);
  EXPECT_EQ(refused->at("error", "param").text, "messages[0].content");
}

TEST_F(ServiceTest, AnUnknownPathListsTheRoutesAndAnotherMethodIsNamed) {
  const auto missing = ask("POST", "/v1/chat/completion", "{}");
  EXPECT_EQ(missing->status, 404);
  EXPECT_EQ(missing->at("error", "type").text, "not_found_error");
  EXPECT_NE(missing->at("error", "message").text.find("POST /v1/chat/completions"), std::string::npos);
  const auto other = ask("GET", "/v1/messages");
  EXPECT_EQ(other->status, 405);
  EXPECT_EQ(other->field("allow"), "OPTIONS, POST");
  EXPECT_EQ(other->at("type").text, "error");
  EXPECT_EQ(missing->at("error", "message").text.find("GET /,"), std::string::npos);
}

TEST_F(ServiceTest, ThePageIsAmongThePathsThatAreListed) {
  options.page = web_page;
  EXPECT_EQ(ask("GET", "/")->status, 200);
  EXPECT_NE(ask("GET", "/nothing")->at("error", "message").text.find("GET /, "), std::string::npos);
  const auto other = ask("POST", "/", "{}");
  EXPECT_EQ(other->status, 405);
  EXPECT_EQ(other->field("allow"), "OPTIONS, GET, HEAD");
  EXPECT_EQ(ask("OPTIONS", "/")->field("allow"), "OPTIONS, GET, HEAD");
}

TEST_F(ServiceTest, WithKeysOnlyProbesAreOpen) {
  start();
  service->set_keys(*ApiKeys::parse("secret-of-alice tenant=alice priority=3 salt=pepper", "k"));
  Request seen;
  fake.answer = [&](const Request& r) {
    seen = r;
    return says("ok");
  };
  const auto none = ask("POST", "/v1/chat/completions", chat());
  EXPECT_EQ(none->status, 401);
  EXPECT_EQ(none->field("www-authenticate"), "Bearer");
  EXPECT_EQ(none->at("error", "type").text, "authentication_error");
  EXPECT_EQ(ask("POST", "/v1/messages", messages(), {{"x-api-key", "wrong-key"}})->at("error", "type").text,
            "authentication_error");
  EXPECT_EQ(ask("GET", "/v1/models")->status, 401);
  EXPECT_EQ(ask("GET", "/health")->status, 200);
  EXPECT_EQ(ask("GET", "/ready")->status, 200);
  EXPECT_EQ(fake.submitted, 0);
  EXPECT_EQ(ask("POST", "/v1/messages", messages(), {{"x-api-key", "secret-of-alice"}})->status, 200);
  EXPECT_EQ(ask("POST", "/v1/chat/completions", chat(), {{"authorization", "Bearer secret-of-alice"}})->status, 200);
  EXPECT_EQ(seen.tenant, "alice");
  EXPECT_EQ(seen.priority, 3);
  EXPECT_EQ(seen.cache_salt, "pepper");
  EXPECT_EQ(logged().find("secret"), std::string::npos);
  EXPECT_TRUE(logs("tenant=alice"));
  service->set_keys(*ApiKeys::parse("another-secret", "k"));  // a reload
  EXPECT_EQ(ask("POST", "/v1/messages", messages(), {{"x-api-key", "secret-of-alice"}})->status, 401);
}

TEST_F(ServiceTest, LimitsOfAKeyAreAnsweredWithRetryAfter) {
  start();
  service->set_keys(*ApiKeys::parse("secret-of-alice requests=2", "k"));
  const net::HttpFields key = {{"authorization", "Bearer secret-of-alice"}};
  const auto begun = std::chrono::steady_clock::now();
  EXPECT_EQ(ask("POST", "/v1/chat/completions", chat(), key)->status, 200);
  EXPECT_EQ(ask("POST", "/v1/chat/completions", chat(), key)->status, 200);
  const auto refused = ask("POST", "/v1/chat/completions", chat(), key);
  EXPECT_EQ(refused->status, 429);
  const int wait = std::stoi(refused->field("retry-after"));
  const auto passed = std::chrono::ceil<std::chrono::seconds>(std::chrono::steady_clock::now() - begun).count();
  EXPECT_TRUE(wait <= 30 && wait >= 30 - passed) << wait;
  EXPECT_EQ(refused->at("error", "type").text, "rate_limit_error");
  EXPECT_EQ(ask("GET", "/v1/models", "", key)->status, 200);  // costs nothing
}

// One that runs alone for its key: whoever has an answer, an error or a stream whole may ask again at once.
TEST_F(ServiceTest, AKeyMayAskAgainAsSoonAsItHasItsAnswer) {
  start();
  service->set_keys(*ApiKeys::parse("secret-of-alice concurrency=1", "k"));
  const net::HttpFields key = {{"authorization", "Bearer secret-of-alice"}};
  for (int i = 0; i < 100; ++i) {
    EXPECT_EQ(ask("POST", "/v1/chat/completions", chat(), key)->status, 200) << i;
    EXPECT_EQ(ask("POST", "/v1/chat/completions", chat(R"(,"stream":true)"), key)->status, 200) << i;
    EXPECT_EQ(ask("POST", "/v1/chat/completions", chat(R"(,"temperature":9)"), key)->status, 400) << i;
  }
}

// The same of its tokens: what an answer took is taken before its end is seen.
TEST_F(ServiceTest, TokensOfAnAnswerCountBeforeItsEndIsSeen) {
  answer_text = "one two three four five six seven eight nine ten eleven twelve";
  start();
  for (int i = 0; i < 20; ++i) {
    const std::string secret = "secret-" + std::to_string(i);
    service->set_keys(*ApiKeys::parse(secret + " tokens=12", "k"));
    const net::HttpFields key = {{"authorization", "Bearer " + secret}};
    EXPECT_EQ(ask("POST", "/v1/chat/completions", chat(), key)->status, 200);
    EXPECT_EQ(ask("POST", "/v1/chat/completions", chat(), key)->status, 429) << i;
  }
}

TEST_F(ServiceTest, AFullQueueIs429AndADrainingServerIs503) {
  fake.sequences = 1;
  fake.answer = [](const Request&) { return FakeEngine::Script{std::vector<int32_t>(100'000, 9), 0, 0, {}}; };
  fake.step_time = std::chrono::milliseconds(1);
  start({.most_waiting = 0});
  Received running;
  send(running, request("POST", "/v1/chat/completions", chat(R"(,"stream":true)")));
  ASSERT_TRUE(running.wait_for_header());
  const auto full = ask("POST", "/v1/chat/completions", chat());
  EXPECT_EQ(full->status, 429);
  EXPECT_NE(full->field("retry-after"), "");
  engine->drain();
  const auto draining = ask("POST", "/v1/messages", messages());
  EXPECT_EQ(draining->status, 503);
  EXPECT_NE(draining->field("retry-after"), "");
  EXPECT_EQ(draining->at("error", "type").text, "overloaded_error");
  const auto ready = ask("GET", "/ready");
  EXPECT_EQ(ready->status, 503);
  EXPECT_EQ(ready->at("reason").text, "draining");
  EXPECT_EQ(ask("GET", "/health")->status, 200);
  running.go_away();
  EXPECT_TRUE(engine->wait_until_idle(std::chrono::steady_clock::now() + std::chrono::seconds(20)));
}

TEST_F(ServiceTest, ReadyDeepGeneratesATokenForReal) {
  const auto ready = ask("GET", "/ready?deep=1");
  EXPECT_EQ(ready->status, 200) << ready->body;
  EXPECT_EQ(ready->at("status").text, "ready");
  EXPECT_EQ(fake.submitted, 1);
  ask("GET", "/ready");
  EXPECT_EQ(fake.submitted, 1);
}

TEST_F(ServiceTest, Case_obs_01_ABlockedEngineIsAliveButNotReady) {
  std::atomic<bool> release = false;
  fake.before_step = [&] {
    while (!release) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  };
  start({.longest_step = std::chrono::milliseconds(0)});
  Received one, two;
  send(one, request("POST", "/v1/chat/completions", chat()));
  send(two, request("POST", "/v1/chat/completions", chat()));
  for (int i = 0; i < 2000 && engine->health().ready; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  EXPECT_EQ(ask("GET", "/health")->status, 200);
  const auto ready = ask("GET", "/ready");
  EXPECT_EQ(ready->status, 503);
  EXPECT_NE(ready->at("reason").text.find("no step"), std::string::npos);
  release = true;
  EXPECT_TRUE(one.wait());
  EXPECT_TRUE(two.wait());
}

TEST_F(ServiceTest, RequestIdsAndTraceparentPassThrough) {
  const char* trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
  const auto answer = ask("POST", "/v1/chat/completions", chat(), {{"X-Request-Id", "abc.1"}, {"traceparent", trace}});
  EXPECT_EQ(answer->field("x-request-id"), "abc.1");
  EXPECT_EQ(answer->field("traceparent"), trace);
  EXPECT_TRUE(logs("request=abc.1"));
  const auto own = ask("GET", "/v1/models", "", {{"x-request-id", "not a token\n"}, {"traceparent", "junk"}});
  EXPECT_TRUE(own->field("x-request-id").starts_with("req_"));
  EXPECT_EQ(own->field("traceparent"), "");
  const auto failed = ask("POST", "/v1/messages", "{}", {{"x-request-id", "abc.2"}});
  EXPECT_EQ(failed->at("request_id").text, "abc.2");
}

TEST_F(ServiceTest, PromptsAreLoggedOnlyWhenAskedFor) {
  ask("POST", "/v1/chat/completions", chat());
  EXPECT_EQ(logged().find("\"hi\""), std::string::npos);
  EXPECT_EQ(logged().find("Hello"), std::string::npos);
}

TEST_F(ServiceTest, WithTheFlagPromptsAreLogged) {
  options.log_prompts = true;
  ask("POST", "/v1/chat/completions", chat());
  EXPECT_TRUE(logs("messages"));
}

TEST_F(ServiceTest, CorsIsOffUnlessAnOriginIsNamed) {
  const net::HttpFields origin = {{"Origin", "https://app.example"}};
  EXPECT_EQ(ask("GET", "/v1/models", "", origin)->field("access-control-allow-origin"), "");
  EXPECT_EQ(ask("OPTIONS", "/v1/messages", "", origin)->field("access-control-allow-origin"), "");
}

TEST_F(ServiceTest, CorsAnswersThePreflightOfANamedOrigin) {
  options.cors_origins = {"https://app.example"};
  const auto flight = ask("OPTIONS", "/v1/messages", "",
                          {{"Origin", "https://app.example"}, {"Access-Control-Request-Headers", "x-api-key"}});
  EXPECT_EQ(flight->status, 204);
  EXPECT_EQ(flight->field("access-control-allow-origin"), "https://app.example");
  EXPECT_EQ(flight->field("access-control-allow-headers"), "x-api-key");
  EXPECT_EQ(flight->field("access-control-allow-methods"), "OPTIONS, POST");
  EXPECT_EQ(ask("GET", "/v1/models", "", {{"Origin", "https://evil.example"}})->field("access-control-allow-origin"),
            "");
  EXPECT_EQ(ask("GET", "/v1/models", "", {{"Origin", "https://app.example"}})->field("vary"), "Origin");
}

TEST_F(ServiceTest, ModelsAreListedForBothFamiliesOfClients) {
  options.conversion.models = {};
  start();
  const auto list = ask("GET", "/v1/models");
  EXPECT_EQ(list->at("object").text, "list");
  EXPECT_EQ(list->at("data", 0, "id").text, "DeepSeek-V4.1-Flash");
  EXPECT_EQ(list->at("data", 0, "object").text, "model");
  EXPECT_EQ(list->at("data", 0, "type").text, "model");
  EXPECT_EQ(list->at("has_more").as_bool(), false);
  EXPECT_EQ(ask("GET", "/v1/models/deepseek-v4.1-FLASH")->status, 200);
  EXPECT_EQ(ask("GET", "/v1/models/gpt-x")->status, 404);
  EXPECT_EQ(ask("GET", "/v1/models/gpt-x", "", {{"anthropic-version", "2023-06-01"}})->at("type").text, "error");
}

TEST_F(ServiceTest, TokenizeAndDetokenizeAreInverse) {
  const auto tokens = ask("POST", "/v1/tokenize", R"({"prompt":"12345 Hello","add_special_tokens":false})");
  const auto back = ask("POST", "/v1/detokenize", R"({"tokens":)" + to_string(tokens->at("tokens")) + "}");
  EXPECT_EQ(back->at("prompt").text, "12345 Hello");
  EXPECT_EQ(ask("POST", "/v1/tokenize", R"({"prompt":""})")->at("tokens", 0).as_int64(), 0);  // begin
  EXPECT_EQ(ask("POST", "/v1/detokenize", R"({"tokens":[-1]})")->status, 400);
  EXPECT_EQ(ask("POST", "/v1/detokenize", R"({})")->status, 400);
  EXPECT_EQ(ask("POST", "/v1/tokenize", R"({"prompt":5})")->at("error", "param").text, "prompt");
}

TEST_F(ServiceTest, EveryRouteIsInTheOpenapiDocumentAndNoOther) {
  const auto document = parse_json(openapi_document(), "openapi");
  ASSERT_TRUE(document);
  std::set<std::string> described, served;
  for (const auto& [path, item] : document->find("paths")->fields) {
    for (const auto& [method, operation] : item.fields) {
      if (method != "parameters") described.insert(method + " " + path);
    }
  }
  for (const Route& route : routes()) {
    std::string method = route.method;
    for (char& c : method) c = char(c + ('a' - 'A'));
    served.insert(method + " " + route.path);
  }
  EXPECT_EQ(described, served);
  EXPECT_EQ(ask("GET", "/openapi.json")->body, openapi_document());
}

TEST_F(ServiceTest, MetricsCountRequestsAnswersAndTokens) {
  fake.answer = [this](const Request&) { return says("ok", 2); };
  ask("POST", "/v1/chat/completions", chat());
  ask("POST", "/v1/chat/completions", chat(R"(,"n":2)"));
  auto shown = ask("GET", "/metrics");
  // An answer is counted when it has been given, which may be a moment after the client has it.
  for (int i = 0; i < 200 && shown->body.find("answer_tokens_total 0\n") != std::string::npos; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    shown = ask("GET", "/metrics");
  }
  EXPECT_EQ(shown->field("content-type"), "text/plain; version=0.0.4; charset=utf-8");
  for (const char* line :
       {R"(fathom_server_requests_total{route="/v1/chat/completions",status="200"} 1)",
        R"(fathom_server_requests_total{route="/v1/chat/completions",status="400"} 1)",
        "fathom_server_prompt_tokens_total 5", "fathom_server_cached_tokens_total 2", "fathom_server_ready_ratio 1"}) {
    EXPECT_NE(shown->body.find(line), std::string::npos) << line << "\n" << shown->body;
  }
}

TEST_F(ServiceTest, DebugStateNeedsItsOption) { EXPECT_EQ(ask("GET", "/debug/state")->status, 404); }
TEST_F(ServiceTest, DebugStateShowsWhatTheProcessKnows) {
  options.debug_routes = true;
  const auto state = ask("GET", "/debug/state?steps=7");
  EXPECT_EQ(state->at("ready").as_bool(), true);
  EXPECT_TRUE(state->at("metrics").is_object());
  EXPECT_EQ(state->at("engine", "steps").as_int64(), 7);
}

TEST_F(ServiceTest, VersionSaysWhatRuns) {
  options.version = "1.2.3", options.commit = "abc", options.backend = "cpu";
  const auto version = ask("GET", "/version");
  EXPECT_EQ(version->at("version").text, "1.2.3");
  EXPECT_EQ(version->at("context").as_int64(), 4096);
}

}  // namespace
}  // namespace fathom
