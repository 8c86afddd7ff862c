// What the loop tells of a step: events for callers, usage for bills, summaries for statistics and the step log, costs
// for the decisions of later steps.
#include <algorithm>
#include <cmath>

#include "fathom/engine/step_loop.h"

namespace fathom {
namespace {

double seconds(std::chrono::steady_clock::duration time) { return std::chrono::duration<double>(time).count(); }

}  // namespace

void StepLoop::tell_cancelled() {
  for (const RequestId id : cancelled_) {
    events_.push_back({});
    events_.back().request = id;
    finish(events_.back(), FinishReason::cancelled, Clock::now());
  }
  cancelled_.clear();
}

void StepLoop::finish(Event& event, FinishReason reason, Clock::time_point now, std::optional<Error> error) {
  const auto at = records_.find(event.request);
  Record& record = at->second;
  record.usage.total_seconds = seconds(now - record.submitted);
  event.finish = Finish{reason, std::move(error), record.usage};
  if (options_.statistics != nullptr) options_.statistics->finish(record.progress, this->now(), *event.finish);
  auto& accounts = scheduler_.pools().blocks.idle();  // its root is closed by now
  accounts.close_account(record.account);
  if (record.root_account >= 0) accounts.close_account(record.root_account);
  if (record.last_step > finished_steps_) retired_.push_back({record.last_step, std::move(record.live)});
  records_.erase(at);
}

void StepLoop::note_rows(StepWork& work, size_t entry, Record& record) {
  const StepPlan::Rows& rows = work.plan.rows[entry];
  EntryReport& report = work.reports[entry];
  Usage& usage = record.usage;
  if (report.rows > 0) record.history.add(report.confidence);
  if (work.in_prompt[entry]) {
    usage.encoder_rows += report.rows;
    usage.decoder_rows += report.rows == 0 ? 0 : rows.decoder_count;
    record.prompt.insert(record.prompt.end(), std::make_move_iterator(report.prompt_logprobs.begin()),
                         std::make_move_iterator(report.prompt_logprobs.end()));
    return;
  }
  if (report.drafts == 0) return;
  ++usage.rounds;
  const size_t tokens = work.result.of(entry).size();
  for (size_t i = 0; i < size_t(report.drafts); ++i) {
    ++usage.offered[i];
    if (i + 1 < tokens) ++usage.accepted[i];
  }
}

void StepLoop::tell(StepWork& work, size_t entry, const Outcome& outcome, Clock::time_point now) {
  Record& record = records_.at(outcome.sequence);
  EntryReport& report = work.reports[entry];
  const auto kept = work.result.of(entry).first(size_t(outcome.kept));
  const bool first = record.usage.generated_tokens == 0;
  if (first) record.usage.first_token_seconds = seconds(now - record.submitted);
  record.usage.generated_tokens += outcome.kept;
  if (options_.statistics != nullptr) options_.statistics->bring(record.progress, this->now(), outcome.kept);
  Event& event = events_.emplace_back();
  event.request = outcome.sequence;
  if (first) event.cached_tokens = record.usage.cached_tokens;
  event.drafts = report.drafts;
  event.accepted = report.drafts == 0 ? 0 : std::min(report.drafts, int(work.result.of(entry).size()) - 1);
  event.confidence = report.verified_confidence;
  event.ids.assign(kept.begin(), kept.end());
  if (!report.logprobs.empty()) {
    report.logprobs.resize(kept.size());
    event.logprobs = std::move(report.logprobs);
  }
  event.prompt_logprobs = std::move(record.prompt);
  if (outcome.finish) {
    finish(event, *outcome.finish, now);
  } else if (report.error) {
    recorder_.cancel(outcome.sequence);
    finish(event, FinishReason::failed, now, report.error);
  }
}

void StepLoop::measure(const StepWork& work, int64_t tokens, double step_seconds) {
  int64_t prompt_rows = 0;
  for (size_t entry = 0; entry < work.plan.rows.size(); ++entry) {
    if (work.in_prompt[entry]) prompt_rows += work.reports[entry].rows;
  }
  if (prompt_rows == 0 && work.decode_sequences == 0) return;  // all of it had ended
  cost_.observe(prompt_rows, step_seconds);
  recorder_.set_cost(cost_);
  if (schedule_ && prompt_rows == 0) {
    schedule_->record(work.policy, work.decode_sequences, work.decode_rows, tokens, work.forward_seconds, step_seconds);
  }
}

void StepLoop::summarize(const StepWork& work, std::span<const Outcome> outcomes, double step_seconds,
                         double plan_seconds) {
  if (options_.statistics == nullptr && options_.step_log == nullptr) return;
  StepSummary summary;
  summary.step = finished_steps_;
  summary.ended = now();
  summary.step_seconds = float(step_seconds);
  summary.plan_seconds = float(plan_seconds);
  summary.forward_seconds = float(work.forward_seconds);
  summary.sample_seconds = float(work.sample_seconds);
  summary.other_seconds = float(work.total_seconds - work.forward_seconds - work.sample_seconds);
  summary.policy = work.policy;
  for (size_t entry = 0; entry < outcomes.size(); ++entry) {
    const StepPlan::Rows& rows = work.plan.rows[entry];
    const EntryReport& report = work.reports[entry];
    const bool prompt = work.in_prompt[entry] != 0;
    const int again = prompt ? report.replayed_rows : 0;
    const auto tokens = int(work.result.of(entry).size());
    note_entry(summary, options_.step_log, rows, {prompt, report.rows, report.drafts, tokens, again}, outcomes[entry]);
    // Behind a refused draft as well: both sides ask what would be if all before it were accepted.
    for (size_t i = 0; i < size_t(report.drafts); ++i) {
      const float said = report.verified_confidence[i];
      if (std::isnan(said)) continue;
      summary.confidence_error += std::abs(report.acceptance[i] - said);
      ++summary.confidences;
    }
  }
  add_plan(summary, work.plan);
  add_standing(summary, scheduler_);
  if (options_.step_log != nullptr) options_.step_log->add(summary);
  if (options_.statistics != nullptr && options_.statistics->step(summary)) {
    options_.statistics->cache(prefix_statistics(), scheduler_.snapshots().statistics(),
                               scheduler_.snapshots().bytes());
    if (schedule_) options_.statistics->draft_rates(schedule_->report(std::max(1, work.decode_sequences)));
    if (compile_pool_) options_.statistics->grammars(compile_pool_->counters());
  }
}

}  // namespace fathom
