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

bool names_a_file(const Option& option) {
  return option.value.starts_with("FILE") || option.value.starts_with("DIR") || option.value.starts_with("VECTORS");
}

/// Inside single quotes of a shell.
std::string shell_quoted(const std::string& text) {
  std::string out = "'";
  for (char c : text) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out + "'";
}

std::string words_of(std::span<const std::string> words) {
  std::string out;
  for (const std::string& word : words) out += (out.empty() ? "" : " ") + word;
  return out;
}

std::vector<Option> all_options(const Command& command, std::span<const Option> common) {
  std::vector<Option> options;
  for (const Option& option : command.options) {
    if (!option.planned) options.push_back(option);
  }
  options.insert(options.end(), common.begin(), common.end());
  options.push_back({.name = "help", .help = "what this command does", .group = "Every command"});
  return options;
}

std::string bash_script(std::span<const Command> commands, std::span<const Option> common) {
  std::vector<std::string> names;
  for (const Command& command : commands) names.push_back(command.name);
  std::string out =
      "# bash completion of fathom; use it with: source <(fathom --completion bash)\n"
      "_fathom() {\n"
      "  local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]} command=${COMP_WORDS[1]}\n"
      "  COMPREPLY=()\n"
      "  if [[ $COMP_CWORD -eq 1 ]]; then\n"
      "    COMPREPLY=($(compgen -W \"" +
      words_of(names) +
      " --help --version --completion\" -- \"$word\"))\n"
      "    return\n"
      "  fi\n"
      "  case \"$command $before\" in\n"
      "    \"--completion --completion\") COMPREPLY=($(compgen -W \"bash zsh fish\" -- \"$word\")); return ;;\n";
  for (const Command& command : commands) {
    for (const Option& option : all_options(command, common)) {
      if (!takes_value(option)) continue;
      std::string reply;
      if (!option.choices.empty())
        reply = "COMPREPLY=($(compgen -W \"" + words_of(option.choices) + "\" -- \"$word\")); ";
      if (names_a_file(option)) reply = "COMPREPLY=($(compgen -f -- \"$word\")); ";
      out += "    \"" + command.name + " --" + option.name + "\") " + reply + "return ;;\n";
    }
  }
  out += "  esac\n  case \"$command\" in\n";
  for (const Command& command : commands) {
    std::vector<std::string> words = command.words;
    for (const Option& option : all_options(command, common)) words.push_back("--" + option.name);
    out += "    " + command.name + ") COMPREPLY=($(compgen -W \"" + words_of(words) + "\" -- \"$word\")) ;;\n";
  }
  out +=
      "  esac\n"
      "  if [[ ${#COMPREPLY[@]} -eq 0 && $word != -* ]]; then COMPREPLY=($(compgen -f -- \"$word\")); fi\n"
      "}\n"
      "complete -o filenames -F _fathom fathom\n";
  return out;
}

/// Brackets and colons have a meaning inside an _arguments specification.
std::string zsh_text(const std::string& text) {
  std::string out;
  for (char c : text) out += (c == '[' || c == ']' || c == ':' ? std::string("\\") : std::string()) + c;
  return out;
}

std::string zsh_script(std::span<const Command> commands, std::span<const Option> common) {
  std::string out =
      "#compdef fathom\n"
      "# zsh completion of fathom; save it as _fathom in a folder of $fpath\n"
      "_fathom() {\n"
      "  local -a commands\n"
      "  commands=(\n";
  for (const Command& command : commands) {
    out += "    " + shell_quoted(command.name + ":" + zsh_text(command.summary)) + "\n";
  }
  out +=
      "  )\n"
      "  if (( CURRENT == 2 )); then\n"
      "    _describe command commands\n"
      "    _arguments '--help[what fathom does]' '--version[version, commit, backends]' '--completion[completion "
      "script]:shell:(bash zsh fish)'\n"
      "    return\n"
      "  fi\n"
      "  local command=$words[2]\n"
      "  shift words; (( CURRENT-- ))\n"
      "  case $command in\n";
  for (const Command& command : commands) {
    out += "    " + command.name + ")\n      _arguments";
    for (const Option& option : all_options(command, common)) {
      std::string spec = "--" + option.name + "[" + zsh_text(option.help) + "]";
      if (takes_value(option)) {
        spec += ":" + zsh_text(option.value) + ":";
        if (!option.choices.empty()) spec += "(" + words_of(option.choices) + ")";
        if (names_a_file(option)) spec += "_files";
      }
      out += " \\\n        " + shell_quoted(spec);
    }
    if (!command.words.empty()) out += " \\\n        " + shell_quoted("1:what:(" + words_of(command.words) + ")");
    if (command.words.empty() && command.positional != nullptr) out += " \\\n        '*:argument:_files'";
    out += "\n      ;;\n";
  }
  return out + "  esac\n}\n_fathom \"$@\"\n";
}

std::string fish_script(std::span<const Command> commands, std::span<const Option> common) {
  std::string out = "# fish completion of fathom; save it as ~/.config/fish/completions/fathom.fish\n";
  out += "complete -c fathom -n __fish_use_subcommand -l help -d 'what fathom does'\n";
  out += "complete -c fathom -n __fish_use_subcommand -l version -d 'version, commit, backends'\n";
  out += "complete -c fathom -n __fish_use_subcommand -l completion -x -a 'bash zsh fish' -d 'completion script'\n";
  for (const Command& command : commands) {
    out += "complete -c fathom -f -n __fish_use_subcommand -a " + command.name + " -d " +
           shell_quoted(command.summary) + "\n";
  }
  for (const Command& command : commands) {
    const std::string when = " -n '__fish_seen_subcommand_from " + command.name + "'";
    if (!command.words.empty()) out += "complete -c fathom -f" + when + " -a '" + words_of(command.words) + "'\n";
    for (const Option& option : all_options(command, common)) {
      out += "complete -c fathom" + when + " -l " + option.name + " -d " + shell_quoted(option.help);
      if (takes_value(option)) out += names_a_file(option) ? " -r -F" : " -x";
      if (!option.choices.empty()) out += " -a '" + words_of(option.choices) + "'";
      out += "\n";
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

std::string completion_script(const std::string& shell, std::span<const Command> commands,
                              std::span<const Option> common) {
  if (shell == "bash") return bash_script(commands, common);
  if (shell == "zsh") return zsh_script(commands, common);
  return fish_script(commands, common);
}

}  // namespace fathom::cli
