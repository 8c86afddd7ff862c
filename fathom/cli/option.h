// fathom/cli/option.h
// Options as data. A command lists its options once; parsing, the environment, --config, help, --print-config and the
// completion scripts all read that list, so they cannot disagree. Contract: design/cli.md 1.
#pragma once
#include <chrono>
#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "fathom/base/result.h"

namespace fathom::cli {

/// A number of bytes, written 64GiB, 500MB or plain.
struct Bytes {
  int64_t count = 0;
  friend bool operator==(const Bytes&, const Bytes&) = default;
};

/// Where an option's value goes; the type decides how its text is read. Vectors grow each time the option is given: one
/// string a time, or a comma list of integers.
using Target =
    std::variant<bool*, std::string*, std::optional<std::string>*, int64_t*, std::optional<int64_t>*, double*,
                 std::optional<double>*, std::optional<Bytes>*, std::optional<std::chrono::milliseconds>*,
                 std::vector<std::string>*, std::vector<int64_t>*>;

struct Option {
  std::string name{};      // "max-tokens", without dashes
  std::string value{};     // "TOKENS": what help calls the value; empty for a switch
  std::string help{};      // effect, with the unit
  std::string fallback{};  // default in words ("what fits"); empty: none worth saying
  std::string group{};     // heading in help: the user's question
  Target target = static_cast<bool*>(nullptr);
  std::vector<std::string> choices{};  // empty: any value of the type
  std::vector<std::string> later{};    // documented choices that this build does not have yet
  double least = -std::numeric_limits<double>::infinity();
  double most = std::numeric_limits<double>::infinity();
  bool planned = false;  // documented, but this build does not have it yet: asking for it is an error that says so
};

bool takes_value(const Option& option);

/// What `run` of every command gets besides its own options.
struct Common {
  std::string model;    // folder, "" for the embedded miniature, or synthetic:PRESET
  std::string backend;  // "": best present
  std::optional<int64_t> threads;
  std::string config;
  std::string log_level = "warn";
  bool json = false;
  bool print_config = false;
};

struct Command {
  std::string name{};
  std::string summary{};    // after "fathom NAME - "
  std::string example{};    // one line that works
  std::string note{};       // what the example does or needs, said beside it; may be empty
  std::string arguments{};  // "[PROMPT]"; empty: takes none
  std::vector<Option> options{};
  std::vector<std::string>* positional = nullptr;
  std::vector<std::string> words{};  // values of the first argument, for completion and checks ("prefill", "decode")
  std::vector<std::string> later_words{};
  std::function<Result<int>(const Common&)> run{};  // exit code
};

/// The options that every command has, bound to `common`.
std::vector<Option> common_options(Common& common);

/// Reads `text` into the option's target. `from` names the source in errors: "--context", "FATHOM_CONTEXT", "a.toml:
/// …". Errors: usage with the value, the limits or the choices, and the closest choice.
Result<void> assign(const Option& option, const std::string& text, const std::string& from);

/// The value as TOML text, or nothing when it is unset.
std::optional<std::string> printed(const Option& option);

}  // namespace fathom::cli
