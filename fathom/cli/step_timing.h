// fathom/cli/step_timing.h
// Times steps of the model, without scheduler and sampler: what `fathom bench prefill|decode` measures. Prompts are
// random tokens from a fixed seed, decode follows the model's own greedy tokens, so drafts are accepted as often as
// they are.
#pragma once
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "fathom/backend/timed_operations.h"
#include "fathom/cli/loaded_model.h"
#include "fathom/engine/sequence.h"

namespace fathom::cli {

struct StepCase {
  bool decode = false;
  int64_t length = 0;   // prefill: new prompt tokens of a sequence; decode: steps
  int64_t batch = 1;    // sequences in one step
  int64_t cached = 0;   // tokens of a sequence that are there before
  int drafts = 0;       // verified a step and sequence
  bool random = false;  // decode: the next token is drawn at random, not the model's own; without drafts
  bool copied = false;  // decode: of the past the first sequence's beginning is computed, all else are copies of it
  ReplayMode replay = ReplayMode::compact;
  bool recorded = true;  // decode on a device: steps are launched as one once they have been recorded
};

struct StepTimes {
  std::vector<double> seconds;   // one a repeat: of the whole prompt, or of one step
  int64_t tokens = 0;            // a repeat: prompt tokens, or tokens that came out of all steps
  double seconds_all = 0;        // median over the repeats of the time in which `tokens` came
  double accepted_per_step = 0;  // drafts, a sequence
  // On a device: of a prompt or step, what the processor does until all is queued, median over the repeats. Recorded
  // steps are launched at its end, so the device has nothing to do in the meantime.
  std::optional<double> launch_seconds;
  // Of the operations that ran, the largest first: per prompt or step, medians over the repeats, and what one run
  // counted. On a device they are timed in runs of their own, because marks cost time there. Empty unless asked for.
  std::vector<OperationTime> operations;
  std::optional<StreamStatistics> stream;  // of all measured repeats; nothing unless experts are streamed
};

struct StepBenchOptions {
  std::optional<Numerics> numerics = {};  // none: default_numerics of the backend
  bool batch_invariant = false;           // EngineOptions::batch_invariant
  int64_t context = 0;                    // tokens of each of
  int64_t sequences = 0;                  // as many sequences
  int64_t step_rows = 0;                  // most rows of a prompt step
  bool per_operation = false;             // times every operation too, which costs a prompt or step about 20 us, counts
                                          // its work in one run more, and measures the machine's peaks
  Placement placement = {};
};

/// Owns model and cache; one thread.
class StepBench {
 public:
  /// Errors: those of open_backend, Model::load and CacheMemory::allocate; usage for a context beyond the model's.
  static Result<StepBench> open(const LoadedModel& model, const Common& common, const StepBenchOptions& options);
  StepBench(StepBench&&) noexcept;
  StepBench& operator=(StepBench&&) noexcept;
  ~StepBench();

  /// Runs the case `warmup` times unmeasured and `repeat` times measured. Errors: interrupted.
  Result<StepTimes> run(const StepCase& c, int64_t warmup, int64_t repeat);

  std::string backend_name() const;
  int threads() const;
  const Numerics& numerics() const;
  bool batch_invariant() const;  // as used: always on a CPU
  int64_t cache_bytes() const;
  /// Of the machine; nothing without per_operation.
  const std::optional<MachinePeaks>& peaks() const;

 private:
  struct State;
  explicit StepBench(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace fathom::cli
