#include "fathom/cli/bench_kernels.h"

#include <algorithm>
#include <chrono>
#include <memory>

#include "fathom/backend/kernel_cases.h"
#include "fathom/base/mapped_file.h"
#include "fathom/cli/bench_kernels_report.h"
#include "fathom/cli/interrupt.h"
#include "fathom/cli/machine.h"
#include "fathom/cli/program.h"
#include "fathom/cli/terminal.h"
#include "fathom/cli/version.h"

namespace fathom::cli {
namespace {

constexpr double kSampleSeconds = 0.01;  // calls shorter than this are repeated
constexpr int64_t kRows[] = {1, 2, 4, 8, 16, 64, 512, 2048};
constexpr int64_t kColdCaches = 4;                // times the level 3 cache
constexpr int64_t kWarmBytes = int64_t(6) << 20;  // what the miniature's layers take

/// Every operation that has a case, for completion and checks.
std::vector<std::string> operation_names() {
  std::vector<std::string> names;
  for (const KernelCase& c : kernel_cases(0, 0)) {
    if (!std::count(names.begin(), names.end(), c.op)) names.push_back(c.op);
  }
  return names;
}

bool wanted(const KernelCase& c, const KernelBenchSettings& s) {
  if (!s.kernels.empty() && !std::count(s.kernels.begin(), s.kernels.end(), c.op)) return false;
  return (c.op + " " + c.weights + " " + c.shape + " " + c.model + " " + c.place).find(s.filter) != std::string::npos;
}

std::vector<int64_t> rows_of_case(const KernelCase& c, const KernelBenchSettings& s) {
  std::vector<int64_t> out;
  for (const int64_t rows : s.rows.empty() ? std::vector<int64_t>(std::begin(kRows), std::end(kRows)) : s.rows) {
    if (rows <= c.most_rows) out.push_back(rows);
  }
  return out;
}

std::string command_of(const KernelBenchSettings& s, const Common& common) {
  std::string text = "fathom bench kernels";
  for (const std::string& kernel : s.kernels) text += " --kernel " + kernel;
  if (!s.filter.empty()) text += " --filter \"" + s.filter + "\"";
  for (size_t i = 0; i < s.rows.size(); ++i) text += (i == 0 ? " --rows " : ",") + std::to_string(s.rows[i]);
  text += " --repeat " + std::to_string(s.repeat);
  if (!common.backend.empty()) text += " --backend " + common.backend;
  if (common.threads) text += " --threads " + std::to_string(*common.threads);
  return text;
}

double seconds_of(const KernelRun& run, const Operations& ops, Queue& queue, int64_t calls) {
  const auto begin = std::chrono::steady_clock::now();
  for (int64_t i = 0; i < calls; ++i) run.call(ops, queue);
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count() / double(calls);
}

/// Times of a call, sorted: each the mean of as many calls as fit into a sample.
std::vector<double> measure(const KernelRun& run, const Operations& ops, Queue& queue, int64_t warmup, int64_t repeat) {
  double once = seconds_of(run, ops, queue, 1);
  if (once < kSampleSeconds) {
    for (int64_t i = 0; i < std::max<int64_t>(warmup, 1); ++i) once = seconds_of(run, ops, queue, 2);
  }
  const int64_t calls = std::max<int64_t>(1, int64_t(kSampleSeconds / once));
  std::vector<double> times;
  for (int64_t i = 0; i < repeat; ++i) times.push_back(seconds_of(run, ops, queue, calls));
  std::sort(times.begin(), times.end());
  return times;
}

KernelBenchRow row_of(const KernelCase& c, int64_t rows, const KernelWork& work, const MachinePeaks& peaks,
                      const std::vector<double>& times) {
  const double seconds = times[times.size() / 2];
  const KernelBound bound = bound_of(work, peaks);
  KernelBenchRow row;
  row.op = c.op;
  row.weights = c.weights;
  row.shape = c.shape;
  row.model = c.model;
  row.place = c.place;
  row.rows = rows;
  row.threads = peaks.threads;
  row.us = 1e6 * seconds;
  row.gbps = 1e-9 * double(work.memory_bytes + work.cache_bytes) / seconds;
  row.gflops = 1e-9 * work.operations / seconds;
  row.bound = name_of(bound.by);
  row.share = bound.seconds / seconds;
  row.arithmetic = name_of(work.arithmetic);
  row.repeat = int64_t(times.size());
  row.spread = (times.back() - times.front()) / seconds;
  return row;
}

}  // namespace

std::vector<Option> kernel_bench_options(KernelBenchSettings& settings) {
  const std::string what = "What to measure";
  return {{.name = "kernel",
           .value = "OPERATION",
           .help = "kernels: one operation of the backend; may be given again",
           .fallback = "all",
           .group = what,
           .target = &settings.kernels,
           .choices = operation_names()},
          {.name = "filter",
           .value = "TEXT",
           .help = "kernels: cases whose line of the table has it, like \"mxfp4\" or \"flash\"",
           .fallback = "all",
           .group = what,
           .target = &settings.filter},
          {.name = "rows",
           .value = "N,N,...",
           .help = "kernels: rows of a call",
           .fallback = "1,2,4,8,16,64,512,2048",
           .group = what,
           .target = &settings.rows,
           .least = 1,
           .most = 65536}};
}

Result<void> refuse_kernel_options(const KernelBenchSettings& s) {
  for (const auto& [given, name] : {std::pair(!s.kernels.empty(), "--kernel"), std::pair(!s.filter.empty(), "--filter"),
                                    std::pair(!s.rows.empty(), "--rows")}) {
    if (given) return Error{ErrorCode::usage, "only kernels know it", name, "use it with fathom bench kernels"};
  }
  return {};
}

Result<int> run_bench_kernels(const KernelBenchSettings& s, const Common& common) {
  const auto backend = open_backend(common.backend);
  if (!backend) return backend.error();
  if (!backend->memory.host_visible) {
    return Error{ErrorCode::unsupported, "the kernels of " + backend->name + " cannot be timed yet", "--backend",
                 "use --backend cpu; fathom bench decode --per-operation times those of a step"};
  }
  std::vector<KernelCase> cases;
  for (KernelCase& c : kernel_cases(kColdCaches * level3_bytes(), kWarmBytes)) {
    if (wanted(c, s) && !rows_of_case(c, s).empty()) cases.push_back(std::move(c));
  }
  if (cases.empty()) {
    return Error{ErrorCode::usage, "no case has this", "--filter", "leave it out to see all of them in the table"};
  }
  const InterruptScope scope;
  std::vector<int> threads{common.threads ? int(*common.threads) : 1};
  if (!common.threads && usable_cpus() > 1) threads.push_back(usable_cpus());
  std::vector<std::unique_ptr<Queue>> queues;
  std::vector<MachinePeaks> peaks;
  std::vector<KernelBenchRow> rows;
  const Machine machine = read_machine();
  const std::string command = command_of(s, common);
  Progress progress("measuring", "cases", [&] {
    int64_t all = 0;
    for (const KernelCase& c : cases) all += int64_t(rows_of_case(c, s).size() * threads.size());
    return all;
  }());
  int64_t done = 0;
  const auto add = [&](KernelBenchRow row) -> Result<void> {
    row.backend = backend->name;
    row.machine = machine.processor.empty() ? "unknown processor" : machine.processor;
    row.commit = commit();
    row.command = command;
    rows.push_back(std::move(row));
    if (!common.json) return {};
    progress.finish();
    return print(to_string(to_json(rows.back())) + "\n");
  };
  progress.update(0, "the machine's peaks");
  for (const int count : threads) {
    auto queue = backend->open_queue(count);
    if (!queue) return queue.error();
    auto measured = measure_peaks((*queue)->pool);
    if (!measured) return measured.error();
    for (KernelBenchRow& row : rows_of(*measured)) {
      if (auto added = add(std::move(row)); !added) return added.error();
    }
    peaks.push_back(std::move(*measured));
    queues.push_back(std::move(*queue));
  }
  const size_t first = rows.size();
  for (const KernelCase& c : cases) {
    const auto make = c.open();
    if (!make) return make.error();
    for (const int64_t count : rows_of_case(c, s)) {
      const auto run = (*make)(count);
      if (!run) return run.error();
      for (size_t t = 0; t < queues.size(); ++t) {
        if (interrupted()) return interrupted_error("fathom bench kernels", "run it again");
        progress.update(done++, c.op + " " + c.weights + " " + c.shape + ", rows " + std::to_string(count));
        const auto times = measure(*run, backend->ops, *queues[t], s.warmup, s.repeat);
        if (auto added = add(row_of(c, count, run->work, peaks[t], times)); !added) return added.error();
      }
    }
  }
  progress.finish();
  if (!common.json) {
    const std::string head = backend->name + " (" + backend->detail + "), " + rows[0].machine + ", median of " +
                             std::to_string(s.repeat) + "\n";
    const std::string text = head + to_peak_table(peaks) + "bf16 by " + peaks[0].bf16_by + "; int8 by " +
                             peaks[0].int8_by + "; f32 by " + peaks[0].f32_by + "\n\n" +
                             to_table(std::span<const KernelBenchRow>(rows).subspan(first));
    if (auto printed = print(text); !printed) return printed.error();
  }
  if (!s.out.empty()) {
    if (auto written = write_file(s.out, to_csv(rows)); !written) return written.error();
  }
  return kDone;
}

}  // namespace fathom::cli
