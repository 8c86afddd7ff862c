#include "fathom/engine/scheduler.h"

#include <algorithm>

namespace fathom {

Scheduler::Scheduler(SchedulerLimits limits) : limits_(limits), pools_(limits.blocks, limits.sequences) {
  check(limits.sequences > 0 && limits.step_rows > 0 && limits.prompt_logit_rows > 0, "a step has room for something");
}

void Scheduler::submit(Sequence sequence) {
  check(sequence.prompt_tokens == int64_t(sequence.ids.size()) && sequence.prompt_tokens > 0, "a request has a prompt");
  check(sequence.max_tokens > 0 && sequence.most_tokens() <= limits_.context, "a request fits into the context");
  check(blocks_needed(sequence) <= limits_.blocks, "a request fits into the cache");
  sequence.cached = sequence.replay.start;
  const SequenceId id = sequence.id;
  check(sequences_.emplace(id, std::move(sequence)).second, "a request has an id of its own");
  waiting_.push_back(id);
}

bool Scheduler::cancel(SequenceId id) {
  if (!sequences_.contains(id)) return false;
  if (const auto at = std::find(waiting_.begin(), waiting_.end(), id); at != waiting_.end()) {
    waiting_.erase(at);
    sequences_.erase(id);
  } else {
    release(id);
  }
  return true;
}

void Scheduler::release(SequenceId id) {
  Sequence& sequence = sequences_.at(id);
  promised_blocks_ -= blocks_needed(sequence);
  free_sequence(pools_, sequence.cache);
  running_.erase(std::find(running_.begin(), running_.end(), id));
  sequences_.erase(id);
}

void Scheduler::admit() {
  while (!waiting_.empty() && int(running_.size()) < limits_.sequences) {
    const Sequence& head = sequences_.at(waiting_.front());
    if (promised_blocks_ + blocks_needed(head) > limits_.blocks) return;  // strict order: nobody overtakes
    promised_blocks_ += blocks_needed(head);
    running_.push_back(head.id);
    waiting_.pop_front();
  }
}

StepPlan::Rows Scheduler::decode_rows(const Sequence& sequence) const {
  const int drafts = int(sequence.proposed.size());
  return {sequence.id, sequence.cached, 1 + drafts, 1 + drafts, drafts, 1 + drafts};
}

StepPlan::Rows Scheduler::prompt_piece(const Sequence& sequence, int64_t budget) const {
  const int64_t most = sequence.prompt_logits ? std::min(budget, limits_.prompt_logit_rows) : budget;
  const int64_t count = std::min(most, sequence.prompt_tokens - sequence.cached);
  const int64_t end = sequence.cached + count;
  const int64_t decoder = std::clamp<int64_t>(end - sequence.replay.decoder_from, 0, count);
  const int64_t logits = sequence.prompt_logits ? count : end == sequence.prompt_tokens ? 1 : 0;
  return {sequence.id, sequence.cached, int(count), int(decoder), 0, int(logits)};
}

const StepPlan& Scheduler::plan() {
  plan_.rows.clear();
  plan_.copies.clear();
  admit();
  for (const SequenceId id : running_) {
    const Sequence& sequence = sequences_.at(id);
    if (!sequence.in_prompt()) plan_.rows.push_back(decode_rows(sequence));
  }
  int64_t budget = limits_.step_rows;
  for (const SequenceId id : running_) {
    const Sequence& sequence = sequences_.at(id);
    if (!sequence.in_prompt() || budget == 0) continue;
    plan_.rows.push_back(prompt_piece(sequence, budget));
    budget -= plan_.rows.back().count;
  }
  for (const StepPlan::Rows& rows : plan_.rows) {
    Sequence& sequence = sequences_.at(rows.sequence);
    check(rows.first + rows.count <= sequence.most_tokens(), "a step stays inside what was promised");
    check(reserve(pools_, sequence.cache, rows.first + rows.count).ok(), "promised blocks are there");
  }
  return plan_;
}

void Scheduler::append(const StepPlan::Rows& rows, std::span<const int32_t> tokens, Outcome& outcome) {
  Sequence& sequence = sequences_.at(rows.sequence);
  sequence.proposed.clear();
  if (sequence.in_prompt()) {
    sequence.cached += rows.count;
    check(tokens.size() == (sequence.in_prompt() ? 0u : 1u), "the last piece of a prompt gives one token");
  } else {
    check(!tokens.empty() && int(tokens.size()) <= 1 + rows.drafts, "a round gives its accepted drafts and one more");
    sequence.cached += int64_t(tokens.size());  // the newest token and the accepted drafts; refused rows never were
  }
  for (const int32_t token : tokens) {
    sequence.ids.push_back(token);
    ++outcome.kept;
    if (std::binary_search(sequence.stop_ids.begin(), sequence.stop_ids.end(), token)) {
      outcome.finish = FinishReason::stop;
    } else if (sequence.remaining() == 0) {
      outcome.finish = FinishReason::length;
    }
    if (outcome.finish) return;
  }
}

std::span<const Outcome> Scheduler::commit(const StepPlan& plan, const StepResult& result) {
  check(result.begin.size() == plan.rows.size() + 1, "a step has results for each of its entries");
  outcomes_.clear();
  for (size_t entry = 0; entry < plan.rows.size(); ++entry) {
    outcomes_.push_back({plan.rows[entry].sequence, 0, {}});
    append(plan.rows[entry], result.of(entry), outcomes_.back());
  }
  for (const Outcome& outcome : outcomes_) {
    if (outcome.finish) release(outcome.sequence);
  }
  return outcomes_;
}

Sequence* Scheduler::find(SequenceId id) {
  const auto at = sequences_.find(id);
  return at == sequences_.end() ? nullptr : &at->second;
}

Result<void> Scheduler::verify() const {
  const auto wrong = [](const std::string& what, SequenceId id) {
    return Error{ErrorCode::failed, "scheduler is inconsistent: " + what, "sequence " + std::to_string(id), ""};
  };
  std::vector<int32_t> blocks, slots;
  int64_t promised = 0;
  if (sequences_.size() != waiting_.size() + running_.size()) return wrong("a sequence is in no queue or in two", 0);
  for (const SequenceId id : running_) {
    const auto at = sequences_.find(id);
    if (at == sequences_.end()) return wrong("it runs and does not exist", id);
    const Sequence& sequence = at->second;
    promised += blocks_needed(sequence);
    if (int64_t(sequence.cache.blocks.size()) > blocks_needed(sequence)) return wrong("it took more than promised", id);
    if (sequence.cached > int64_t(sequence.cache.blocks.size()) * kBlockTokens &&
        sequence.cached > sequence.replay.start)
      return wrong("its rows have no block", id);
    blocks.insert(blocks.end(), sequence.cache.blocks.begin(), sequence.cache.blocks.end());
    if (sequence.cache.slot != 0) slots.push_back(sequence.cache.slot);
  }
  for (const SequenceId id : waiting_) {
    const auto at = sequences_.find(id);
    if (at == sequences_.end()) return wrong("it waits and does not exist", id);
    if (!at->second.cache.blocks.empty() || at->second.cache.slot != 0) return wrong("it waits and holds memory", id);
  }
  if (promised != promised_blocks_ || promised > limits_.blocks) return wrong("promises do not add up", 0);
  if (auto state = pools_.blocks.verify(blocks); !state) return state;
  return pools_.slots.verify(slots);
}

}  // namespace fathom
