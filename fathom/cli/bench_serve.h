// fathom/cli/bench_serve.h
// `fathom bench serve`: a load on any OpenAI-compatible endpoint, and what its users would have seen (design/cli.md 4).
// Guide: docs/guides/serving.md. What a request is and how it is timed: endpoint_load.h.
#pragma once
#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "fathom/base/result.h"
#include "fathom/cli/bench_engine.h"
#include "fathom/cli/option.h"

namespace fathom::cli {

struct ServeBenchSettings {
  std::string endpoint, model_name, prompts, body;
  std::optional<int64_t> concurrency;
  std::optional<std::chrono::milliseconds> duration;
  std::string api;  // of the command: chat, completions
  std::string compare, max_slowdown = "5%";
  double most_slowdown = 0.05;  // what max_slowdown says
  EngineBenchSettings load;     // trace, arrivals, rate, requests, lengths, seed, sweep, out
};

/// Its options that no other bench knows.
std::vector<Option> serve_bench_options(ServeBenchSettings& settings);
/// Error usage when one of them is given, for the benches that do not know them.
Result<void> refuse_serve_options(const ServeBenchSettings& settings);

/// Measures and prints. Exit code 1 when a request failed (429 and 503 are counted apart and are no failure), 3 when
/// the endpoint cannot be reached at the start.
Result<int> run_bench_serve(const ServeBenchSettings& settings, const Common& common);

}  // namespace fathom::cli
