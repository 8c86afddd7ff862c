// fathom/cli/text_input.h
// Where a text comes from: a file, "-" for standard input.
#pragma once
#include <string>

#include "fathom/base/result.h"

namespace fathom::cli {

/// All of standard input.
std::string read_standard_input();
/// The file's bytes; "-" is standard input. Errors: those of read_file.
Result<std::string> read_text_input(const std::string& path);

}  // namespace fathom::cli
