// fathom/cli/program.h
// The program as a function: parse, run one command, turn its Result into an exit code and one line on stderr.
#pragma once
#include <string>
#include <vector>

#include "fathom/base/result.h"
#include "fathom/cli/option.h"

namespace fathom::cli {

/// Exit codes of design/cli.md 1.
inline constexpr int kDone = 0, kFailed = 1, kUsage = 2, kBadInput = 3, kNoMemory = 4, kUnsupported = 5,
                     kInterrupted = 130;
int exit_code_of(ErrorCode code);

/// `fathom: <what> (<where>): <remedy>`, or the same as JSON, with a newline. Always one line.
std::string error_line(const Error& error, bool json);

/// One a subcommand; each stands in the file of its name.
Command generate_command();
Command chat_command();
Command serve_command();
Command tokenize_command();
Command codec_command();
Command inspect_command();
Command plan_command();
Command doctor_command();
Command check_golden_command();
Command make_checkpoint_command();
Command bench_command();

int run(const std::vector<std::string>& words);

}  // namespace fathom::cli
