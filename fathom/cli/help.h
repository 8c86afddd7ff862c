// fathom/cli/help.h
// Texts made from the option tables: help (design/style.md 6: 80 columns, grouped, default and unit for each option)
// and completion scripts. Pure.
#pragma once
#include <span>
#include <string>

#include "fathom/cli/option.h"

namespace fathom::cli {

/// `fathom --help`.
std::string program_help(std::span<const Command> commands);
/// `fathom COMMAND --help`.
std::string command_help(const Command& command, std::span<const Option> common);
/// A script for `shell`: bash, zsh or fish.
std::string completion_script(const std::string& shell, std::span<const Command> commands,
                              std::span<const Option> common);

}  // namespace fathom::cli
