#include "fathom/cli/parse.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdlib>
#include <set>

#include "fathom/base/json.h"
#include "fathom/base/mapped_file.h"
#include "fathom/base/toml.h"
#include "fathom/cli/option_value.h"

namespace fathom::cli {
namespace {

using Words = std::vector<std::string>;

/// Stands for the empty value of `--name=`, for which CLI11 would take the next word.
constexpr const char* kEmpty = "\x01";

Words names_of(std::span<const Option> options, bool with_planned) {
  Words names;
  for (const Option& option : options) {
    if (with_planned || !option.planned) names.push_back(option.name);
  }
  return names;
}

/// What people type who know vllm, sglang or llama.cpp: their name of one of our options.
constexpr std::pair<std::string_view, std::string_view> kElsewhere[] = {
    {"--port", "--listen"},
    {"--host", "--listen"},
    {"--api-key", "--api-key-file"},
    {"--model-path", "--model"},
    {"--device", "--backend"},
    {"--served-model-name", "--model-name"},
    {"--max-model-len", "--context"},
    {"--ctx-size", "--context"},
    {"--context-length", "--context"},
    {"--max-num-seqs", "--sequences"},
    {"--ssl-certfile", "--tls-cert"},
    {"--ssl-keyfile", "--tls-key"},
    {"--max-new-tokens", "--max-tokens"},
    {"--n-predict", "--max-tokens"},
    {"--max-num-batched-tokens", "--step-rows"},
    {"--base-url", "--endpoint"},
};

std::optional<std::string> known_elsewhere(std::string_view name, const Words& dashed) {
  for (const auto& [theirs, ours] : kElsewhere) {
    if (theirs == name && std::find(dashed.begin(), dashed.end(), ours) != dashed.end()) return std::string(ours);
  }
  return {};
}

Error unknown_option(const std::string& word, const std::string& command, const Words& names) {
  const std::string name = word.substr(0, word.find('='));
  Words dashed;
  for (const std::string& known : names) dashed.push_back("--" + known);
  std::string remedy;
  auto near = known_elsewhere(name, dashed);
  if (!near) near = closest(name, dashed);
  if (near) remedy = "did you mean " + *near + "? ";
  std::sort(dashed.begin(), dashed.end());
  remedy += "The options are " + joined(dashed, "and");
  return Error{ErrorCode::usage, "unknown option " + name, command.empty() ? "fathom" : "fathom " + command, remedy};
}

/// Splits one command's words with CLI11: option name -> values in order, and the positional words.
struct Split {
  std::vector<std::pair<const Option*, std::string>> given;
  Words positional;
  bool help = false;
};

Result<Split> split_words(const Words& words, const std::string& command, const std::vector<Option>& options,
                          bool positional_allowed) {
  CLI::App app;
  app.set_help_flag("");
  app.allow_extras();
  Split split;
  app.add_flag("--help,-h", split.help);
  // One list of values an option: CLI11 checks nothing, we do, so that every message is ours.
  std::vector<Words> values(options.size());
  std::vector<CLI::Option*> handles(options.size());
  for (size_t i = 0; i < options.size(); ++i) {
    const std::string flag = "--" + options[i].name;
    if (options[i].planned || takes_value(options[i])) {
      // A planned option may come with or without a value; it is refused either way.
      handles[i] = app.add_option(flag, values[i])->expected(options[i].planned ? 0 : 1, 1)->allow_extra_args(false);
      handles[i]->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
    } else {
      handles[i] = app.add_flag(flag, values[i])->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
    }
  }
  CLI::Option* rest = app.add_option("words", split.positional)->expected(-1);
  (void)rest;
  Words names = names_of(options, false);
  names.emplace_back("help");
  if (command.empty()) names.insert(names.end(), {"version", "completion"});
  try {
    Words last_first(words.rbegin(), words.rend());  // as CLI11 takes them
    for (std::string& word : last_first) {
      if (word.starts_with("--") && word.ends_with('=')) word += kEmpty;
    }
    app.parse(std::move(last_first));
  } catch (const CLI::ArgumentMismatch&) {
    // Only a valued option at the very end can come here.
    const std::string last = words.empty() ? "" : words.back();
    return Error{ErrorCode::usage, "no value after " + last, "fathom " + command, "pass one, as in " + last + " VALUE"};
  } catch (const CLI::ParseError& error) {
    return Error{ErrorCode::usage, error.what(), "fathom " + command, "see fathom " + command + " --help"};
  }
  if (split.help) return split;
  for (const std::string& word : app.remaining()) {
    if (word.starts_with('-') && word != "-" && word != "--") return unknown_option(word, command, names);
  }
  for (size_t i = 0; i < options.size(); ++i) {
    if (handles[i]->count() == 0) continue;
    if (options[i].planned) {
      const auto refused = assign(options[i], "", "fathom " + command);
      return refused.error();
    }
    for (std::string& value : values[i]) {
      if (value == kEmpty) value.clear();
      const std::string name = value.starts_with("--") ? value.substr(2, value.find('=') - 2) : "";
      if (takes_value(options[i]) && !name.empty() && std::count(names.begin(), names.end(), name)) {
        return Error{ErrorCode::usage, "no value after --" + options[i].name, "fathom " + command,
                     "pass a value; " + value + " is an option of its own"};
      }
      split.given.emplace_back(&options[i], value);
    }
  }
  for (const std::string& word : app.remaining()) {
    if (word != "--") split.positional.push_back(word);
  }
  if (!positional_allowed && !split.positional.empty()) {
    return Error{ErrorCode::usage, "unexpected argument \"" + split.positional[0] + "\"", "fathom " + command,
                 "this command takes options only; see fathom " + command + " --help"};
  }
  return split;
}

/// The common options that the command does not name itself. `inspect` has a section --config: there the file of
/// options is meant only by --config=FILE or a word that ends in .toml behind it.
std::vector<Option> unshadowed(const std::vector<Option>& common, const std::vector<Option>& own) {
  std::vector<Option> options;
  for (const Option& option : common) {
    const auto same = [&](const Option& o) { return o.name == option.name; };
    if (std::none_of(own.begin(), own.end(), same)) options.push_back(option);
  }
  return options;
}

/// Takes the file of options out of the words of a command that has a --config of its own.
std::string take_config_file(Words& words) {
  std::string file;
  for (size_t i = 0; i < words.size(); ++i) {
    const bool joined_value = words[i].starts_with("--config=");
    const bool next_value = words[i] == "--config" && i + 1 < words.size() && words[i + 1].ends_with(".toml");
    if (!joined_value && !next_value) continue;
    file = joined_value ? words[i].substr(9) : words[i + 1];
    words.erase(words.begin() + long(i), words.begin() + long(i) + (joined_value ? 1 : 2));
    --i;
  }
  return file;
}

/// Where the command's name stands: behind common options, if any come first.
size_t find_command(std::span<const std::string> words, const std::vector<Option>& common) {
  size_t at = 0;
  while (at < words.size() && words[at].starts_with("--")) {
    const std::string name = words[at].substr(2);
    const auto option = std::find_if(common.begin(), common.end(), [&](const Option& o) { return o.name == name; });
    at += option != common.end() && takes_value(*option) ? 2 : 1;
  }
  return std::min(at, words.size());
}

Error unknown_command(const std::string& word, std::span<const Command> commands,
                      std::span<const PlannedCommand> planned) {
  Words names;
  for (const Command& command : commands) names.push_back(command.name);
  Words all = names;
  for (const PlannedCommand& command : planned) all.push_back(command.name);
  std::string remedy;
  if (const auto near = closest(word, all)) remedy = "did you mean " + *near + "? ";
  return Error{ErrorCode::usage, "unknown command \"" + word + "\"", "fathom",
               remedy + "The commands are " + joined(names, "and")};
}

Error refuse_planned(const PlannedCommand& command, std::span<const std::string> words,
                     const std::vector<Option>& common) {
  Words known = command.options;
  for (const std::string& name : names_of(common, false)) known.push_back(name);
  known.push_back("help");
  for (const std::string& word : words) {
    if (!word.starts_with("--") || word == "--") continue;
    const std::string name = word.substr(2, word.find('=') - 2);
    if (!std::count(known.begin(), known.end(), name)) return unknown_option(word, command.name, known);
  }
  return Error{ErrorCode::usage, "this build does not have the command " + command.name + " yet",
               "fathom " + command.name, "see fathom --help for what it has"};
}

/// One scalar of a configuration file as option text.
std::optional<std::string> scalar_text(const Json& value) {
  if (value.is_string() || value.is_number()) return value.text;
  if (const auto truth = value.as_bool()) return *truth ? "true" : "false";
  return {};
}

Result<void> apply_value(const Option& option, const Json& value, const std::string& from) {
  if (option.planned) return assign(option, "", from);
  Words texts;
  const std::span<const Json> items = value.is_array() ? std::span<const Json>(value.items) : std::span(&value, 1);
  for (const Json& item : items) {
    const auto text = scalar_text(item);
    if (!text) {
      return Error{ErrorCode::usage, "\"" + option.name + "\" is a table or a nested list", from,
                   "give it a text, a number, true or false, or a list of these"};
    }
    texts.push_back(*text);
  }
  if (std::holds_alternative<std::vector<std::string>*>(option.target)) {
    for (const std::string& text : texts) {
      if (auto set = assign(option, text, from); !set) return set;
    }
    return {};
  }
  std::string list;
  for (const std::string& text : texts) list += (list.empty() ? "" : ",") + text;
  return assign(option, list, from);
}

Error unknown_key(const std::string& key, const std::string& where, const Words& known) {
  std::string remedy;
  if (const auto near = closest(key, known)) remedy = "did you mean " + *near + "? ";
  return Error{ErrorCode::usage, "unknown key \"" + key + "\"", where,
               remedy + "Keys are the option names without dashes"};
}

/// Checks every key of the file, of all commands, and applies those of `command` that nothing stronger has set.
Result<void> apply_file(const Json& file, const std::string& path, const Command& command,
                        std::span<const Command> commands, std::span<const PlannedCommand> planned,
                        const std::vector<Option>& common, CommandLine& line) {
  const auto apply = [&](const std::vector<Option>& options, const std::string& key, const Json& value,
                         const std::string& where, bool use) -> Result<bool> {
    const auto option = std::find_if(options.begin(), options.end(), [&](const Option& o) { return o.name == key; });
    if (option == options.end()) return false;
    if (use && !line.sources.contains(key)) {
      if (auto set = apply_value(*option, value, where + ": " + key); !set) return set.error();
      line.sources[key] = path;
    }
    return true;
  };
  // A command's own table is stronger than the top level, so it comes first.
  for (const bool tables : {true, false}) {
    for (const auto& [key, value] : file.fields) {
      if (value.is_object() != tables) continue;
      if (!value.is_object()) {
        const auto known = apply(common, key, value, path, true);
        if (!known) return known.error();
        if (!*known) return unknown_key(key, path, names_of(common, false));
        continue;
      }
      const auto owner =
          std::find_if(commands.begin(), commands.end(), [&](const Command& c) { return c.name == key; });
      const auto later =
          std::find_if(planned.begin(), planned.end(), [&](const PlannedCommand& c) { return c.name == key; });
      if (owner == commands.end() && later == planned.end()) {
        Words names;
        for (const Command& c : commands) names.push_back(c.name);
        for (const PlannedCommand& c : planned) names.push_back(c.name);
        return unknown_key(key, path, names);
      }
      for (const auto& [name, setting] : value.fields) {
        const std::string where = path + ": [" + key + "]";
        Words names = owner != commands.end() ? names_of(owner->options, true) : later->options;
        for (const std::string& other : names_of(common, false)) names.push_back(other);
        if (!std::count(names.begin(), names.end(), name)) return unknown_key(name, where, names);
        if (owner == commands.end()) continue;
        const bool use = owner->name == command.name;
        if (auto own = apply(owner->options, name, setting, where, use); !own) return own.error();
        if (auto shared = apply(common, name, setting, where, use); !shared) return shared.error();
      }
    }
  }
  return {};
}

}  // namespace

std::string environment_name(const std::string& option) {
  std::string name = "FATHOM_";
  for (char c : option) name += c == '-' ? '_' : char(std::toupper(static_cast<unsigned char>(c)));
  return name;
}

Result<CommandLine> parse(std::span<const std::string> words, std::span<const Command> commands,
                          std::span<const PlannedCommand> planned, Common& common) {
  CommandLine line;
  const std::vector<Option> shared = common_options(common);
  const size_t at = find_command(words, shared);
  const std::span<const std::string> before = words.first(at);
  for (size_t i = 0; i < before.size(); ++i) {
    const std::string& word = before[i];
    if (word == "--version") line.ask = CommandLine::Ask::version;
    if (word == "--help") line.ask = CommandLine::Ask::help;
    if (word == "--completion" || word.starts_with("--completion=")) {
      line.ask = CommandLine::Ask::completion;
      line.shell = word == "--completion" ? (at < words.size() ? words[at] : "") : word.substr(13);
      const Words shells = {"bash", "zsh", "fish"};
      if (!std::count(shells.begin(), shells.end(), line.shell)) {
        return Error{ErrorCode::usage, line.shell.empty() ? "no shell named" : "unknown shell \"" + line.shell + "\"",
                     "--completion", "use bash, zsh or fish"};
      }
    }
    if (line.ask != CommandLine::Ask::run) return line;
  }
  if (at == words.size() || words[at] == "-h") {
    if (!before.empty()) {  // an option but no command: say which is wrong, if one is
      if (auto split = split_words({before.begin(), before.end()}, "", shared, false); !split) {
        Error error = split.error();
        error.where = "fathom";
        return error;
      }
    }
    if (at < words.size() || words.empty()) {
      line.ask = CommandLine::Ask::help;
      return line;
    }
    return Error{ErrorCode::usage, "no command given", "fathom", "see fathom --help"};
  }

  const std::string& name = words[at];
  if (name == "help") {  // a habit from other programs
    line.ask = CommandLine::Ask::help;
    if (at + 1 == words.size()) return line;
  }
  const std::string& wanted = name == "help" ? words[at + 1] : name;
  const auto command =
      std::find_if(commands.begin(), commands.end(), [&](const Command& c) { return c.name == wanted; });
  if (command == commands.end()) {
    const auto later =
        std::find_if(planned.begin(), planned.end(), [&](const PlannedCommand& c) { return c.name == wanted; });
    if (later != planned.end()) return refuse_planned(*later, words.subspan(at + 1), shared);
    return unknown_command(wanted, commands, planned);
  }
  line.command = &*command;
  if (line.ask == CommandLine::Ask::help) return line;

  Words own(before.begin(), before.end());
  own.insert(own.end(), words.begin() + long(at) + 1, words.end());
  const std::vector<Option> rest = unshadowed(shared, command->options);
  if (rest.size() < shared.size()) common.config = take_config_file(own);
  std::vector<Option> options = command->options;
  options.insert(options.end(), rest.begin(), rest.end());
  auto split = split_words(own, command->name, options, command->positional != nullptr);
  if (!split) return split.error();
  if (split->help) {
    line.ask = CommandLine::Ask::help;
    return line;
  }
  for (const auto& [option, value] : split->given) {
    if (auto set = assign(*option, value, "--" + option->name); !set) return set.error();
    line.sources[option->name] = "option";
  }
  if (command->positional != nullptr) *command->positional = split->positional;
  if (!command->words.empty() && !split->positional.empty()) {
    const std::string& word = split->positional[0];
    if (!std::count(command->words.begin(), command->words.end(), word)) {
      const bool later = std::count(command->later_words.begin(), command->later_words.end(), word) > 0;
      std::string remedy = "use " + joined(command->words);
      if (const auto near = closest(word, command->words); near && !later) remedy += "; did you mean " + *near + "?";
      return Error{ErrorCode::usage,
                   later ? "this build does not have \"" + word + "\" yet" : "unknown argument \"" + word + "\"",
                   "fathom " + command->name, remedy};
    }
  }
  // A name that a command shadows means the common option in the environment.
  std::vector<Option> variables = shared;
  for (const Option& option : unshadowed(command->options, shared)) variables.push_back(option);
  for (const Option& option : variables) {
    if (option.name == "config" && !common.config.empty()) continue;
    const std::string variable = environment_name(option.name);
    const char* value = std::getenv(variable.c_str());
    const bool given = line.sources.contains(option.name) && option.name != "config";
    if (value == nullptr || *value == '\0' || given) continue;
    if (option.planned) continue;  // set for a command of another build; it changes nothing here
    std::vector<std::string> texts = {value};
    if (std::holds_alternative<std::vector<std::string>*>(option.target)) texts = cli::split(value, ',');
    for (const std::string& text : texts) {
      if (auto set = assign(option, text, variable); !set) return set.error();
    }
    line.sources[option.name] = variable;
  }
  if (!common.config.empty()) {
    const auto text = read_file(common.config, int64_t(16) << 20);
    if (!text) return text.error();
    const auto file = parse_toml(*text, common.config);
    if (!file) return file.error();
    if (auto applied = apply_file(*file, common.config, *command, commands, planned, shared, line); !applied) {
      return applied.error();
    }
  }
  return line;
}

std::string config_text(const Command& command, Common& common, const CommandLine& line) {
  const auto section = [&](const std::vector<Option>& options) {
    std::string text;
    for (const Option& option : options) {
      if (option.planned || option.name == "config" || option.name == "print-config") continue;
      const auto value = printed(option);
      const auto source = line.sources.find(option.name);
      const std::string from = source == line.sources.end() ? "default" : source->second;
      if (value) {
        text += option.name + " = " + *value + "  # " + from + "\n";
      } else {
        text += "# " + option.name + ": " + (option.fallback.empty() ? "not set" : option.fallback) + "\n";
      }
    }
    return text;
  };
  return section(common_options(common)) + "\n[" + command.name + "]\n" + section(command.options);
}

}  // namespace fathom::cli
