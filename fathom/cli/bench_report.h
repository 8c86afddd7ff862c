// fathom/cli/bench_report.h
// Results of `fathom bench` as rows, and the forms they are written in. Pure but for the files.
#pragma once
#include <initializer_list>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "fathom/backend/timed_operations.h"
#include "fathom/base/json.h"
#include "fathom/base/result.h"
#include "fathom/checkpoint/piece_stream.h"

namespace fathom::cli {

struct BenchRow {
  std::string bench;  // "prefill", "decode"
  int64_t length = 0, batch = 0, cached = 0;
  int drafts = 0;
  std::string replay, numerics, backend;
  int threads = 0;
  double tokens_per_s = 0;  // of all sequences together
  double ms = 0;            // median time of the prompt, or of one step
  int64_t repeat = 0;
  double spread = 0;  // (slowest - fastest) / median
  double accepted_per_step = 0;
  std::string model, machine, commit, command;
  std::optional<StreamStatistics> stream;  // of streamed experts, all measured repeats; only in JSON and in a line
  std::optional<double> launch_ms;         // StepTimes::launch_seconds; only in JSON and in the table of operations
  bool copied = false;                     // the past: --past copied; only in JSON
  bool batch_invariant = true;             // only in JSON
  // Of --per-operation, a prompt or a step; only in JSON and in their own table.
  std::vector<OperationTime> operations;
  std::optional<MachinePeaks> peaks;
};

/// What a whole prompt or step needs, from its operations.
struct WholeWork {
  int64_t memory_bytes = 0;     // weights, keys and tables, each read once
  double operations = 0;        // two a multiply-add
  double bound_ms = 0;          // of all operations, one after the other, at the machine's peaks
  double in_operations_ms = 0;  // what they took
  double idle_share = 0;        // of the time: between operations
  double share_of_memory = 0;   // memory_bytes over the time, of the peak of reading
  double share_of_bound = 0;    // bound_ms over the time
};
WholeWork whole_work(const BenchRow& row);

/// One flat object; the keys are stable. With --per-operation also `operations`, a list of {name, shape, calls, ms,
/// share, memory_bytes, cache_bytes, flop, bound_ms}, `whole`, and `peaks`; and of streamed experts `expert_stream`, an
/// object.
Json to_json(const BenchRow& row);
std::string to_csv(std::span<const BenchRow> rows);
/// Flat objects with the same keys: a line of keys, and a line for each.
std::string csv_of(std::span<const Json> rows);
/// The rows of a CSV file by column. Errors: bad_input naming the line, or the wanted column that is missing.
Result<std::vector<std::map<std::string, std::string>>> read_csv(std::string_view text, const std::string& where,
                                                                 std::initializer_list<const char*> wanted);
/// Only what --compare needs. Errors: bad_input naming the line or the column that is missing.
Result<std::vector<BenchRow>> read_bench_csv(std::string_view text, const std::string& where);
std::string to_table(std::span<const BenchRow> rows);
/// Where the time of one row goes: calls, time and share of each operation, what it needs and what that would take at
/// the machine's peaks; what lies between operations; and the same of the whole.
std::string to_operation_table(const BenchRow& row);
/// Throughput of all (y) against speed for one user (x), one line a bench and setting; a self-contained SVG file.
std::string to_svg(std::span<const BenchRow> rows);

/// A row and the recorded one of the same case.
struct BenchComparison {
  const BenchRow* now = nullptr;
  const BenchRow* before = nullptr;
  double slowdown() const { return before->tokens_per_s / now->tokens_per_s - 1; }
};
/// Rows of the same bench, sizes, drafts, replay, numerics, backend and threads; those without a partner are left out.
std::vector<BenchComparison> compare_rows(std::span<const BenchRow> now, std::span<const BenchRow> before);

}  // namespace fathom::cli
