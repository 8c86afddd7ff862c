#include "fathom/cli/answer_text.h"

#include "fathom/base/json.h"
#include "fathom/cli/terminal.h"

namespace fathom::cli {
namespace {

/// Parts of the frame: begin of a block, of a line, end.
struct Frame {
  std::string head, line, foot;
};
Frame frame(bool dim) {
  const auto part = [dim](const char* text) { return dim ? "\x1b[2m" + std::string(text) + "\x1b[0m" : text; };
  return {part("┌") + " ", part("│") + " ", part("└")};
}

/// What a model wrote shall not steer the terminal.
void append_visible(std::string& out, std::string_view text) {
  for (const char c : text) {
    if (uint8_t(c) >= 0x20 || c == '\t') {
      out += c;
    } else {
      out += c == '\x1b' ? "\\e" : "?";
    }
  }
}

void append_parameters(std::string& out, const std::string& arguments, const Frame& frame) {
  const auto tree = parse_json(arguments, "arguments");
  if (!tree || !tree->is_object()) {
    out += frame.line;
    append_visible(out, arguments);
    out += '\n';
    return;
  }
  for (const auto& [name, value] : tree->fields) {
    out += frame.line;
    append_visible(out, name);
    out += ':';
    if (!value.is_string() || value.text.find('\n') == std::string::npos) {
      out += ' ' + to_string(value) + '\n';
      continue;
    }
    out += '\n';
    std::string_view rest = value.text;
    while (!rest.empty()) {
      const size_t end = std::min(rest.find('\n'), rest.size());
      out += frame.line + "  ";
      append_visible(out, rest.substr(0, end));
      out += '\n';
      rest.remove_prefix(std::min(end + 1, rest.size()));
    }
  }
}

void append_head(std::string& out, std::string_view name, const Frame& frame) {
  out += frame.head;
  append_visible(out, name);
  out += '\n';
}

}  // namespace

std::string call_block(const recipe::ToolCall& call) {
  const Frame plain = frame(false);
  std::string out;
  append_head(out, call.name, plain);
  append_parameters(out, call.arguments, plain);
  return out + plain.foot + "\n";
}

AnswerText::AnswerText(std::string reasoning)
    : only_reasoning_(reasoning == "only"), frames_dim_(colours_on_stdout()), reasoning_(shows_reasoning(reasoning)) {}

void AnswerText::write(std::string_view text) {
  if (text.empty() || !state_) return;
  state_ = print(text);
  began_ = true;
  ends_line_ = text.ends_with('\n');
}

void AnswerText::fresh_line() {
  if (began_ && !ends_line_) write("\n");
}

void AnswerText::show(const recipe::Delta& delta) {
  using Kind = recipe::Delta::Kind;
  if (delta.kind == Kind::reasoning) {
    if (only_reasoning_) write(delta.text);
    if (reasoning_.wanted()) reasoning_.write(delta.text);
    return;
  }
  if (only_reasoning_) return;
  reasoning_.end();
  std::string out;
  switch (delta.kind) {
    case Kind::reasoning: break;
    case Kind::content: write(delta.text); break;
    case Kind::call:
      fresh_line();
      append_head(out, delta.text, frame(frames_dim_));
      write(out);
      arguments_.clear();
      break;
    case Kind::arguments: arguments_ += delta.text; break;
    case Kind::call_end:
      append_parameters(out, arguments_, frame(frames_dim_));
      write(out + frame(frames_dim_).foot + "\n");
      break;
    case Kind::call_dropped: write(frame(frames_dim_).foot + " cut off: no call\n"); break;
  }
}

void AnswerText::end() {
  reasoning_.end();
  if (!ends_line_) write("\n");
}

}  // namespace fathom::cli
