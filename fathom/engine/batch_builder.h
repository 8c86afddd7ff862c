// fathom/engine/batch_builder.h
// From the plan of a step to the flat arrays that the model reads.
#pragma once
#include <span>
#include <vector>

#include "fathom/engine/live_sequence.h"
#include "fathom/engine/step_plan.h"
#include "fathom/model/batch.h"

namespace fathom {

/// Owns the arrays and uses them again: builds without allocating once the largest step has been seen.
class BatchBuilder {
 public:
  /// `history`: tokens before the first row that n-grams reach back to (largest n-gram - 1).
  explicit BatchBuilder(int history) : history_(history) {}

  /// `sequences[i]` is the sequence of plan.rows[i]; it holds blocks for all of its rows. Valid until the next call,
  /// and as long as the sequences stay as they are.
  const Batch& build(const StepPlan& plan, std::span<const LiveSequence* const> sequences);
  /// The same of a step whose tokens are not all known, nor their blocks: what is not is 0.
  const Batch& foresee(const StepPlan& plan, std::span<const LiveSequence* const> sequences);
  /// Row of `logits` at which the logits of entry i begin.
  int64_t logit_row(size_t entry) const { return logit_begin_[entry]; }

 private:
  const Batch& put_together(const StepPlan& plan, std::span<const LiveSequence* const> sequences);
  void add_rows(const StepPlan::Rows& rows, const LiveSequence& sequence, int32_t index);
  void add_history(const StepPlan::Rows& rows, const LiveSequence& sequence);
  void add_blocks(std::span<const LiveSequence* const> sequences);

  int history_;
  std::vector<int32_t> ids_, sequence_, begin_, history_ids_, blocks_, slots_, logit_rows_;
  std::vector<int64_t> positions_, logit_begin_;
  std::vector<Replay> replay_;
  Batch batch_;
};

}  // namespace fathom
