// fathom/engine/step_loop.h
// The host's loop: requests go in, each step plans, hands the plan to the executor, commits what came back and makes
// events. Synchronous: one step at a time. Asynchronous: the next step is planned and submitted before the results of
// the running one are known (spec/engine.md 4); the streams are the same, token by token, as long as the number of
// verified drafts does not depend on measured times. Knows no backend and no checkpoint; Engine gives it a
// model, tests give it a made-up one. Source: spec/engine.md 1, 4.
#pragma once
#include <chrono>
#include <deque>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "fathom/engine/draft_schedule.h"
#include "fathom/engine/executor.h"
#include "fathom/engine/loop_times.h"
#include "fathom/engine/request.h"
#include "fathom/engine/schedule_recorder.h"
#include "fathom/engine/state_dump.h"
#include "fathom/engine/statistics.h"
#include "fathom/engine/step_log.h"
#include "fathom/grammar/compile/compile_pool.h"

namespace fathom {

struct LoopOptions {
  SchedulerLimits limits;
  ReplayMode replay = ReplayMode::compact;
  int drafts = 0;  // of requests that do not say
  int32_t eos_id = 0;
  Verification verification = Verification::rejection;  // of requests that do not say
  bool batch_invariant = true;                          // the queue's rows are: else transparent requests are refused
  std::vector<int32_t> token_blacklist = {};            // tokens that no request may draw
  bool prefix_cache = true;
  PrefixRoot prefix{};  // what all prefixes depend on; replay class and salt are the request's
  std::optional<grammar::Vocabulary> vocabulary = {};  // of constraints; none: constrained requests are refused
  grammar::CompilePoolOptions grammar = {};
  bool asynchronous = false;
  /// What steps cost: then the number of verified drafts follows confidence and load. None: all drafts are verified.
  std::optional<CostCurve> curve = {};
  /// Steps have as many rows as one of the curve's sizes, or all drafts: a device records steps by their number of
  /// rows.
  bool sizes_of_curve = false;
  // What is told of requests and steps; null for nothing. They outlive the loop.
  EngineStatistics* statistics = nullptr;
  StepLog* step_log = nullptr;
};

/// One thread at a time.
class StepLoop {
 public:
  StepLoop(LoopOptions options, ModelPort port, const Operations& ops, Queue& queue);

  /// The id of the first answer; those of a request that wants several are consecutive. Errors: those of check_request;
  /// usage for a constraint that cannot be enforced, by keyword and path. Then nothing is queued. A constraint is
  /// compiled on other threads, and its request waits meanwhile.
  Result<RequestId> submit(Request request);
  /// Frees what the answer holds at once, or after the step that is running it; its Finish comes with the next step.
  /// Unknown ids are ignored.
  void cancel(RequestId id);
  /// Valid until the next call. Waits up to a millisecond when there is nothing to do but wait for constraints.
  std::span<Event> step();
  /// Nothing runs, waits or is left to be told.
  bool idle() const { return scheduler_.idle() && cancelled_.empty() && executor_.in_flight() == 0; }

  /// Writes every decision of the scheduler into a file from which it can be replayed (docs/formats/step-record.md),
  /// from before the first request on. Errors: those of ScheduleRecorder.
  Result<void> record_to(const std::string& path) { return recorder_.start(path); }
  Result<void> stop_recording() { return recorder_.stop(); }
  /// Running and waiting sequences and what they hold, between two steps.
  Json state(const StateOptions& options = {}) const { return state_of(scheduler_, now(), options); }
  const Scheduler& scheduler() const { return scheduler_; }
  Scheduler& scheduler() { return scheduler_; }
  /// Of all tenants.
  PrefixStatistics prefix_statistics() const { return scheduler_.pools().prefixes.total(); }
  const LoopTimes& times() const { return times_; }
  /// Null when drafts are not scheduled.
  const DraftSchedule* draft_schedule() const { return schedule_ ? &*schedule_ : nullptr; }

 private:
  using Clock = std::chrono::steady_clock;
  /// What is remembered of an answer besides its sequence.
  struct Record {
    Clock::time_point submitted;
    bool started = false;
    Usage usage;
    std::unique_ptr<LiveSequence> live;
    int64_t begun = 0;       // its admission that the device knows
    uint64_t last_step = 0;  // the last one that it is in
    DraftHistory history;
    RequestProgress progress;
    int32_t account = 0, root_account = -1;  // of its tenant; of its prefix, -1: none
    std::vector<TokenLogprob> prompt;        // until the first token
    grammar::CompilePool::Ticket ticket;     // of its constraint
  };
  /// A live sequence whose answer has ended while a step with it was in flight.
  struct Retired {
    uint64_t last_step = 0;
    std::unique_ptr<LiveSequence> live;
  };

  // step_loop_submit.cpp
  Result<void> check_submitted(Request& request) const;
  Sequence sequence_of(const Request& request);
  std::unique_ptr<LiveSequence> live_of(const Request& request, const Sequence& sequence, uint64_t seed) const;
  Result<void> check_constraint(const grammar::Constraint& constraint) const;
  void compile(RequestId id, const grammar::Constraint& constraint);
  uint32_t open_tenant(const std::string& name);
  int32_t open_root(const Request& request, ReplayMode mode, uint32_t tenant);
  void poll_constraints();
  Result<void> begin_constrained(Record& record, RequestId id, const grammar::CompiledGrammar& grammar);

  // step_loop.cpp
  void tell_cancelled();
  bool start_step();
  void pack(StepWork& work);
  void decide_drafts(StepWork& work);
  void finish_step(StepWork& work);
  // step_loop_tell.cpp
  static void note_rows(StepWork& work, size_t entry, Record& record);
  void tell(StepWork& work, size_t entry, const Outcome& outcome, Clock::time_point now);
  void finish(Event& event, FinishReason reason, Clock::time_point now, std::optional<Error> error = {});
  void summarize(const StepWork& work, std::span<const Outcome> outcomes, double step_seconds, double plan_seconds);
  void measure(const StepWork& work, int64_t tokens, double seconds);
  double now() const { return std::chrono::duration<double>(Clock::now() - opened_).count(); }

  Clock::time_point opened_ = Clock::now();
  LoopOptions options_;
  Scheduler scheduler_;
  ScheduleRecorder recorder_{scheduler_};
  PieceCost cost_;
  LoopTimes times_;
  std::optional<DraftSchedule> schedule_;
  std::vector<DraftCandidate> candidates_;
  std::unique_ptr<grammar::CompilePool> compile_pool_;  // once somebody asks for it
  std::vector<RequestId> compiling_;
  std::random_device entropy_;
  RequestId next_id_ = 1;
  std::unordered_map<RequestId, Record> records_;
  std::vector<Retired> retired_;
  std::vector<RequestId> cancelled_;  // their events are still to come
  std::vector<Event> events_;
  std::array<StepWork, Executor::kMostInFlight> works_;
  uint64_t started_steps_ = 0, finished_steps_ = 0;
  Clock::time_point submitted_at_[Executor::kMostInFlight], finished_at_;
  double plan_seconds_[Executor::kMostInFlight] = {};
  Executor executor_;  // last: it ends before what it works on
};

}  // namespace fathom
