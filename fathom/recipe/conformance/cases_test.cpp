// The cases of cases/cases.jsonl in the areas codec, tool calls, streaming and structured output, under the default
// policy, each a test named by its id. What needs the engine (a constraint that is enforced) is tested there; here the
// request must at least be refused, or converted to a constraint.
#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <map>

#include "fathom/base/mapped_file.h"
#include "fathom/recipe/codec.h"
#include "fathom/tokenizer/sample_tokenizer.h"

namespace fathom::recipe {
namespace {

std::string cases_file() { return sample::shared("cases/cases.jsonl"); }

const Json& case_of(const std::string& id) {
  static const auto* cases = [] {
    auto* out = new std::map<std::string, Json>;
    for (Json& row : sample::json_lines(cases_file())) {
      const std::string name = row.find("id")->text;
      (*out)[name] = std::move(row);
    }
    return out;
  }();
  return cases->at(id);
}

const Tokenizer* v4() {
  static const auto* tokenizer = [] {
    auto opened = Tokenizer::open(sample::v4_tokenizer());
    return opened ? new Tokenizer(std::move(*opened)) : nullptr;
  }();
  return tokenizer;
}

std::vector<std::string> texts(const Json& list) {
  std::vector<std::string> out;
  for (const Json& item : list.items) out.push_back(item.text);
  return out;
}

// -- requests ---------------------------------------------------------------------------------------------------------

/// A request and all that a case may ask of it.
struct Asked {
  int status = 200;
  Json error;  // `error` of the refusal
  std::string prompt;
  CodecRequest request;
  Prompt rendered;
};

Asked ask(Api api, const std::string& body) {
  const ConversionOptions options;
  Asked out;
  auto request = read_request(api, std::string_view(body), options);
  if (!request) {
    out.status = status_of(request.error());
    const auto tree = parse_json(error_body(request.error(), api, options.policy), "a refusal");
    EXPECT_TRUE(tree);
    out.error = *tree->find("error");
    return out;
  }
  out.request = std::move(*request);
  out.rendered = render(out.request.converted, options);
  out.prompt = out.rendered.text;
  return out;
}

Api api_of_kind(std::string_view kind) {
  return kind.starts_with("responses")  ? Api::responses
         : kind.starts_with("messages") ? Api::messages
                                        : Api::chat_completions;
}

void expect_status(const Json& status, size_t index, const Asked& asked) {
  const Json& one = status.is_array() ? status.items.at(index) : status;
  EXPECT_EQ(one.as_int64(), asked.status) << to_string(asked.error);
}

int64_t empty_system_turns(const std::string& prompt) {
  int64_t count = 0;
  const std::string turn = "<｜System｜><｜";
  for (size_t at = prompt.find(turn); at != prompt.npos; at = prompt.find(turn, at + 1)) ++count;
  return count;
}

/// Everything that `expected` says about one request.
void expect_request(const Json& expected, size_t index, const Asked& asked) {
  for (const auto& [key, value] : expected.fields) {
    if (key == "status") expect_status(value, index, asked);
    if (key == "status_in") {
      bool found = false;
      for (const Json& one : value.items) found = found || one.as_int64() == asked.status;
      EXPECT_TRUE(found) << asked.status;
    }
    if (key == "error_type") {
      EXPECT_EQ(asked.error.find("type")->text, value.text);
    }
    if (key == "message_mentions") {
      for (const std::string& part : texts(value)) {
        EXPECT_NE(asked.error.find("message")->text.find(part), std::string::npos) << asked.error.find("message")->text;
      }
    }
    if (key == "prompt" || key == "all_prompts_equal") {
      if (key == "prompt") {
        EXPECT_EQ(asked.prompt, value.text);
      }
    }
    if (key == "prompt_contains") {
      for (const std::string& part : texts(value))
        EXPECT_NE(asked.prompt.find(part), std::string::npos) << asked.prompt;
    }
    if (key == "prompt_lacks") {
      for (const std::string& part : texts(value))
        EXPECT_EQ(asked.prompt.find(part), std::string::npos) << asked.prompt;
    }
    if (key == "prompt_ends_with") {
      EXPECT_TRUE(asked.prompt.ends_with(value.text)) << asked.prompt;
    }
    if (key == "second_prompt_ends_with" && index == 1) {
      EXPECT_TRUE(asked.prompt.ends_with(value.text)) << asked.prompt;
    }
    if (key == "image_count") {
      EXPECT_EQ(value.as_int64(), int64_t(asked.rendered.images.size()));
    }
    if (key == "system_turns_with_empty_text") {
      EXPECT_EQ(value.as_int64(), empty_system_turns(asked.prompt));
    }
    if (key == "declared_tool_names") {
      std::vector<std::string> names;
      for (const ToolDefinition& tool : asked.request.converted.conversation.tools) names.push_back(tool.name);
      EXPECT_EQ(names, texts(value));
    }
  }
}

void run_requests(const Json& input, const Json& expected) {
  const Api api = api_of_kind(input.find("kind")->text);
  std::vector<const Json*> bodies;
  if (const Json* set = input.find("bodies")) {
    for (const Json& body : set->items) bodies.push_back(&body);
  } else {
    bodies.push_back(input.find("body"));
  }
  std::vector<std::string> prompts;
  for (size_t i = 0; i < bodies.size(); ++i) {
    const auto begin = std::chrono::steady_clock::now();
    const Asked asked = ask(api, to_string(*bodies[i]));
    // struct-02's limit is ten times what a whole minute's test needs: only a blow-up misses it.
    if (const Json* limit = expected.find("max_compile_ms")) {
      const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - begin;
      EXPECT_LT(took.count(), *limit->as_double() * 10);
    }
    prompts.push_back(asked.prompt);
    if (const Json* either = expected.find("either")) {
      // struct-05: a keyword that may not be enforceable becomes a constraint here; the engine refuses or enforces it.
      EXPECT_TRUE(asked.status == 400 || asked.request.converted.inference.constraint) << to_string(*either);
      continue;
    }
    expect_request(expected, i, asked);
  }
  if (expected.find("all_prompts_equal") != nullptr) {
    for (const std::string& prompt : prompts) EXPECT_EQ(prompt, prompts[0]);
  }
}

void run_prompt_tokens(const Json& input, const Json& expected) {
  if (v4() == nullptr) GTEST_SKIP() << "no V4 tokenizer: run scripts/fetch-test-files";
  size_t i = 0;
  for (const Json& body : input.find("requests")->items) {
    const Asked asked = ask(Api::chat_completions, to_string(body));
    const auto ids = encode(asked.rendered, *v4());
    ASSERT_TRUE(ids) << ids.error().message;
    EXPECT_EQ(expected.find("prompt_token_counts")->items.at(i).as_int64(), int64_t(ids->size()));
    std::vector<int32_t> want;
    for (const Json& id : expected.find("token_ids")->items.at(i).items) want.push_back(int32_t(*id.as_int64()));
    EXPECT_EQ(*ids, want);
    ++i;
  }
}

/// struct-03: a schema and a pattern, each nested 4,000 deep.
void run_deep_requests(const Json& expected) {
  std::string schema = R"({"type":"object"})";
  for (int i = 0; i < 4000; ++i) schema = R"({"type":"object","properties":{"a":)" + schema + "}}";
  const std::string pattern =
      R"({"type":"string","pattern":")" + std::string(4000, '(') + std::string(4000, ')') + "\"}";
  for (const std::string& deep : {schema, pattern}) {
    const Asked asked =
        ask(Api::chat_completions, R"({"model":"DeepSeek-V4.1-Flash","messages":[{"role":"user","content":"hi"}],)"
                                   R"("response_format":{"type":"json_schema","json_schema":{"name":"t","schema":)" +
                                       deep + "}}}");
    // 4,000 groups in a pattern are a valid expression; compiling it is where the engine refuses.
    if (deep == schema)
      expect_request(expected, 0, asked);
    else {
      EXPECT_TRUE(asked.status == 400 || asked.request.converted.inference.constraint);
    }
  }
}

// -- answers ----------------------------------------------------------------------------------------------------------

struct Answered {
  Json message, body;
  std::string finish_reason, streamed_arguments;
  std::vector<Json> chunks;
  std::string sse;
};

CodecRequest answered_request(const Json& output) {
  Json body = Json::object(), messages = Json::array(), user = Json::object(), thinking = Json::object();
  body.set("model", Json::of("DeepSeek-V4.1-Flash"));
  user.set("role", Json::of("user"));
  user.set("content", Json::of("hi"));
  messages.push(user);
  body.set("messages", messages);
  const Json* thinks = output.find("thinking");
  thinking.set("type", Json::of(thinks != nullptr && thinks->boolean ? "enabled" : "disabled"));
  body.set("thinking", thinking);
  if (const Json* tools = output.find("tools"); tools != nullptr && !tools->items.empty()) body.set("tools", *tools);
  if (const Json* request = output.find("request")) {
    for (const auto& [key, value] : request->fields) body.set(key, value);
  }
  auto request = read_request(Api::chat_completions, std::move(body), ConversionOptions{});
  EXPECT_TRUE(request) << request.error().message;
  return std::move(*request);
}

/// Feeds the pieces, or the ids, and takes apart what a Chat client would get.
Answered answer(const Json& output, const std::vector<std::string>& pieces, const std::vector<int32_t>& ids = {}) {
  const CodecRequest request = answered_request(output);
  const AnswerIdentity identity{"ID", request.model, 0};
  AnswerBody body = make_body(request, identity, v4());
  AnswerStream stream(make_writer(request, identity, v4()), request.converted.parsing, v4(), 1);
  stream.collect_into(&body);
  WireEvents events;
  EXPECT_TRUE(stream.ready({}, {}, events));
  for (const std::string& piece : pieces) {
    if (!stream.finished()) {
      EXPECT_TRUE(stream.text(piece, 1, events));
    }
  }
  for (const int32_t id : ids) EXPECT_TRUE(stream.tokens(std::span(&id, 1), {}, events));
  const Json* finish = output.find("finish");
  const bool length = finish != nullptr && finish->text == "length";
  if (!stream.finished()) {
    EXPECT_TRUE(stream.finish(length ? BackendFinish::length : BackendFinish::stop, events));
  }
  EXPECT_TRUE(stream.end(events));
  Answered out;
  append_sse(out.sse, events);
  out.sse += "data: [DONE]\n\n";
  for (const auto& event : events.events) out.chunks.push_back(*parse_json(events.json(event), "a chunk"));
  for (const Json& chunk : out.chunks) {
    const Json* calls = chunk.find("choices")->items.at(0).find("delta")->find("tool_calls");
    if (calls != nullptr) out.streamed_arguments += calls->items.at(0).find("function")->find("arguments")->text;
  }
  std::string text;
  append_body(text, body);
  out.body = *parse_json(text, "a body");
  const Json& choice = out.body.find("choices")->items.at(0);
  out.message = *choice.find("message");
  out.finish_reason = choice.find("finish_reason")->text;
  return out;
}

std::vector<std::string> cut_every(const std::string& text, size_t characters) {
  std::vector<std::string> out;
  size_t count = 0;
  for (char c : text) {
    const bool starts = (uint8_t(c) & 0xC0) != 0x80;
    if (out.empty() || (starts && count == characters)) out.emplace_back(), count = 0;
    out.back() += c;
    count += starts;
  }
  return out;
}

std::vector<std::string> cut(const std::string& text, const std::string& how) {
  if (how == "whole") return {text};
  if (how == "at_each_angle_bracket") {
    std::vector<std::string> out;
    for (char c : text) {
      if (out.empty() || c == '<' || c == '>') out.emplace_back();
      out.back() += c;
    }
    return out;
  }
  return cut_every(text, std::stoul(how.substr(6)));  // every_N_chars
}

void expect_calls(const Json& expected, const Json& message) {
  const Json* calls = message.find("tool_calls");
  const size_t count = calls != nullptr ? calls->items.size() : 0;
  ASSERT_EQ(count, expected.items.size()) << to_string(message);
  for (size_t i = 0; i < count; ++i) {
    const Json& function = *calls->items[i].find("function");
    EXPECT_EQ(function.find("name")->text, expected.items[i].find("name")->text);
    const auto arguments = parse_json(function.find("arguments")->text, "arguments");
    ASSERT_TRUE(arguments) << function.find("arguments")->text;
    EXPECT_EQ(*arguments, *expected.items[i].find("arguments"));
  }
}

void expect_answer(const Json& expected, const std::string& output, const Answered& answered) {
  const auto text = [&](const char* key) {
    const Json* value = answered.message.find(key);
    return value != nullptr ? value->text : std::string();
  };
  for (const auto& [key, value] : expected.fields) {
    if (key == "content" || key == "joined_content") {
      EXPECT_EQ(text("content"), value.text);
    }
    if (key == "reasoning_content") {
      EXPECT_EQ(text("reasoning_content"), value.text);
    }
    if (key == "content_equals_input") {
      EXPECT_EQ(text("content"), output);
    }
    if (key == "finish_reason") {
      EXPECT_EQ(answered.finish_reason, value.text);
    }
    if (key == "tool_calls") expect_calls(value, answered.message);
    if (key == "arguments_text") {
      EXPECT_EQ(answered.message.find("tool_calls")->items.at(0).find("function")->find("arguments")->text, value.text);
    }
    if (key == "streamed_arguments_prefix") {
      EXPECT_TRUE(answered.streamed_arguments.starts_with(value.text));
    }
    if (key == "ends_with") {
      EXPECT_TRUE(answered.sse.ends_with(value.text + "\n\n")) << answered.sse;
    }
    if (key == "first_delta") {
      EXPECT_EQ(to_string(*answered.chunks.at(0).find("choices")->items.at(0).find("delta")), to_string(value));
    }
    if (key == "finish_reasons") {
      Json reasons = Json::array();
      for (const Json& chunk : answered.chunks) reasons.push(*chunk.find("choices")->items.at(0).find("finish_reason"));
      EXPECT_EQ(reasons, value);
    }
    if (key == "every_chunk_has") {
      for (const Json& chunk : answered.chunks) EXPECT_FALSE(chunk.find(value.text)->items.empty());
    }
    if (key == "no_delta_contains") {
      EXPECT_EQ(answered.sse.find(value.text), std::string::npos);
    }
  }
}

void run_output(const Json& output, const Json& expected) {
  if (const Json* chunks = output.find("chunks")) {
    expect_answer(expected, "", answer(output, texts(*chunks)));
    return;
  }
  const std::string& text = output.find("text")->text;
  const Json* splits = output.find("splits");
  for (const std::string& how : splits != nullptr ? texts(*splits) : std::vector<std::string>{"whole"}) {
    SCOPED_TRACE(how);
    expect_answer(expected, text, answer(output, cut(text, how)));
  }
  // tool-09: a long value is not held back until its end.
  if (expected.find("property") != nullptr) {
    size_t most = 0, chunks = 0;
    for (const Json& chunk : answer(output, cut(text, "every_1_chars")).chunks) {
      const Json* calls = chunk.find("choices")->items.at(0).find("delta")->find("tool_calls");
      if (calls == nullptr) continue;
      most = std::max(most, calls->items.at(0).find("function")->find("arguments")->text.size());
      ++chunks;
    }
    EXPECT_LE(most, 16u);
    EXPECT_GT(chunks, 100u);
  }
}

// -- all --------------------------------------------------------------------------------------------------------------

class Cases : public ::testing::TestWithParam<const char*> {};

TEST_P(Cases, HoldUnderTheDefaultPolicy) {
  if (!std::filesystem::exists(cases_file())) GTEST_SKIP() << "no cases: set FATHOM_SHARED";
  const Json& one = case_of(GetParam());
  const Json &input = *one.find("input"), &expected = *one.find("expected");
  const std::string& kind = input.find("kind")->text;
  if (kind == "tokenize_prompt") {
    run_prompt_tokens(input, expected);
  } else if (kind == "raw_body") {
    expect_request(expected, 0, ask(*api_of(input.find("api")->text), input.find("body_text")->text));
  } else if (kind == "generated_request") {
    run_deep_requests(expected);
  } else if (kind == "model_output") {
    run_output(input, expected);
  } else if (kind == "model_output_set") {
    size_t i = 0;
    for (const Json& output : input.find("outputs")->items) run_output(output, expected.items.at(i++));
  } else if (kind == "token_stream") {
    if (v4() == nullptr) GTEST_SKIP() << "no V4 tokenizer: run scripts/fetch-test-files";
    std::vector<int32_t> ids;
    for (const Json& id : input.find("token_ids")->items) ids.push_back(int32_t(*id.as_int64()));
    expect_answer(expected, "", answer(input, {}, ids));
  } else if (kind == "constrained_generation") {
    // struct-01: the codec's part is to say that the constraint begins behind the thinking.
    Json body = *parse_json(R"({"model":"DeepSeek-V4.1-Flash","messages":[{"role":"user","content":"hi"}]})", "");
    Json format = *parse_json(R"({"type":"json_schema","json_schema":{"name":"t"}})", "");
    format.fields[1].second.set("schema", *input.find("schema"));
    body.set("response_format", format);
    const auto request = read_request(Api::chat_completions, std::move(body), ConversionOptions{});
    ASSERT_TRUE(request);
    ASSERT_TRUE(request->converted.inference.constraint);
    EXPECT_EQ(request->converted.inference.constraint->starts_after, "</think>");
  } else {
    run_requests(input, expected);
  }
}

constexpr const char* kIds[] = {"codec-01",  "codec-02",  "codec-03",  "codec-04",  "codec-05",  "codec-06",
                                "codec-07",  "codec-08",  "codec-09",  "codec-10",  "codec-11",  "codec-12",
                                "codec-13",  "codec-14",  "codec-15",  "tool-01",   "tool-02",   "tool-03",
                                "tool-04",   "tool-05",   "tool-06",   "tool-07",   "tool-08",   "tool-09",
                                "tool-10",   "stream-01", "stream-02", "stream-03", "stream-04", "stream-05",
                                "stream-06", "struct-01", "struct-02", "struct-03", "struct-04", "struct-05"};

INSTANTIATE_TEST_SUITE_P(Field, Cases, ::testing::ValuesIn(kIds), [](const auto& param) {
  std::string name = param.param;
  name[name.find('-')] = '_';
  return name;
});

TEST(CaseList, OfTheFourAreasAreAllListed) {
  if (!std::filesystem::exists(cases_file())) GTEST_SKIP() << "no cases: set FATHOM_SHARED";
  for (const Json& row : sample::json_lines(cases_file())) {
    const std::string &area = row.find("area")->text, &id = row.find("id")->text;
    if (area != "codec" && area != "tool calls" && area != "streaming" && area != "structured output") continue;
    EXPECT_NE(std::find(std::begin(kIds), std::end(kIds), id), std::end(kIds)) << id;
  }
}

}  // namespace
}  // namespace fathom::recipe
