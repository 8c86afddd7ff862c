#include "fathom/engine/replay_quality.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "fathom/base/philox.h"

namespace fathom {
namespace {

Error mismatch(const char* what, size_t found, int64_t wanted) {
  return {ErrorCode::failed,
          std::string("an answer of ") + std::to_string(wanted) + " tokens has " + std::to_string(found) + " " + what,
          "replay quality", "score each token once"};
}

Result<void> check_scores(const TokenScores& scores, int64_t tokens) {
  if (int64_t(scores.logprobs.size()) != tokens) return mismatch("log-probabilities", scores.logprobs.size(), tokens);
  if (!scores.best.empty() && int64_t(scores.best.size()) != tokens) {
    return mismatch("best tokens", scores.best.size(), tokens);
  }
  if (!scores.laws.empty() && int64_t(scores.laws.size()) != tokens)
    return mismatch("laws", scores.laws.size(), tokens);
  return {};
}

// Sum of p (log p - log q); what p cannot draw adds nothing.
double kl(std::span<const float> log_p, std::span<const float> log_q) {
  double sum = 0;
  for (size_t i = 0; i < std::min(log_p.size(), log_q.size()); ++i) {
    const double p = std::exp(double(log_p[i]));
    if (p > 0) sum += p * (double(log_p[i]) - double(log_q[i]));
  }
  return std::max(sum, 0.0);  // rounding
}

void add(ReplayDivergence& to, const ReplayDivergence& more) {
  to.answers += more.answers, to.tokens += more.tokens;
  to.changed_answers += more.changed_answers, to.greedy_answers += more.greedy_answers;
  to.compared_best += more.compared_best, to.same_best += more.same_best;
  to.logprob_sum += more.logprob_sum, to.logprob_worst = std::max(to.logprob_worst, more.logprob_worst);
  to.kl_tokens += more.kl_tokens, to.kl_sum += more.kl_sum;
}

}  // namespace

Request scoring_request(std::span<const int32_t> ids) {
  Request request;
  request.ids.assign(ids.begin(), ids.end());
  request.prompt_logprobs = true;
  request.sampling.temperature = 0;
  request.sampling.max_tokens = 1;
  request.sampling.top_logprobs = 1;
  return request;
}

void add_scores(TokenScores& scores, const Event& event, int64_t from) {
  for (size_t i = size_t(from) - 1; i < event.prompt_logprobs.size(); ++i) {
    const TokenLogprob& token = event.prompt_logprobs[i];
    scores.logprobs.push_back(token.logprob);
    scores.best.push_back(token.top.empty() ? token.id : token.top[0].first);
  }
}

const char* name_of(ReplayCause cause) {
  switch (cause) {
    case ReplayCause::compact: return "compact";
    case ReplayCause::halo: return "halo";
    case ReplayCause::hit: return "hit";
    case ReplayCause::off: return "off";
  }
  return "off";
}

ReplayCause replay_cause_of(ReplayMode mode, bool seam) {
  if (seam) return ReplayCause::hit;
  if (mode == ReplayMode::off) return ReplayCause::off;
  return mode == ReplayMode::halo ? ReplayCause::halo : ReplayCause::compact;
}

Result<ReplayDivergence> compare_replay(const ReplaySample& sample, const TokenScores& exact) {
  const int64_t tokens = int64_t(sample.ids.size()) - sample.prompt_tokens;
  if (auto right = check_scores(sample.scores, tokens); !right) return right.error();
  if (auto right = check_scores(exact, tokens); !right) return right.error();
  const TokenScores& given = sample.scores;
  ReplayDivergence out;
  out.answers = 1;
  out.tokens = tokens;
  out.greedy_answers = sample.greedy;
  bool other_text = false;
  for (size_t i = 0; i < size_t(tokens); ++i) {
    const int32_t token = sample.ids[size_t(sample.prompt_tokens) + i];
    const double difference = std::abs(double(given.logprobs[i]) - double(exact.logprobs[i]));
    out.logprob_sum += difference;
    out.logprob_worst = std::max(out.logprob_worst, difference);
    if (!exact.best.empty() && (sample.greedy || !given.best.empty())) {
      ++out.compared_best;
      out.same_best += exact.best[i] == (sample.greedy ? token : given.best[i]);
    }
    other_text = other_text || (!exact.best.empty() && exact.best[i] != token);
    if (given.laws.empty() || exact.laws.empty()) continue;
    ++out.kl_tokens;
    out.kl_sum += kl(exact.laws[i], given.laws[i]);
  }
  // A greedy text is another one from the first token on that the exact law would not have chosen.
  out.changed_answers = sample.greedy && other_text;
  return out;
}

void ReplayQuality::offer(ReplaySample sample) {
  ++offered_;
  if (int64_t(sample.ids.size()) > options_.most_tokens) {
    ++too_long_;
    return;
  }
  ++since_empty_;
  if (int64_t(waiting_.size()) < options_.samples) {
    waiting_.push_back(std::move(sample));
    return;
  }
  const auto draw = philox(options_.seed, {uint32_t(offered_), uint32_t(offered_ >> 32), 0, 0});
  const uint64_t place = (uint64_t(draw[0]) << 32 | draw[1]) % uint64_t(since_empty_);
  if (place < waiting_.size()) waiting_[size_t(place)] = std::move(sample);
}

Result<void> ReplayQuality::measure_one(const ScoreExactly& score) {
  if (waiting_.empty()) return {};
  const ReplaySample sample = std::move(waiting_.back());
  waiting_.pop_back();
  if (waiting_.empty()) since_empty_ = 0;
  const auto exact = score(sample.ids, sample.prompt_tokens);
  if (!exact) return exact.error();
  const auto divergence = compare_replay(sample, *exact);
  if (!divergence) return divergence.error();
  add(sums_[size_t(sample.cause)], *divergence);
  return {};
}

}  // namespace fathom
