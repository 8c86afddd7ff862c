// fathom/cli/bench_kernels_report.h
// Results of `fathom bench kernels` as rows and a table. Pure.
#pragma once
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "fathom/backend/machine_peaks.h"
#include "fathom/base/json.h"

namespace fathom::cli {

/// The same product by another library, in bf16.
struct PeerTime {
  std::string name;  // "torch"
  double us = 0;     // median; 0: not measured
};

struct KernelBenchRow {
  std::string op, weights, shape, model, place;
  int64_t rows = 0;
  int threads = 0;
  double us = 0;  // of a call, median
  double gbps = 0, gflops = 0;
  std::string bound;  // "memory", "cache", "compute"
  double share = 0;   // of that bound
  std::string arithmetic;
  std::string pages;  // of what is read from memory: "small", "large"
  int64_t repeat = 0;
  double spread = 0;            // (slowest - fastest) / median
  std::optional<double> error;  // against the definition; none: that would take too long
  std::vector<PeerTime> peers;  // the same ones in all rows
  std::string peer_version;
  std::string backend, machine, commit, command;
};

/// The peaks as rows: op "peak memory", "peak l3", "peak bf16", ..., share 1, us 0.
std::vector<KernelBenchRow> rows_of(const MachinePeaks& peaks);

/// One flat object; the keys are stable. With peers also NAME_us and NAME_ratio: how many times as long as ours.
Json to_json(const KernelBenchRow& row);
std::string to_csv(std::span<const KernelBenchRow> rows);
std::string to_table(std::span<const KernelBenchRow> rows);
/// One line a number of threads.
std::string to_peak_table(std::span<const MachinePeaks> peaks);

}  // namespace fathom::cli
