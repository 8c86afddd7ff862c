// fathom/engine/runner.h
// Runs planned steps on a model: turns bounds into rows, builds the batch, computes it, chooses tokens, proposes
// drafts. Everything of a sequence that the next step needs is in its LiveSequence afterwards, so steps can be queued
// one behind the other without anybody looking at results in between. The model is reached through ModelPort, so that
// everything above it is tested with a model made of a hash.
#pragma once
#include <functional>
#include <span>
#include <vector>

#include "fathom/backend/instruments.h"
#include "fathom/engine/batch_builder.h"
#include "fathom/engine/sampler.h"
#include "fathom/engine/speculate.h"
#include "fathom/engine/step_work.h"
#include "fathom/model/batch.h"

namespace fathom {

/// What the engine needs of a network; the functions of model/model.h with queue and caches bound.
struct ModelPort {
  int64_t vocabulary = 0;
  int block = 0;    // drafts that draft() makes; 0: none
  int history = 0;  // largest n-gram - 1
  ReplayShape shape{};
  /// Where logits lie: in a device's own memory the processor copies the rows that it wants to see.
  Memory logits_memory = reference_backend().memory;
  /// Logits [logit_rows, vocabulary], valid until the next call of any of these. On a device it returns before they are
  /// there; operations of the same queue may use them.
  std::function<View<const float, 2>(const Batch&)> forward;
  /// How long forward() took is measured by marks in the queue; null: it is done when it returns.
  QueueClock* clock = nullptr;
  /// Says what forward() will probably be given next, but for ids, history and blocks; null: nobody wants to know.
  std::function<void(const Batch&)> expect;
  /// All drafts of a round at once, drawn without anybody looking at logits; null: draft() and markov() do it.
  std::function<DrawnDrafts(const DraftBatch&, const DraftDraws&)> propose;
  std::function<void(const DraftBatch&)> draft;
  std::function<void(int step, View<const int32_t, 1> previous, View<float, 2> logits, View<float, 1> confidence)>
      markov;

  // Bytes of the cache. Needed when sequences branch; windows when snapshots are kept.
  std::function<void(int32_t from, int32_t to)> copy_block, copy_slot;
  int64_t window_bytes = 0;  // of the encoder windows of one slot; 0: no snapshots
  std::function<void(int32_t slot, int64_t position, std::span<uint8_t> out)> save_windows;
  std::function<void(int32_t slot, int64_t position, std::span<const uint8_t> in)> restore_windows;
};

/// One thread at a time. Allocates only when a step is larger than any before, and for log-probabilities and snapshots.
class Runner {
 public:
  Runner(ModelPort port, const Operations& ops, Queue& queue);

  /// Does all of a step: fills the second half of `work` and moves its live sequences on.
  void run(StepWork& work);

  int64_t vocabulary() const { return port_.vocabulary; }
  int block() const { return port_.block; }
  const ModelPort& port() const { return port_; }

 private:
  /// One entry that runs rows.
  struct Active {
    size_t entry = 0;  // of the plan
    LiveSequence* live = nullptr;
    int64_t before = 0;    // positions that had been run before the step
    bool chooses = false;  // its last logits choose a token
    bool goes_on = false;  // it wants drafts
  };
  void begin_sequences(const StepWork& work);
  void resolve(StepWork& work);
  void schedule_drafts(const StepWork& work);
  void compute(StepWork& work);
  void capture_windows(StepWork& work);
  void choose(StepWork& work);
  bool will_draft(const StepWork& work) const;
  void foresee();
  void report(StepWork& work, size_t active, std::span<const int32_t> tokens);
  void tell_logprobs(size_t active, std::span<const int32_t> tokens, EntryReport& report);
  void advance(Active& active, std::span<const int32_t> tokens, EntryReport& report);
  void take_snapshots(StepWork& work);
  void propose(StepWork& work);
  DraftBatch draft_batch() const;
  void queue_drafts(int steps);
  void take_drafts(int steps);
  void propose_in_steps(int steps);
  void propose_step(int step);
  void propose_forced(LiveSequence& live, size_t place, int step);
  std::span<const float> logits(size_t active, int64_t row);

  ModelPort port_;
  Queue* queue_;
  uint64_t steps_ = 0;  // begun; as the loop numbers them
  BatchBuilder builder_, foreseen_;
  StepPlan next_;  // as foreseen
  std::vector<LiveSequence*> next_live_;
  Sampler sampler_;
  VerificationPlanner planner_;
  StepPlan run_;  // rows that really run, of active_
  std::vector<Active> active_;
  std::vector<LiveSequence*> live_;
  std::vector<WindowCapture> captures_;
  View<const float, 2> logits_;
  std::vector<float> row_;  // of logits_, where the processor cannot read them
  std::vector<Choice> choices_;
  std::vector<int32_t> chosen_, chosen_begin_;
  std::vector<LiveSequence*> drafting_;
  std::vector<std::vector<int32_t>> forced_;  // of each: tokens that its grammar leaves no choice about
  std::vector<int32_t> tokens_, slots_, drafts_;
  std::vector<int64_t> last_;
  std::vector<Replay> replay_;
  Buffer draft_logits_;  // where logits lie
  std::vector<float> confidence_;
  std::vector<RowSampling> draws_;  // of queue_drafts, position after position
  DrawnDrafts drawn_;
  std::vector<size_t> free_;            // active entries whose drafts are scheduled
  std::vector<float> free_confidence_;  // [free, kMaxDrafts]
  std::vector<int> free_drafts_, free_rows_;
};

}  // namespace fathom
