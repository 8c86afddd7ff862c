#include "fathom/engine/step_loop.h"

#include <algorithm>
#include <thread>

namespace fathom {
namespace {

double seconds(std::chrono::steady_clock::duration time) { return std::chrono::duration<double>(time).count(); }

}  // namespace

StepLoop::StepLoop(LoopOptions options, ModelPort port, const Operations& ops, Queue& queue)
    : options_(std::move(options)),
      scheduler_(options_.limits),
      executor_(Runner(std::move(port), ops, queue), options_.asynchronous) {
  check(options_.drafts >= 0 && options_.drafts <= std::min(executor_.block(), kMaxDrafts),
        "drafts come from one block");
  if (options_.curve) schedule_.emplace(*options_.curve, false);
}

void StepLoop::cancel(RequestId id) {
  if (scheduler_.cancel(id)) cancelled_.push_back(id);
}

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
  if (record.last_step > finished_steps_) retired_.push_back({record.last_step, std::move(record.live)});
  records_.erase(at);
}

std::span<const Event> StepLoop::step() {
  const auto begun = Clock::now();
  events_.clear();
  tell_cancelled();
  poll_constraints();
  const size_t depth = executor_.asynchronous() ? Executor::kMostInFlight : 1;
  const double inside = times_.wait_seconds;
  while (executor_.in_flight() < depth && start_step()) {
  }
  if (executor_.in_flight() > 0) {
    const auto waiting = Clock::now();
    StepWork& work = executor_.wait();
    times_.wait_seconds += seconds(Clock::now() - waiting);
    ++times_.steps;
    times_.step_seconds += work.total_seconds;
    finish_step(work);
    times_.host_seconds += seconds(Clock::now() - begun) - (times_.wait_seconds - inside);
  } else if (events_.empty() && !compiling_.empty()) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return events_;
}

bool StepLoop::start_step() {
  const StepPlan& plan = scheduler_.plan(now());
  if (plan.empty()) return false;
  const size_t place = started_steps_ % works_.size();
  StepWork& work = works_[place];
  work.clear();
  work.plan = plan;
  ++started_steps_;
  pack(work);
  decide_drafts(work);
  submitted_at_[place] = Clock::now();
  executor_.submit(work);  // a synchronous one runs it now
  if (!executor_.asynchronous()) times_.wait_seconds += work.total_seconds;
  return true;
}

// What the device does not know yet of the sequences in the plan.
void StepLoop::pack(StepWork& work) {
  const auto now = Clock::now();
  for (size_t entry = 0; entry < work.plan.rows.size(); ++entry) {
    const StepPlan::Rows& rows = work.plan.rows[entry];
    Sequence& sequence = *scheduler_.find(rows.sequence);
    Record& record = records_.at(rows.sequence);
    if (!record.started) {  // queue time ends when its first row is planned
      record.started = true;
      record.usage.queue_seconds = seconds(now - record.submitted);
    }
    record.last_step = started_steps_;
    work.live.push_back(record.live.get());
    work.in_prompt.push_back(rows.first < sequence.prefill_tokens);
    if (record.begun != sequence.admission) {
      record.begun = sequence.admission;
      record.usage.cached_tokens = sequence.hit_tokens;
      record.usage.replayed_tokens = sequence.replayed_tokens;
      record.usage.preemptions = sequence.preemptions;
      work.begins.push_back({entry, sequence.prefill_tokens, sequence.cached, sequence.replay, sequence.cache.slot});
    }
    const auto& blocks = sequence.cache.blocks;
    if (sequence.known_blocks < blocks.size()) {
      work.new_blocks.push_back({entry, sequence.known_blocks, blocks.size() - sequence.known_blocks});
      work.block_ids.insert(work.block_ids.end(), blocks.begin() + ptrdiff_t(sequence.known_blocks), blocks.end());
      sequence.known_blocks = blocks.size();
    }
  }
}

void StepLoop::decide_drafts(StepWork& work) {
  if (!schedule_) return;
  candidates_.clear();
  for (size_t entry = 0; entry < work.plan.rows.size(); ++entry) {
    if (work.in_prompt[entry]) continue;
    const StepPlan::Rows& rows = work.plan.rows[entry];
    const Sequence& sequence = *scheduler_.find(rows.sequence);
    candidates_.push_back(
        {&records_.at(rows.sequence).history, rows.drafts, sequence.in_flight_steps > 1, work.live[entry]->verify_all});
  }
  const auto decision = schedule_->decide(candidates_, candidates_.size() < work.plan.rows.size());
  work.policy = decision.policy;
  work.verify_rows = decision.verify_rows;
}

void StepLoop::finish_step(StepWork& work) {
  ++finished_steps_;
  const auto outcomes = scheduler_.commit(work.plan, work.result);
  const auto now = Clock::now();
  int64_t tokens = 0;
  for (size_t entry = 0; entry < outcomes.size(); ++entry) {
    const auto at = records_.find(outcomes[entry].sequence);
    if (at == records_.end()) continue;  // it ended while this step was in flight
    note_rows(work, entry, at->second);
    if (outcomes[entry].kept > 0) tell(work, entry, outcomes[entry], now);
    tokens += outcomes[entry].kept;
  }
  for (const Snapshot& one : work.snapshots) {
    scheduler_.put_snapshot(work.plan.rows[one.entry].sequence, one.position, [&](std::span<uint8_t> out) {
      std::copy(one.bytes.begin(), one.bytes.end(), out.begin());
    });
  }
  std::erase_if(retired_, [&](const Retired& one) { return one.last_step <= finished_steps_; });
  // From the end of the step before, or from its own begin where nothing ran before it.
  const auto begin = std::max(finished_at_, submitted_at_[(finished_steps_ - 1) % works_.size()]);
  finished_at_ = Clock::now();
  measure(work, tokens, std::max(seconds(finished_at_ - begin), work.total_seconds));
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
  if (record.usage.generated_tokens == 0) record.usage.first_token_seconds = seconds(now - record.submitted);
  record.usage.generated_tokens += outcome.kept;
  Event& event = events_.emplace_back();
  event.request = outcome.sequence;
  event.ids.assign(kept.begin(), kept.end());
  if (!report.logprobs.empty()) {
    report.logprobs.resize(kept.size());
    event.logprobs = std::move(report.logprobs);
  }
  event.prompt_logprobs = std::move(record.prompt);
  if (outcome.finish) {
    finish(event, *outcome.finish, now);
  } else if (report.error) {
    scheduler_.cancel(outcome.sequence);
    finish(event, FinishReason::failed, now, report.error);
  }
}

// Medians would forget faster; a mean that forgets a tenth a step follows a change of load within a few steps.
void StepLoop::measure(const StepWork& work, int64_t tokens, double step_seconds) {
  constexpr double kForget = 0.1;
  int64_t prompt_rows = 0;
  for (size_t entry = 0; entry < work.plan.rows.size(); ++entry) {
    if (work.in_prompt[entry]) prompt_rows += work.reports[entry].rows;
  }
  if (prompt_rows == 0 && work.decode_sequences == 0) return;  // all of it had ended
  double& value = prompt_rows == 0 ? cost_.decode_seconds : cost_.prompt_row_seconds;
  const double sample =
      prompt_rows == 0 ? step_seconds : std::max(0.0, step_seconds - cost_.decode_seconds) / double(prompt_rows);
  value = value == 0 ? sample : value + kForget * (sample - value);
  scheduler_.set_cost(cost_);
  if (schedule_ && prompt_rows == 0) {
    schedule_->record(work.policy, work.decode_sequences, work.decode_rows, tokens, work.forward_seconds, step_seconds);
  }
}

}  // namespace fathom
