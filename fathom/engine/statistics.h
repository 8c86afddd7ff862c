// fathom/engine/statistics.h
// What the engine tells of itself: counters, gauges and histograms in a Metrics registry, a line every so many steps, a
// line for each finished request, and one for each change of a request's state (at debug level). Fed by the loop with
// plain calls; holds no clock, reads no scheduler, runs no thread. Times are seconds of the clock that plan() is told.
//
// No call allocates or locks as long as nothing is logged: recording is atomic additions to series that the constructor
// registered, and windows are differences of running totals in a ring of fixed size. A statistics or request line is
// formatted when its level is on, once in `line_every` steps and once a request.
//
// Rates are of the last `window_steps` steps: newest totals less oldest ones, over the time since the oldest. While
// nothing runs that time goes on, so rates fall towards zero instead of freezing.
//
// What of the table in section 14 is not here, because it belongs to several processes or to a device: docs/metrics.md.
// Source: spec/engine.md 14, 7.6, R-1, R-2, R-40.
#pragma once
#include <array>
#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "fathom/base/log.h"
#include "fathom/base/metrics.h"
#include "fathom/cache/snapshot_store.h"
#include "fathom/engine/request.h"
#include "fathom/engine/step_summary.h"
#include "fathom/grammar/compile/compile_pool.h"

namespace fathom {

struct StatisticsSeries;  // statistics_series.h

/// `submitted` lasts as long as submit(): nobody can see it from outside.
enum class RequestState : uint8_t { submitted, loading, waiting, running, finished };
inline constexpr size_t kRequestStates = 5;
const char* name_of(RequestState state);

/// What statistics remember of one request; it lies in the loop's record of the request.
struct RequestProgress {
  RequestId id = 0;
  RequestState state = RequestState::submitted;
  bool started = false;
  double arrived = 0;
  double last_tokens = -1;  // when it last brought some; -1: not yet
};

struct StatisticsOptions {
  int window_steps = 100;  // that rates are of
  int line_every = 100;    // steps; 0: no statistics line
};

/// Rates and means over the window, and how things stand. A value.
struct WindowReport {
  uint64_t step = 0;
  int64_t steps = 0;   // in the window
  double seconds = 0;  // since its oldest step
  double steps_per_second = 0, tokens_per_second = 0, prompt_rows_per_second = 0;
  double step_seconds = 0, plan_seconds = 0, forward_seconds = 0, sample_seconds = 0;  // means
  double prompt_time_ratio = 0;  // of step time, of steps with prompt rows
  double cached_ratio = 0;       // of prompt tokens, found / (found + computed)
  int64_t rounds = 0;            // that verified drafts
  double acceptance_ratio = 0;   // of all drafts verified
  double accepted_mean = 0;      // drafts a round
  double verified_mean = 0;
  std::array<double, kMaxDrafts> acceptance{};  // by position
  double confidence_error = 0;                  // mean
  int64_t first_tokens = 0, finished = 0, preempted = 0, cancelled = 0;
  double first_token_mean_seconds = 0, first_token_max_seconds = 0;
  double prompt_tokens_mean = 0, generated_tokens_mean = 0;  // of finished requests
  std::array<int64_t, kRequestStates> requests{};            // now, by state
  double used_blocks_ratio = 0, idle_blocks_ratio = 0, used_slots_ratio = 0;
};

/// `step=8100 steps_per_s=41.2 tokens_per_s=1890 …`: one line for people. Pure.
std::string statistics_line(const WindowReport& report);
Json json_of(const WindowReport& report);

/// `request=12 reason=stop queue_ms=1.2 prompt_tokens=3000 cached_tokens=2816 …`: where a request's time and rows went.
/// Never its text. Pure.
std::string request_line(RequestId id, const Finish& finish);
Json json_of(RequestId id, const Finish& finish);

/// One thread at a time, but for stalled() and what reads the registry: any thread.
class EngineStatistics {
 public:
  /// `log`: null for none. Both outlive it.
  EngineStatistics(Metrics& metrics, Log* log, StatisticsOptions options = {});
  ~EngineStatistics();

  // A request's life, in the order of R-1. Those of a commit come before its step().
  void arrive(RequestProgress& request, RequestId id, double now, bool loading);
  /// What it waited for is there: loading -> waiting.
  void ready(RequestProgress& request, double now);
  /// Its first row, or the first after a preemption, is in a plan. Queue time is until the first time. One that ran and
  /// begins again was put back between two steps: that is counted as well.
  void start(RequestProgress& request, double now);
  /// It was put back: running -> waiting.
  void preempt(RequestProgress& request, double now);
  /// One commit brought it `tokens` tokens, at least 1.
  void bring(RequestProgress& request, double now, int tokens);
  void finish(RequestProgress& request, double now, const Finish& finish);
  /// submit() refused it: it never had an id.
  void reject(const Error& error);

  /// After each commit that belongs to a step. True every `line_every` steps: then cache(), draft_rates() and
  /// grammars() are due.
  bool step(const StepSummary& summary);
  /// Counts of the caches since the start.
  void cache(const PrefixStatistics& prefixes, const SnapshotStatistics& snapshots, int64_t snapshot_bytes);
  void draft_rates(const DraftGuard::Report& report);
  void grammars(const grammar::CompilePool::Counters& counters);
  /// Nothing ran: brings the rates up to date. Call it when idle begins and then now and then, if at all.
  void idle(double now);

  WindowReport report(double now) const;
  /// Why orchestrators should restart the process, nothing when they should not: requests wait or run, and for
  /// `limit_seconds` no step has ended. "no step for 31 s with 2 running and 0 waiting requests" (case obs-01).
  std::optional<std::string> stalled(double now, double limit_seconds = 30) const;

 private:
  /// Since the start; a window is the difference of two.
  struct Totals {
    double time = 0;
    int64_t steps = 0, prompt_rows = 0, replayed_rows = 0, tokens = 0, hit_tokens = 0, confidences = 0;
    std::array<int64_t, kMaxDrafts> offered{}, accepted{};
    double step_seconds = 0, prompt_step_seconds = 0, plan_seconds = 0, forward_seconds = 0, sample_seconds = 0;
    double confidence_error = 0, first_token_seconds = 0;
    int64_t first_tokens = 0, finished = 0, preempted = 0, cancelled = 0, prompt_tokens = 0, generated_tokens = 0;
    double first_token_max = 0;  // of the step that ends here alone
  };
  void change(RequestProgress& request, RequestState to, double now);
  void show(const WindowReport& report);
  void count_step(const StepSummary& summary);
  const Totals& oldest() const;

  StatisticsOptions options_;
  Log* log_;
  std::unique_ptr<StatisticsSeries> series_;
  Totals totals_;
  StepSummary last_;
  std::vector<Totals> window_;  // a ring of window_steps + 1
  int64_t window_count_ = 0;    // put into it since the start
  PrefixStatistics prefixes_;
  SnapshotStatistics snapshots_;
  grammar::CompilePool::Counters grammars_;
  std::array<std::atomic<int64_t>, kRequestStates> requests_{};
  std::atomic<double> progressed_{0};  // when a step last ended, or somebody came and nobody was there
};

}  // namespace fathom
