#include "fathom/recipe/api/chat_completions/answer.h"

#include <algorithm>

#include "fathom/base/check.h"
#include "fathom/recipe/json_text.h"
#include "fathom/recipe/token_logprobs.h"

namespace fathom::recipe {
namespace {

std::string_view name_of(FinishReason reason) {
  switch (reason) {
    case FinishReason::stop: return "stop";
    case FinishReason::length: return "length";
    case FinishReason::content_filter: return "content_filter";
    case FinishReason::tool_calls: return "tool_calls";
  }
  return "stop";
}

void append_usage(std::string& out, const Usage& usage) {
  out += R"({"prompt_tokens":)";
  append_integer(out, usage.prompt_tokens);
  out += R"(,"completion_tokens":)";
  append_integer(out, usage.completion_tokens);
  out += R"(,"total_tokens":)";
  append_integer(out, usage.prompt_tokens + usage.completion_tokens);
  out += R"(,"prompt_tokens_details":{"cached_tokens":)";
  append_integer(out, usage.cached_tokens);
  if (usage.count_reasoning) {
    out += R"(},"completion_tokens_details":{"reasoning_tokens":)";
    append_integer(out, usage.reasoning_tokens);
  }
  out += R"(},"prompt_cache_hit_tokens":)";
  append_integer(out, usage.cached_tokens);
  out += R"(,"prompt_cache_miss_tokens":)";
  append_integer(out, std::max<int64_t>(0, usage.prompt_tokens - usage.cached_tokens));
  out += '}';
}

void append_identity(std::string& out, const AnswerIdentity& identity, std::string_view object) {
  out += R"({"id":)";
  append_quoted(out, identity.id);
  out.append(R"(,"object":")").append(object).append(R"(","created":)");
  append_integer(out, identity.created);
  out += R"(,"model":)";
  append_quoted(out, identity.model);
}

void append_fingerprint(std::string& out, const std::optional<std::string_view>& fingerprint) {
  out += R"(,"system_fingerprint":)";
  if (fingerprint) {
    append_quoted(out, *fingerprint);
  } else {
    out += "null";
  }
}

}  // namespace

void ChatCompletionsWriter::start(const AnswerStart& start, WireEvents& out) {
  check(!started_ && !ended_, "an answer starts once");
  started_ = true;
  append_identity(head_, form_.identity, "chat.completion.chunk");
  append_fingerprint(head_, start.has_fingerprint ? std::optional(start.system_fingerprint) : std::nullopt);
  head_ += R"(,"choices":[{"index":0,"delta":{)";
  content_head_ = head_ + R"("content":")";
  reasoning_head_ = head_ + R"("content":null,"reasoning_content":")";
  end_ = R"(,"finish_reason":null}])";
  end_ += form_.include_usage || !form_.stream ? R"(,"usage":null})" : "}";
  content_tail_ = (form_.thinking ? R"(","reasoning_content":null},"logprobs":null)" : R"("},"logprobs":null)") + end_;
  reasoning_tail_ = R"("},"logprobs":null)" + end_;

  const size_t begin = out.text.size();
  out.text += head_;
  out.text += !form_.thinking ? R"("role":"assistant","content":""},"logprobs":null)"
              : form_.starts_in_content
                  ? R"("role":"assistant","content":"","reasoning_content":null},"logprobs":null)"
                  : R"("role":"assistant","content":null,"reasoning_content":""},"logprobs":null)";
  out.text += end_;
  out.add("", begin);
}

void ChatCompletionsWriter::write(const Delta& delta, WireEvents& out) {
  check(started_ && !ended_, "a delta comes between start and finish");
  switch (delta.kind) {
    case Delta::Kind::content: return write_text(delta, content_head_, content_tail_, "content", out);
    case Delta::Kind::reasoning: return write_text(delta, reasoning_head_, reasoning_tail_, "reasoning_content", out);
    case Delta::Kind::call: {
      const size_t begin = out.text.size();
      out.text.append(head_).append(R"("tool_calls":[{"index":)");
      append_integer(out.text, delta.call);
      out.text += R"(,"id":)";
      append_quoted(out.text, delta.id);
      out.text += R"(,"type":"function","function":{"name":)";
      append_quoted(out.text, delta.text);
      out.text.append(R"(,"arguments":""}}]},"logprobs":null)").append(end_);
      return out.add("", begin);
    }
    case Delta::Kind::arguments: {
      if (arguments_call_ != delta.call) {
        arguments_call_ = delta.call;
        arguments_head_.assign(head_).append(R"("tool_calls":[{"index":)");
        append_integer(arguments_head_, delta.call);
        arguments_head_ += R"(,"function":{"arguments":")";
      }
      const size_t begin = out.text.size();
      out.text += arguments_head_;
      append_escaped(out.text, delta.text);
      out.text.append(R"("}}]},"logprobs":null)").append(end_);
      return out.add("", begin);
    }
    case Delta::Kind::call_end:
    case Delta::Kind::call_dropped: return;
  }
}

void ChatCompletionsWriter::write_text(const Delta& delta, const std::string& head, std::string_view tail,
                                       std::string_view logprobs_key, WireEvents& out) {
  const size_t begin = out.text.size();
  out.text += head;
  append_escaped(out.text, delta.text);
  if (delta.logprobs.empty()) {
    out.text += tail;
  } else {
    check(form_.tokenizer, "log-probabilities need a tokenizer");
    tail.remove_suffix(end_.size() + std::string_view("null").size());
    out.text.append(tail).append(R"({")").append(logprobs_key).append(R"(":[)");
    append_logprobs(out.text, delta.logprobs, *form_.tokenizer);
    out.text.append("]}").append(end_);
  }
  out.add("", begin);
}

void ChatCompletionsWriter::finish(const AnswerEnd& end, WireEvents& out) {
  check(started_ && !ended_, "an answer finishes once, after its start");
  ended_ = true;
  const size_t begin = out.text.size();
  out.text.append(content_head_);
  out.text += form_.thinking ? R"(","reasoning_content":null},"logprobs":null,"finish_reason":")"
                             : R"("},"logprobs":null,"finish_reason":")";
  out.text.append(name_of(end.reason)).append(R"("}],"usage":)");
  append_usage(out.text, end.usage);
  out.text += '}';
  out.add("", begin);
}

void ChatCompletionsWriter::fail(const Error& error, WireEvents& out) {
  check(!ended_, "an answer ends once");
  ended_ = true;
  const std::string_view type = failure_type(error.code, Api::chat_completions);
  const size_t begin = out.text.size();
  out.text += R"({"error":{"message":)";
  append_quoted(out.text, error.message);
  out.text.append(R"(,"type":")").append(type).append(R"(","param":null,"code":")").append(type).append(R"("}})");
  out.add("", begin);
}

void ChatCompletionsWriter::keep_alive(WireEvents& out) {
  check(!ended_, "an answer that ended gives no sign of life");
  out.add_comment();
}

void ChatCompletionsBody::start(const AnswerStart& start) {
  if (start.has_fingerprint) fingerprint_ = start.system_fingerprint;
  usage_.prompt_tokens = start.prompt.prompt_tokens;
  usage_.cached_tokens = start.prompt.cached_tokens;
}

void ChatCompletionsBody::write(const Delta& delta) {
  check(!reason_, "a delta comes before finish");
  check(delta.logprobs.empty() || form_.tokenizer, "log-probabilities need a tokenizer");
  switch (delta.kind) {
    case Delta::Kind::content:
      content_ += delta.text;
      if (!delta.logprobs.empty()) append_logprobs(content_logprobs_, delta.logprobs, *form_.tokenizer);
      return;
    case Delta::Kind::reasoning:
      reasoning_ += delta.text;
      if (!delta.logprobs.empty()) append_logprobs(reasoning_logprobs_, delta.logprobs, *form_.tokenizer);
      return;
    case Delta::Kind::call: calls_.push_back({delta.call, std::string(delta.id), std::string(delta.text), ""}); return;
    case Delta::Kind::arguments: calls_.back().arguments += delta.text; return;
    case Delta::Kind::call_end: return;
    case Delta::Kind::call_dropped: calls_.pop_back(); return;
  }
}

void ChatCompletionsBody::finish(const AnswerEnd& end) {
  reason_ = end.reason;
  usage_ = end.usage;
}

void ChatCompletionsBody::append_to(std::string& out) const {
  append_identity(out, form_.identity, "chat.completion");
  out += R"(,"choices":[{"index":0,"message":{"role":"assistant","content":)";
  append_quoted(out, content_);
  if (form_.thinking && !form_.starts_in_content) {
    out += R"(,"reasoning_content":)";
    append_quoted(out, reasoning_);
  }
  for (const Call& call : calls_) {
    out += &call == &calls_.front() ? R"(,"tool_calls":[{"index":)" : R"(,{"index":)";
    append_integer(out, call.index);
    out += R"(,"id":)";
    append_quoted(out, call.id);
    out += R"(,"type":"function","function":{"name":)";
    append_quoted(out, call.name);
    out += R"(,"arguments":)";
    append_quoted(out, call.arguments);
    out += "}}";
  }
  if (!calls_.empty()) out += ']';
  out += R"(},"logprobs":)";
  if (content_logprobs_.empty() && reasoning_logprobs_.empty()) {
    out += "null";
  } else {
    out += '{';
    if (!content_logprobs_.empty()) out.append(R"("content":[)").append(content_logprobs_).append("]");
    if (!content_logprobs_.empty() && !reasoning_logprobs_.empty()) out += ',';
    if (!reasoning_logprobs_.empty()) out.append(R"("reasoning_content":[)").append(reasoning_logprobs_).append("]");
    out += '}';
  }
  out += R"(,"finish_reason":)";
  if (reason_) {
    out.append("\"").append(name_of(*reason_)).append("\"");
  } else {
    out += "null";
  }
  out += R"(}],"usage":)";
  append_usage(out, usage_);
  append_fingerprint(out, fingerprint_);
  out += '}';
}

}  // namespace fathom::recipe
