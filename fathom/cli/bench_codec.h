// fathom/cli/bench_codec.h
// `fathom bench codec`: requests and output bytes a second, by API (design/cli.md 4). The work is that of
// recipe/conformance/codec_cost.h; one thread, processor time.
#pragma once
#include <span>
#include <string>
#include <vector>

#include "fathom/base/json.h"
#include "fathom/base/result.h"
#include "fathom/cli/option.h"
#include "fathom/recipe/conformance/codec_cost.h"

namespace fathom::cli {

struct CodecBenchSettings {
  std::string api;  // empty: all three
  std::string policy = "default", tokenizer;
  int64_t repeat = 5, warmup = 1;
  std::string out, compare, max_slowdown;  // as the command got them
  double most_slowdown = 0.05;             // what max_slowdown says
};

/// One API: medians over the repeats.
struct CodecBenchRow {
  std::string api, policy;
  recipe::CodecCost cost;
  double requests_per_s = 0;      // converted, rendered and encoded
  double output_bytes_per_s = 0;  // of JSON events, from texts of one token
  int64_t repeat = 0;
  double spread = 0;  // of the time of a request: (slowest - fastest) / median
  std::string tokenizer, machine, commit, command;
};

/// One flat object; the keys are stable, and the columns of --out.
Json to_json(const CodecBenchRow& row);

/// Measures and prints. Exit code 1 when --compare finds a case slower than the gate.
Result<int> run_bench_codec(const CodecBenchSettings& settings, const Common& common);

}  // namespace fathom::cli
