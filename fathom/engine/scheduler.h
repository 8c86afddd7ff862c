// fathom/engine/scheduler.h
// Which request runs now. Holds the sequences, the bookkeeping of blocks and slots, and the two decisions of a step:
// what it computes (plan) and what its results mean (commit). Holds no device pointer and no bytes of a cache, so that
// it is tested with random traces and made-up results.
//
// Order: requests are admitted in the order of submit(), strictly: the first that does not fit holds up those behind
// it, so none starves. A step takes the newest tokens of all decoding sequences with their drafts, then prompt pieces
// in order of admission until `step_rows` prompt rows are in it (engine.md R-8).
//
// Room: a sequence is admitted only when the blocks that its prompt and its longest possible answer take can be
// promised beside what is promised to those that run; it takes them from the pool as it grows. So whatever is admitted
// can finish, and nothing is ever preempted (engine.md R-9; preemption would come with overcommitment, R-10, R-11).
//
// Source: spec/engine.md 1, 3.
#pragma once
#include <deque>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "fathom/base/result.h"
#include "fathom/engine/request.h"
#include "fathom/engine/sequence.h"
#include "fathom/engine/step_plan.h"

namespace fathom {

struct SchedulerLimits {
  int64_t context = 0;              // tokens of prompt and answer
  int sequences = 0;                // running at once; as many state slots
  int64_t step_rows = 0;            // prompt rows of a step
  int64_t prompt_logit_rows = 256;  // of them, rows of a prompt whose every logit is wanted: their logits take memory
  int32_t blocks = 0;               // of 128 tokens
};

/// Tokens that a step brought, one range for each entry of its plan: the accepted drafts, then one more; empty for a
/// prompt piece that is not the last.
struct StepResult {
  std::vector<int32_t> tokens;
  std::vector<int32_t> begin;  // [plan rows + 1]

  std::span<const int32_t> of(size_t entry) const {
    return std::span(tokens).subspan(size_t(begin[entry]), size_t(begin[entry + 1] - begin[entry]));
  }
};

/// What a commit made of one entry of the plan.
struct Outcome {
  SequenceId sequence = 0;
  int kept = 0;                        // tokens appended; those behind a stop token are dropped
  std::optional<FinishReason> finish;  // then the sequence is gone, and its blocks are free
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
  /// Takes it out at once, in whatever state it is, and frees what it holds. False when there is none of this id.
  bool cancel(SequenceId id);

  /// The next step; empty when nothing is left to do. Valid until the next call.
  const StepPlan& plan();
  /// Takes the results of `plan`: advances, appends tokens until a stop token (stop), the limit (length), or the last
  /// one. One outcome for each entry of the plan, valid until the next call.
  std::span<const Outcome> commit(const StepPlan& plan, const StepResult& result);

  /// Null when there is none; stays at its address until it finishes or is cancelled.
  Sequence* find(SequenceId id);
  bool idle() const { return sequences_.empty(); }
  size_t waiting() const { return waiting_.size(); }
  size_t running() const { return running_.size(); }
  const SchedulerLimits& limits() const { return limits_; }
  const CachePools& pools() const { return pools_; }

  /// Every invariant of pools and promises. Linear; for tests and debug builds. Errors: failed.
  Result<void> verify() const;

 private:
  void admit();
  void release(SequenceId id);
  StepPlan::Rows decode_rows(const Sequence& sequence) const;
  StepPlan::Rows prompt_piece(const Sequence& sequence, int64_t budget) const;
  void append(const StepPlan::Rows& rows, std::span<const int32_t> tokens, Outcome& outcome);

  SchedulerLimits limits_;
  CachePools pools_;
  std::unordered_map<SequenceId, Sequence> sequences_;  // waiting and running
  std::deque<SequenceId> waiting_;                      // in order of submission
  std::vector<SequenceId> running_;                     // in order of admission
  int64_t promised_blocks_ = 0;                         // to the running ones, taken or not
  StepPlan plan_;
  std::vector<Outcome> outcomes_;
};

}  // namespace fathom
