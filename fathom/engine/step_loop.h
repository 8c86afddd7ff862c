// fathom/engine/step_loop.h
// The synchronous loop: requests go in, each step plans, runs, commits, proposes drafts and makes events. Knows no
// backend and no checkpoint; Engine gives it a model, tests give it a made-up one. Source: spec/engine.md 1.
#pragma once
#include <chrono>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "fathom/engine/answer_guide.h"
#include "fathom/engine/request.h"
#include "fathom/engine/runner.h"
#include "fathom/engine/scheduler.h"
#include "fathom/grammar/compile/compile_pool.h"

namespace fathom {

struct LoopOptions {
  SchedulerLimits limits;
  ReplayMode replay = ReplayMode::compact;
  int drafts = 0;  // of requests that do not say
  int32_t eos_id = 0;
  Verification verification = Verification::rejection;  // of requests that do not say
  std::vector<int32_t> token_blacklist = {};            // tokens that no request may draw
  bool prefix_cache = true;
  PrefixRoot prefix{};  // what all prefixes depend on; replay class and salt are the request's
  std::optional<grammar::Vocabulary> vocabulary = {};  // of constraints; none: constrained requests are refused
  grammar::CompilePoolOptions grammar = {};
};

/// One thread at a time.
class StepLoop {
 public:
  StepLoop(LoopOptions options, ModelPort port, const Operations& ops, Queue& queue);

  /// Errors: those of check_request; usage for a constraint that cannot be enforced, by keyword and path. Then nothing
  /// is queued. A constraint is compiled on other threads, and its request waits meanwhile.
  Result<RequestId> submit(Request request);
  /// Frees what the request holds at once; its Finish comes with the next step. Unknown ids are ignored.
  void cancel(RequestId id);
  /// Valid until the next call. Waits up to a millisecond when there is nothing to do but wait for constraints.
  std::span<const Event> step();
  /// Nothing runs, waits or is left to be told.
  bool idle() const { return scheduler_.idle() && cancelled_.empty(); }

  const Scheduler& scheduler() const { return scheduler_; }
  Scheduler& scheduler() { return scheduler_; }
  /// Of all tenants.
  PrefixStatistics prefix_statistics() const { return scheduler_.pools().prefixes.total(); }

 private:
  using Clock = std::chrono::steady_clock;
  /// What is remembered of a request besides its sequence.
  struct Record {
    Clock::time_point submitted;
    bool started = false;
    Usage usage;
    int top_logprobs = -1;
    bool prompt_logprobs = false;
    std::vector<TokenLogprob> prompt;     // until the first token
    std::vector<TokenLogprob> answer;     // of the tokens that the last step chose
    grammar::CompilePool::Ticket ticket;  // of its constraint
    std::unique_ptr<AnswerGuide> guide;   // once that is compiled
  };
  void note_start(const StepPlan& plan, Clock::time_point now);
  void note_rows(const StepPlan::Rows& rows, const Sequence& sequence, size_t tokens, Usage& usage) const;
  void read_prompt_logprobs(size_t entry, const StepPlan::Rows& rows, const Sequence& sequence, Record& record) const;
  void read_logprobs(size_t entry, const StepPlan::Rows& rows, const Sequence& sequence,
                     std::span<const int32_t> tokens, Record& record);
  Event event_of(const StepPlan::Rows& rows, std::span<const int32_t> tokens, Record& record) const;
  void finish(Event& event, FinishReason reason, Clock::time_point now, std::optional<Error> error = {});
  Result<void> check_constraint(const grammar::Constraint& constraint) const;
  void poll_constraints();
  Result<void> begin_constrained(Sequence& sequence, Record& record, const grammar::CompiledGrammar& grammar);
  Result<void> advance(Sequence& sequence, std::span<const int32_t> kept);
  double now() const { return std::chrono::duration<double>(Clock::now() - opened_).count(); }
  uint32_t tenant_of(const std::string& name);
  int32_t open_root(const Request& request, ReplayMode mode, uint32_t tenant);
  void measure(const StepPlan& plan, double seconds);

  Clock::time_point opened_ = Clock::now();
  LoopOptions options_;
  Scheduler scheduler_;
  PieceCost cost_;
  std::unordered_map<std::string, uint32_t> tenants_;
  Runner runner_;
  std::unique_ptr<grammar::CompilePool> compile_pool_;  // once somebody asks for it
  std::vector<RequestId> compiling_;
  std::random_device entropy_;
  RequestId next_id_ = 1;
  std::unordered_map<RequestId, Record> records_;
  std::vector<RequestId> cancelled_;  // their events are still to come
  std::vector<Event> events_;
  std::vector<Sequence*> entries_, drafting_;
};

}  // namespace fathom
