// The items of a response: opened at their first delta, closed by the next item or the end.
#include "fathom/base/check.h"
#include "fathom/recipe/api/responses/answer_output.h"
#include "fathom/recipe/json_text.h"
#include "fathom/recipe/token_logprobs.h"

namespace fathom::recipe {

ResponsesOutput::Item ResponsesOutput::item_of(const Delta& call) const {
  if (patch_declared_ && call.text == "apply_patch") return Item::patch_call;
  if (search_declared_ && call.text == "tool_search") return Item::tool_search;
  return Item::function_call;
}

void ResponsesOutput::append_place(std::string& out) const {
  out.append(R"(,"item_id":")").append(item_id_).append(R"(","output_index":)");
  append_integer(out, index_);
}

void ResponsesOutput::append_part(std::string& out, bool empty) const {
  const std::string_view text = empty ? std::string_view() : text_, logprobs = empty ? std::string_view() : logprobs_;
  if (item_ == Item::reasoning) {
    out += R"({"type":"reasoning_text","text":)";
  } else {
    out.append(R"({"type":"output_text","annotations":[],"logprobs":[)").append(logprobs).append(R"(],"text":)");
  }
  append_quoted(out, text);
  out += '}';
}

void ResponsesOutput::append_item(std::string& out, Status status, std::string_view phase) const {
  const bool added = status == Status::in_progress && text_.empty();
  const auto begin = [&](std::string_view type) {
    out.append(R"({"type":")").append(type).append(R"(","id":")").append(item_id_).append(R"(","status":")");
    out.append(name_of(status)).append("\"");
    if (item_ == Item::reasoning || item_ == Item::message) return;
    out += R"(,"call_id":)";
    append_quoted(out, call_id_);
  };
  switch (item_) {
    case Item::none: return;
    case Item::reasoning:
      begin("reasoning");
      out += R"(,"content":[)";
      if (!added) append_part(out, false);
      out += R"(],"summary":[],"encrypted_content":")";
      append_escaped(out, form_.identity.id);
      out += '-';
      append_integer(out, index_);
      out += "\"}";
      return;
    case Item::message:
      begin("message");
      out.append(R"(,"role":"assistant","phase":")").append(phase).append(R"(","content":[)");
      if (!added) append_part(out, false);
      out += "]}";
      return;
    case Item::function_call:
      begin("function_call");
      out += R"(,"name":)";
      append_quoted(out, name_);
      if (!namespace_.empty()) {
        out += R"(,"namespace":)";
        append_quoted(out, namespace_);
      }
      out += R"(,"arguments":)";
      append_quoted(out, text_);
      out += '}';
      return;
    case Item::patch_call:
      begin("custom_tool_call");
      out += R"(,"name":"apply_patch","input":)";
      append_quoted(out, text_);
      out += '}';
      return;
    case Item::tool_search:
      begin("tool_search_call");
      out += R"(,"execution":"client","arguments":)";
      // An incomplete search shows no arguments even when they happen to be whole.
      if (status != Status::completed || !append_argument_object(out, text_, form_.policy)) out += "{}";
      out += '}';
      return;
  }
}

void ResponsesOutput::open(Item item, const Delta& delta, WireEvents* out) {
  const bool call = item != Item::reasoning && item != Item::message;
  close(false, call, out);
  item_ = item;
  ++index_;
  item_id_ = item == Item::reasoning     ? "rs_"
             : item == Item::message     ? "msg_"
             : item == Item::patch_call  ? "ctc_"
             : item == Item::tool_search ? "tsc_"
                                         : "fc_";
  append_escaped(item_id_, form_.identity.id);
  item_id_ += '_';
  append_integer(item_id_, index_);
  text_.clear();
  logprobs_.clear();
  namespace_.clear();
  patch_ = {};
  dropped_ = false;
  if (call) {
    call_id_ = delta.id;
    const auto split = form_.namespaces.find(std::string(delta.text));
    const bool found = split != form_.namespaces.end();
    name_ = found ? split->second.second : std::string(delta.text);
    if (found) namespace_ = split->second.first;
  }
  if (!out) return;

  size_t begin = out->text.size();
  out->text += R"({"type":"response.output_item.added","item":)";
  append_item(out->text, Status::in_progress, "final_answer");
  out->text += R"(,"output_index":)";
  append_integer(out->text, index_);
  add("response.output_item.added", begin, *out);

  delta_tail_.assign(1, '"');
  delta_tail_end_.clear();
  if (call) {
    delta_head_ = item == Item::patch_call ? R"({"type":"response.custom_tool_call_input.delta","delta":")"
                                           : R"({"type":"response.function_call_arguments.delta","delta":")";
    append_place(delta_tail_);
    delta_tail_ += R"(,"sequence_number":)";
    return;
  }
  begin = out->text.size();
  out->text += R"({"type":"response.content_part.added","content_index":0)";
  append_place(out->text);
  out->text += R"(,"part":)";
  append_part(out->text, true);
  add("response.content_part.added", begin, *out);
  if (item == Item::reasoning) {
    delta_head_ = R"({"type":"response.reasoning_text.delta","content_index":0,"delta":")";
    append_place(delta_tail_);
    delta_tail_ += R"(,"sequence_number":)";
  } else {
    delta_head_ = R"({"type":"response.output_text.delta","content_index":0,"delta":")";
    delta_tail_.append(R"(,"item_id":")").append(item_id_).append(R"(","logprobs":[)");
    delta_tail_end_ = R"(],"output_index":)";
    append_integer(delta_tail_end_, index_);
    delta_tail_end_ += R"(,"sequence_number":)";
  }
}

void ResponsesOutput::write_text(const Delta& delta, WireEvents* out) {
  text_ += delta.text;
  const bool logprobs = item_ == Item::message && !delta.logprobs.empty();  // reasoning has no place for them
  const size_t before = logprobs_.size();
  if (logprobs) {
    check(form_.tokenizer, "log-probabilities need a tokenizer");
    append_logprobs(logprobs_, delta.logprobs, *form_.tokenizer);
  }
  if (!out) return;
  const size_t begin = out->text.size();
  out->text += delta_head_;
  append_escaped(out->text, delta.text);
  out->text += delta_tail_;
  if (logprobs) out->text.append(logprobs_, before ? before + 1 : 0);  // without the comma
  out->text += delta_tail_end_;
  append_integer(out->text, sequence_++);
  out->text += '}';
  out->add(item_ == Item::reasoning ? "response.reasoning_text.delta" : "response.output_text.delta", begin);
}

void ResponsesOutput::write_arguments(std::string_view text, WireEvents* out) {
  if (item_ == Item::tool_search) {
    text_ += text;
    return;
  }
  const size_t before = text_.size();
  if (item_ == Item::patch_call) {
    patch_.push(text, text_);
    if (text_.size() == before) return;
  } else {
    text_ += text;
  }
  if (out) add_delta(before, *out);
}

/// The event for what `text_` has got since `before`.
void ResponsesOutput::add_delta(size_t before, WireEvents& out) {
  const size_t begin = out.text.size();
  out.text += delta_head_;
  append_escaped(out.text, std::string_view(text_).substr(before));
  out.text += delta_tail_;
  append_integer(out.text, sequence_++);
  out.text += '}';
  out.add(
      item_ == Item::patch_call ? "response.custom_tool_call_input.delta" : "response.function_call_arguments.delta",
      begin);
}

void ResponsesOutput::close(bool incomplete, bool call_follows, WireEvents* out) {
  if (item_ == Item::none) return;
  if (item_ == Item::patch_call) {
    const size_t before = text_.size();
    patch_.finish(text_);
    if (out && text_.size() > before) add_delta(before, *out);
  }
  std::string ignored;
  if (item_ == Item::tool_search && !append_argument_object(ignored, text_, form_.policy)) incomplete = true;
  if (out) {
    if (item_ == Item::reasoning || item_ == Item::message) {
      close_text(*out);
    } else if (item_ != Item::tool_search) {
      close_call(*out);
    }
  }
  if (!items_.empty()) items_ += ',';
  const size_t begin_item = items_.size();
  append_item(items_, incomplete || dropped_ ? Status::incomplete : Status::completed,
              call_follows ? "commentary" : "final_answer");
  if (out) {
    const size_t begin = out->text.size();
    out->text.append(R"({"type":"response.output_item.done","item":)").append(items_, begin_item);
    out->text += R"(,"output_index":)";
    append_integer(out->text, index_);
    add("response.output_item.done", begin, *out);
  }
  item_ = Item::none;
}

void ResponsesOutput::close_text(WireEvents& out) {
  const bool message = item_ == Item::message;
  const std::string_view name = message ? "response.output_text.done" : "response.reasoning_text.done";
  size_t begin = out.text.size();
  out.text.append(R"({"type":")").append(name).append(R"(","content_index":0,"item_id":")").append(item_id_);
  if (message) out.text.append(R"(","logprobs":[)").append(logprobs_).append("]");
  out.text += message ? R"(,"output_index":)" : R"(","output_index":)";
  append_integer(out.text, index_);
  out.text += R"(,"sequence_number":)";
  append_integer(out.text, sequence_++);
  out.text += R"(,"text":)";
  append_quoted(out.text, text_);
  out.text += '}';
  out.add(name, begin);

  begin = out.text.size();
  out.text += R"({"type":"response.content_part.done","content_index":0)";
  append_place(out.text);
  out.text += R"(,"part":)";
  append_part(out.text, false);
  add("response.content_part.done", begin, out);
}

void ResponsesOutput::close_call(WireEvents& out) {
  const bool patch = item_ == Item::patch_call;
  const std::string_view name =
      patch ? "response.custom_tool_call_input.done" : "response.function_call_arguments.done";
  const size_t begin = out.text.size();
  out.text.append(R"({"type":")").append(name).append(patch ? R"(","input":)" : R"(","arguments":)");
  append_quoted(out.text, text_);
  append_place(out.text);
  add(name, begin, out);
}

}  // namespace fathom::recipe
