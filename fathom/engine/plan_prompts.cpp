// Prompt pieces of a step: who is admitted, what of its prompt is found, how many rows it gets.
#include <algorithm>
#include <cmath>

#include "fathom/engine/scheduler.h"

namespace fathom {

Replay recompute_replay(const ReplayShape& shape, const Replay& first, int64_t hit) {
  Replay out = first;
  const bool restored = first.start > 0 && first.encoder_cut == 0;  // by windows that are not there now
  const bool covered = hit >= first.store_from;                     // all that was found then is found now
  const int64_t exact_from = std::min({hit, first.decoder_from, first.decoder_window_from});
  const int64_t warm = std::max<int64_t>(0, exact_from - int64_t(shape.encoder_layers) * (shape.window - 1));
  out.store_from = hit;
  if (covered && !restored && warm <= first.start) return out;
  out.start = warm;
  out.encoder_cut = warm;
  return out;
}

int64_t Scheduler::prompt_budget(double now) const {
  double tightest = 0;
  bool decoding = false;
  for (const StepPlan::Rows& rows : plan_.rows) {
    const Sequence& sequence = sequences_.at(rows.sequence);
    decoding = true;
    if (sequence.between_tokens) {
      tightest = tightest == 0 ? *sequence.between_tokens : std::min(tightest, *sequence.between_tokens);
    }
  }
  if (!decoding || tightest == 0 || cost_.prompt_row_seconds <= 0) return limits_.step_rows;
  const double rows = (tightest - cost_.decode_seconds) / cost_.prompt_row_seconds;
  // Whoever has waited too long gets a piece all the same.
  const auto due = waiting_.earliest_due();
  const bool overdue = due && now > *due;
  const int64_t least = std::min<int64_t>(limits_.step_rows, overdue ? kBlockTokens : 1);
  return std::clamp(int64_t(std::max(0.0, std::floor(rows))), least, limits_.step_rows);
}

void Scheduler::plan_prompts(double now, StepRows rows) {
  int64_t budget = prompt_budget(now);
  order_.assign(running_.begin(), running_.end());
  for (const SequenceId id : order_) {
    if (budget == 0) return;
    Sequence* sequence = find(id);
    if (waiting_.find(id) == nullptr && sequence->planned() < sequence->prefill_tokens) add_piece(*sequence, budget);
  }
  admit(now, budget);
  if (rows == StepRows::prompts && wish(now).kind == StepKind::decode) return;  // decode steps will free memory
  // Prompts that hold all memory between them, and none can go on: the last one makes room for the first.
  while (plan_.rows.empty() && running_.size() > 1) {
    Sequence& last = sequences_.at(running_.back());
    if (last.in_flight_steps > 0) return;
    do_preempt(last);
    Sequence& first = sequences_.at(running_.front());
    if (first.in_flight_steps == 0 && first.planned() < first.prefill_tokens) add_piece(first, budget);
  }
}

StepPlan::Rows Scheduler::prompt_piece(const Sequence& sequence, int64_t budget) const {
  const int64_t most = sequence.prompt_logits ? std::min(budget, limits_.prompt_logit_rows) : budget;
  const int64_t first = sequence.planned();
  const int64_t held = int64_t(sequence.cache.blocks.size()) + pools_.blocks.available();
  const int64_t end = std::min({first + most, sequence.prefill_tokens, held * kBlockTokens});
  const int64_t count = std::max<int64_t>(0, end - first);
  const int64_t decoder = std::clamp<int64_t>(end - sequence.replay.decoder_from, 0, count);
  const bool is_prompt = sequence.prompt_logits && sequence.generated() == 0;
  const int64_t logits = is_prompt ? count : end == sequence.prefill_tokens ? 1 : 0;
  return {sequence.id, first, int(count), int(decoder), 0, int(logits)};
}

void Scheduler::add_piece(Sequence& sequence, int64_t& budget) {
  const StepPlan::Rows rows = prompt_piece(sequence, budget);
  if (rows.count <= 0 || !reserve(pools_, sequence.cache, rows.first + rows.count).ok()) return;
  counts_.replayed_rows += std::clamp<int64_t>(sequence.replay.store_from - rows.first, 0, rows.count);
  waiting_.charge(sequence.tenant, rows.count);
  budget -= rows.count;
  add_rows(sequence, rows);
}

bool Scheduler::room_for(const Sequence& sequence) const {
  if (running_.empty()) return true;
  const double halved = std::ldexp(limits_.overcommit, -sequence.preemptions);
  const int64_t capacity = pools_.blocks.capacity() - pools_.prefixes.pinned_blocks();
  return double(promised_blocks_ + blocks_needed(sequence)) <= double(capacity) * (1 + halved);
}

void Scheduler::admit(double now, int64_t& budget) {
  if (budget == 0 || waiting_.empty() || int(running_.size()) >= limits_.sequences) return;
  const auto ids = waiting_.order(now);
  order_.assign(ids.begin(), ids.end());
  for (const SequenceId id : order_) {
    if (budget == 0 || int(running_.size()) >= limits_.sequences) return;
    Sequence& sequence = sequences_.at(id);
    if (!sequence.ready || std::find(plan_.preempted.begin(), plan_.preempted.end(), id) != plan_.preempted.end() ||
        std::find(branches_.begin(), branches_.end(), id) != branches_.end()) {
      continue;
    }
    if (try_admit(sequence)) {
      if (blocked_ == id) blocked_ = 0;
      if (blocked_ != 0) ++passed_over_, ++counts_.passed_over;
      add_piece(sequence, budget);
      continue;
    }
    if (blocked_ == 0) blocked_ = id, passed_over_ = 0;
    if (blocked_ == id && passed_over_ >= limits_.passed_over) return;  // now everybody waits for it
  }
}

void Scheduler::begin(Sequence& sequence) {
  waiting_.remove(sequence.id);
  sequence.admission = ++counts_.admitted;
  sequence.known_blocks = 0;
  running_.push_back(sequence.id);
  promised_blocks_ += blocks_needed(sequence);
}

bool Scheduler::try_admit(Sequence& sequence) {
  if (!room_for(sequence) || pools_.slots.available() == 0) return false;
  const int64_t length = int64_t(sequence.ids.size());
  const bool exact = replay_class_of(sequence.mode) == ReplayClass::exact || sequence.prompt_logits;
  PrefixHit hit;
  if (sequence.chain.root != 0 && sequence.mode != ReplayMode::off) {
    hit = pools_.prefixes.lookup(sequence.chain, sequence.ids, exact);
  }
  PrefillPlan plan;
  std::optional<SnapshotView> snapshot;
  std::optional<int64_t> windows_at;
  if (sequence.preemptions == 0) {
    if (sequence.chain.root != 0 && sequence.mode != ReplayMode::off && limits_.snapshot_bytes > 0) {
      const SnapshotRange range = useful_snapshots(limits_.shape, sequence.mode, length, hit.tokens());
      if (range.lowest <= range.highest) {
        snapshot = snapshots_.latest(pools_.prefixes, sequence.chain, sequence.ids, range, exact);
      }
      if (snapshot) {
        windows_at = snapshot->position;
      } else if (range.zero) {
        windows_at = 0;
      }
    }
    plan = plan_prefill(limits_.shape, sequence.mode, length, hit.tokens(), windows_at);
  } else {
    plan.replay = recompute_replay(limits_.shape, sequence.first_replay, hit.tokens());
    plan.hit = hit.tokens();
    plan.seam = sequence.first_seam && plan.replay.start == sequence.first_replay.start;
    plan.replay_rows = std::max<int64_t>(0, plan.hit - plan.replay.start);
  }
  int64_t revived = 0;  // idle blocks of the hit are counted as available, and will not be
  if (plan.hit > 0) {
    for (const int32_t block : hit.blocks) revived += pools_.blocks.references(block) == 0;
  }
  if (pools_.blocks.available() - revived <= 0) return false;
  attach(pools_, sequence.cache, sequence.chain, hit, plan, length, snapshot ? snapshot->seams : 0);
  check(reserve(pools_, sequence.cache, std::max<int64_t>(plan.hit, 1)).ok(), "an admitted sequence gets its slot");
  if (plan.restore_at) {
    plan_.restores.push_back(
        {sequence.id, sequence.cache.slot, *plan.restore_at, {snapshot->bytes.begin(), snapshot->bytes.end()}});
  }
  if (sequence.preemptions == 0) {
    sequence.first_replay = plan.replay;
    sequence.first_seam = plan.seam;
  }
  sequence.replay = plan.replay;
  sequence.prefill_tokens = length;
  sequence.cached = plan.replay.start;
  sequence.hit_tokens += plan.hit;
  sequence.replayed_tokens += plan.replay_rows;
  counts_.hit_tokens += plan.hit;
  begin(sequence);
  return true;
}

// A branch begins in the step that runs its parent's first token, before the parent's rings move on: it shares all full
// blocks before the last prompt token, and runs that token again for logits of its own. One that comes too late is a
// prompt like any other, and will find the parent's blocks.
void Scheduler::plan_branches() {
  std::erase_if(branches_, [&](SequenceId id) {
    Sequence& sequence = sequences_.at(id);
    const Sequence* parent = find(sequence.parent);
    const bool parent_waits =
        parent != nullptr && (waiting_.find(parent->id) != nullptr || parent->planned() < parent->prefill_tokens);
    if (parent_waits && parent->preemptions == 0) return false;
    if (!sequence.ready || parent == nullptr || parent->preemptions > 0 || parent->planned() != parent->prompt_tokens)
      return true;
    return branch_off(sequence, *parent) || true;
  });
}

bool Scheduler::branch_off(Sequence& sequence, const Sequence& parent) {
  if (int(running_.size()) >= limits_.sequences || !room_for(sequence) || pools_.slots.available() == 0) return false;
  auto forked = fork(pools_, parent.cache, sequence.prompt_tokens - 1);
  if (!forked) return false;
  sequence.cache = std::move(forked->cache);
  plan_.copies.insert(plan_.copies.end(), forked->blocks.begin(), forked->blocks.end());
  plan_.slot_copies.push_back(forked->slot);
  const int32_t root = sequence.chain.root;
  sequence.chain = parent.chain;
  sequence.chain.root = root;
  truncate_chain(sequence.chain, sequence.prompt_tokens - 1);
  sequence.first_replay = sequence.replay = parent.replay;
  sequence.prefill_tokens = sequence.prompt_tokens;
  sequence.cached = sequence.prompt_tokens - 1;
  sequence.hit_tokens += sequence.cached;
  begin(sequence);
  return true;
}

}  // namespace fathom
