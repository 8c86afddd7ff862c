// fathom/engine/simulator.h
// A trace through the real scheduler, in simulated time: who is admitted, what is found in the prefix index, who is
// preempted, which rows share a step, how many drafts are verified are all decided by the code that serves; only the
// model is missing. A step takes the time that simulated_machine.h says, drafts are accepted as simulated_drafts.h
// says, and an answer's tokens are those of the trace, so that a later turn of a session finds them. Policies are
// compared here before there is hardware. A simulated hour of a busy machine takes about a minute.
//
// Time. Synchronous: host plans, device runs, host takes the results. One step ahead (engine.md 4): the host plans step
// n + 1 while n runs, without its results; a step begins when the one before ends and its plan is there; what arrives
// while a plan is made waits for the next one.
//
// Left out: window snapshots (a hit replays at most 139 rows instead), cache tiers below the device, constraints,
// images, ranks with schedulers of their own. Source: issue 5 item 8, spec/engine.md 18.1.
#pragma once
#include <functional>
#include <span>
#include <vector>

#include "fathom/engine/load_report.h"
#include "fathom/engine/scheduler.h"
#include "fathom/engine/simulated_drafts.h"
#include "fathom/engine/simulated_machine.h"
#include "fathom/engine/trace.h"

namespace fathom {

struct SimulationOptions {
  MachineCost machine;
  /// context, step_rows, overcommit, queue, shape as in the engine. sequences and blocks: 0 takes the machine's; blocks
  /// that no request of the trace can use are left out.
  SchedulerLimits limits;
  ReplayMode replay = ReplayMode::compact;
  bool prefix_cache = true;
  SpeculationPolicy policy = SpeculationPolicy::guarded;
  int drafts = 5;
  AcceptanceLaw acceptance;
  bool ahead = true;         // one step ahead; false: synchronous
  double jitter = 0;         // standard deviation of the logarithm of a step's time
  double preempt_share = 0;  // of steps before which somebody is preempted, for tests
  int64_t verify_every = 0;  // steps between two looks at every invariant; 0: only at the end
  uint64_t seed = 1;         // of jitter and preemptions
  bool keep_answers = false;
  /// Called now and then with the answers that have ended; false: stop.
  std::function<bool(int64_t ended)> keep_going;
};

struct SimulationReport {
  std::string policy;
  LoadReport load;
  int64_t steps = 0, decode_steps = 0, mixed_steps = 0, prompt_steps = 0;  // mixed: decode and prompt rows
  int64_t decode_rows = 0, padding_rows = 0, prompt_rows = 0;
  int64_t wasted_rows = 0;  // of answers that had ended, or were preempted, before the step ran
  int64_t replayed_rows = 0, passed_over = 0, preempted = 0;
  int64_t rounds = 0;                                     // that verified at least one draft
  std::array<int64_t, kMaxDrafts> offered{}, accepted{};  // by position
  double busy_seconds = 0;                                // of the device
  double longest_step_seconds = 0;
  double mean_sequences = 0;  // that decode, over steps with decode rows
  int most_waiting = 0, most_running = 0;
  int32_t blocks = 0;
  std::vector<AnswerRecord> answers;  // keep_answers

  /// Tokens that a round brings: accepted drafts and one more.
  double tokens_per_round() const;
  double verified_per_round() const;
};

/// Errors: usage for options that make no sense; interrupted when keep_going says so; failed when an invariant of the
/// scheduler breaks, a budget is exceeded or a block is lost, which is our bug: the message names it.
Result<SimulationReport> simulate(std::span<const TraceRequest> trace, const SimulationOptions& options);

}  // namespace fathom
