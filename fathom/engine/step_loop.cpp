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
  if (options_.curve) schedule_.emplace(*options_.curve, options_.sizes_of_curve);
}

void StepLoop::cancel(RequestId id) {
  if (recorder_.cancel(id)) cancelled_.push_back(id);
}

std::span<Event> StepLoop::step() {
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
  } else {
    if (options_.statistics != nullptr) {
      options_.statistics->idle(now());
      if (compile_pool_) options_.statistics->grammars(compile_pool_->counters());
    }
    if (events_.empty() && !compiling_.empty()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return events_;
}

bool StepLoop::start_step() {
  const auto begun = Clock::now();
  const StepPlan& plan = recorder_.plan(now());
  if (options_.statistics != nullptr) {
    for (const SequenceId id : plan.preempted) options_.statistics->preempt(records_.at(id).progress, now());
  }
  if (plan.empty()) return false;
  const size_t place = started_steps_ % works_.size();
  StepWork& work = works_[place];
  work.clear();
  work.plan = plan;
  ++started_steps_;
  pack(work);
  decide_drafts(work);
  submitted_at_[place] = Clock::now();
  plan_seconds_[place] = seconds(submitted_at_[place] - begun);
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
      if (options_.statistics != nullptr) options_.statistics->start(record.progress, this->now());
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
  const auto begun = Clock::now();
  const auto outcomes = recorder_.commit(work.plan, work.result);
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
    recorder_.put_snapshot(work.plan.rows[one.entry].sequence, one.position,
                           [&](std::span<uint8_t> out) { std::copy(one.bytes.begin(), one.bytes.end(), out.begin()); });
  }
  std::erase_if(retired_, [&](const Retired& one) { return one.last_step <= finished_steps_; });
  // From the end of the step before, or from its own begin where nothing ran before it.
  const size_t place = (finished_steps_ - 1) % works_.size();
  const auto begin = std::max(finished_at_, submitted_at_[place]);
  finished_at_ = Clock::now();
  const double step_seconds = std::max(seconds(finished_at_ - begin), work.total_seconds);
  measure(work, tokens, step_seconds);
  summarize(work, outcomes, step_seconds, plan_seconds_[place] + seconds(finished_at_ - begun));
}

}  // namespace fathom
