// fathom/cli/help.h
// Help, made from the option tables (design/style.md 6: 80 columns, grouped, default and unit for each option). Pure.
#pragma once
#include <span>
#include <string>

#include "fathom/cli/option.h"

namespace fathom::cli {

/// `fathom --help`.
std::string program_help(std::span<const Command> commands);
/// `fathom COMMAND --help`.
std::string command_help(const Command& command, std::span<const Option> common);

}  // namespace fathom::cli
