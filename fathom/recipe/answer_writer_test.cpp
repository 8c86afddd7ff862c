// The writers against the vectors, without a parser: the deltas are read back out of the expected events of a row, and
// the writer must make the same events of them, chunk by chunk and byte by byte, and the body the same final JSON.
#include "fathom/recipe/answer_writer.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <regex>

#include "fathom/recipe/json_text.h"
#include "fathom/tokenizer/sample_tokenizer.h"

namespace fathom::recipe {
namespace {

/// A delta that owns its texts.
struct OwnDelta {
  Delta::Kind kind;
  int call;
  std::string text, id;
};

/// What a row was made of.
struct RowDeltas {
  std::vector<std::vector<OwnDelta>> chunks;
  int start_chunk = 0, finish_chunk = 0;
  AnswerStart start;
  AnswerEnd end;
};

std::string text_of(const Json* value) { return value ? value->text : ""; }
int64_t count_of(const Json& object, std::string_view key) { return object.find(key)->as_int64().value(); }

FinishReason chat_reason(const std::string& word) {
  if (word == "length") return FinishReason::length;
  if (word == "content_filter") return FinishReason::content_filter;
  return word == "tool_calls" ? FinishReason::tool_calls : FinishReason::stop;
}

class Inverse {
 public:
  RowDeltas read(const std::string& api, const Json& chunks) {
    for (size_t i = 0; i < chunks.items.size(); ++i) {
      out_.chunks.emplace_back();
      chunk_ = int(i);
      for (const Json& event : chunks.items[i].items) {
        const Json& data = *event.find("data");
        if (api == "chat") chat(data);
        if (api == "messages") messages(data);
        if (api == "responses") responses(data);
      }
    }
    out_.end.usage.prompt_tokens = out_.start.prompt.prompt_tokens;
    out_.end.usage.cached_tokens = out_.start.prompt.cached_tokens;
    return std::move(out_);
  }

 private:
  void add(Delta::Kind kind, std::string text, std::string id = "") {
    out_.chunks.back().push_back({kind, call_, std::move(text), std::move(id)});
  }

  void chat(const Json& data) {
    const Json& choice = data.find("choices")->items[0];
    const Json& delta = *choice.find("delta");
    if (delta.find("role")) {
      out_.start_chunk = chunk_;
      if (data.find("system_fingerprint")->is_string()) {
        fingerprint_ = data.find("system_fingerprint")->text;
        out_.start.system_fingerprint = fingerprint_;
        out_.start.has_fingerprint = true;
      }
    } else if (const Json* calls = delta.find("tool_calls")) {
      const Json& call = calls->items[0];
      const Json& function = *call.find("function");
      call_ = int(count_of(call, "index"));
      if (call.find("id")) {
        add(Delta::Kind::call, text_of(function.find("name")), text_of(call.find("id")));
      } else {
        add(Delta::Kind::arguments, text_of(function.find("arguments")));
      }
    } else if (choice.find("finish_reason")->is_string()) {
      out_.finish_chunk = chunk_;
      out_.end.reason = chat_reason(choice.find("finish_reason")->text);
      const Json& usage = *data.find("usage");
      out_.start.prompt = {count_of(usage, "prompt_tokens"), count_of(usage, "prompt_cache_hit_tokens")};
      out_.end.usage.completion_tokens = count_of(usage, "completion_tokens");
      if (const Json* details = usage.find("completion_tokens_details")) {
        out_.end.usage.count_reasoning = true;
        out_.end.usage.reasoning_tokens = count_of(*details, "reasoning_tokens");
      }
    } else if (delta.find("content")->is_string()) {
      add(Delta::Kind::content, delta.find("content")->text);
    } else {
      add(Delta::Kind::reasoning, delta.find("reasoning_content")->text);
    }
  }

  void messages(const Json& data) {
    const std::string type = text_of(data.find("type"));
    if (type == "message_start") {
      out_.start_chunk = chunk_;
      const Json& usage = *data.find("message")->find("usage");
      const int64_t cached = count_of(usage, "cache_read_input_tokens");
      out_.start.prompt = {count_of(usage, "input_tokens") + cached, cached};
    } else if (type == "content_block_start") {
      const Json& block = *data.find("content_block");
      if (text_of(block.find("type")) != "tool_use") return;
      add(Delta::Kind::call, text_of(block.find("name")), text_of(block.find("id")));
    } else if (type == "content_block_delta") {
      const Json& delta = *data.find("delta");
      const std::string kind = text_of(delta.find("type"));
      if (kind == "thinking_delta") add(Delta::Kind::reasoning, text_of(delta.find("thinking")));
      if (kind == "text_delta") add(Delta::Kind::content, text_of(delta.find("text")));
      if (kind == "input_json_delta") add(Delta::Kind::arguments, text_of(delta.find("partial_json")));
    } else if (type == "message_delta") {
      out_.finish_chunk = chunk_;
      const std::string reason = text_of(data.find("delta")->find("stop_reason"));
      out_.end.reason = reason == "max_tokens" ? FinishReason::length
                        : reason == "refusal"  ? FinishReason::content_filter
                        : reason == "tool_use" ? FinishReason::tool_calls
                                               : FinishReason::stop;
      if (reason == "stop_sequence") {
        stop_ = data.find("delta")->find("stop_sequence")->text;
        out_.end.stop_sequence = stop_;
      }
      out_.end.usage.completion_tokens = count_of(*data.find("usage"), "output_tokens");
    }
  }

  void responses(const Json& data) {
    const std::string type = text_of(data.find("type"));
    const std::string delta = text_of(data.find("delta"));
    if (type == "response.created") out_.start_chunk = chunk_;
    if (type == "response.reasoning_text.delta") add(Delta::Kind::reasoning, delta);
    if (type == "response.output_text.delta") add(Delta::Kind::content, delta);
    if (type == "response.function_call_arguments.delta") add(Delta::Kind::arguments, delta);
    if (type == "response.output_item.added") {
      const Json& item = *data.find("item");
      item_ = text_of(item.find("type"));
      patch_began_ = false;
      const std::string id = text_of(item.find("call_id"));
      const std::string space = text_of(item.find("namespace"));
      // The separator is the model version's; here it only has to agree with the map of the form.
      if (item_ == "function_call") {
        add(Delta::Kind::call, (space.empty() ? "" : space + "::") + text_of(item.find("name")), id);
      }
      if (item_ == "custom_tool_call") add(Delta::Kind::call, "apply_patch", id);
      if (item_ == "tool_search_call") add(Delta::Kind::call, "tool_search", id);
    }
    if (type == "response.custom_tool_call_input.delta") {
      // What begins with a brace came raw; else it is the string value, whose JSON is written anew.
      if (!patch_began_) raw_ = delta[0] == '{';
      if (!std::exchange(patch_began_, true) && !raw_) add(Delta::Kind::arguments, R"({"input": ")");
      std::string text;
      append_escaped(text, delta);
      add(Delta::Kind::arguments, raw_ ? delta : text);
    }
    if (type == "response.output_item.done" && item_ == "tool_search_call") {
      const Json& item = *data.find("item");
      const bool whole = text_of(item.find("status")) == "completed";
      add(Delta::Kind::arguments, whole ? to_string(*item.find("arguments")) : "{");
    }
    if (type == "response.completed" || type == "response.incomplete") {
      out_.finish_chunk = chunk_;
      const Json& response = *data.find("response");
      if (const Json* details = response.find("incomplete_details"); details->is_object()) {
        out_.end.reason =
            text_of(details->find("reason")) == "content_filter" ? FinishReason::content_filter : FinishReason::length;
      }
      const Json& usage = *response.find("usage");
      out_.start.prompt = {count_of(usage, "input_tokens"),
                           count_of(*usage.find("input_tokens_details"), "cached_tokens")};
      out_.end.usage.completion_tokens = count_of(usage, "output_tokens");
      out_.end.usage.reasoning_tokens = count_of(*usage.find("output_tokens_details"), "reasoning_tokens");
      out_.end.usage.count_reasoning = true;
    }
  }

  RowDeltas out_;
  int chunk_ = 0, call_ = 0;
  bool patch_began_ = false, raw_ = false;
  std::string item_;

 public:  // what views in the result refer to
  std::string fingerprint_, stop_;
};

bool has_logprobs(const Json& row) {
  for (const Json& chunk : row.find("chunks")->items) {
    if (chunk.find("logprobs")) return true;
  }
  return false;
}

AnswerIdentity identity_of(const Json& row) { return {"ID", text_of(row.find("request")->find("model")), 0}; }

ChatCompletionsForm chat_form(const Json& row) {
  ChatCompletionsForm form;
  form.identity = identity_of(row);
  const Json& first = *row.find("expect")->find("events")->items[0].items[0].find("data");
  const Json& delta = *first.find("choices")->items[0].find("delta");
  form.thinking = delta.find("reasoning_content") != nullptr;
  form.starts_in_content = form.thinking && delta.find("content")->is_string();
  form.stream = true;
  form.include_usage = first.find("usage") != nullptr;
  return form;
}

MessagesForm messages_form(const Json& row) {
  MessagesForm form;
  form.identity = identity_of(row);
  form.thinking =
      row.find("expect")->find("events")->items[0].items.size() > 1 &&
      to_string(row.find("expect")->find("events")->items[0].items[1]).find("thinking") != std::string::npos;
  form.signature = text_of(row.find("signature"));
  form.policy = Policy::strict;
  return form;
}

ResponsesForm responses_form(const Json& row) {
  ResponsesForm form;
  form.identity = identity_of(row);
  const Json& response = *row.find("expect")->find("events")->items[0].items[0].find("data")->find("response");
  ResponsesEcho& echo = form.echo;
  if (response.find("instructions")->is_string()) echo.instructions = response.find("instructions")->text;
  if (response.find("user")->is_string()) echo.user = response.find("user")->text;
  if (const auto tokens = response.find("max_output_tokens")->as_int64()) echo.max_output_tokens = uint32_t(*tokens);
  echo.temperature = float(response.find("temperature")->as_double().value());
  echo.top_p = float(response.find("top_p")->as_double().value());
  echo.top_logprobs = uint32_t(count_of(response, "top_logprobs"));
  echo.reasoning = *response.find("reasoning");
  echo.text = *response.find("text");
  echo.tool_choice = *response.find("tool_choice");
  echo.tools = *response.find("tools");
  for (const Json& tool : echo.tools.items) {
    if (text_of(tool.find("type")) != "namespace") continue;
    const std::string space = text_of(tool.find("name"));
    for (const Json& member : tool.find("tools")->items) {
      const std::string name = text_of(member.find("name"));
      form.namespaces[space + "::" + name] = {space, name};
    }
  }
  form.policy = Policy::strict;
  return form;
}

std::string without_clock(const std::string& json) {
  static const std::regex clock(R"("completed_at":\d+)");
  return std::regex_replace(json, clock, R"("completed_at":0)");
}

std::string joined(const WireEvents& events) {
  std::string out;
  for (const auto& event : events.events) {
    out.append(event.name).append(" ").append(events.json(event)).append("\n");
  }
  return without_clock(out);
}

std::string expected(const Json& chunk) {
  std::string out;
  for (const Json& event : chunk.items) {
    out.append(text_of(event.find("event"))).append(" ").append(to_string(*event.find("data"))).append("\n");
  }
  return out;
}

template <class Writer, class Body, class Form>
void replay(const Json& row, const RowDeltas& deltas, const Form& form) {
  Writer writer(form);
  Body body(form);
  const Json& chunks = *row.find("expect")->find("events");
  WireEvents out;
  for (size_t i = 0; i < chunks.items.size(); ++i) {
    out.clear();
    if (int(i) == deltas.start_chunk) {
      writer.start(deltas.start, out);
      body.start(deltas.start);
    }
    for (const OwnDelta& own : deltas.chunks[i]) {
      const Delta delta{own.kind, own.call, own.text, own.id, {}};
      writer.write(delta, out);
      body.write(delta);
    }
    if (int(i) == deltas.finish_chunk) {
      writer.finish(deltas.end, out);
      body.finish(deltas.end);
    }
    ASSERT_EQ(joined(out), expected(chunks.items[i])) << "chunk " << i;
  }
  std::string final_body;
  body.append_to(final_body);
  EXPECT_EQ(without_clock(final_body), to_string(*row.find("expect")->find("final")));
}

TEST(AnswerWriterTest, EventsAndBodiesOfTheVectorsComeBackFromTheirDeltas) {
  int rows = 0;
  for (const char* file : {"vectors/recipe/streams.jsonl", "vectors/recipe/token_streams.jsonl"}) {
    const std::string path = sample::shared(file);
    if (!std::filesystem::exists(path)) GTEST_SKIP() << path << " is not there: set FATHOM_SHARED";
    for (const Json& row : sample::json_lines(path)) {
      if (has_logprobs(row) || !row.find("expect")->find("final")) continue;  // answer_stream_vectors_test has them
      SCOPED_TRACE(text_of(row.find("name")));
      const std::string api = text_of(row.find("api"));
      Inverse inverse;
      const RowDeltas deltas = inverse.read(api, *row.find("expect")->find("events"));
      if (api == "chat") replay<ChatCompletionsWriter, ChatCompletionsBody>(row, deltas, chat_form(row));
      if (api == "messages") replay<MessagesWriter, MessagesBody>(row, deltas, messages_form(row));
      if (api == "responses") replay<ResponsesWriter, ResponsesBody>(row, deltas, responses_form(row));
      ++rows;
      if (HasFatalFailure()) return;
    }
  }
  EXPECT_EQ(rows, 226 + 28 - 6);  // six rows have log-probabilities
}

}  // namespace
}  // namespace fathom::recipe
