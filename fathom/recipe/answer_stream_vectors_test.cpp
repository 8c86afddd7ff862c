// The whole way of an answer under the strict policy: the request of a row, its chunks through AnswerStream, its events
// chunk by chunk and byte by byte, its complete body. Call ids are random and are compared by their shape.
#include <gtest/gtest.h>

#include <filesystem>
#include <optional>
#include <regex>

#include "fathom/recipe/codec.h"
#include "fathom/tokenizer/sample_tokenizer.h"

namespace fathom::recipe {
namespace {

std::string text_of(const Json* value) { return value ? value->text : ""; }

int64_t count_of(const Json& object, std::string_view key) {
  const Json* value = object.find(key);
  return value ? value->as_int64().value_or(0) : 0;
}

/// As the vectors were normalised (vectors/recipe/README.md).
std::string normalised(const std::string& json) {
  static const std::regex clock(R"("completed_at":\d+)");
  static const std::regex call(R"((call_\d\d_(ET_)?)[A-Za-z0-9]{20}\d{4})");
  return std::regex_replace(std::regex_replace(json, clock, R"("completed_at":0)"), call, "$1RANDOM");
}

std::string joined(const WireEvents& events) {
  std::string out;
  for (const auto& event : events.events) {
    out.append(event.name).append(" ").append(events.json(event)).append("\n");
  }
  return normalised(out);
}

std::string expected(const Json& events) {
  std::string out;
  for (const Json& event : events.items) {
    out.append(text_of(event.find("event"))).append(" ").append(to_string(*event.find("data"))).append("\n");
  }
  return out;
}

std::vector<TokenLogprob> logprobs_of(const Json* list, const std::vector<int32_t>& ids) {
  std::vector<TokenLogprob> out;
  if (!list) return out;
  for (size_t i = 0; i < list->items.size(); ++i) {
    const Json& entry = list->items[i];
    TokenLogprob token;
    token.id = i < ids.size() ? ids[i] : 0;
    token.logprob = float(entry.items[0].as_double().value());
    for (const Json& top : entry.items[1].items) {
      token.top.emplace_back(int32_t(top.items[0].as_int64().value()), float(top.items[1].as_double().value()));
    }
    out.push_back(std::move(token));
  }
  return out;
}

Result<void> feed(AnswerStream& stream, const Json& chunk, WireEvents& out) {
  if (const Json* ready = chunk.find("ready")) {
    const Json* fingerprint = ready->find("system_fingerprint");
    const PromptUsage prompt{count_of(*ready, "prompt_tokens"), count_of(*ready, "prompt_cache_hit_tokens")};
    return stream.ready(prompt, fingerprint ? std::optional<std::string_view>(fingerprint->text) : std::nullopt, out);
  }
  if (const Json* text = chunk.find("text")) return stream.text(text->text, count_of(chunk, "token_count"), out);
  if (const Json* tokens = chunk.find("token_ids")) {
    const auto ids = sample::ids_of(*tokens);
    return stream.tokens(ids, logprobs_of(chunk.find("logprobs"), ids), out);
  }
  const std::string reason = text_of(chunk.find("finish"));
  return stream.finish(reason == "length"           ? BackendFinish::length
                       : reason == "content_filter" ? BackendFinish::content_filter
                                                    : BackendFinish::stop,
                       out);
}

AnswerWriter writer_of(const CodecRequest& request, const Json& row, const Tokenizer* tokenizer) {
  if (const Json* signature = row.find("signature")) {
    MessagesForm form;
    form.identity = {"ID", request.model, 0};
    form.thinking = request.converted.conversation.thinking;
    form.signature = signature->text;
    return MessagesWriter(form);
  }
  return make_writer(request, {"ID", request.model, 0}, tokenizer);
}

AnswerBody body_of(const CodecRequest& request, const Json& row, const Tokenizer* tokenizer) {
  if (const Json* signature = row.find("signature")) {
    MessagesForm form;
    form.identity = {"ID", request.model, 0};
    form.thinking = request.converted.conversation.thinking;
    form.signature = signature->text;
    return MessagesBody(form);
  }
  return make_body(request, {"ID", request.model, 0}, tokenizer);
}

void replay(const Json& row, const Tokenizer* tokenizer) {
  ConversionOptions options;
  options.policy = Policy::strict;
  auto request = read_request(*api_of(text_of(row.find("api"))), *row.find("request"), options);
  ASSERT_TRUE(request.ok()) << to_string(request.error());
  AnswerBody body = body_of(*request, row, tokenizer);
  AnswerStream stream(writer_of(*request, row, tokenizer), request->converted.parsing, tokenizer, 1);
  stream.collect_into(&body);

  const Json& expect = *row.find("expect");
  const std::vector<Json>& want = expect.find("events")->items;
  WireEvents out;
  size_t fed = 0;
  for (const Json& chunk : row.find("chunks")->items) {
    if (stream.finished()) break;
    out.clear();
    const auto result = feed(stream, chunk, out);
    if (const Json* error = expect.find("error"); error && count_of(*error, "chunk") == int64_t(fed)) {
      ASSERT_FALSE(result.ok());
      EXPECT_EQ(result.error().message, text_of(error->find("message")));
      return;
    }
    ASSERT_TRUE(result.ok()) << to_string(result.error());
    ASSERT_LT(fed, want.size());
    ASSERT_EQ(joined(out), expected(want[fed])) << "chunk " << fed;
    ++fed;
  }
  out.clear();
  ASSERT_TRUE(stream.end(out).ok());
  ASSERT_EQ(fed + 1, want.size());
  ASSERT_EQ(joined(out), expected(want[fed])) << "at the end";
  EXPECT_TRUE(stream.finished());
  std::string final_body;
  append_body(final_body, body);
  EXPECT_EQ(normalised(final_body), to_string(*expect.find("final")));
}

void replay_file(const std::string& file, const Tokenizer* tokenizer, int rows) {
  const std::string path = sample::shared(file);
  if (!std::filesystem::exists(path)) GTEST_SKIP() << path << " is not there: set FATHOM_SHARED";
  int replayed = 0;
  for (const Json& row : sample::json_lines(path)) {
    SCOPED_TRACE(text_of(row.find("name")));
    replay(row, tokenizer);
    ++replayed;
  }
  EXPECT_EQ(replayed, rows);
}

TEST(AnswerStreamVectorsTest, TextStreamsGiveTheEventsAndBodiesOfTheVectors) {
  replay_file("vectors/recipe/streams.jsonl", nullptr, 226);
}

TEST(AnswerStreamVectorsTest, TokenStreamsGiveTheEventsAndBodiesOfTheVectors) {
  const std::string path = sample::v4_tokenizer();
  if (!std::filesystem::exists(path)) GTEST_SKIP() << path << " is not there: run scripts/fetch-test-files";
  const auto tokenizer = Tokenizer::open(path);
  ASSERT_TRUE(tokenizer.ok()) << to_string(tokenizer.error());
  replay_file("vectors/recipe/token_streams.jsonl", &*tokenizer, 28);
}

// Measured: the reason of an input that ends without a finish chunk is `stop` under strict, even with calls.
TEST(AnswerStreamVectorsTest, WithoutAFinishChunkCallsAreTheReasonOnlyUnderTheDefaultPolicy) {
  for (Policy policy : {Policy::strict, Policy::lenient}) {
    Parsing parsing;
    parsing.policy = policy;
    ChatCompletionsForm form;
    form.identity = {"ID", "m", 0};
    form.thinking = false;
    AnswerStream stream(ChatCompletionsWriter(form), parsing, nullptr, 1);
    WireEvents out;
    ASSERT_TRUE(stream.text("<｜DSML｜ calls>\n<｜DSML｜ invoke name=\"f\">\n\n</｜DSML｜ invoke>\n", 9, out).ok());
    ASSERT_TRUE(stream.end(out).ok());
    const std::string_view last = out.json(out.events.back());
    const std::string reason = policy == Policy::strict ? "stop" : "tool_calls";
    EXPECT_NE(last.find("\"finish_reason\":\"" + reason + "\""), std::string_view::npos) << last;
  }
}

}  // namespace
}  // namespace fathom::recipe
