#include "fathom/engine/statistics.h"

#include <algorithm>

#include "fathom/engine/statistics_series.h"

namespace fathom {
namespace {

double ratio(double part, double whole) { return whole > 0 ? part / whole : 0; }

template <size_t n>
int64_t sum(const std::array<int64_t, n>& values) {
  int64_t out = 0;
  for (const int64_t value : values) out += value;
  return out;
}

}  // namespace

const char* name_of(RequestState state) {
  switch (state) {
    case RequestState::submitted: return "submitted";
    case RequestState::loading: return "loading";
    case RequestState::waiting: return "waiting";
    case RequestState::running: return "running";
    case RequestState::finished: return "finished";
  }
  return "";
}

EngineStatistics::EngineStatistics(Metrics& metrics, Log* log, StatisticsOptions options)
    : options_(options), log_(log), series_(std::make_unique<StatisticsSeries>(metrics)) {
  check(options.window_steps > 0 && options.line_every >= 0, "a window has steps");
  window_.resize(size_t(options.window_steps) + 1);
}

EngineStatistics::~EngineStatistics() = default;

void EngineStatistics::change(RequestProgress& request, RequestState to, double now) {
  const auto from = size_t(request.state);
  Counter* counter = series_->transitions[from][size_t(to)];
  check(counter != nullptr, "a request goes from state to state as R-1 has it");
  counter->add(1);
  // Whoever comes while others wait is no progress: a device that hangs would look alive for as long as people ask.
  const bool was_idle = requests_[size_t(RequestState::waiting)] + requests_[size_t(RequestState::running)] == 0;
  if (was_idle) progressed_.store(now, std::memory_order_relaxed);
  for (const size_t state : {from, size_t(to)}) {
    const int64_t more = state == from ? -1 : 1;
    if (state == size_t(RequestState::submitted) || state == size_t(RequestState::finished)) continue;
    const int64_t count = requests_[state].load(std::memory_order_relaxed) + more;
    requests_[state].store(count, std::memory_order_relaxed);
    series_->requests[state]->set(count);
  }
  if (log_ != nullptr && log_->on(LogLevel::debug)) {
    log_->write(LogLevel::debug, "", {{"request", request.id}, {"from", name_of(request.state)}, {"to", name_of(to)}});
  }
  request.state = to;
}

void EngineStatistics::arrive(RequestProgress& request, RequestId id, double now, bool loading) {
  request.id = id;
  request.arrived = now;
  change(request, loading ? RequestState::loading : RequestState::waiting, now);
}

void EngineStatistics::ready(RequestProgress& request, double now) { change(request, RequestState::waiting, now); }

void EngineStatistics::start(RequestProgress& request, double now) {
  if (request.state == RequestState::running) preempt(request, now);
  change(request, RequestState::running, now);
  if (request.started) return;
  request.started = true;
  series_->queue_seconds->observe(now - request.arrived);
}

void EngineStatistics::preempt(RequestProgress& request, double now) { change(request, RequestState::waiting, now); }

void EngineStatistics::bring(RequestProgress& request, double now, int tokens) {
  series_->generated_tokens->add(tokens);
  int later = tokens;  // tokens that end a gap
  if (request.last_tokens < 0) {
    const double waited = now - request.arrived;
    series_->first_token_seconds->observe(waited);
    ++totals_.first_tokens;
    totals_.first_token_seconds += waited;
    totals_.first_token_max = std::max(totals_.first_token_max, waited);
    later = 0;  // those that come with the first one come at once
  } else if (tokens > 0) {
    const double gap = now - request.last_tokens;
    series_->token_gap_seconds->observe(gap);
    series_->inter_token_seconds->observe(gap / later, later);
  }
  request.last_tokens = now;
}

void EngineStatistics::finish(RequestProgress& request, double now, const Finish& finish) {
  change(request, RequestState::finished, now);
  series_->finished[size_t(finish.reason)]->add(1);
  if (finish.error) series_->failures[size_t(finish.error->code)]->add(1);
  series_->request_seconds->observe(now - request.arrived);
  series_->prompt_tokens->add(finish.usage.prompt_tokens);
  ++totals_.finished;
  totals_.cancelled += finish.reason == FinishReason::cancelled;
  totals_.prompt_tokens += finish.usage.prompt_tokens;
  totals_.generated_tokens += finish.usage.generated_tokens;
  if (log_ != nullptr && log_->on(LogLevel::info)) log_->write(LogLevel::info, request_line(request.id, finish));
}

void EngineStatistics::reject(const Error& error) {
  series_->transitions[size_t(RequestState::submitted)][size_t(RequestState::finished)]->add(1);
  series_->finished[size_t(FinishReason::rejected)]->add(1);
  series_->failures[size_t(error.code)]->add(1);
}

void EngineStatistics::count_step(const StepSummary& s) {
  StatisticsSeries& series = *series_;
  (s.prompt_rows == 0 ? series.decode_steps : s.decode_rows == 0 ? series.prompt_steps : series.mixed_steps)->add(1);
  series.step_seconds->observe(s.step_seconds);
  series.plan_seconds->add(double(s.plan_seconds));
  series.forward_seconds->add(double(s.forward_seconds));
  series.sample_seconds->add(double(s.sample_seconds));
  series.other_seconds->add(double(s.other_seconds));
  series.computed_rows->add(s.prompt_rows - s.replayed_rows);
  series.replayed_rows->add(s.replayed_rows);
  series.decode_rows->add(s.decode_rows);
  series.decoder_rows->add(s.decoder_rows);
  series.hit_tokens->add(s.hit_tokens - last_.hit_tokens);
  series.passed_over->add(s.passed_over - last_.passed_over);
  for (size_t i = 0; i < size_t(kMaxDrafts) && s.offered[i] > 0; ++i) {
    series.offered[i]->add(s.offered[i]);
    series.accepted[i]->add(s.accepted[i]);
    // accepted[i] rounds took at least i + 1 drafts, so the difference took i.
    const int32_t more = i == 0 ? s.offered[0] : s.accepted[i - 1];
    if (more > s.accepted[i]) series.accepted_length->observe(double(i), more - s.accepted[i]);
    const bool last = i + 1 == size_t(kMaxDrafts) || s.offered[i + 1] == 0;
    if (last && s.accepted[i] > 0) series.accepted_length->observe(double(i + 1), s.accepted[i]);
  }
  series.confidence_error->add(double(s.confidence_error));
  series.confidences->add(s.confidences);
  if (s.decode_rows > 0) series.policy_steps[size_t(s.policy)]->add(1);
  series.used_blocks->set(s.used_blocks);
  series.idle_blocks->set(s.idle_blocks);
  series.free_blocks->set(s.free_blocks);
  series.used_slots->set(s.used_slots);
  series.free_slots->set(s.free_slots);
}

bool EngineStatistics::step(const StepSummary& s) {
  count_step(s);
  if (window_count_ == 0) {  // the first step is the origin: it began when it began
    window_[0].time = s.ended - double(s.step_seconds);
    window_count_ = 1;
  }
  totals_.time = s.ended;
  ++totals_.steps;
  totals_.prompt_rows += s.prompt_rows;
  totals_.replayed_rows += s.replayed_rows;
  totals_.tokens += s.tokens;
  totals_.hit_tokens = s.hit_tokens;
  totals_.preempted += s.preempted;
  for (size_t i = 0; i < size_t(kMaxDrafts); ++i) {
    totals_.offered[i] += s.offered[i];
    totals_.accepted[i] += s.accepted[i];
  }
  totals_.confidence_error += double(s.confidence_error);
  totals_.confidences += s.confidences;
  totals_.step_seconds += double(s.step_seconds);
  if (s.prompt_rows > 0) totals_.prompt_step_seconds += double(s.step_seconds);
  totals_.plan_seconds += double(s.plan_seconds);
  totals_.forward_seconds += double(s.forward_seconds);
  totals_.sample_seconds += double(s.sample_seconds);
  window_[size_t(window_count_++) % window_.size()] = totals_;
  totals_.first_token_max = 0;
  last_ = s;
  progressed_.store(s.ended, std::memory_order_relaxed);
  if (options_.line_every == 0 || totals_.steps % options_.line_every != 0) return false;
  const WindowReport now = report(s.ended);
  show(now);
  if (log_ != nullptr && log_->on(LogLevel::info)) log_->write(LogLevel::info, statistics_line(now));
  return true;
}

const EngineStatistics::Totals& EngineStatistics::oldest() const {
  const auto size = int64_t(window_.size());
  return window_[size_t(window_count_ <= size ? 0 : window_count_ % size)];
}

WindowReport EngineStatistics::report(double now) const {
  WindowReport out;
  const Totals& from = oldest();
  out.step = last_.step;
  out.steps = totals_.steps - from.steps;
  out.seconds = std::max(0.0, now - from.time);
  const auto steps = double(out.steps);
  out.steps_per_second = ratio(steps, out.seconds);
  out.tokens_per_second = ratio(double(totals_.tokens - from.tokens), out.seconds);
  const auto prompt_rows = double(totals_.prompt_rows - from.prompt_rows);
  out.prompt_rows_per_second = ratio(prompt_rows, out.seconds);
  const double step_seconds = totals_.step_seconds - from.step_seconds;
  out.step_seconds = ratio(step_seconds, steps);
  out.plan_seconds = ratio(totals_.plan_seconds - from.plan_seconds, steps);
  out.forward_seconds = ratio(totals_.forward_seconds - from.forward_seconds, steps);
  out.sample_seconds = ratio(totals_.sample_seconds - from.sample_seconds, steps);
  out.prompt_time_ratio = ratio(totals_.prompt_step_seconds - from.prompt_step_seconds, step_seconds);
  const auto found = double(totals_.hit_tokens - from.hit_tokens);
  out.cached_ratio = ratio(found, found + prompt_rows - double(totals_.replayed_rows - from.replayed_rows));
  std::array<int64_t, kMaxDrafts> offered{}, accepted{};
  for (size_t i = 0; i < size_t(kMaxDrafts); ++i) {
    offered[i] = totals_.offered[i] - from.offered[i];
    accepted[i] = totals_.accepted[i] - from.accepted[i];
    out.acceptance[i] = ratio(double(accepted[i]), double(offered[i]));
  }
  out.rounds = offered[0];
  out.acceptance_ratio = ratio(double(sum(accepted)), double(sum(offered)));
  out.accepted_mean = ratio(double(sum(accepted)), double(out.rounds));
  out.verified_mean = ratio(double(sum(offered)), double(out.rounds));
  out.confidence_error =
      ratio(totals_.confidence_error - from.confidence_error, double(totals_.confidences - from.confidences));
  out.first_tokens = totals_.first_tokens - from.first_tokens;
  out.first_token_mean_seconds =
      ratio(totals_.first_token_seconds - from.first_token_seconds, double(out.first_tokens));
  const int64_t kept = std::min(window_count_, int64_t(window_.size()));
  for (int64_t i = 0; i < kept; ++i) {
    const Totals& one = window_[size_t(i)];
    if (one.steps > from.steps)
      out.first_token_max_seconds = std::max(out.first_token_max_seconds, one.first_token_max);
  }
  out.finished = totals_.finished - from.finished;
  out.preempted = totals_.preempted - from.preempted;
  out.cancelled = totals_.cancelled - from.cancelled;
  out.prompt_tokens_mean = ratio(double(totals_.prompt_tokens - from.prompt_tokens), double(out.finished));
  out.generated_tokens_mean = ratio(double(totals_.generated_tokens - from.generated_tokens), double(out.finished));
  for (size_t i = 0; i < kRequestStates; ++i) out.requests[i] = requests_[i].load(std::memory_order_relaxed);
  const auto blocks = double(last_.used_blocks) + last_.idle_blocks + last_.free_blocks;
  out.used_blocks_ratio = ratio(last_.used_blocks, blocks);
  out.idle_blocks_ratio = ratio(last_.idle_blocks, blocks);
  out.used_slots_ratio = ratio(last_.used_slots, double(last_.used_slots) + last_.free_slots);
  return out;
}

void EngineStatistics::show(const WindowReport& report) {
  series_->window_steps->set(report.steps_per_second);
  series_->window_tokens->set(report.tokens_per_second);
  series_->window_prompt_rows->set(report.prompt_rows_per_second);
  series_->window_prompt_time->set(report.prompt_time_ratio);
  series_->window_cached->set(report.cached_ratio);
  series_->window_acceptance->set(report.acceptance_ratio);
  series_->window_verified->set(report.verified_mean);
  series_->window_confidence_error->set(report.confidence_error);
  series_->window_first_token_mean->set(report.first_token_mean_seconds);
  series_->window_first_token_max->set(report.first_token_max_seconds);
}

void EngineStatistics::idle(double now) { show(report(now)); }

void EngineStatistics::cache(const PrefixStatistics& p, const SnapshotStatistics& s, int64_t snapshot_bytes) {
  const auto rise = [](Counter* counter, int64_t now, int64_t before) {
    counter->add(std::max<int64_t>(0, now - before));
  };
  rise(series_->prompts, p.prompts, prefixes_.prompts);
  rise(series_->repeatable_prompts, p.repeatable_prompts, prefixes_.repeatable_prompts);
  rise(series_->hits, p.hits, prefixes_.hits);
  for (size_t i = 0; i < size_t(kCacheTiers); ++i) {
    rise(series_->tier_tokens[i], p.hit_tokens[i], prefixes_.hit_tokens[i]);
  }
  rise(series_->published, p.published, prefixes_.published);
  rise(series_->deduplicated, p.deduplicated, prefixes_.deduplicated);
  rise(series_->evicted, p.evicted, prefixes_.evicted);
  rise(series_->expired, p.expired, prefixes_.expired);
  rise(series_->collisions, p.collisions, prefixes_.collisions);
  rise(series_->snapshots_put, s.put, snapshots_.put);
  rise(series_->snapshots_found, s.found, snapshots_.found);
  rise(series_->snapshots_missed, s.missed, snapshots_.missed);
  rise(series_->snapshots_evicted, s.evicted, snapshots_.evicted);
  rise(series_->snapshots_expired, s.expired, snapshots_.expired);
  series_->snapshot_bytes->set(snapshot_bytes);
  prefixes_ = p;
  snapshots_ = s;
}

void EngineStatistics::grammars(const grammar::CompilePool::Counters& now) {
  series_->grammar_bytes->set(now.held_bytes);
  series_->grammars_waiting->set(now.waiting);
  series_->grammars_compiled->add(now.compiled - grammars_.compiled);
  series_->grammars_failed->add(now.failed - grammars_.failed);
  series_->grammars_found->add(now.cache_hits - grammars_.cache_hits);
  series_->grammars_evicted->add(now.evicted - grammars_.evicted);
  grammars_ = now;
}

void EngineStatistics::draft_rates(const DraftGuard::Report& report) {
  for (size_t i = 0; i < kDraftPolicies; ++i) series_->policy_rate[i]->set(report.tokens_per_second[i]);
  series_->trial_ratio->set(ratio(report.lost_seconds, report.seconds));
}

std::optional<std::string> EngineStatistics::stalled(double now, double limit_seconds) const {
  const int64_t running = requests_[size_t(RequestState::running)].load(std::memory_order_relaxed);
  const int64_t waiting = requests_[size_t(RequestState::waiting)].load(std::memory_order_relaxed);
  const double seconds = now - progressed_.load(std::memory_order_relaxed);
  if (running + waiting == 0 || seconds < limit_seconds) return {};
  return "no step for " + std::to_string(int64_t(seconds)) + " s with " + std::to_string(running) + " running and " +
         std::to_string(waiting) + " waiting requests";
}

}  // namespace fathom
