#include "fathom/recipe/api/responses/answer_output.h"

#include <algorithm>
#include <ctime>

#include "fathom/base/check.h"
#include "fathom/recipe/json_text.h"
#include "fathom/recipe/token_logprobs.h"

namespace fathom::recipe {
namespace {

/// Is there a tool with these two members? A function tool of the same name is an ordinary function.
bool declares(const Json& tools, std::string_view type, std::string_view key, std::string_view value) {
  return std::any_of(tools.items.begin(), tools.items.end(), [&](const Json& tool) {
    const Json* const of_type = tool.find("type");
    const Json* const member = tool.find(key);
    return of_type && of_type->text == type && member && member->text == value;
  });
}

void append_or_null(std::string& out, const std::optional<std::string>& text) {
  if (text) {
    append_quoted(out, *text);
  } else {
    out += "null";
  }
}

void append_or(std::string& out, const Json& value, std::string_view otherwise, Policy policy) {
  if (value.is_null()) {
    out += otherwise;
  } else {
    append_value(out, value, policy);
  }
}

void append_usage(std::string& out, const Usage& usage) {
  out += R"({"input_tokens":)";
  append_integer(out, usage.prompt_tokens);
  out += R"(,"input_tokens_details":{"cached_tokens":)";
  append_integer(out, usage.cached_tokens);
  out += R"(},"output_tokens":)";
  append_integer(out, usage.completion_tokens);
  out += R"(,"output_tokens_details":{"reasoning_tokens":)";
  append_integer(out, usage.count_reasoning ? usage.reasoning_tokens : 0);
  out += R"(},"total_tokens":)";
  append_integer(out, usage.prompt_tokens + usage.completion_tokens);
  out += '}';
}

}  // namespace

std::string_view ResponsesOutput::name_of(Status status) {
  switch (status) {
    case Status::in_progress: return "in_progress";
    case Status::completed: return "completed";
    case Status::incomplete: return "incomplete";
    case Status::failed: return "failed";
  }
  return "failed";
}

ResponsesOutput::ResponsesOutput(ResponsesForm form)
    : form_(std::move(form)),
      patch_declared_(form_.found_patch || declares(form_.echo.tools, "custom", "name", "apply_patch")),
      search_declared_(declares(form_.echo.tools, "tool_search", "execution", "client")) {
  const ResponsesEcho& echo = form_.echo;
  head_ = R"({"id":)";
  append_quoted(head_, form_.identity.id);
  head_ += R"(,"object":"response","created_at":)";
  append_integer(head_, form_.identity.created);
  head_ += R"(,"status":")";

  before_output_ = R"(,"instructions":)";
  append_or_null(before_output_, echo.instructions);
  before_output_ += R"(,"max_output_tokens":)";
  if (echo.max_output_tokens) {
    append_integer(before_output_, *echo.max_output_tokens);
  } else {
    before_output_ += "null";
  }
  before_output_ += R"(,"max_tool_calls":null,"model":)";
  append_quoted(before_output_, form_.identity.model);
  before_output_ += R"(,"moderation":null,"output":[)";

  after_output_ =
      R"(],"parallel_tool_calls":true,"presence_penalty":0.0,"previous_response_id":null,"prompt_cache_key":null,)"
      R"("prompt_cache_retention":null,"reasoning":)";
  append_or(after_output_, echo.reasoning, R"({"effort":null,"summary":null})", form_.policy);
  after_output_ += R"(,"safety_identifier":null,"service_tier":"default","store":false,"temperature":)";
  append_number(after_output_, echo.temperature);
  after_output_ += R"(,"text":)";
  append_or(after_output_, echo.text, R"({"format":{"type":"text"},"verbosity":null})", form_.policy);
  after_output_ += R"(,"tool_choice":)";
  append_or(after_output_, echo.tool_choice, R"("auto")", form_.policy);
  after_output_ += R"(,"tools":)";
  append_or(after_output_, echo.tools, "[]", form_.policy);
  after_output_ += R"(,"top_logprobs":)";
  append_integer(after_output_, echo.top_logprobs);
  after_output_ += R"(,"top_p":)";
  append_number(after_output_, echo.top_p);
  after_output_ += R"(,"truncation":"disabled","usage":)";

  foot_ = R"(,"user":)";
  append_or_null(foot_, echo.user);
  foot_ += R"(,"metadata":{}})";
}

void ResponsesOutput::append_response(std::string& out) const {
  out.append(head_).append(name_of(status_)).append(R"(","background":false,"completed_at":)");
  if (status_ == Status::completed || status_ == Status::incomplete) {
    append_integer(out, completed_at_);
  } else {
    out += "null";
  }
  out.append(R"(,"content_filters":null,"error":)").append(error_.empty() ? "null" : error_);
  out.append(R"(,"frequency_penalty":0.0,"incomplete_details":)");
  out.append(incomplete_reason_.empty() ? "null" : incomplete_reason_);
  out.append(before_output_).append(items_);
  if (item_ != Item::none) {  // unfinished
    if (!items_.empty()) out += ',';
    append_item(out, status_ == Status::failed ? Status::incomplete : Status::in_progress, "final_answer");
  }
  out += after_output_;
  if (usage_) {
    append_usage(out, *usage_);
  } else {
    out += "null";
  }
  out += foot_;
}

void ResponsesOutput::add(std::string_view name, size_t begin, WireEvents& out) {
  out.text += R"(,"sequence_number":)";
  append_integer(out.text, sequence_++);
  out.text += '}';
  out.add(name, begin);
}

void ResponsesOutput::add_response(std::string_view name, WireEvents& out) {
  const size_t begin = out.text.size();
  out.text.append(R"({"type":")").append(name).append(R"(","response":)");
  append_response(out.text);
  add(name, begin, out);
}

void ResponsesOutput::start(WireEvents* out) {
  check(!started_ && !ended_, "an answer starts once");
  started_ = true;
  if (!out) return;
  add_response("response.created", *out);
  add_response("response.in_progress", *out);
}

void ResponsesOutput::write(const Delta& delta, WireEvents* out) {
  check(started_ && !ended_, "a delta comes between start and finish");
  switch (delta.kind) {
    case Delta::Kind::reasoning:
      if (item_ != Item::reasoning) open(Item::reasoning, delta, out);
      return write_text(delta, out);
    case Delta::Kind::content:
      if (item_ != Item::message) open(Item::message, delta, out);
      return write_text(delta, out);
    case Delta::Kind::call: return open(item_of(delta), delta, out);
    case Delta::Kind::arguments: return write_arguments(delta.text, out);
    case Delta::Kind::call_end: return;
    case Delta::Kind::call_dropped: dropped_ = true; return;
  }
}

void ResponsesOutput::finish(const AnswerEnd& end, WireEvents* out) {
  check(started_ && !ended_, "an answer finishes once, after its start");
  const bool cut = end.reason == FinishReason::length || end.reason == FinishReason::content_filter;
  if (cut) {
    incomplete_reason_ =
        end.reason == FinishReason::length ? R"({"reason":"max_output_tokens"})" : R"({"reason":"content_filter"})";
  }
  close(cut, false, out);
  ended_ = true;
  status_ = cut ? Status::incomplete : Status::completed;
  completed_at_ = std::max(form_.identity.created, int64_t(std::time(nullptr)));
  usage_ = end.usage;
  if (out) add_response(cut ? "response.incomplete" : "response.completed", *out);
}

void ResponsesOutput::fail(const Error& error, WireEvents& out) {
  check(!ended_, "an answer ends once");
  ended_ = true;
  status_ = Status::failed;
  const bool of_request = failure_type(error.code, Api::responses) == "invalid_request_error";
  error_ = of_request ? R"({"code":"invalid_prompt","message":)" : R"({"code":"server_error","message":)";
  append_quoted(error_, error.message);
  error_ += '}';
  add_response("response.failed", out);
}

void ResponsesOutput::keep_alive(WireEvents& out) {
  check(!ended_, "an answer that ended gives no sign of life");
  if (started_ && form_.policy == Policy::lenient) {
    add_response("response.in_progress", out);
  } else {
    out.add_comment();
  }
}

}  // namespace fathom::recipe
