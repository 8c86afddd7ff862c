// fathom/engine/scheduler.h
// Which request runs now. Holds the sequences, the bookkeeping of blocks, slots and findable prefixes, and the two
// decisions of a step: what it computes (plan) and what its results mean (commit). Holds no device pointer and no bytes
// of a cache, knows no clock and draws no random number, so that it is tested with random traces and made-up results,
// and a record of its calls gives the same plans again.
//
// A step takes the newest token of every decoding sequence with its drafts, then prompt pieces: of those that have
// begun, in order of admission, then of newly admitted ones in the order of WaitingQueue, until the row budget is used.
// While anybody decodes, the budget is what the tightest between-token target leaves (decode protection, R-8).
//
// Room. A sequence takes blocks as it grows. It is admitted when what all admitted ones may need together stays within
// capacity x (1 + overcommit) and its first piece has blocks; those in front that do not fit are passed over, up
// to a limit. When the pool runs dry, somebody is preempted: the lowest class, then whoever has the fewest rows
// to compute again, since its full blocks stay findable. Each preemption of a sequence halves the overcommitment
// it is admitted under, so it ends; without overcommitment there is none. What was preempted runs again with the same
// visibility as before, so its text does not change where the backend is batch-invariant.
//
// Steps may be planned before the results of earlier ones are known (section 4): bounds take the place of unknown
// lengths, and what ends while it is in flight gives up its memory when its last step is committed.
//
// Source: spec/engine.md 1, 3, R-1, R-3, R-8 to R-11.
#pragma once
#include <deque>
#include <functional>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "fathom/base/result.h"
#include "fathom/cache/snapshot_store.h"
#include "fathom/engine/request.h"
#include "fathom/engine/sequence.h"
#include "fathom/engine/step_agreement.h"
#include "fathom/engine/step_plan.h"
#include "fathom/engine/waiting_queue.h"

namespace fathom {

struct SchedulerLimits {
  int64_t context = 0;              // tokens of prompt and answer
  int sequences = 0;                // running at once; as many state slots
  int64_t step_rows = 0;            // prompt rows of a step
  int64_t prompt_logit_rows = 256;  // of them, rows of a prompt whose every logit is wanted: their logits take memory
  int32_t blocks = 0;               // of 128 tokens
  double overcommit = 0.3;
  int passed_over = 64;             // admissions that one that does not fit lets by before all wait for it
  ReplayShape shape{};              // of hits and recomputation; no windows: hits start where they end
  int64_t snapshot_bytes = 0;       // of one snapshot; 0: none are taken
  SnapshotLimits snapshots{};
  QueuePolicy queue{};
  bool separate = false;  // prompt and decode rows do not share a step (spec 3.3)
};

/// Which rows a step takes.
enum class StepRows { both, prompts, decode };

/// What steps cost, as far as it was measured; decode protection divides by it.
struct PieceCost {
  double decode_seconds = 0;      // of a step without prompt rows
  double prompt_row_seconds = 0;  // of each prompt row more; 0: not known, nothing is held back

  /// A step with so many prompt rows took so long. A mean that forgets a tenth a step follows a change of load within a
  /// few steps.
  void observe(int64_t prompt_rows, double seconds) {
    constexpr double kForget = 0.1;
    double& value = prompt_rows == 0 ? decode_seconds : prompt_row_seconds;
    const double more = seconds > decode_seconds ? seconds - decode_seconds : 0;
    const double sample = prompt_rows == 0 ? seconds : more / double(prompt_rows);
    value = value == 0 ? sample : value + kForget * (sample - value);
  }
};

/// What a commit made of one entry of the plan.
struct Outcome {
  SequenceId sequence = 0;
  int kept = 0;                        // tokens appended; those behind a stop token are dropped
  std::optional<FinishReason> finish;  // then the sequence is gone; its blocks are free, or will be after its last step
};

struct SchedulerCounts {
  int64_t admitted = 0, preempted = 0, passed_over = 0;
  int64_t computed_rows = 0, replayed_rows = 0, hit_tokens = 0;
};

/// Not thread-safe: the engine's thread owns it. Allocates only when more sequences or longer ones than ever before
/// run.
class Scheduler {
 public:
  explicit Scheduler(SchedulerLimits limits);

  /// Blocks that the longest run of this sequence takes; more than the pool has can never be admitted.
  static int64_t blocks_needed(const Sequence& sequence) { return blocks_for(sequence.most_tokens()); }

  /// Queues it. It fits into the context and into the pool: the caller has checked.
  void submit(Sequence sequence);
  /// Takes it out at once, in whatever state it is: nothing of it is in later plans. False when there is none.
  bool cancel(SequenceId id);
  /// What it waited for is there.
  void make_ready(SequenceId id);
  /// It runs again later; what it has computed stays findable. For tests, and for operators who want memory back.
  bool preempt(SequenceId id);

  /// The next step; empty when nothing can run now. Valid until the next call. Time never goes back. With separate
  /// steps it decides which rows by itself, as a group of one.
  const StepPlan& plan(double now);
  /// The same with this choice of rows: a group of ranks has agreed on it (step_agreement.h).
  const StepPlan& plan(double now, StepRows rows);
  /// What this rank brings to the agreement.
  StepDescriptor wish(double now) const;
  /// A step of this kind has been planned by the group; plan(now) does so by itself.
  void note_group_step(StepKind kind) { decode_steps_ = kind == StepKind::mixed ? 0 : decode_steps_ + 1; }
  /// Takes the results of a plan, in the order of planning: advances, appends tokens until a stop token (stop), the
  /// limit (length), or the last one. One outcome for each entry, valid until the next call. Entries of sequences that
  /// have gone since have an outcome that keeps nothing.
  std::span<const Outcome> commit(const StepPlan& plan, const StepResult& result);
  /// Keeps the windows before `position`, a multiple of 128 that a committed step has passed. False when they are not
  /// kept: the sequence is gone, the same is there already, no budget.
  bool put_snapshot(SequenceId id, int64_t position, const std::function<void(std::span<uint8_t>)>& fill);

  /// This number of a tenant stands for somebody else from now on.
  void forget_tenant(uint32_t tenant) { waiting_.forget(tenant); }
  void set_cost(PieceCost cost) { cost_ = cost; }

  /// Null when there is none; stays at its address until it finishes or is cancelled.
  Sequence* find(SequenceId id);
  const Sequence* find(SequenceId id) const;
  /// Waiting and running.
  const std::unordered_map<SequenceId, Sequence>& sequences() const { return sequences_; }
  bool idle() const { return sequences_.empty(); }
  size_t waiting() const { return waiting_.size(); }
  size_t running() const { return running_.size(); }
  std::span<const SequenceId> running_ids() const { return running_; }
  const SchedulerLimits& limits() const { return limits_; }
  const SchedulerCounts& counts() const { return counts_; }
  CachePools& pools() { return pools_; }
  const CachePools& pools() const { return pools_; }
  const SnapshotStore& snapshots() const { return snapshots_; }

  /// Every invariant of pools, prefixes and promises. Linear; for tests and debug builds. Errors: failed.
  Result<void> verify() const;

 private:
  /// Memory of a sequence that has gone while steps with it were in flight.
  struct Leaving {
    SequenceId id = 0;
    SequenceCache cache;
    int in_flight_steps = 0;
  };
  /// Blocks that a step in flight may still read.
  struct Displaced {
    int32_t block = 0;
    uint64_t step = 0;  // released when this one is committed
  };

  // plan_decode.cpp
  void plan_decode();
  StepPlan::Rows decode_rows(const Sequence& sequence) const;
  /// Makes `tokens` positions of a running sequence fit, preempting somebody if it must; false: not in this step.
  bool make_fit(Sequence& sequence, int64_t tokens);
  Sequence* victim(const Sequence& wants);
  void do_preempt(Sequence& sequence);
  // plan_prompts.cpp
  void plan_prompts(double now, StepRows rows);
  void plan_branches();
  void admit(double now, int64_t& budget);
  bool try_admit(Sequence& sequence);
  void begin(Sequence& sequence);
  bool branch_off(Sequence& sequence, const Sequence& parent);
  void add_piece(Sequence& sequence, int64_t& budget);
  int64_t prompt_budget(double now) const;
  bool room_for(const Sequence& sequence) const;
  StepPlan::Rows prompt_piece(const Sequence& sequence, int64_t budget) const;
  // scheduler.cpp
  void drop_aged(double now);
  void leave(Sequence& sequence);
  void remove_running(SequenceId id);
  void add_rows(Sequence& sequence, const StepPlan::Rows& rows);
  void append(Sequence& sequence, const StepPlan::Rows& rows, std::span<const int32_t> tokens, Outcome& outcome);
  void publish_blocks(Sequence& sequence);
  void release_displaced();

  SchedulerLimits limits_;
  CachePools pools_;
  SnapshotStore snapshots_;
  PieceCost cost_;
  std::unordered_map<SequenceId, Sequence> sequences_;  // waiting and running
  WaitingQueue waiting_;
  std::vector<SequenceId> running_;  // in order of admission
  std::vector<Leaving> leaving_;
  std::vector<Displaced> displaced_;
  std::vector<int32_t> displaced_now_;
  std::vector<SequenceId> branches_;  // waiting, with a parent
  std::vector<SequenceId> order_;     // scratch
  SequenceId blocked_ = 0;            // the first that does not fit
  int passed_over_ = 0;               // admissions since it does not fit
  int64_t decode_steps_ = 0;          // since the last step with prompt rows
  double aged_at_ = 0;                // when drop_aged last looked
  int64_t promised_blocks_ = 0;       // to the running ones, taken or not
  uint64_t planned_steps_ = 0, committed_steps_ = 0;
  SchedulerCounts counts_;
  StepPlan plan_;
  std::vector<Outcome> outcomes_;
};

/// Kind and rows of a plan; the rest is the scheduler's wish.
StepDescriptor describe(const StepPlan& plan, const Scheduler& scheduler);

/// Visibility of a sequence that is computed again after a preemption: the same as at first, so that the same bits come
/// out. With `hit` tokens findable, the encoder starts so far before the first row that must be exact that its own
/// windows are (as halo does). Pure. Source: spec/engine.md 6.1, R-10.
Replay recompute_replay(const ReplayShape& shape, const Replay& first, int64_t hit);

}  // namespace fathom
