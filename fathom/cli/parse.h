// fathom/cli/parse.h
// argv to a command and its options. CLI11 splits the words; it stays in parse.cpp. Values of the environment and of
// --config are applied here too: option, then environment, then file, then default. Nothing is loaded.
#pragma once
#include <map>
#include <span>
#include <string>
#include <vector>

#include "fathom/cli/option.h"

namespace fathom::cli {

/// A documented command that this build does not have yet, with its documented options, so that a typo is still named.
struct PlannedCommand {
  std::string name;
  std::vector<std::string> options;
};

struct CommandLine {
  enum class Ask { run, help, version, completion };
  Ask ask = Ask::run;
  const Command* command = nullptr;            // none: help or version of the whole program
  std::string shell;                           // of completion
  std::map<std::string, std::string> sources;  // option name -> "option", "FATHOM_X", "a.toml"; absent: default
};

/// Reads `words` (argv without the program's name), then the environment and the configuration file, into the targets
/// of the command's options and of `common`. Errors: usage; bad_input or not_found for a configuration file that cannot
/// be read.
Result<CommandLine> parse(std::span<const std::string> words, std::span<const Command> commands,
                          std::span<const PlannedCommand> planned, Common& common);

/// "FATHOM_MAX_TOKENS" of "max-tokens".
std::string environment_name(const std::string& option);

/// The resolved options as TOML that --config reads back, each with where it came from.
std::string config_text(const Command& command, Common& common, const CommandLine& line);

}  // namespace fathom::cli
