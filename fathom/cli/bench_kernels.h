// fathom/cli/bench_kernels.h
// `fathom bench kernels`: each operation of the backend at the shapes of V4.1 Flash and of the miniature, as a share of
// what this machine can do at most, which is measured in the same run (design/cli.md 4). What is counted:
// backend/kernel_cases.h.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "fathom/base/result.h"
#include "fathom/cli/option.h"

namespace fathom::cli {

struct KernelBenchSettings {
  std::vector<std::string> kernels;  // operations; empty: all
  std::string filter;                // of the line "op weights shape model place"
  std::vector<int64_t> rows;
  std::string pages = "small";
  std::string peers;               // command; empty: none (kernel_peer.h)
  int64_t repeat = 5, warmup = 1;  // of the command
  std::string out;                 // of the command: file
  bool batch_invariant = false;    // of the engine: devices take kernels that do not look at how many rows there are
};

/// Its options that no other bench knows.
std::vector<Option> kernel_bench_options(KernelBenchSettings& settings);
/// Error usage when one of them is given, for the benches that do not know them.
Result<void> refuse_kernel_options(const KernelBenchSettings& settings);

/// Measures and prints.
Result<int> run_bench_kernels(const KernelBenchSettings& settings, const Common& common);

}  // namespace fathom::cli
