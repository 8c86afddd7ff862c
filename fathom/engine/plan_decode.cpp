// Decode rows of a step, and who makes room for them.
#include <algorithm>

#include "fathom/engine/scheduler.h"

namespace fathom {

StepPlan::Rows Scheduler::decode_rows(const Sequence& sequence) const {
  // With a step in flight nobody knows yet how many drafts there will be.
  const int64_t most = std::min<int64_t>(sequence.drafts, sequence.remaining() - sequence.in_flight_tokens - 1);
  const int drafts = sequence.in_flight_steps == 0 ? sequence.proposed : int(most);
  return {sequence.id, sequence.planned(), 1 + drafts, 1 + drafts, drafts, 1 + drafts};
}

void Scheduler::plan_decode() {
  order_.assign(running_.begin(), running_.end());
  std::stable_sort(order_.begin(), order_.end(),
                   [&](SequenceId a, SequenceId b) { return sequences_.at(a).priority > sequences_.at(b).priority; });
  for (const SequenceId id : order_) {
    Sequence* sequence = find(id);
    if (!plan_.preempted.empty() && waiting_.find(id) != nullptr) continue;  // preempted for one before it
    if (sequence->planned() < sequence->prefill_tokens) continue;
    if (sequence->remaining() - sequence->in_flight_tokens <= 0) continue;  // its last token is in flight
    const StepPlan::Rows rows = decode_rows(*sequence);
    if (make_fit(*sequence, rows.first + rows.count)) add_rows(*sequence, rows);
  }
}

bool Scheduler::make_fit(Sequence& sequence, int64_t tokens) {
  tokens = std::min(tokens, sequence.most_tokens());  // drafts behind the end are never run
  while (!reserve(pools_, sequence.cache, tokens).ok()) {
    Sequence* gives = victim(sequence);
    if (gives == nullptr) return false;
    const bool at_once = gives->in_flight_steps == 0, itself = gives == &sequence;
    do_preempt(*gives);
    if (itself || !at_once) return false;
  }
  return true;
}

// The lowest class; in it whoever has the fewest rows to compute again; of equals the one that came last. What has a
// step in flight gives its memory later, so it is asked last. Never a prompt whose logits are half told.
Sequence* Scheduler::victim(const Sequence& wants) {
  Sequence* best = nullptr;
  const auto again = [](const Sequence& one) { return one.cached - int64_t(one.chain.published) * kBlockTokens; };
  for (const SequenceId id : running_) {
    Sequence& one = sequences_.at(id);
    if (one.prompt_logits && one.generated() == 0) continue;
    if (one.priority > wants.priority) continue;
    if (one.cache.blocks.empty() || one.planned_step > planned_steps_) continue;  // or in this step already
    const auto better = [&](const Sequence& than) {
      const bool busy = one.in_flight_steps > 0, other_busy = than.in_flight_steps > 0;
      if (busy != other_busy) return other_busy;
      if (one.priority != than.priority) return one.priority < than.priority;
      return again(one) <= again(than);
    };
    if (best == nullptr || better(*best)) best = &one;
  }
  return best != nullptr && (best != &wants || running_.size() > 1) ? best : nullptr;
}

void Scheduler::do_preempt(Sequence& sequence) {
  publish_blocks(sequence);
  promised_blocks_ -= blocks_needed(sequence);
  remove_running(sequence.id);
  if (sequence.in_flight_steps > 0) {
    leaving_.push_back({sequence.id, std::move(sequence.cache), sequence.in_flight_steps});
    sequence.cache = {};
  } else {
    free_sequence(pools_, sequence.cache);
  }
  truncate_chain(sequence.chain, 0);
  sequence.proposed = 0;
  sequence.known_blocks = 0;
  sequence.in_flight_rows = 0;
  sequence.in_flight_steps = sequence.in_flight_tokens = 0;
  sequence.cached = 0;
  ++sequence.preemptions;
  ++counts_.preempted;
  plan_.preempted.push_back(sequence.id);
  waiting_.push({sequence.id, sequence.priority, sequence.tenant, sequence.arrived, sequence.first_token_by,
                 int64_t(sequence.ids.size())});
}

}  // namespace fathom
