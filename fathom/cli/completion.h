// fathom/cli/completion.h
// Completion scripts, made from the option tables. tests/cli/completion_test.py runs each in its shell. Pure.
#pragma once
#include <span>
#include <string>

#include "fathom/cli/option.h"

namespace fathom::cli {

/// A script for `shell`: bash, zsh or fish.
std::string completion_script(const std::string& shell, std::span<const Command> commands,
                              std::span<const Option> common);

}  // namespace fathom::cli
