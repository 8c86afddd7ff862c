// fathom/engine/runner.h
// Runs planned steps on a model: builds the batch, computes it, chooses tokens, proposes drafts. The model is reached
// through ModelPort, so that everything above it is tested with a model made of a hash.
#pragma once
#include <functional>
#include <span>
#include <vector>

#include "fathom/engine/batch_builder.h"
#include "fathom/engine/sampler.h"
#include "fathom/engine/scheduler.h"
#include "fathom/model/batch.h"

namespace fathom {

/// What the engine needs of a network; the functions of model/model.h with queue and caches bound.
struct ModelPort {
  int64_t vocabulary = 0;
  int block = 0;    // drafts that draft() makes; 0: none
  int history = 0;  // largest n-gram - 1
  /// Logits [logit_rows, vocabulary], valid until the next call of any of these.
  std::function<View<const float, 2>(const Batch&)> forward;
  std::function<void(const DraftBatch&)> draft;
  std::function<void(int step, View<const int32_t, 1> previous, View<float, 2> logits, View<float, 1> confidence)>
      markov;

  // Bytes of the cache. Needed when sequences branch; windows when snapshots are kept.
  std::function<void(int32_t from, int32_t to)> copy_block, copy_slot;
  int64_t window_bytes = 0;  // of the encoder windows of one slot; 0: no snapshots
  std::function<void(int32_t slot, int64_t position, std::span<uint8_t> out)> save_windows;
  std::function<void(int32_t slot, int64_t position, std::span<const uint8_t> in)> restore_windows;
};

/// One thread at a time. Allocates only when a step is larger than any before.
class Runner {
 public:
  Runner(ModelPort port, const Operations& ops, Queue& queue);

  /// Computes the plan and chooses the tokens of every entry that asks for logits. `sequences[i]` is that of
  /// plan.rows[i]. The result is valid until the next call.
  const StepResult& run(const StepPlan& plan, std::span<Sequence* const> sequences);
  /// Raw logits of row `row` of those that entry `entry` of the last run asked for. Valid until propose().
  std::span<const float> logits(size_t entry, int64_t row) const;
  /// Log-probability of the last of `chosen`, the first tokens that the last run chose for `sequence`, in the
  /// convention that its request asks for. Before the commit: the law depends on the answer so far.
  TokenLogprob logprob_of_chosen(size_t entry, const StepPlan::Rows& rows, const Sequence& sequence,
                                 std::span<const int32_t> chosen, int top);

  /// Gives each sequence drafts_for() drafts for its next round. They have been committed and decode.
  void propose(std::span<Sequence* const> sequences);

  /// Copies the windows before `position` out of a slot, between two steps.
  void save_windows(int32_t slot, int64_t position, std::span<uint8_t> out) { port_.save_windows(slot, position, out); }

  int64_t vocabulary() const { return port_.vocabulary; }
  int block() const { return port_.block; }

 private:
  void propose_step(int step, std::span<Sequence* const> sequences);

  ModelPort port_;
  BatchBuilder builder_;
  Sampler sampler_;
  View<const float, 2> logits_;
  StepResult result_;
  std::vector<Choice> choices_;
  std::vector<int32_t> chosen_begin_;
  std::vector<Sequence*> drafting_;
  std::vector<int32_t> tokens_, slots_, drafts_;
  std::vector<int64_t> last_;
  std::vector<Replay> replay_;
  std::vector<float> draft_logits_, confidence_;
};

}  // namespace fathom
