#include "fathom/cli/program.h"

#include <algorithm>
#include <cstdlib>
#include <new>

#include "fathom/backend/backend.h"
#include "fathom/base/json.h"
#include "fathom/cli/completion.h"
#include "fathom/cli/help.h"
#include "fathom/cli/interrupt.h"
#include "fathom/cli/option_value.h"
#include "fathom/cli/parse.h"
#include "fathom/cli/terminal.h"
#include "fathom/cli/version.h"

namespace fathom::cli {
namespace {

std::vector<Command> all_commands() {
  std::vector<Command> commands;
  commands.push_back(generate_command());
  commands.push_back(chat_command());
  commands.push_back(serve_command());
  commands.push_back(tokenize_command());
  commands.push_back(codec_command());
  commands.push_back(inspect_command());
  commands.push_back(plan_command());
  commands.push_back(doctor_command());
  commands.push_back(check_golden_command());
  commands.push_back(make_checkpoint_command());
  commands.push_back(bench_command());
  return commands;
}

/// Documented in design/cli.md, built by later issues. Their options are listed so that a typo is named as such.
std::vector<PlannedCommand> planned_commands() {
  return {
      {"route",
       {"replica", "prefill", "decode", "replicas", "dns", "policy", "load-factor", "listen", "health-interval",
        "retry", "wait"}},
      {"eval",
       {"dataset", "data", "repeats", "out", "max-drop", "endpoint", "context", "sequences", "step-rows", "replay",
        "numerics", "drafts", "memory-limit"}},
      {"kv", {"kv-disk", "sample", "repair", "max-size", "max-age", "dry-run"}},
  };
}

/// Whether errors are wanted as JSON must be known even when the command line cannot be parsed.
bool wants_json(const std::vector<std::string>& words) {
  const char* variable = std::getenv("FATHOM_JSON");
  bool wanted = variable != nullptr && parse_switch(variable).value_or(false);
  for (const std::string& word : words) {
    if (word == "--") break;
    if (word == "--json") wanted = true;
    if (word.starts_with("--json=")) wanted = parse_switch(word.substr(7)).value_or(false);
  }
  return wanted;
}

std::string version_text() {
  std::string text = std::string("fathom ") + version() + " (commit " + commit() + ")\nbackends:";
  for (const std::string& name : present_backends()) text += " " + name;
  return text + "\n";
}

std::string config_json(const Command& command, Common& common) {
  Json tree = Json::object();
  std::vector<Option> options = common_options(common);
  options.insert(options.end(), command.options.begin(), command.options.end());
  for (const Option& option : options) {
    if (option.planned || option.name == "config" || option.name == "print-config") continue;
    const auto value = printed(option);
    // Every printed value is JSON as it is TOML: numbers, quoted strings, true, false, flat lists.
    auto parsed = value ? parse_json(*value, option.name) : Result<Json>(Json{});
    if (parsed) tree.set(option.name, std::move(*parsed));
  }
  return to_string(tree) + "\n";
}

Result<int> run_words(const std::vector<std::string>& words) {
  Common common;
  const std::vector<Command> commands = all_commands();
  const std::vector<PlannedCommand> planned = planned_commands();
  const auto line = parse(words, commands, planned, common);
  if (!line) return line.error();
  const auto shown = [](const std::string& text) -> Result<int> {
    if (auto printed = print(text); !printed) return printed.error();
    return kDone;
  };
  switch (line->ask) {
    case CommandLine::Ask::help:
      return shown(line->command == nullptr ? program_help(commands)
                                            : command_help(*line->command, common_options(common)));
    case CommandLine::Ask::version: return shown(version_text());
    case CommandLine::Ask::completion: return shown(completion_script(line->shell, commands, common_options(common)));
    case CommandLine::Ask::run: break;
  }
  // A server that nobody asked to be quiet tells what it does.
  if (line->command->name == "serve" && !line->sources.contains("log-level")) common.log_level = "info";
  if (common.print_config) {
    return shown(common.json ? config_json(*line->command, common) : config_text(*line->command, common, *line));
  }
  return line->command->run(common);
}

}  // namespace

int exit_code_of(ErrorCode code) {
  switch (code) {
    case ErrorCode::usage: return kUsage;
    case ErrorCode::bad_input:
    case ErrorCode::corrupt:
    case ErrorCode::not_found:
    case ErrorCode::out_of_range: return kBadInput;
    case ErrorCode::out_of_memory: return kNoMemory;
    case ErrorCode::unsupported: return kUnsupported;
    case ErrorCode::interrupted: return kInterrupted;
    case ErrorCode::failed: return kFailed;
  }
  return kFailed;
}

std::string error_line(const Error& error, bool json) {
  if (json) {
    Json inner = Json::object();
    inner.set("code", Json::of(name_of(error.code)));
    inner.set("message", Json::of(error.message));
    inner.set("where", Json::of(error.where));
    inner.set("remedy", Json::of(error.remedy));
    Json tree = Json::object();
    tree.set("error", std::move(inner));
    return to_string(tree) + "\n";
  }
  std::string line = "fathom: " + to_string(error);
  // A file name or a value may hold a line break; the message stays one line.
  std::replace_if(
      line.begin(), line.end(), [](char c) { return c == '\n' || c == '\r'; }, ' ');
  if (!line.ends_with('.') && !line.ends_with('?')) line += '.';
  return line + "\n";
}

int run(const std::vector<std::string>& words) {
  install_interrupt_handler();
  const bool json = wants_json(words);
  Result<int> result = kDone;
  try {  // memory that runs out in a library or a container arrives as an exception
    result = run_words(words);
  } catch (const std::bad_alloc&) {
    result = Error{ErrorCode::out_of_memory, "the system gave no more memory", "fathom",
                   "pass a smaller --context or --sequences, or end other programs"};
  }
  if (result) return *result;
  print_note(error_line(result.error(), json));
  return exit_code_of(result.error().code);
}

}  // namespace fathom::cli
