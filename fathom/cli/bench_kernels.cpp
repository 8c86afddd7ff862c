#include "fathom/cli/bench_kernels.h"

#include <algorithm>
#include <chrono>
#include <memory>
#include <optional>
#include <span>
#include <thread>

#include "fathom/backend/kernel_cases.h"
#include "fathom/base/mapped_file.h"
#include "fathom/cli/bench_kernels_report.h"
#include "fathom/cli/interrupt.h"
#include "fathom/cli/kernel_peer.h"
#include "fathom/cli/kernel_timer.h"
#include "fathom/cli/machine.h"
#include "fathom/cli/median.h"
#include "fathom/cli/program.h"
#include "fathom/cli/terminal.h"
#include "fathom/cli/version.h"

namespace fathom::cli {
namespace {

constexpr double kPeerSeconds = 0.01;  // of a sample
constexpr int64_t kRows[] = {1, 2, 4, 8, 16, 64, 512, 2048};
constexpr int64_t kColdCaches = 4;  // times the largest cache
constexpr double kDisturbed = 1.05;
// Of calls that are compared with their definition, which does some hundred million a second and reads every byte.
constexpr double kMostCompared = 2e8;
constexpr auto kPeerSleeps = std::chrono::milliseconds(30);
constexpr int64_t kWarmBytes = int64_t(6) << 20;  // what the miniature's layers take

int64_t largest_cache(const Instruments& instruments) {
  return instruments.cache_bytes ? instruments.cache_bytes() : level3_bytes();
}

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
  if (s.pages != "small") text += " --pages " + s.pages;
  if (!s.peers.empty()) text += " --peers \"" + s.peers + "\"";
  if (s.batch_invariant) text += " --batch-invariant";
  text += " --repeat " + std::to_string(s.repeat);
  if (!common.backend.empty()) text += " --backend " + common.backend;
  if (common.threads) text += " --threads " + std::to_string(*common.threads);
  return text;
}

/// Samples of a call: each the mean of as many calls as fit. The peer's in between, in the same order as its names.
struct Samples {
  std::vector<double> seconds;
  std::vector<std::vector<double>> peer_us;
};

Result<Samples> measure(const KernelRun& run, KernelTimer& timer, const KernelBenchSettings& s, KernelPeer* peer,
                        const PeerWork& work) {
  timer.prepare(run, s.warmup);
  Samples samples;
  samples.peer_us.resize(peer != nullptr ? peer->names().size() : 0);
  for (int64_t i = 0; i < s.repeat; ++i) {
    const bool follows = peer != nullptr && i > 0;
    if (follows) std::this_thread::sleep_for(kPeerSleeps);  // its threads look for work for a while before they sleep
    samples.seconds.push_back(timer.sample(follows));
    if (peer == nullptr) continue;
    const auto us = peer->sample(work, kPeerSeconds);
    if (!us) return us.error();
    for (size_t n = 0; n < us->size(); ++n) samples.peer_us[n].push_back((*us)[n]);
  }
  return samples;
}

KernelBenchRow row_of(const KernelCase& c, int64_t rows, const KernelWork& work, const MachinePeaks& peaks,
                      const Samples& samples) {
  const double seconds = median(samples.seconds);
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
  if (work.memory_bytes > 0) row.pages = work.large_pages ? "large" : "small";
  row.repeat = int64_t(samples.seconds.size());
  const auto [fastest, slowest] = std::minmax_element(samples.seconds.begin(), samples.seconds.end());
  row.spread = (*slowest - *fastest) / seconds;
  return row;
}

}  // namespace

std::vector<Option> kernel_bench_options(KernelBenchSettings& settings) {
  const std::string what = "What to measure";
  return {
      {.name = "kernel",
       .value = "OPERATION",
       .help = "kernels: one operation of the backend, as in fathom bench kernels --kernel linear --rows 1,512; may be "
               "given again",
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
       .most = 65536},
      {.name = "pages",
       .value = "SIZE",
       .help = "kernels: in which pages weights lie: small, as a file is mapped (4 KiB), or large (2 MiB)",
       .fallback = "small",
       .group = what,
       .target = &settings.pages,
       .choices = {"small", "large"}},
      {.name = "peers",
       .value = "COMMAND",
       .help = "kernels: a program that times the same products in turns, like \"python3 "
               "bench/peers/kernels/torch_side.py\"; bench/peers/kernels/run installs what that needs",
       .fallback = "none",
       .group = what,
       .target = &settings.peers}};
}

Result<void> refuse_kernel_options(const KernelBenchSettings& s) {
  for (const auto& [given, name] : {std::pair(!s.kernels.empty(), "--kernel"), std::pair(!s.filter.empty(), "--filter"),
                                    std::pair(!s.rows.empty(), "--rows"), std::pair(s.pages != "small", "--pages"),
                                    std::pair(!s.peers.empty(), "--peers")}) {
    if (given) return Error{ErrorCode::usage, "only kernels know it", name, "use it with fathom bench kernels"};
  }
  return {};
}

namespace {

/// What a run has beside its cases: threads with their queues and peaks, and the rows so far.
class KernelBench {
 public:
  KernelBench(const KernelBenchSettings& settings, const Common& common, const Backend& backend, int64_t cases)
      : s_(settings), common_(common), backend_(backend), progress_("measuring", "cases", cases) {
    machine_ = machine_name(backend_.name);
    command_ = command_of(settings, common);
  }

  Result<void> start(const std::vector<int>& threads) {
    if (!s_.peers.empty()) {
      auto peer = KernelPeer::start(s_.peers);
      if (!peer) return peer.error();
      peer_.emplace(std::move(*peer));
    }
    progress_.update(0, "the machine's peaks");
    for (const int count : threads) {
      auto queue = backend_.open_queue(count);
      if (!queue) return queue.error();
      (*queue)->batch_invariant = s_.batch_invariant;
      auto measured = instruments_.peaks(**queue);
      if (!measured) return measured.error();
      peaks_.push_back(std::move(*measured));
      timers_.push_back(std::make_unique<KernelTimer>(backend_, **queue));
      queues_.push_back(std::move(*queue));
      for (KernelBenchRow& row : rows_of(peaks_.back())) {
        if (auto added = add(std::move(row)); !added) return added.error();
      }
    }
    peak_rows_ = rows_.size();
    return {};
  }

  Result<void> run(const KernelCase& c) {
    const auto make = c.open();
    if (!make) return make.error();
    for (const int64_t count : rows_of_case(c, s_)) {
      const auto ready = (*make)(count);
      if (!ready) return ready.error();
      std::optional<double> error;
      if (ready->work.operations + double(ready->work.memory_bytes + ready->work.cache_bytes) <= kMostCompared) {
        error = ready->error(backend_.ops, *queues_.back());
      }
      for (size_t t = 0; t < queues_.size(); ++t) {
        if (interrupted()) return interrupted_error("fathom bench kernels", "run it again");
        progress_.update(done_++, c.op + " " + c.weights + " " + c.shape + ", rows " + std::to_string(count));
        const bool both = peer_ && !c.sizes.empty();
        const auto samples =
            measure(*ready, *timers_[t], s_, both ? &*peer_ : nullptr, {c, count, copies_of(c), peaks_[t].threads});
        if (!samples) return samples.error();
        KernelBenchRow row = row_of(c, count, ready->work, peaks_[t], *samples);
        row.error = error;
        for (size_t n = 0; n < samples->peer_us.size(); ++n) row.peers.push_back({"", median(samples->peer_us[n])});
        if (auto added = add(std::move(row)); !added) return added.error();
      }
    }
    return {};
  }

  /// The peaks once more: where they were disturbed at the start, all shares are too high.
  Result<void> check_peaks() {
    for (size_t t = 0; t < queues_.size(); ++t) {
      progress_.update(done_, "the machine's peaks again");
      const auto again = instruments_.peaks(*queues_[t]);
      if (!again) return again.error();
      const MachinePeaks& first = peaks_[t];
      const double most = std::max({again->memory / first.memory, again->memory_large_pages / first.memory_large_pages,
                                    again->l3 / first.l3, again->l2 / first.l2, again->bf16 / first.bf16,
                                    again->int8 / first.int8, again->f32 / first.f32});
      if (most < kDisturbed) continue;
      progress_.finish();
      print_note("fathom: with " + std::to_string(first.threads) + (first.threads == 1 ? " thread" : " threads") +
                 " this machine can do " + fixed(100 * (most - 1), 0) +
                 " % more than was measured at the start: the shares are too high; run it again on a quiet machine\n");
    }
    progress_.finish();
    return {};
  }

  Result<int> finish() {
    if (!common_.json) {
      const std::string head =
          backend_.name + " (" + backend_.detail + "), " + machine_ + ", median of " + std::to_string(s_.repeat) + "\n";
      const std::string text = head + to_peak_table(peaks_) + "bf16 by " + peaks_[0].bf16_by + "; int8 by " +
                               peaks_[0].int8_by + "; f32 by " + peaks_[0].f32_by +
                               (peer_ ? "\nbeside bf16 products of " + peer_->version() : "") + "\n\n" +
                               to_table(std::span<const KernelBenchRow>(rows_).subspan(peak_rows_));
      if (auto printed = print(text); !printed) return printed.error();
    }
    if (!s_.out.empty()) {
      if (auto written = write_file(s_.out, to_csv(rows_)); !written) return written.error();
    }
    return kDone;
  }

 private:
  /// Copies of a product's weight in bf16 that no cache holds together.
  int64_t copies_of(const KernelCase& c) const {
    const int64_t bytes = 2 * c.size("n") * c.size("k");
    if (c.model != "flash" || bytes == 0 || c.size("experts") > 0) return 1;
    return kColdCaches * largest_cache(instruments_) / bytes + 1;
  }

  Result<void> add(KernelBenchRow row) {
    row.backend = backend_.name;
    row.machine = machine_;
    row.commit = commit();
    row.command = command_;
    if (peer_) {
      row.peers.resize(peer_->names().size());
      for (size_t n = 0; n < row.peers.size(); ++n) row.peers[n].name = peer_->names()[n];
      row.peer_version = peer_->version();
    }
    rows_.push_back(std::move(row));
    if (!common_.json) return {};
    progress_.finish();
    return print(to_string(to_json(rows_.back())) + "\n");
  }

  const KernelBenchSettings& s_;
  const Common& common_;
  const Backend& backend_;
  Instruments instruments_ = instruments_of(backend_);
  Progress progress_;
  std::string machine_, command_;
  std::optional<KernelPeer> peer_;
  std::vector<std::unique_ptr<Queue>> queues_;
  std::vector<std::unique_ptr<KernelTimer>> timers_;  // one a queue, and ends before it
  std::vector<MachinePeaks> peaks_;                   // one a queue
  std::vector<KernelBenchRow> rows_;
  size_t peak_rows_ = 0;
  int64_t done_ = 0;
};

}  // namespace

Result<int> run_bench_kernels(const KernelBenchSettings& s, const Common& common) {
  const auto backend = open_backend(common.backend);
  if (!backend) return backend.error();
  const bool device = !backend->memory.host_visible;
  std::vector<int> threads{common.threads ? int(*common.threads) : 1};
  if (!common.threads && usable_cpus() > 1 && !device) threads.push_back(usable_cpus());
  const Instruments instruments = instruments_of(*backend);
  std::vector<KernelCase> cases;
  int64_t count = 0;
  for (KernelCase& c : kernel_cases(kColdCaches * largest_cache(instruments), kWarmBytes, s.pages == "large",
                                    instruments.allocate_migrating)) {
    const size_t rows = rows_of_case(c, s).size();
    if (!wanted(c, s) || rows == 0) continue;
    count += int64_t(rows * threads.size());
    cases.push_back(std::move(c));
  }
  if (cases.empty()) {
    return Error{ErrorCode::usage, "no case is left", "--kernel, --filter, --rows",
                 "leave them out to see all in the table"};
  }
  const InterruptScope scope;
  KernelBench bench(s, common, *backend, count);
  if (auto started = bench.start(threads); !started) return started.error();
  for (const KernelCase& c : cases) {
    if (auto measured = bench.run(c); !measured) return measured.error();
  }
  if (auto checked = bench.check_peaks(); !checked) return checked.error();
  return bench.finish();
}

}  // namespace fathom::cli
