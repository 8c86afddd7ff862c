#include "fathom/cli/plain_prompt.h"

#include <algorithm>

#include "fathom/cli/option_value.h"

namespace fathom::cli {
namespace {

constexpr std::string_view kBegin = "<｜begin▁of▁sentence｜>", kEnd = "<｜end▁of▁sentence｜>";
constexpr std::string_view kSystem = "<｜System｜>", kUser = "<｜User｜>", kAssistant = "<｜Assistant｜>";
constexpr std::string_view kThink = "<think>", kThinkEnd = "</think>", kDsml = "｜DSML｜";

/// Text with the ranges of the special tokens in it.
struct Writer {
  RenderedPrompt prompt;
  void plain(std::string_view text) { prompt.text += text; }
  void special(std::string_view token) {
    const auto begin = int64_t(prompt.text.size());
    prompt.text += token;
    prompt.special.push_back({begin, int64_t(prompt.text.size())});
  }
  /// A text of ours in which every DSML and thinking marker is special.
  void marked(std::string_view text) {
    while (!text.empty()) {
      size_t first = text.size();
      std::string_view found;
      for (std::string_view marker : {kDsml, kThink, kThinkEnd}) {
        if (const size_t at = text.find(marker); at < first) {
          first = at;
          found = marker;
        }
      }
      plain(text.substr(0, first));
      text.remove_prefix(first);
      if (!found.empty()) special(found);
      text.remove_prefix(found.size());
    }
  }
};

/// JSON with ", " and ": ", as Python writes it and as the model was trained on it.
void append_spaced(std::string& out, const Json& value) {
  if (value.is_array()) {
    out += '[';
    for (size_t i = 0; i < value.items.size(); ++i) {
      if (i > 0) out += ", ";
      append_spaced(out, value.items[i]);
    }
    out += ']';
  } else if (value.is_object()) {
    out += '{';
    for (size_t i = 0; i < value.fields.size(); ++i) {
      if (i > 0) out += ", ";
      append_json_string(out, value.fields[i].first);
      out += ": ";
      append_spaced(out, value.fields[i].second);
    }
    out += '}';
  } else {
    append_json(out, value);
  }
}

void write_tools(Writer& out, const Json& tools) {
  out.marked(
      "\n\n## Tools\n\nYou have access to a set of tools to help answer the user's question. You can invoke tools by "
      "writing a \"<｜DSML｜ calls>\" block like the following:\n\n<｜DSML｜ calls>\n"
      "<｜DSML｜ invoke name=\"$TOOL_NAME\">\n"
      "<｜DSML｜ parameter name=\"$PARAMETER_NAME\" string=\"true|false\">$PARAMETER_VALUE</｜DSML｜ parameter>\n...\n"
      "</｜DSML｜ invoke>\n<｜DSML｜ invoke name=\"$TOOL_NAME2\">\n...\n</｜DSML｜ invoke>\n</｜DSML｜ calls>\n\n"
      "String parameters should be specified as is and set `string=\"true\"`. For all other types (numbers, booleans, "
      "arrays, objects), pass the value in JSON format and set `string=\"false\"`.\n\n"
      "If thinking_mode is enabled (triggered by <think>), you MUST output your complete reasoning inside "
      "<think>...</think> BEFORE any tool calls or final response.\n\n"
      "Otherwise, output directly after </think> with tool calls or final response.\n\n### Available Tool Schemas\n\n");
  std::string lines;
  for (size_t i = 0; i < tools.items.size(); ++i) {
    if (i > 0) lines += '\n';
    append_spaced(lines, tools.items[i]);
  }
  out.plain(lines);
  out.plain("\n\nYou MUST strictly follow the above defined tool name and parameter schemas to invoke tool calls.\n");
}

void write_calls(Writer& out, const std::vector<ToolCall>& calls) {
  out.marked("\n\n<｜DSML｜ calls>");
  for (const ToolCall& call : calls) {
    out.marked("\n<｜DSML｜ invoke name=\"");
    out.plain(call.name);
    out.plain("\">\n");
    const auto arguments = parse_json(call.arguments, "arguments");
    Json fields = Json::object();
    if (arguments && arguments->is_object()) {
      fields = *arguments;
    } else {
      fields.set("arguments", Json::of(call.arguments));
    }
    for (size_t i = 0; i < fields.fields.size(); ++i) {
      const auto& [key, value] = fields.fields[i];
      std::string text = value.text;
      if (!value.is_string()) {
        text.clear();
        append_spaced(text, value);
      }
      out.marked("<｜DSML｜ parameter name=\"");
      out.plain(key);
      out.plain(value.is_string() ? "\" string=\"true\">" : "\" string=\"false\">");
      out.plain(text);
      out.marked("</｜DSML｜ parameter>");
      if (i + 1 < fields.fields.size()) out.plain("\n");
    }
    out.marked("\n</｜DSML｜ invoke>");
  }
  out.marked("\n</｜DSML｜ calls>");
}

/// Bytes at the end of `text` that may be the beginning of `marker`.
size_t partial_match(std::string_view text, std::string_view marker) {
  for (size_t length = std::min(text.size(), marker.size() - 1); length > 0; --length) {
    if (marker.starts_with(text.substr(text.size() - length))) return length;
  }
  return 0;
}

constexpr std::string_view kCallStart = "<｜DSML｜";

std::string between(std::string_view text, std::string_view open, std::string_view close, size_t& at) {
  const size_t begin = text.find(open, at);
  if (begin == std::string_view::npos) return {};
  const size_t end = text.find(close, begin + open.size());
  if (end == std::string_view::npos) return {};
  at = end + close.size();
  return std::string(text.substr(begin + open.size(), end - begin - open.size()));
}

}  // namespace

std::optional<Effort> parse_effort(std::string_view text) {
  if (text == "none") return Effort{false, 75};
  if (text == "low") return Effort{true, 50};
  if (text == "high") return Effort{true, 75};
  if (text == "max") return Effort{true, 100};
  const auto number = parse_integer(text);
  if (!number || *number < 1 || *number > 100) return {};
  return Effort{true, int(*number)};
}

Result<Json> read_tools(const Json& file, std::string_view where) {
  if (!file.is_array()) {
    return Error{ErrorCode::bad_input, "tools are no list", std::string(where),
                 R"(write [{"name": …, "description": …, "parameters": {…}}])"};
  }
  Json tools = Json::array();
  for (size_t i = 0; i < file.items.size(); ++i) {
    const Json* tool = &file.items[i];
    if (const Json* inner = tool->find("function")) tool = inner;
    const Json* name = tool->find("name");
    if (name == nullptr || !name->is_string() || name->text.empty()) {
      return Error{ErrorCode::bad_input, "tool " + std::to_string(i) + " has no name", std::string(where),
                   "give it a \"name\""};
    }
    Json entry = Json::object();
    entry.set("name", *name);
    const Json* description = tool->find("description");
    entry.set("description", description != nullptr && description->is_string() ? *description : Json::of(""));
    const Json* parameters = tool->find("parameters");
    entry.set("parameters", parameters != nullptr ? *parameters : Json::object());
    tools.push(std::move(entry));
  }
  return tools;
}

RenderedPrompt render(const Conversation& conversation) {
  using Role = Turn::Role;
  Writer out;
  out.special(kBegin);
  const auto& turns = conversation.turns;
  const bool has_system = !turns.empty() && turns[0].role == Role::system;
  const bool has_tools = !conversation.tools.items.empty();
  if (conversation.thinking || has_system || has_tools) {
    out.special(kSystem);
    if (conversation.thinking) {
      out.plain("Reasoning Effort: " + std::to_string(conversation.effort) +
                " (range 1-100, the higher the value, the more thorough the reasoning)\n\n");
    }
    if (has_system) out.plain(turns[0].text);
    if (has_tools) write_tools(out, conversation.tools);
  }
  for (size_t i = has_system ? 1 : 0; i < turns.size(); ++i) {
    const Turn& turn = turns[i];
    const bool behind_input = i > 0 && (turns[i - 1].role == Role::user || turns[i - 1].role == Role::tool);
    switch (turn.role) {
      case Role::system:
        out.special(kSystem);
        out.plain(turn.text);
        break;
      case Role::user:
      case Role::tool:
        if (behind_input) {
          out.plain("\n\n");
        } else {
          out.special(kUser);
        }
        out.plain(turn.role == Role::tool ? "<tool_result>" + turn.text + "</tool_result>" : turn.text);
        break;
      case Role::assistant:
        out.special(kAssistant);
        // Reasoning of earlier turns is dropped unless the conversation has tools.
        if (conversation.thinking && has_tools) {
          out.special(kThink);
          out.plain(turn.reasoning);
        }
        out.special(kThinkEnd);
        out.plain(turn.text);
        if (!turn.calls.empty()) write_calls(out, turn.calls);
        out.special(kEnd);
        break;
    }
  }
  out.special(kAssistant);
  out.special(conversation.thinking ? kThink : kThinkEnd);
  return out.prompt;
}

AnswerSplitter::AnswerSplitter(Start start, bool tools)
    : state_(start == Start::plain       ? State::plain
             : start == Start::reasoning ? State::reasoning
                                         : State::text),
      tools_(tools) {}

void AnswerSplitter::emit(std::vector<AnswerPiece>& out, size_t count) {
  if (count == 0) return;
  using Channel = AnswerPiece::Channel;
  const Channel channel = state_ == State::reasoning ? Channel::reasoning
                          : state_ == State::calls   ? Channel::calls
                                                     : Channel::text;
  std::string text = held_.substr(0, count);
  held_.erase(0, count);
  if (leading_ && state_ != State::plain && state_ != State::calls) {
    leading_ = false;
    if (text.starts_with('\n')) text.erase(0, 1);
  }
  if (!text.empty()) out.push_back({channel, std::move(text)});
}

void AnswerSplitter::step(std::vector<AnswerPiece>& out, bool last) {
  for (;;) {
    if (state_ == State::plain || state_ == State::calls) return emit(out, held_.size());
    const size_t think_end = held_.find(kThinkEnd);
    const size_t call = tools_ ? held_.find(kCallStart) : std::string::npos;
    const size_t first = std::min(think_end, call);
    if (first == std::string::npos) {
      size_t keep = partial_match(held_, kThinkEnd);
      if (tools_) keep = std::max(keep, partial_match(held_, kCallStart));
      // Line breaks in front of a marker belong to it, so they wait too.
      size_t end = held_.size() - (last ? 0 : keep);
      while (!last && end > 0 && held_[end - 1] == '\n') --end;
      return emit(out, end);
    }
    size_t end = first;
    while (end > 0 && held_[end - 1] == '\n') --end;
    emit(out, end);
    held_.erase(0, first - end);
    if (first == call) {
      state_ = State::calls;
    } else {
      held_.erase(0, kThinkEnd.size());
      if (state_ == State::reasoning) leading_ = true;
      state_ = State::text;
    }
  }
}

std::vector<AnswerPiece> AnswerSplitter::push(std::string_view text) {
  std::vector<AnswerPiece> out;
  held_ += text;
  step(out, false);
  return out;
}

std::vector<AnswerPiece> AnswerSplitter::finish() {
  std::vector<AnswerPiece> out;
  step(out, true);
  return out;
}

std::vector<ToolCall> parse_calls(std::string_view markup) {
  std::vector<ToolCall> calls;
  for (size_t at = 0;;) {
    const std::string name = between(markup, "invoke name=\"", "\"", at);
    if (name.empty()) return calls;
    const size_t end = std::min(markup.find("</｜DSML｜ invoke>", at), markup.size());
    std::string arguments = "{";
    for (size_t inside = at;;) {
      const std::string key = between(markup.substr(0, end), "parameter name=\"", "\" string=\"", inside);
      if (key.empty()) break;
      const bool is_string = markup.substr(inside).starts_with("true");
      const std::string value = between(markup.substr(0, end), "\">", "</｜DSML｜", inside);
      if (arguments.size() > 1) arguments += ", ";
      append_json_string(arguments, key);
      arguments += ": ";
      if (is_string) {
        append_json_string(arguments, value);
      } else {
        arguments += value;
      }
    }
    calls.push_back({name, arguments + "}"});
    at = end;
  }
}

}  // namespace fathom::cli
