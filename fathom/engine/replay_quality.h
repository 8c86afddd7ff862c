// What bounded replay costs, measured on answers that were really given: a sample of them is scored again with every
// row computed (replay off), when nobody is waiting, and the two laws are compared token by token. Knows no engine: the
// caller keeps the sample fed, says when it is idle, and passes the function that scores. Bounded memory: so many
// samples of so many tokens. Source: spec/engine.md 6, R-24.
//
//   finished    quality.offer({...})                          O(1), keeps every answer with the same chance
//   idle        if (quality.pending()) quality.measure_one(score)     as long as the scoring of one answer
//   metrics     quality.of(ReplayCause::compact)
#pragma once
#include <array>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "fathom/base/result.h"
#include "fathom/cache/replay.h"
#include "fathom/engine/request.h"

namespace fathom {

/// Why rows of an answer saw less than all of its text.
enum class ReplayCause {
  compact,  // the decoder half ran on the last rows of its prompt only (also mode mask)
  halo,     // it ran on the rows that the last one depends on: nothing should differ
  hit,      // besides, its encoder began behind a prefix hit with a cut window (PrefillPlan::seam)
  off,      // nothing was left out: what differs is the measurement itself
};
inline constexpr int kReplayCauses = 4;
const char* name_of(ReplayCause cause);
ReplayCause replay_cause_of(ReplayMode mode, bool seam);

/// One law a token of the answer.
struct TokenScores {
  std::vector<float> logprobs;           // [tokens] natural logarithm, raw, of the token that was generated
  std::vector<int32_t> best;             // [tokens] the most probable token; empty: not known
  std::vector<std::vector<float>> laws;  // [tokens][vocabulary] log-probabilities; empty: not known
};

/// A finished answer and the law it was given under.
struct ReplaySample {
  std::vector<int32_t> ids;   // prompt and answer
  int64_t prompt_tokens = 0;  // at least 1
  ReplayCause cause = ReplayCause::compact;
  bool greedy = false;  // every token was the most probable one
  TokenScores scores;   // one a token of the answer
};

/// The same under replay off: scores of the tokens ids[from], ids[from + 1], ... to the end, each given all before it.
using ScoreExactly = std::function<Result<TokenScores>(std::span<const int32_t> ids, int64_t from)>;
/// What scores `ids` exactly: the prompt's own log-probabilities, which force replay off.
Request scoring_request(std::span<const int32_t> ids);
/// The scores in an event of that request, from position `from` on.
void add_scores(TokenScores& scores, const Event& event, int64_t from);

/// Sums over the measured answers of one cause.
struct ReplayDivergence {
  int64_t answers = 0, tokens = 0;
  int64_t changed_answers = 0;  // greedy ones whose text would have been another
  int64_t greedy_answers = 0;
  int64_t compared_best = 0, same_best = 0;   // tokens
  double logprob_sum = 0, logprob_worst = 0;  // of |difference|
  int64_t kl_tokens = 0;
  double kl_sum = 0;  // of exact against bounded, nats

  double mean_logprob() const { return tokens == 0 ? 0 : logprob_sum / double(tokens); }
  double mean_kl() const { return kl_tokens == 0 ? 0 : kl_sum / double(kl_tokens); }
  double top1_agreement() const { return compared_best == 0 ? 1 : double(same_best) / double(compared_best); }
  double changed_share() const { return greedy_answers == 0 ? 0 : double(changed_answers) / double(greedy_answers); }
};

/// One answer against its exact scores. Errors: failed when they are not one a token.
Result<ReplayDivergence> compare_replay(const ReplaySample& sample, const TokenScores& exact);

struct ReplayQualityOptions {
  int64_t samples = 32;          // waiting to be scored
  int64_t most_tokens = 16'384;  // of one; longer answers are not taken
  uint64_t seed = 1;
};

/// Not thread-safe.
class ReplayQuality {
 public:
  explicit ReplayQuality(ReplayQualityOptions options = {}) : options_(options) {}

  /// Since the last time that none was waiting, each offered answer is among those that wait with the same chance.
  void offer(ReplaySample sample);
  bool pending() const { return !waiting_.empty(); }
  size_t waiting() const { return waiting_.size(); }
  /// Scores one waiting answer and drops it, also when that fails. Errors: those of `score` and compare_replay.
  Result<void> measure_one(const ScoreExactly& score);

  const ReplayDivergence& of(ReplayCause cause) const { return sums_[size_t(cause)]; }
  int64_t offered() const { return offered_; }
  int64_t too_long() const { return too_long_; }

 private:
  ReplayQualityOptions options_;
  std::vector<ReplaySample> waiting_;
  std::array<ReplayDivergence, kReplayCauses> sums_{};
  int64_t since_empty_ = 0, offered_ = 0, too_long_ = 0;
};

}  // namespace fathom
