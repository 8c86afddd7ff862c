#include "fathom/cli/help.h"

#include <algorithm>

namespace fathom::cli {
namespace {

constexpr size_t kColumns = 80;
constexpr size_t kText = 27;  // column where an option's explanation begins

std::vector<std::string> wrapped(const std::string& text, size_t width) {
  std::vector<std::string> lines(1);
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find(' ', at), text.size());
    const std::string word = text.substr(at, end - at);
    at = end + 1;
    if (!lines.back().empty() && lines.back().size() + 1 + word.size() > width) lines.emplace_back();
    lines.back() += (lines.back().empty() ? "" : " ") + word;
  }
  return lines;
}

std::string option_help(const Option& option) {
  std::string line = "  --" + option.name + (option.value.empty() ? "" : " " + option.value);
  std::string out;
  if (line.size() + 2 > kText) {
    out += line + "\n";
    line.clear();
  }
  for (const std::string& part : wrapped(option.help, kColumns - kText)) {
    line.resize(kText, ' ');
    line += part;
    out += line + "\n";
    line.clear();
  }
  if (option.fallback.empty()) return out;
  const std::string fallback = "(default: " + option.fallback + ")";
  out.pop_back();
  const size_t begin = out.find_last_of('\n') == std::string::npos ? 0 : out.find_last_of('\n') + 1;
  if (out.size() - begin + 2 + fallback.size() > kColumns) {
    const auto lines = wrapped(fallback, kColumns - kText);
    for (const std::string& part : lines) out += "\n" + std::string(kColumns - part.size(), ' ') + part;
  } else {
    out += std::string(kColumns - fallback.size() - (out.size() - begin), ' ') + fallback;
  }
  return out + "\n";
}

std::string options_help(std::span<const Option> options) {
  std::string out;
  std::vector<std::string> groups;
  for (const Option& option : options) {
    if (!option.planned && !std::count(groups.begin(), groups.end(), option.group)) groups.push_back(option.group);
  }
  for (const std::string& group : groups) {
    out += "\n" + group + "\n";
    for (const Option& option : options) {
      if (!option.planned && option.group == group) out += option_help(option);
    }
  }
  return out;
}

}  // namespace

std::string program_help(std::span<const Command> commands) {
  std::string out =
      "fathom - DeepSeek V4.1 on one CPU or on many accelerators\n"
      "\n"
      "  fathom generate --chat \"What is 7 + 5?\"       asks the miniature that is built in\n"
      "\n"
      "Commands\n";
  for (const Command& command : commands) {
    std::string line = "  " + command.name;
    line.resize(20, ' ');
    out += line + command.summary + "\n";
  }
  out +=
      "\n"
      "Options\n"
      "  --help              this text; fathom COMMAND --help explains a command\n"
      "  --version           version, commit, compiled backends\n"
      "  --completion SHELL  completion script for bash, zsh or fish\n"
      "\n"
      "Every option of a command is also read from the environment (--max-tokens as\n"
      "FATHOM_MAX_TOKENS) and from --config FILE.toml.\n"
      "\n"
      "Exit: 0 done, 1 a check failed, 2 usage, 3 bad input, 4 not enough memory,\n"
      "5 unsupported hardware, 130 interrupted.\n";
  return out;
}

std::string command_help(const Command& command, std::span<const Option> common) {
  std::string out = "fathom " + command.name + " - " + command.summary + "\n\n";
  std::string example = "  " + command.example;
  if (!command.note.empty()) {
    if (example.size() + 2 + command.note.size() > kColumns) {
      example += "\n" + std::string(kColumns - command.note.size(), ' ') + command.note;
    } else {
      example += std::string(kColumns - command.note.size() - example.size(), ' ') + command.note;
    }
  }
  out += example + "\n\nUsage: fathom " + command.name + " [OPTIONS]" +
         (command.arguments.empty() ? "" : " " + command.arguments) + "\n";
  out += options_help(command.options) + options_help(common);
  return out;
}

}  // namespace fathom::cli
