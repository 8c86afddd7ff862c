#include "fathom/recipe/api/messages/answer.h"

#include <algorithm>
#include <utility>

#include "fathom/base/check.h"
#include "fathom/recipe/json_text.h"

namespace fathom::recipe {
namespace {

std::string_view stop_reason(FinishReason reason, bool stop_sequence) {
  switch (reason) {
    case FinishReason::stop: return stop_sequence ? "stop_sequence" : "end_turn";
    case FinishReason::length: return "max_tokens";
    case FinishReason::content_filter: return "refusal";
    case FinishReason::tool_calls: return "tool_use";
  }
  return "end_turn";
}

void append_stop(std::string& out, std::optional<FinishReason> reason, std::optional<std::string_view> sequence) {
  out += R"("stop_reason":)";
  if (reason) {
    out.append("\"").append(stop_reason(*reason, sequence.has_value())).append("\"");
  } else {
    out += "null";
  }
  out += R"(,"stop_sequence":)";
  if (sequence) {
    append_quoted(out, *sequence);
  } else {
    out += "null";
  }
}

void append_usage(std::string& out, const Usage& usage) {
  out += R"({"input_tokens":)";
  append_integer(out, std::max<int64_t>(0, usage.prompt_tokens - usage.cached_tokens));
  out += R"(,"cache_creation_input_tokens":0,"cache_read_input_tokens":)";
  append_integer(out, usage.cached_tokens);
  out += R"(,"output_tokens":)";
  append_integer(out, usage.completion_tokens);
  out += R"(,"service_tier":"standard"})";
}

/// From the id up to the opening bracket of `content`.
void append_message_head(std::string& out, const AnswerIdentity& identity) {
  out += R"({"id":)";
  append_quoted(out, identity.id);
  out += R"(,"type":"message","role":"assistant","model":)";
  append_quoted(out, identity.model);
  out += R"(,"content":[)";
}

const std::string& signature_of(const MessagesForm& form) {
  return form.signature.empty() ? form.identity.id : form.signature;
}

constexpr std::string_view kPing = R"({"type":"ping"})";

void add_ping(WireEvents& out) {
  const size_t begin = out.text.size();
  out.text += kPing;
  out.add("ping", begin);
}

}  // namespace

void MessagesWriter::start(const AnswerStart& start, WireEvents& out) {
  check(!started_ && !ended_, "an answer starts once");
  started_ = true;
  const size_t begin = out.text.size();
  out.text += R"({"type":"message_start","message":)";
  append_message_head(out.text, form_.identity);
  out.text += "],";
  append_stop(out.text, std::nullopt, std::nullopt);
  out.text += R"(,"usage":)";
  Usage usage;
  usage.prompt_tokens = start.prompt.prompt_tokens;
  usage.cached_tokens = start.prompt.cached_tokens;
  append_usage(out.text, usage);
  out.text += "}}";
  out.add("message_start", begin);
  if (form_.thinking) open(Block::thinking, {}, out);
}

void MessagesWriter::write(const Delta& delta, WireEvents& out) {
  check(started_ && !ended_, "a delta comes between start and finish");
  switch (delta.kind) {
    case Delta::Kind::reasoning:
      if (block_ != Block::thinking) open(Block::thinking, delta, out);
      break;
    case Delta::Kind::content:
      if (block_ != Block::text) open(Block::text, delta, out);
      break;
    case Delta::Kind::call: return open(Block::tool_use, delta, out);
    case Delta::Kind::arguments: break;
    case Delta::Kind::call_end: return;
    case Delta::Kind::call_dropped: block_ = Block::dropped; return;
  }
  const size_t begin = out.text.size();
  out.text += delta_head_;
  append_escaped(out.text, delta.text);
  out.text += R"("}})";
  out.add("content_block_delta", begin);
}

void MessagesWriter::open(Block block, const Delta& delta, WireEvents& out) {
  close(out);
  block_ = block;
  ++index_;
  const size_t begin = out.text.size();
  out.text += R"({"type":"content_block_start","index":)";
  append_integer(out.text, index_);
  if (block == Block::thinking) {
    out.text += R"(,"content_block":{"type":"thinking","thinking":"","signature":""}})";
  } else if (block == Block::text) {
    out.text += R"(,"content_block":{"type":"text","text":""}})";
  } else {
    out.text += R"(,"content_block":{"type":"tool_use","id":)";
    append_quoted(out.text, delta.id);
    out.text += R"(,"name":)";
    append_quoted(out.text, delta.text);
    out.text += R"(,"input":{}}})";
  }
  out.add("content_block_start", begin);
  if (!std::exchange(pinged_, true)) add_ping(out);

  delta_head_ = R"({"type":"content_block_delta","index":)";
  append_integer(delta_head_, index_);
  delta_head_ += block == Block::thinking ? R"(,"delta":{"type":"thinking_delta","thinking":")"
                 : block == Block::text   ? R"(,"delta":{"type":"text_delta","text":")"
                                          : R"(,"delta":{"type":"input_json_delta","partial_json":")";
}

void MessagesWriter::close(WireEvents& out) {
  if (block_ == Block::thinking) {
    const size_t begin = out.text.size();
    out.text += R"({"type":"content_block_delta","index":)";
    append_integer(out.text, index_);
    out.text += R"(,"delta":{"type":"signature_delta","signature":)";
    append_quoted(out.text, signature_of(form_));
    out.text += "}}";
    out.add("content_block_delta", begin);
  }
  if (block_ != Block::none && block_ != Block::dropped) {
    const size_t begin = out.text.size();
    out.text += R"({"type":"content_block_stop","index":)";
    append_integer(out.text, index_);
    out.text += '}';
    out.add("content_block_stop", begin);
  }
  block_ = Block::none;
}

void MessagesWriter::finish(const AnswerEnd& end, WireEvents& out) {
  check(started_ && !ended_, "an answer finishes once, after its start");
  ended_ = true;
  close(out);
  size_t begin = out.text.size();
  out.text += R"({"type":"message_delta","delta":{)";
  append_stop(out.text, end.reason, end.stop_sequence);
  out.text += R"(},"usage":)";
  append_usage(out.text, end.usage);
  out.text += '}';
  out.add("message_delta", begin);
  begin = out.text.size();
  out.text += R"({"type":"message_stop"})";
  out.add("message_stop", begin);
}

void MessagesWriter::fail(const Error& error, WireEvents& out) {
  check(!ended_, "an answer ends once");
  ended_ = true;
  const size_t begin = out.text.size();
  out.text += R"({"type":"error","error":{"type":")";
  out.text += failure_type(error.code, Api::messages);
  out.text += R"(","message":)";
  append_quoted(out.text, error.message);
  out.text += "}}";
  out.add("error", begin);
}

void MessagesWriter::keep_alive(WireEvents& out) {
  check(!ended_, "an answer that ended gives no sign of life");
  if (started_) {
    add_ping(out);
  } else {
    out.add_comment();
  }
}

void MessagesBody::start(const AnswerStart& start) {
  usage_.prompt_tokens = start.prompt.prompt_tokens;
  usage_.cached_tokens = start.prompt.cached_tokens;
  if (form_.thinking) blocks_.push_back({Delta::Kind::reasoning, "", "", ""});
}

void MessagesBody::write(const Delta& delta) {
  check(!reason_, "a delta comes before finish");
  switch (delta.kind) {
    case Delta::Kind::reasoning:
    case Delta::Kind::content:
      if (blocks_.empty() || blocks_.back().kind != delta.kind) blocks_.push_back({delta.kind, "", "", ""});
      blocks_.back().text += delta.text;
      return;
    case Delta::Kind::call: blocks_.push_back({delta.kind, std::string(delta.id), std::string(delta.text), ""}); return;
    case Delta::Kind::arguments: blocks_.back().text += delta.text; return;
    case Delta::Kind::call_end: return;
    case Delta::Kind::call_dropped: blocks_.pop_back(); return;
  }
}

void MessagesBody::finish(const AnswerEnd& end) {
  reason_ = end.reason;
  stop_sequence_ = end.stop_sequence;
  usage_ = end.usage;
}

void MessagesBody::append_to(std::string& out) const {
  append_message_head(out, form_.identity);
  for (const Block& block : blocks_) {
    if (&block != &blocks_.front()) out += ',';
    if (block.kind == Delta::Kind::reasoning) {
      out += R"({"type":"thinking","thinking":)";
      append_quoted(out, block.text);
      out += R"(,"signature":)";
      append_quoted(out, signature_of(form_));
    } else if (block.kind == Delta::Kind::content) {
      out += R"({"type":"text","text":)";
      append_quoted(out, block.text);
    } else {
      out += R"({"type":"tool_use","id":)";
      append_quoted(out, block.id);
      out += R"(,"name":)";
      append_quoted(out, block.name);
      out += R"(,"input":)";
      if (!append_argument_object(out, block.text, form_.policy)) out += "{}";
    }
    out += '}';
  }
  out += "],";
  append_stop(out, reason_, stop_sequence_);
  out += R"(,"usage":)";
  append_usage(out, usage_);
  out += '}';
}

}  // namespace fathom::recipe
