#include "fathom/engine/scheduler.h"

#include <algorithm>

namespace fathom {

Scheduler::Scheduler(SchedulerLimits limits)
    : limits_(limits),
      pools_(limits.blocks, limits.sequences),
      snapshots_(limits.snapshot_bytes, limits.snapshots),
      waiting_(limits.queue) {
  check(limits.sequences > 0 && limits.step_rows > 0 && limits.prompt_logit_rows > 0, "a step has room for something");
}

void Scheduler::submit(Sequence sequence) {
  check(sequence.prompt_tokens == int64_t(sequence.ids.size()) && sequence.prompt_tokens > 0, "a request has a prompt");
  check(sequence.max_tokens > 0 && sequence.most_tokens() <= limits_.context, "a request fits into the context");
  check(blocks_needed(sequence) <= limits_.blocks, "a request fits into the cache");
  const SequenceId id = sequence.id;
  waiting_.push(
      {id, sequence.priority, sequence.tenant, sequence.arrived, sequence.first_token_by, sequence.prompt_tokens});
  if (sequence.parent != 0) branches_.push_back(id);
  check(sequences_.emplace(id, std::move(sequence)).second, "a request has an id of its own");
}

bool Scheduler::cancel(SequenceId id) {
  const auto at = sequences_.find(id);
  if (at == sequences_.end()) return false;
  if (waiting_.remove(id)) {
    if (at->second.chain.root != 0) pools_.prefixes.close_root(at->second.chain.root);
    std::erase(branches_, id);
    if (blocked_ == id) blocked_ = 0;
    sequences_.erase(at);
  } else {
    publish_blocks(at->second);
    leave(at->second);
  }
  return true;
}

void Scheduler::make_ready(SequenceId id) {
  if (Sequence* sequence = find(id)) sequence->ready = true;
}

bool Scheduler::preempt(SequenceId id) {
  Sequence* sequence = find(id);
  if (sequence == nullptr || waiting_.find(id) != nullptr) return false;
  do_preempt(*sequence);
  return true;
}

Sequence* Scheduler::find(SequenceId id) {
  const auto at = sequences_.find(id);
  return at == sequences_.end() ? nullptr : &at->second;
}

const Sequence* Scheduler::find(SequenceId id) const {
  const auto at = sequences_.find(id);
  return at == sequences_.end() ? nullptr : &at->second;
}

void Scheduler::remove_running(SequenceId id) { running_.erase(std::find(running_.begin(), running_.end(), id)); }

// Gives up a running sequence's memory, now or when its last step is committed, and its place.
void Scheduler::leave(Sequence& sequence) {
  promised_blocks_ -= blocks_needed(sequence);
  remove_running(sequence.id);
  if (sequence.in_flight_steps > 0) {
    leaving_.push_back({sequence.id, std::move(sequence.cache), sequence.in_flight_steps});
  } else {
    free_sequence(pools_, sequence.cache);
  }
  if (sequence.chain.root != 0) pools_.prefixes.close_root(sequence.chain.root);
  sequences_.erase(sequence.id);
}

// What has not been used for its time to live goes. Once a second is often enough for times of minutes.
void Scheduler::drop_aged(double now) {
  if (now < aged_at_ + 1) return;
  aged_at_ = now;
  const std::chrono::seconds whole{int64_t(now)};
  pools_.blocks.idle().advance(whole);
  drop_expired(pools_);
  snapshots_.advance(whole);
}

const StepPlan& Scheduler::plan(double now) {
  if (!limits_.separate) return plan(now, StepRows::both);
  const StepDescriptor alone = wish(now);
  const bool prompts = runs_prompts({&alone, 1});
  if (plan(now, prompts ? StepRows::prompts : StepRows::decode).empty()) {
    plan(now, prompts ? StepRows::decode : StepRows::prompts);  // what was agreed on cannot run now
  }
  note_group_step(describe(plan_, *this).kind);
  return plan_;
}

const StepPlan& Scheduler::plan(double now, StepRows rows) {
  plan_.clear();
  drop_aged(now);
  if (rows != StepRows::decode) plan_branches();
  if (rows != StepRows::prompts) plan_decode();
  if (rows != StepRows::decode) plan_prompts(now, rows);
  if (!plan_.empty()) ++planned_steps_;
  return plan_;
}

StepDescriptor Scheduler::wish(double now) const {
  StepDescriptor out;
  for (const SequenceId id : running_) {
    const Sequence& sequence = sequences_.at(id);
    const bool decodes = sequence.planned() >= sequence.prefill_tokens;
    if (decodes) out.kind = StepKind::decode;
    out.prompt_work |= !decodes;
  }
  const auto due = waiting_.earliest_due();
  out.prompt_work |= due.has_value();
  out.overdue = due && now > *due;
  out.cache_usage = 1 - double(pools_.blocks.available()) / double(pools_.blocks.capacity());
  out.decode_steps = decode_steps_;
  return out;
}

StepDescriptor describe(const StepPlan& plan, const Scheduler& scheduler) {
  StepDescriptor out;
  for (const StepPlan::Rows& rows : plan.rows) {
    out.rows += rows.count;
    const bool prompt = rows.first < scheduler.find(rows.sequence)->prefill_tokens;
    out.kind = std::max(out.kind, prompt ? StepKind::mixed : StepKind::decode);
  }
  return out;
}

void Scheduler::add_rows(Sequence& sequence, const StepPlan::Rows& rows) {
  sequence.in_flight_rows += rows.count;
  ++sequence.in_flight_steps;
  sequence.planned_step = planned_steps_ + 1;
  const bool brings_token = rows.first + rows.count >= sequence.prefill_tokens;
  sequence.in_flight_tokens += brings_token;
  plan_.rows.push_back(rows);
}

void Scheduler::append(Sequence& sequence, const StepPlan::Rows& rows, std::span<const int32_t> tokens,
                       Outcome& outcome) {
  if (sequence.in_prompt()) {
    sequence.cached += rows.count;
    counts_.computed_rows += rows.count;
    check(tokens.size() == (sequence.in_prompt() ? 0u : 1u), "the last piece of a prompt gives one token");
  } else {
    check(!tokens.empty() && int(tokens.size()) <= 1 + rows.drafts, "a round gives its accepted drafts and one more");
    sequence.cached += int64_t(tokens.size());  // the newest token and the accepted drafts; refused rows never were
  }
  if (tokens.empty()) return;
  const Taken taken = take(tokens, sequence.stop_ids, sequence.remaining());
  sequence.ids.insert(sequence.ids.end(), tokens.begin(), tokens.begin() + taken.count);
  outcome.kept = taken.count;
  outcome.finish = taken.finish;
  // Behind a stop nothing was kept: rows of tokens that were dropped are not the sequence's.
  sequence.cached = std::min(sequence.cached, int64_t(sequence.ids.size()));
}

std::span<const Outcome> Scheduler::commit(const StepPlan& plan, const StepResult& result) {
  check(result.begin.size() == plan.rows.size() + 1, "a step has results for each of its entries");
  check(result.proposed.empty() || result.proposed.size() == plan.rows.size(), "and counts of drafts for each or none");
  outcomes_.clear();
  ++committed_steps_;
  for (size_t entry = 0; entry < plan.rows.size(); ++entry) {
    const StepPlan::Rows& rows = plan.rows[entry];
    outcomes_.push_back({rows.sequence, 0, {}});
    // What left while this step was in flight comes first: it is older than a sequence of the same id.
    const auto left =
        std::find_if(leaving_.begin(), leaving_.end(), [&](const Leaving& one) { return one.id == rows.sequence; });
    if (left != leaving_.end()) {
      if (--left->in_flight_steps == 0) {
        free_sequence(pools_, left->cache);
        leaving_.erase(left);
      }
      continue;
    }
    Sequence* sequence = find(rows.sequence);
    check(sequence != nullptr && sequence->in_flight_steps > 0, "a result belongs to a planned step");
    const bool brings_token = rows.first + rows.count >= sequence->prefill_tokens;
    --sequence->in_flight_steps;
    sequence->in_flight_rows -= rows.count;
    sequence->in_flight_tokens -= brings_token;
    if (result.of(entry).empty() && brings_token) continue;  // it had ended on the device
    append(*sequence, rows, result.of(entry), outcomes_.back());
    sequence->proposed = result.proposed.empty() ? 0 : result.proposed[entry];
    publish_blocks(*sequence);
  }
  for (const Outcome& outcome : outcomes_) {
    if (outcome.finish) leave(*find(outcome.sequence));
  }
  release_displaced();
  return outcomes_;
}

void Scheduler::publish_blocks(Sequence& sequence) {
  if (sequence.chain.root == 0) return;
  displaced_now_.clear();
  const auto before = size_t(sequence.chain.published);
  publish(pools_, sequence.cache, sequence.chain, sequence.ids, sequence.cached, displaced_now_);
  if (!displaced_now_.empty()) sequence.known_blocks = std::min(sequence.known_blocks, before);
  for (const int32_t block : displaced_now_) displaced_.push_back({block, planned_steps_});
}

void Scheduler::release_displaced() {
  std::erase_if(displaced_, [&](const Displaced& one) {
    if (one.step > committed_steps_) return false;
    pools_.blocks.release(one.block);
    return true;
  });
}

bool Scheduler::put_snapshot(SequenceId id, int64_t position, const std::function<void(std::span<uint8_t>)>& fill) {
  Sequence* sequence = find(id);
  if (sequence == nullptr || sequence->chain.root == 0 || position > sequence->cached) return false;
  return snapshots_.put(pools_.prefixes, sequence->chain, sequence->ids, position, fill);
}

Result<void> Scheduler::verify() const {
  const auto wrong = [](const std::string& what, SequenceId id) {
    return Error{ErrorCode::failed, "scheduler is inconsistent: " + what, "sequence " + std::to_string(id), ""};
  };
  std::vector<int32_t> blocks, slots;
  int64_t promised = 0;
  if (sequences_.size() != waiting_.size() + running_.size()) return wrong("a sequence is in no queue or in two", 0);
  const auto hold = [&](const SequenceCache& cache) {
    blocks.insert(blocks.end(), cache.blocks.begin(), cache.blocks.end());
    if (cache.slot != 0) slots.push_back(cache.slot);
  };
  for (const SequenceId id : running_) {
    const auto at = sequences_.find(id);
    if (at == sequences_.end()) return wrong("it runs and does not exist", id);
    const Sequence& sequence = at->second;
    promised += blocks_needed(sequence);
    if (int64_t(sequence.cache.blocks.size()) > blocks_needed(sequence)) return wrong("it took more than promised", id);
    const int64_t known = std::min(sequence.planned(), sequence.most_tokens());
    if (known > int64_t(sequence.cache.blocks.size()) * kBlockTokens && known > sequence.replay.start) {
      return wrong("its rows have no block", id);
    }
    hold(sequence.cache);
  }
  for (const auto& [id, sequence] : sequences_) {
    if (waiting_.find(id) == nullptr) continue;
    if (!sequence.cache.blocks.empty() || sequence.cache.slot != 0) return wrong("it waits and holds memory", id);
  }
  for (const Leaving& one : leaving_) hold(one.cache);
  for (const Displaced& one : displaced_) blocks.push_back(one.block);
  if (promised != promised_blocks_) return wrong("promises do not add up", 0);
  if (auto state = snapshots_.verify(); !state) return state;
  return fathom::verify(pools_, blocks, slots);
}

}  // namespace fathom
