// fathom/cli/bench_engine.h
// `fathom bench engine`: a load of requests through the whole engine, recorded (--trace) or made up (--arrivals); with
// --simulate the real scheduler over a timed model, to compare policies on hardware that is not here (design/cli.md 4).
// Guide: docs/guides/simulator.md.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "fathom/base/result.h"
#include "fathom/cli/loaded_model.h"
#include "fathom/cli/option.h"

namespace fathom::cli {

struct EngineBenchSettings {
  bool simulate = false;
  std::string trace;     // file; empty: made up
  std::string arrivals;  // kind
  std::optional<double> rate;
  std::optional<int64_t> requests, prompt_tokens, output_tokens;
  int64_t seed = 1;
  std::string hardware = "8xH200", policy = "all", acceptance = "3";
  double bias = 0;
  bool synchronous = false;
  std::string record, replay_record;
  bool sweep = false;  // of the command
  std::string out;
};

/// Its options that prefill, decode and codec do not know.
std::vector<Option> engine_bench_options(EngineBenchSettings& settings);
/// Error usage when one of them is given, for the benches that do not know them.
Result<void> refuse_engine_options(const EngineBenchSettings& settings);

/// Measures and prints. `words`: the command as it is recorded.
Result<int> run_bench_engine(const EngineBenchSettings& settings, const EngineSettings& engine, const Common& common);

}  // namespace fathom::cli
