#include "fathom/cli/completion.h"

#include <algorithm>
#include <variant>
#include <vector>

namespace fathom::cli {
namespace {

bool names_a_file(const Option& option) {
  return option.value.starts_with("FILE") || option.value.starts_with("DIR") || option.value.starts_with("VECTORS");
}

bool may_repeat(const Option& option) {
  return std::holds_alternative<std::vector<std::string>*>(option.target) ||
         std::holds_alternative<std::vector<int64_t>*>(option.target);
}

/// Inside single quotes of a shell.
std::string shell_quoted(const std::string& text) {
  std::string out = "'";
  for (char c : text) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out + "'";
}

std::string words_of(std::span<const std::string> words, const char* between = " ") {
  std::string out;
  for (const std::string& word : words) out += (out.empty() ? "" : between) + word;
  return out;
}

/// What can be completed. A command's own option hides the common one of the same name (inspect --config).
std::vector<Option> all_options(const Command& command, std::span<const Option> common) {
  std::vector<Option> options;
  for (const Option& option : command.options) {
    if (!option.planned) options.push_back(option);
  }
  for (const Option& option : common) {
    const auto same = [&](const Option& own) { return own.name == option.name; };
    if (std::none_of(options.begin(), options.end(), same)) options.push_back(option);
  }
  options.push_back({.name = "help", .help = "what this command does", .group = "Every command"});
  return options;
}

std::vector<std::string> names_of(std::span<const Command> commands) {
  std::vector<std::string> names;
  for (const Command& command : commands) names.push_back(command.name);
  return names;
}

/// Common options with a value, as alternatives of a pattern: before the command, the word behind one is its value.
std::string valued(std::span<const Option> common) {
  std::vector<std::string> names;
  for (const Option& option : common) {
    if (takes_value(option)) names.push_back("--" + option.name);
  }
  return words_of(names, "|");
}

std::string bash_script(std::span<const Command> commands, std::span<const Option> common) {
  std::vector<std::string> first = names_of(commands);
  for (const Option& option : common) first.push_back("--" + option.name);
  first.insert(first.end(), {"--help", "--version", "--completion"});
  // Bash cuts --name=value at the "="; both forms are brought to the same `before` and `word`. Where nothing is
  // replied, readline completes file names (-o default), which compopt switches off where none are wanted.
  std::string out =
      "# bash completion of fathom; use it with: source <(fathom --completion bash)\n"
      "_fathom_words() { mapfile -t COMPREPLY < <(compgen -W \"$1\" -- \"$2\"); compopt +o default 2>/dev/null; }\n"
      "_fathom() {\n"
      "  local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]} command= at=1\n"
      "  COMPREPLY=()\n"
      "  if [[ $word == \"=\" ]]; then word=\n"
      "  elif [[ $before == \"=\" ]]; then before=${COMP_WORDS[COMP_CWORD-2]}; fi\n"
      "  while (( at < COMP_CWORD )); do\n"
      "    case ${COMP_WORDS[at]} in\n"
      "      " +
      valued(common) +
      ") (( at++ )); [[ ${COMP_WORDS[at]} == \"=\" ]] && (( at++ )) ;;\n"
      "      --*) ;;\n"
      "      *) command=${COMP_WORDS[at]}; break ;;\n"
      "    esac\n"
      "    (( at++ ))\n"
      "  done\n"
      "  case \"$before\" in\n"
      "    --completion) _fathom_words \"bash zsh fish\" \"$word\"; return ;;\n"
      "  esac\n"
      "  case \"$command $before\" in\n";
  const auto add_value = [&](const std::string& command, const Option& option) {
    if (!takes_value(option)) return;
    out += "    \"" + command + " --" + option.name + "\") ";
    if (!names_a_file(option)) out += "_fathom_words \"" + words_of(option.choices) + "\" \"$word\"; ";
    out += "return ;;\n";
  };
  for (const Option& option : common) add_value("", option);
  for (const Command& command : commands) {
    for (const Option& option : all_options(command, common)) add_value(command.name, option);
  }
  out += "  esac\n  case \"$command\" in\n    \"\") _fathom_words \"" + words_of(first) + "\" \"$word\" ;;\n";
  for (const Command& command : commands) {
    std::vector<std::string> words = command.words;
    for (const Option& option : all_options(command, common)) words.push_back("--" + option.name);
    out += "    " + command.name + ") ";
    // A bare word of a command with an argument may be a file.
    if (command.positional != nullptr && command.words.empty()) out += "[[ $word == -* ]] && ";
    out += "_fathom_words \"" + words_of(words) + "\" \"$word\" ;;\n";
  }
  return out + "  esac\n}\ncomplete -o default -F _fathom fathom\n";
}

/// `special` characters end a field of a specification unless a backslash stands before them.
std::string zsh_text(const std::string& text, std::string_view special) {
  std::string out;
  for (char c : text) out += (special.find(c) == special.npos ? "" : "\\") + std::string(1, c);
  return out;
}

std::string zsh_option(const Option& option) {
  std::string spec = (may_repeat(option) ? "*--" : "--") + option.name + (takes_value(option) ? "=" : "") + "[" +
                     zsh_text(option.help, "[]\\") + "]";
  if (takes_value(option)) {
    spec += ":" + zsh_text(option.value, ":\\") + ":";
    if (!option.choices.empty()) spec += "(" + words_of(option.choices) + ")";
    if (names_a_file(option)) spec += "_files";
    if (option.choices.empty() && !names_a_file(option)) spec += " ";  // no completion, but the value's name is shown
  }
  return shell_quoted(spec);
}

std::string zsh_script(std::span<const Command> commands, std::span<const Option> common) {
  std::string out =
      "#compdef fathom\n"
      "# zsh completion of fathom; save it as _fathom in a folder of $fpath, or, after compinit, use it with:\n"
      "# source <(fathom --completion zsh)\n"
      "_fathom() {\n"
      "  local context state state_descr line curcontext=$curcontext\n"
      "  typeset -A opt_args\n"
      "  local -a commands\n"
      "  commands=(\n";
  for (const Command& command : commands) {
    out += "    " + shell_quoted(command.name + ":" + zsh_text(command.summary, "\\")) + "\n";
  }
  out += "  )\n  _arguments -C";
  for (const Option& option : common) out += " \\\n    " + zsh_option(option);
  out +=
      " \\\n    '(- *)--help[what fathom does]' \\\n    '(- *)--version[version, commit, backends]' \\\n"
      "    '(- *)--completion=[completion script]:shell:(bash zsh fish)' \\\n"
      "    '1:command:->command' \\\n    '*::argument:->argument' && return\n"
      "  case $state in\n"
      "    command) _describe command commands ;;\n"
      "    argument)\n"
      "      case $words[1] in\n";
  for (const Command& command : commands) {
    out += "        " + command.name + ")\n          _arguments";
    for (const Option& option : all_options(command, common)) out += " \\\n            " + zsh_option(option);
    if (!command.words.empty()) out += " \\\n            " + shell_quoted("1:what:(" + words_of(command.words) + ")");
    if (command.words.empty() && command.positional != nullptr) out += " \\\n            '*:argument:_files'";
    out += "\n          ;;\n";
  }
  return out +
         "      esac ;;\n  esac\n}\n"
         "# As a file of $fpath this is the function's first run; otherwise it is only defined.\n"
         "if [[ $funcstack[1] == _fathom ]]; then _fathom \"$@\"; else compdef _fathom fathom; fi\n";
}

/// One `complete` line for an option under a condition.
std::string fish_option(const std::string& when, const Option& option) {
  std::string out =
      "complete -c fathom -n " + shell_quoted(when) + " -l " + option.name + " -d " + shell_quoted(option.help);
  if (takes_value(option)) out += names_a_file(option) ? " -r -F" : " -x";
  if (!option.choices.empty()) out += " -a " + shell_quoted(words_of(option.choices));
  return out + "\n";
}

std::string fish_script(std::span<const Command> commands, std::span<const Option> common) {
  const std::string none = "__fathom_command_is";
  std::string out =
      "# fish completion of fathom; save it as ~/.config/fish/completions/fathom.fish\n"
      "# The command is the first word that is neither an option nor the value of one.\n"
      "function __fathom_command_is\n"
      "  set -l value no\n"
      "  for word in (commandline -opc)[2..-1]\n"
      "    if test $value = yes\n"
      "      set value no\n"
      "    else if string match -qr -- '^(" +
      valued(common) +
      ")$' $word\n"
      "      set value yes\n"
      "    else if not string match -q -- '-*' $word\n"
      "      contains -- $word $argv\n"
      "      return\n"
      "    end\n"
      "  end\n"
      "  test (count $argv) -eq 0\n"
      "end\n";
  out += "complete -c fathom -f -n " + none + "\n";
  for (const Command& command : commands) {
    out += "complete -c fathom -n " + none + " -a " + command.name + " -d " + shell_quoted(command.summary) + "\n";
  }
  out += "complete -c fathom -n " + none + " -l help -d 'what fathom does'\n";
  out += "complete -c fathom -n " + none + " -l version -d 'version, commit, backends'\n";
  out += "complete -c fathom -n " + none + " -l completion -x -a 'bash zsh fish' -d 'completion script'\n";
  for (const Option& option : common) out += fish_option(none, option);
  for (const Command& command : commands) {
    const std::string when = none + " " + command.name;
    if (command.positional == nullptr || !command.words.empty()) out += "complete -c fathom -f -n '" + when + "'\n";
    if (!command.words.empty()) {
      out += "complete -c fathom -n '" + when + "' -a '" + words_of(command.words) + "'\n";
    }
    for (const Option& option : all_options(command, common)) out += fish_option(when, option);
  }
  return out;
}

}  // namespace

std::string completion_script(const std::string& shell, std::span<const Command> commands,
                              std::span<const Option> common) {
  if (shell == "bash") return bash_script(commands, common);
  if (shell == "zsh") return zsh_script(commands, common);
  return fish_script(commands, common);
}

}  // namespace fathom::cli
