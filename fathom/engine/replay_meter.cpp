#include "fathom/engine/replay_meter.h"

namespace fathom {

ReplayMeter::ReplayMeter(StepLoop& loop, ReplayMode mode, ReplayMeterOptions options, Metrics* metrics)
    : loop_(loop),
      mode_(mode),
      options_(options),
      random_(uint32_t(options.seed)),
      quality_({.most_tokens = options.most_tokens, .seed = options.seed}) {
  if (metrics == nullptr) return;
  for (int cause = 0; cause < kReplayCauses; ++cause) {
    const MetricLabels labels = {{"cause", name_of(ReplayCause(cause))}};
    series_[size_t(cause)] = {
        &metrics->counter("fathom_engine_replay_scored_answers_total", "answers scored again with replay off", labels),
        &metrics->counter("fathom_engine_replay_scored_tokens_total", "their tokens", labels),
        &metrics->counter("fathom_engine_replay_changed_answers_total",
                          "greedy ones among them whose text replay off would have changed", labels),
        &metrics->counter("fathom_engine_replay_logprob_error_total",
                          "sum of |log-probability under replay off - as answered| over their tokens", labels)};
  }
}

Result<RequestId> ReplayMeter::submit(Request request) {
  const bool chosen = options_.share > 0 && request.sampling.top_logprobs < 0 && !request.prompt_logprobs &&
                      request.answers == 1 && !request.constraint && request.sampling.golden_token_ids.empty() &&
                      std::generate_canonical<double, 24>(random_) < options_.share;
  if (!chosen) return loop_.submit(std::move(request));
  Watched watched;
  watched.ids = request.ids;
  watched.prompt_tokens = int64_t(request.ids.size());
  watched.mode = request.replay.value_or(mode_);
  watched.greedy = is_greedy(request.sampling);
  request.sampling.top_logprobs = 1;
  auto id = loop_.submit(std::move(request));
  if (id) watched_.emplace(*id, std::move(watched));
  return id;
}

void ReplayMeter::look_at(std::span<Event> events) {
  if (watched_.empty()) return;
  for (Event& event : events) {
    const auto at = watched_.find(event.request);
    if (at == watched_.end()) continue;
    Watched& one = at->second;
    one.ids.insert(one.ids.end(), event.ids.begin(), event.ids.end());
    for (const TokenLogprob& token : event.logprobs) {
      one.logprobs.push_back(token.logprob);
      one.best.push_back(token.top.empty() ? token.id : token.top[0].first);
    }
    event.logprobs.clear();
    if (!event.finish) continue;
    const FinishReason reason = event.finish->reason;
    if ((reason == FinishReason::stop || reason == FinishReason::length) && event.finish->usage.preemptions == 0) {
      const bool seam = event.finish->usage.replayed_tokens > 0;
      quality_.offer({std::move(one.ids),
                      one.prompt_tokens,
                      replay_cause_of(one.mode, seam),
                      one.greedy,
                      {std::move(one.logprobs), std::move(one.best), {}}});
    }
    watched_.erase(at);
  }
}

Result<TokenScores> ReplayMeter::score(std::span<const int32_t> ids, int64_t from) {
  const auto id = loop_.submit(scoring_request(ids));
  if (!id) return id.error();
  TokenScores out;
  while (!loop_.idle()) {
    for (const Event& event : loop_.step()) {
      add_scores(out, event, from);
      if (event.finish && event.finish->error) return *event.finish->error;
    }
  }
  return out;
}

bool ReplayMeter::measure_one() {
  if (!quality_.pending()) return false;
  check(loop_.idle(), "answers are scored again while nobody is served");
  // An answer that fills the context leaves no room for the token behind it: then there is nothing to learn.
  (void)quality_.measure_one([&](std::span<const int32_t> ids, int64_t from) { return score(ids, from); });
  for (size_t cause = 0; cause < size_t(kReplayCauses); ++cause) {
    if (series_[cause].answers == nullptr) break;
    const ReplayDivergence& now = quality_.of(ReplayCause(cause));
    ReplayDivergence& before = told_[cause];
    series_[cause].answers->add(now.answers - before.answers);
    series_[cause].tokens->add(now.tokens - before.tokens);
    series_[cause].changed->add(now.changed_answers - before.changed_answers);
    series_[cause].logprob_error->add(now.logprob_sum - before.logprob_sum);
    before = now;
  }
  return true;
}

}  // namespace fathom
