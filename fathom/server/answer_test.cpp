// Answers on their way: streams, signs of life, stops, failures, clients that leave.
#include "fathom/server/answer.h"

#include "fathom/server/service_fixture.h"

namespace fathom {
namespace {

using std::chrono::milliseconds;

std::vector<std::string> names_of(const std::vector<net::ServerSentEvent>& events) {
  std::vector<std::string> names;
  for (const auto& event : events) {
    if (names.empty() || names.back() != event.event) names.push_back(event.event);
  }
  return names;
}

Json tree_of(const std::string& text) {
  const auto tree = parse_json(text, "event");
  EXPECT_TRUE(tree.ok()) << text;
  return tree ? *tree : Json();
}

struct AnswerTest : ServiceTest {};

TEST_F(AnswerTest, Case_stream_06_FirstMiddleAndLastChunkOfAChatStream) {
  answer_text = "Hi there";
  const auto answer = ask("POST", "/v1/chat/completions", chat(R"(,"stream":true)"));
  EXPECT_EQ(answer->status, 200);
  EXPECT_EQ(answer->field("content-type").substr(0, 17), "text/event-stream");
  EXPECT_TRUE(answer->whole);
  const auto events = answer->events();
  ASSERT_GE(events.size(), 4u);
  EXPECT_EQ(events.back().data, "[DONE]");
  EXPECT_TRUE(answer->body.ends_with("data: [DONE]\n\n"));
  std::string text;
  for (size_t i = 0; i + 1 < events.size(); ++i) {
    const Json chunk = tree_of(events[i].data);
    ASSERT_NE(chunk.find("choices"), nullptr);
    const Json& choice = chunk.find("choices")->items.at(0);
    const Json* content = choice.find("delta")->find("content");
    if (i == 0) {
      EXPECT_EQ(choice.find("delta")->find("role")->text, "assistant");
      EXPECT_EQ(content->text, "");
    }
    if (content != nullptr) text += content->text;
    EXPECT_EQ(choice.find("finish_reason")->text, i + 2 == events.size() ? "stop" : "");
  }
  EXPECT_EQ(text, "Hi there");
}

TEST_F(AnswerTest, Case_stream_02_AStopTextNeverAppearsAndEndsTheEngineToo) {
  answer_text = "The quick brown fox jumps over the lazy dog again and again";
  fake.step_time = milliseconds(2);  // an engine that is done before it is told has nothing to stop
  for (const bool stream : {false, true}) {
    const int64_t cancels = fake.cancels;
    const auto answer = ask("POST", "/v1/chat/completions",
                            chat(std::string(R"(,"stop":["own fox"],"stream":)") + (stream ? "true" : "false")));
    std::string text;
    if (stream) {
      for (const auto& event : answer->events()) {
        if (event.data == "[DONE]") continue;
        const Json chunk = tree_of(event.data);
        const Json* content = chunk.find("choices")->items.at(0).find("delta")->find("content");
        if (content != nullptr) text += content->text;
      }
    } else {
      text = answer->at("choices", 0, "message", "content").text;
      EXPECT_EQ(answer->at("choices", 0, "finish_reason").text, "stop");
    }
    EXPECT_EQ(text, "The quick br");
    EXPECT_GT(fake.cancels, cancels);
  }
}

TEST_F(AnswerTest, AStopTextStillBringsTheTrueCountsOfTheEngine) {
  fake.answer = [this](const Request&) { return says("one two three four five six seven eight", 2); };
  const auto answer = ask("POST", "/v1/messages", messages(R"(,"stop_sequences":["three"])"));
  EXPECT_EQ(answer->at("stop_reason").text, "stop_sequence");
  EXPECT_EQ(answer->at("stop_sequence").text, "three");
  EXPECT_EQ(answer->at("usage", "cache_read_input_tokens").as_int64(), 2);
}

TEST_F(AnswerTest, AMessagesStreamHasTheEventsOfThatApi) {
  const auto answer = ask("POST", "/v1/messages", messages(R"(,"stream":true)"));
  const auto names = names_of(answer->events());
  EXPECT_EQ(names, (std::vector<std::string>{"message_start", "content_block_start", "ping", "content_block_delta",
                                             "content_block_stop", "message_delta", "message_stop"}));
}

// Clients of Messages show what was read from the cache when an answer begins.
TEST_F(AnswerTest, AMessagesStreamCountsWhatWasCachedFromItsFirstEventOn) {
  fake.answer = [this](const Request&) { return says("Hi", 3); };
  const auto events = ask("POST", "/v1/messages", messages(R"(,"stream":true)"))->events();
  const Json start = tree_of(events[0].data);
  const Json& usage = *start.find("message")->find("usage");
  EXPECT_EQ(usage.find("cache_read_input_tokens")->as_int64(), 3);
  EXPECT_EQ(usage.find("input_tokens")->as_int64(), 2);
  const Json delta = tree_of(events[events.size() - 2].data);
  EXPECT_EQ(delta.find("usage")->find("cache_read_input_tokens")->as_int64(), 3);
}

// When the header cannot wait for the first token, nothing is known yet, and the last event corrects it.
TEST_F(AnswerTest, AMessagesStreamThatBeginsBeforeItsFirstTokenIsCorrectedAtTheEnd) {
  options.header_delay = std::chrono::milliseconds(0);
  fake.step_time = std::chrono::milliseconds(20);
  fake.answer = [this](const Request&) {
    auto script = says("Hi", 3);
    script.prefill_steps = 30;
    return script;
  };
  start({.tick = std::chrono::milliseconds(5)});
  const auto events = ask("POST", "/v1/messages", messages(R"(,"stream":true)"))->events();
  const Json first = tree_of(events[0].data), delta = tree_of(events[events.size() - 2].data);
  EXPECT_EQ(first.find("message")->find("usage")->find("cache_read_input_tokens")->as_int64(), 0);
  EXPECT_EQ(delta.find("usage")->find("cache_read_input_tokens")->as_int64(), 3);
}

TEST_F(AnswerTest, AResponsesStreamHasTheEventsOfThatApiInSequence) {
  const auto answer = ask("POST", "/v1/responses", responses(R"(,"stream":true)"));
  const auto events = answer->events();
  ASSERT_GE(events.size(), 2u);
  EXPECT_EQ(events.front().event, "response.created");
  EXPECT_EQ(events.back().event, "response.completed");
  int64_t next = 0;
  for (const auto& event : events) EXPECT_EQ(tree_of(event.data).find("sequence_number")->as_int64(), next++);
}

TEST_F(AnswerTest, IncludeUsagePutsTheCountsIntoTheLastChunk) {
  fake.answer = [this](const Request&) { return says("Hi", 3); };
  const auto answer =
      ask("POST", "/v1/chat/completions", chat(R"(,"stream":true,"stream_options":{"include_usage":true})"));
  const auto events = answer->events();
  const Json last = tree_of(events[events.size() - 2].data);
  EXPECT_EQ(last.find("usage")->find("prompt_tokens_details")->find("cached_tokens")->as_int64(), 3);
  EXPECT_TRUE(tree_of(events[0].data).find("usage")->is_null());
}

TEST_F(AnswerTest, AReceiptComesOnlyWhenAskedForInBodiesAndInTheLastEvent) {
  fake.answer = [this](const Request&) { return says("Hi", 3); };
  const net::HttpFields wants = {{"x-fathom-receipt", "1"}};
  for (const auto& [path, body] :
       {std::pair{"/v1/chat/completions", chat()}, {"/v1/messages", messages()}, {"/v1/responses", responses()}}) {
    EXPECT_EQ(ask("POST", path, body, wants)->at("fathom", "cached_tokens").as_int64(), 3) << path;
    EXPECT_TRUE(ask("POST", path, body)->at("fathom").is_null()) << path;
    const std::string stream = body.substr(0, body.size() - 1) + R"(,"stream":true})";
    const auto events = ask("POST", path, stream, wants)->events();
    const auto& last = events.back().data == "[DONE]" ? events[events.size() - 2] : events.back();
    const Json tree = tree_of(last.data);
    ASSERT_NE(tree.find("fathom"), nullptr) << path;
    EXPECT_EQ(tree.find("fathom")->find("generated_tokens")->as_int64(), 2) << path;
  }
}

// 45 s of prefill in the case; here the limits are shortened by a factor of about 100 and so is the prefill.
TEST_F(AnswerTest, Case_http_04_ALongPrefillShowsAHeaderAtOnceAndSignsOfLife) {
  options.header_delay = milliseconds(5);
  options.silence = milliseconds(20);
  fake.step_time = milliseconds(2);
  fake.answer = [this](const Request&) {
    auto script = says("Hi");
    script.prefill_steps = 100;
    return script;
  };
  start({.tick = milliseconds(3)});
  struct Row {
    const char* path;
    std::string body, life;
  };
  const std::string stream = R"(,"stream":true)";
  for (const Row& row : {Row{"/v1/chat/completions", chat(stream), ": keep-alive\n\n"},
                         Row{"/v1/messages", messages(stream), "event: ping\n"},
                         Row{"/v1/responses", responses(stream), "event: response.in_progress\n"}}) {
    Received received;
    send(received, request("POST", row.path, row.body));
    ASSERT_TRUE(received.wait_for_header());
    EXPECT_EQ(received.field("x-accel-buffering"), "no") << row.path;
    EXPECT_EQ(received.field("content-type").substr(0, 17), "text/event-stream");
    ASSERT_TRUE(received.wait());
    EXPECT_TRUE(received.whole);
    // 200 ms of prefill at one sign every 20 to 25 ms or so: two are there on the slowest machine.
    size_t signs = 0;
    for (size_t at = received.body.find(row.life); at != std::string::npos; at = received.body.find(row.life, at + 1)) {
      ++signs;
    }
    EXPECT_GE(signs, 2u) << row.path << "\n" << received.body;
  }
}

TEST_F(AnswerTest, ACompleteAnswerThatTakesLongKeepsItsConnectionWithBlanks) {
  options.silence = milliseconds(10);
  fake.step_time = milliseconds(2);
  fake.answer = [this](const Request&) {
    auto script = says("Hello there");
    script.prefill_steps = 50;
    return script;
  };
  start({.tick = milliseconds(3)});
  const auto answer = ask("POST", "/v1/chat/completions", chat());
  EXPECT_TRUE(answer->streamed);
  EXPECT_TRUE(answer->whole);
  EXPECT_EQ(answer->field("content-type"), "application/json");
  EXPECT_EQ(answer->body[0], ' ');
  EXPECT_EQ(answer->at("choices", 0, "message", "content").text, "Hello there");
}

TEST_F(AnswerTest, AFailureBeforeTheFirstTokenIsAnHttpError) {
  fake.answer = [](const Request&) {
    return FakeEngine::Script{{}, 0, 0, Error{ErrorCode::usage, "the grammar cannot be compiled", "", "simplify it"}};
  };
  const auto bad = ask("POST", "/v1/chat/completions", chat(R"(,"stream":true)"));
  EXPECT_EQ(bad->status, 400);
  EXPECT_FALSE(bad->streamed);
  EXPECT_EQ(bad->at("error", "message").text, "the grammar cannot be compiled: simplify it");
  fake.answer = [](const Request&) {
    return FakeEngine::Script{{}, 0, 0, Error{ErrorCode::failed, "the device is gone", "", ""}};
  };
  const auto lost = ask("POST", "/v1/messages", messages());
  EXPECT_EQ(lost->status, 503);
  EXPECT_NE(lost->field("retry-after"), "");
  EXPECT_EQ(lost->at("error", "type").text, "overloaded_error");
}

TEST_F(AnswerTest, AFailureInMidStreamIsToldInTheFormOfEachApi) {
  fake.answer = [](const Request&) {
    auto script = FakeEngine::Script{mini_tokenizer().encode("Hello"), 0, 0, {}};
    script.fails_after = Error{ErrorCode::failed, "the device is gone", "", ""};
    return script;
  };
  const auto chat_answer = ask("POST", "/v1/chat/completions", chat(R"(,"stream":true)"));
  EXPECT_EQ(chat_answer->body.find("[DONE]"), std::string::npos);
  EXPECT_EQ(tree_of(chat_answer->events().back().data).find("error")->find("message")->text, "the device is gone");
  EXPECT_EQ(ask("POST", "/v1/responses", responses(R"(,"stream":true)"))->events().back().event, "response.failed");
  EXPECT_EQ(ask("POST", "/v1/messages", messages(R"(,"stream":true)"))->events().back().event, "error");
}

TEST_F(AnswerTest, AFailureAfterTheBlanksCutsTheConnection) {
  options.silence = milliseconds(10);
  fake.step_time = milliseconds(2);
  fake.answer = [](const Request&) {
    return FakeEngine::Script{{}, 50, 0, Error{ErrorCode::failed, "the device is gone", "", ""}};
  };
  start({.tick = milliseconds(3)});
  const auto answer = ask("POST", "/v1/chat/completions", chat());
  EXPECT_TRUE(answer->streamed);
  EXPECT_FALSE(answer->whole);
}

TEST_F(AnswerTest, AClientThatLeavesStopsTheEngineWithinAStep) {
  fake.answer = [](const Request&) { return FakeEngine::Script{std::vector<int32_t>(100'000, 900), 0, 0, {}}; };
  fake.step_time = milliseconds(1);
  start();
  for (const bool stream : {true, false}) {
    Received received;
    send(received, request("POST", "/v1/chat/completions", chat(stream ? R"(,"stream":true)" : "")));
    for (int i = 0; i < 5000 && engine->health().open == 0; ++i) std::this_thread::sleep_for(milliseconds(1));
    if (stream) {
      ASSERT_TRUE(received.wait_for_text("data: "));
    }
    received.go_away();
    EXPECT_TRUE(engine->wait_until_idle(std::chrono::steady_clock::now() + std::chrono::seconds(20)));
  }
  EXPECT_TRUE(logs("status=499"));
}

TEST_F(AnswerTest, StoppingTheServiceTellsOpenStreamsSo) {
  fake.answer = [](const Request&) { return FakeEngine::Script{std::vector<int32_t>(100'000, 900), 0, 0, {}}; };
  fake.step_time = milliseconds(1);
  start();
  Received received;
  send(received, request("POST", "/v1/messages", messages(R"(,"stream":true)")));
  ASSERT_TRUE(received.wait_for_text("content_block_delta"));
  engine->stop();
  ASSERT_TRUE(received.wait());
  EXPECT_EQ(received.events().back().event, "error");
}

TEST_F(AnswerTest, Case_stream_01_ACharacterSplitOverTokensComesWhole) {
  // The ids of the case are those of the published tokenizer; here the same text in the miniature's.
  answer_text = "ok 👩‍🚀 yes";
  const auto answer = ask("POST", "/v1/chat/completions", chat(R"(,"stream":true)"));
  EXPECT_EQ(answer->body.find("\xEF\xBF\xBD"), std::string::npos);
  std::string text;
  for (const auto& event : answer->events()) {
    if (event.data == "[DONE]") continue;
    const Json chunk = tree_of(event.data);
    const Json* content = chunk.find("choices")->items.at(0).find("delta")->find("content");
    if (content != nullptr) text += content->text;
  }
  EXPECT_EQ(text, answer_text);
}

TEST_F(AnswerTest, Case_stream_03_StopTextsDoNotActOnReasoning) {
  answer_text = "think END more</think>ans END tail";
  const auto answer =
      ask("POST", "/v1/chat/completions",
          R"({"model":"DeepSeek-V4.1-Flash","messages":[{"role":"user","content":"hi"}],"stop":["END"]})");
  EXPECT_EQ(answer->at("choices", 0, "message", "reasoning_content").text, "think END more");
  EXPECT_EQ(answer->at("choices", 0, "message", "content").text, "ans ");
  EXPECT_EQ(answer->at("choices", 0, "finish_reason").text, "stop");
}

TEST_F(AnswerTest, Case_stream_04_AThinkingAnswerWithoutAnOpeningMarker) {
  answer_text = "Reason</think>Answer";
  const auto answer = ask("POST", "/v1/chat/completions",
                          R"({"model":"DeepSeek-V4.1-Flash","messages":[{"role":"user","content":"hi"}]})");
  EXPECT_EQ(answer->at("choices", 0, "message", "reasoning_content").text, "Reason");
  EXPECT_EQ(answer->at("choices", 0, "message", "content").text, "Answer");
  EXPECT_GT(*answer->at("usage", "completion_tokens_details", "reasoning_tokens").as_int64(), 0);
}

TEST_F(AnswerTest, Case_stream_05_ThinkingThatNeverEndsStopsAtItsLimit) {
  answer_text = "loop loop loop loop loop loop loop loop loop loop loop loop";
  const auto answer =
      ask("POST", "/v1/chat/completions",
          R"({"model":"DeepSeek-V4.1-Flash","max_tokens":8,"messages":[{"role":"user","content":"hi"}]})");
  EXPECT_EQ(answer->at("choices", 0, "message", "content").text, "");
  EXPECT_TRUE(answer->at("choices", 0, "message", "reasoning_content").text.starts_with("loop loop"));
  EXPECT_EQ(answer->at("choices", 0, "finish_reason").text, "length");
  EXPECT_EQ(answer->at("usage", "completion_tokens").as_int64(), 8);
}

TEST_F(AnswerTest, ToolCallsReachEachApiWhole) {
  answer_text =
      "<｜DSML｜ calls>\n<｜DSML｜ invoke name=\"f\">\n<｜DSML｜ parameter name=\"cmd\" string=\"true\">ls "
      "2>&1</｜DSML｜ "
      "parameter>\n</｜DSML｜ invoke>\n</｜DSML｜ calls>";
  const std::string schema = R"({"type":"object","properties":{"cmd":{"type":"string"}}})";
  const auto chat_answer =
      ask("POST", "/v1/chat/completions",
          chat(R"(,"tools":[{"type":"function","function":{"name":"f","parameters":)" + schema + "}}]"));
  EXPECT_EQ(chat_answer->at("choices", 0, "finish_reason").text, "tool_calls");
  EXPECT_EQ(chat_answer->at("choices", 0, "message", "tool_calls", 0, "function", "arguments").text,
            R"({"cmd": "ls 2>&1"})");
  const auto message =
      ask("POST", "/v1/messages", messages(R"(,"tools":[{"name":"f","input_schema":)" + schema + "}]"));
  EXPECT_EQ(message->at("stop_reason").text, "tool_use");
  EXPECT_EQ(message->at("content", 0, "input", "cmd").text, "ls 2>&1");
  const auto response = ask("POST", "/v1/responses",
                            responses(R"(,"tools":[{"type":"function","name":"f","parameters":)" + schema + "}]"));
  EXPECT_EQ(response->at("output", 0, "type").text, "function_call");
}

TEST_F(AnswerTest, SettingsReachTheEngine) {
  Request seen;
  fake.answer = [&](const Request& r) {
    seen = r;
    return says("ok");
  };
  ask("POST", "/v1/chat/completions",
      chat(R"(,"seed":7,"temperature":0.5,"frequency_penalty":1.5,"presence_penalty":-1,"max_tokens":9)"));
  EXPECT_EQ(seen.sampling.seed, 7u);
  EXPECT_EQ(seen.sampling.temperature, 0.5f);
  EXPECT_EQ(seen.sampling.frequency_penalty, 1.5f);
  EXPECT_EQ(seen.sampling.presence_penalty, -1);
  EXPECT_EQ(seen.sampling.max_tokens, 9);
  EXPECT_EQ(seen.sampling.top_logprobs, -1);
  ask("POST", "/v1/chat/completions", chat(R"(,"logprobs":true,"top_logprobs":3)"));
  EXPECT_EQ(seen.sampling.top_logprobs, 3);
  ask("POST", "/v1/chat/completions",
      chat(
          R"(,"response_format":{"type":"json_schema","json_schema":{"name":"a","strict":true,"schema":{"type":"object","properties":{"n":{"type":"integer"}},"required":["n"],"additionalProperties":false}}})"));
  ASSERT_TRUE(seen.constraint);
  EXPECT_EQ(seen.constraint->kind, grammar::Constraint::Kind::json);
}

TEST_F(AnswerTest, ASchemaThatCannotBeKeptIsRefusedWithItsPath) {
  const auto refused = ask(
      "POST", "/v1/chat/completions",
      chat(
          R"(,"response_format":{"type":"json_schema","json_schema":{"name":"a","schema":{"type":"object","properties":{"x":{"not":{"type":"string"}}}}}})"));
  EXPECT_EQ(refused->status, 400) << refused->body;
  EXPECT_TRUE(refused->at("error", "param").text.starts_with("response_format.json_schema.schema")) << refused->body;
  EXPECT_EQ(fake.submitted, 0);
}

}  // namespace
}  // namespace fathom
