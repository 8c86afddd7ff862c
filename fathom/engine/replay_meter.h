// fathom/engine/replay_meter.h
// ReplayQuality on a running loop: watches a sample of the requests, keeps what they were answered with and under which
// law, and scores them again with replay off while nobody waits. A watched request computes log-probabilities that its
// caller has not asked for and does not get. Source: issue 5 item 3, spec/engine.md R-24.
#pragma once
#include <memory>
#include <random>
#include <unordered_map>
#include <vector>

#include "fathom/base/metrics.h"
#include "fathom/engine/replay_quality.h"
#include "fathom/engine/step_loop.h"

namespace fathom {

struct ReplayMeterOptions {
  double share = 0;             // of the requests, [0, 1]
  int64_t most_tokens = 2'048;  // of an answer that is scored again: so long nobody else is served
  uint64_t seed = 1;
};

/// The engine's thread.
class ReplayMeter {
 public:
  /// `metrics`: null for none; outlives it.
  ReplayMeter(StepLoop& loop, ReplayMode mode, ReplayMeterOptions options, Metrics* metrics);

  /// Submits; a watched request is changed so that its log-probabilities are told.
  Result<RequestId> submit(Request request);
  /// Takes from events what only the meter asked for.
  void look_at(std::span<Event> events);
  /// Scores one answer, for as long as that takes; false when none waits. Only while the loop is idle.
  bool measure_one();

  const ReplayQuality& quality() const { return quality_; }

 private:
  struct Watched {
    std::vector<int32_t> ids;
    int64_t prompt_tokens = 0;
    ReplayMode mode = ReplayMode::compact;
    bool greedy = false;
    std::vector<float> logprobs;
    std::vector<int32_t> best;
  };
  struct Series {
    Counter *answers, *tokens, *changed, *logprob_error;
  };
  Result<TokenScores> score(std::span<const int32_t> ids, int64_t from);

  StepLoop& loop_;
  ReplayMode mode_;
  ReplayMeterOptions options_;
  std::minstd_rand random_;
  ReplayQuality quality_;
  std::unordered_map<RequestId, Watched> watched_;
  std::array<Series, kReplayCauses> series_{};
  std::array<ReplayDivergence, kReplayCauses> told_{};
};

}  // namespace fathom
