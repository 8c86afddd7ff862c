#include "fathom/engine/runner.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <limits>
#include <string>

#include "fathom/base/check_note.h"
#include "fathom/engine/sequence.h"

namespace fathom {
namespace {

using Clock = std::chrono::steady_clock;
double seconds_since(Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); }

enum class Phase { begin = 1, copy, pack, forward, choose, snapshots, propose };
constexpr const char* kPhases[] = {"", "begin", "copy", "pack", "forward", "choose", "snapshots", "propose"};

/// How far a step has come, for whoever reads why it failed (case obs-03).
struct Where {
  uint64_t step = 0;
  Phase phase = Phase::begin;
  const StepWork* work = nullptr;
};

/// "step=100 phase=4 (forward) prompt_pieces=1 prompt_rows=2048 decode_sequences=2 decode_rows=12"; rows as planned.
std::string tell_where(const void* about) {
  const auto& where = *static_cast<const Where*>(about);
  std::array<int64_t, 2> entries{}, rows{};  // of decoding sequences, of prompt pieces
  for (size_t i = 0; i < where.work->plan.rows.size(); ++i) {
    const size_t prompt = where.work->in_prompt[i] != 0;
    ++entries[prompt];
    rows[prompt] += where.work->plan.rows[i].count;
  }
  return "step=" + std::to_string(where.step) + " phase=" + std::to_string(int(where.phase)) + " (" +
         kPhases[size_t(where.phase)] + ") prompt_pieces=" + std::to_string(entries[1]) +
         " prompt_rows=" + std::to_string(rows[1]) + " decode_sequences=" + std::to_string(entries[0]) +
         " decode_rows=" + std::to_string(rows[0]);
}

}  // namespace

Runner::Runner(ModelPort port, const Operations& ops, Queue& queue)
    : port_(std::move(port)),
      queue_(&queue),
      builder_(port_.history),
      foreseen_(port_.history),
      sampler_(ops, queue, port_.vocabulary, port_.logits_memory) {}

void Runner::run(StepWork& work) {
  const auto begun = Clock::now();
  Where where{++steps_, Phase::begin, &work};
  const CheckNote note(&tell_where, &where);
  begin_sequences(work);
  where.phase = Phase::copy;
  for (const BlockCopy& copy : work.plan.copies) port_.copy_block(copy.from, copy.to);
  for (const BlockCopy& copy : work.plan.slot_copies) port_.copy_slot(copy.from, copy.to);
  for (const StepPlan::Restore& one : work.plan.restores) port_.restore_windows(one.slot, one.position, one.bytes);
  where.phase = Phase::pack;
  resolve(work);
  where.phase = Phase::forward;
  const auto packed = Clock::now();
  compute(work);
  where.phase = Phase::choose;
  choose(work);
  where.phase = Phase::snapshots;
  take_snapshots(work);
  where.phase = Phase::propose;
  propose(work);
  if (port_.clock != nullptr && !active_.empty()) work.forward_seconds = port_.clock->seconds(0, 1);
  work.sample_seconds = std::max(0.0, seconds_since(packed) - work.forward_seconds);
  work.total_seconds = seconds_since(begun);
}

void Runner::begin_sequences(const StepWork& work) {
  for (const Begin& begin : work.begins) {
    LiveSequence& live = *work.live[begin.entry];
    const auto dropped = int64_t(live.ids.size()) - begin.length;
    check(dropped >= 0, "the host knows no token that the device does not");
    if (dropped > 0) {
      live.ids.resize(size_t(begin.length));
      const auto prompt = std::span(live.ids).first(size_t(live.prompt_tokens));
      recount_tokens(live.sampler, prompt, std::span(live.ids).subspan(prompt.size()));
      // The grammar allowed what it is taken back to; if nothing could follow, the sequence would have ended there.
      if (live.guide) check(live.guide->take_back(int(dropped)).ok(), "an answer goes back to where it was");
    }
    live.prefill_tokens = begin.length;
    live.cached = begin.cached;
    live.replay = begin.replay;
    live.slot = begin.slot;
    live.proposed.clear();
    live.sampler.draft_laws.clear();
    live.ended = false;
  }
  size_t at = 0;
  for (const NewBlocks& change : work.new_blocks) {
    auto& blocks = work.live[change.entry]->blocks;
    blocks.resize(change.first);
    blocks.insert(blocks.end(), work.block_ids.begin() + ptrdiff_t(at),
                  work.block_ids.begin() + ptrdiff_t(at + change.count));
    at += change.count;
  }
}

// Prompt pieces are planned as they run. A decode entry is a bound where a step was in flight: it begins where its
// sequence is, verifies the drafts that are there, and has no rows when its sequence has ended.
void Runner::resolve(StepWork& work) {
  run_.clear();
  active_.clear();
  live_.clear();
  free_.clear();
  work.decode_rows = work.decode_sequences = 0;
  for (size_t entry = 0; entry < work.plan.rows.size(); ++entry) {
    StepPlan::Rows rows = work.plan.rows[entry];
    LiveSequence& live = *work.live[entry];
    if (live.ended) continue;
    const bool in_prompt = live.cached < live.prefill_tokens;
    if (in_prompt) {
      check(rows.first == live.cached, "a prompt piece follows the one before");
    } else {
      const bool none = work.policy == DraftPolicy::none && !live.verify_all;
      rows.drafts = none ? 0 : std::min(rows.drafts, int(live.proposed.size()));
      rows.first = live.cached;
      rows.count = rows.decoder_count = rows.logit_rows = 1 + rows.drafts;
      ++work.decode_sequences;
      if (!live.verify_all) free_.push_back(active_.size());
    }
    const bool chooses = rows.first + rows.count >= live.prefill_tokens;
    run_.rows.push_back(rows);
    live_.push_back(&live);
    active_.push_back({entry, &live, live.cached, chooses, false});
  }
  if (work.policy == DraftPolicy::scheduled && !free_.empty()) schedule_drafts(work);
  for (size_t i = 0; i < active_.size(); ++i) {
    if (active_[i].before >= active_[i].live->prefill_tokens) work.decode_rows += run_.rows[i].count;
  }
}

void Runner::schedule_drafts(const StepWork& work) {
  free_drafts_.clear();
  free_confidence_.clear();
  for (const size_t i : free_) {
    const LiveSequence& live = *active_[i].live;
    free_drafts_.push_back(run_.rows[i].drafts);
    free_confidence_.insert(free_confidence_.end(), live.confidence.begin(), live.confidence.end());
  }
  const auto count = int64_t(free_.size());
  free_rows_.resize(free_.size());
  // Sequences that ended since the number was chosen leave their one row behind.
  int planned = 0;
  for (size_t entry = 0; entry < work.plan.rows.size(); ++entry) {
    const StepPlan::Rows& rows = work.plan.rows[entry];
    planned += !work.live[entry]->verify_all && rows.first >= work.live[entry]->prefill_tokens;
  }
  const int total = std::max(int(count), work.verify_rows - (planned - int(count)));
  planner_.split_rows(total, {View<const float, 2>(free_confidence_.data(), {count, kMaxDrafts}), free_drafts_},
                      free_rows_);
  for (size_t k = 0; k < free_.size(); ++k) {
    StepPlan::Rows& rows = run_.rows[free_[k]];
    rows.drafts = free_rows_[k] - 1;
    rows.count = rows.decoder_count = rows.logit_rows = free_rows_[k];
  }
}

void Runner::compute(StepWork& work) {
  const auto begun = Clock::now();
  capture_windows(work);
  if (!active_.empty()) {
    Batch batch = builder_.build(run_, live_);
    batch.captures = captures_;
    if (port_.clock != nullptr) {
      port_.clock->restart();
      port_.clock->mark();
    }
    logits_ = port_.forward(batch);
    if (port_.clock != nullptr) port_.clock->mark();
  }
  work.forward_seconds = seconds_since(begun);
}

// Windows inside a prompt piece that later prompts will want: those from which this prompt itself would go on, and
// those before its last full block, from which its conversation does.
void Runner::capture_windows(StepWork& work) {
  captures_.clear();
  if (port_.window_bytes == 0) return;
  for (size_t i = 0; i < active_.size(); ++i) {
    const LiveSequence& live = *active_[i].live;
    const StepPlan::Rows& rows = run_.rows[i];
    if (!live.snapshots || active_[i].before >= live.prefill_tokens) continue;
    const int64_t last = (live.prefill_tokens - 1) / kBlockTokens * kBlockTokens;
    const int64_t again = useful_snapshots(port_.shape, live.mode, live.prefill_tokens, last).highest;
    for (const int64_t position : {again < last ? again : 0, last}) {
      if (position <= rows.first || position >= rows.first + rows.count) continue;
      if (!windows_complete(port_.shape, live.mode, live.replay, position)) continue;
      work.snapshots.push_back({active_[i].entry, position, std::vector<uint8_t>(size_t(port_.window_bytes))});
      captures_.push_back({int32_t(i), position, work.snapshots.back().bytes});
    }
  }
}

// Valid until the next call.
std::span<const float> Runner::logits(size_t active, int64_t row) {
  const auto wanted = logits_.row(builder_.logit_row(active) + row);
  if (port_.logits_memory.host_visible) return wanted;
  row_.resize(wanted.size());
  port_.logits_memory.copy(row_.data(), wanted.data(), int64_t(wanted.size_bytes()));
  return row_;
}

void Runner::choose(StepWork& work) {
  choices_.clear();
  work.reports.resize(work.plan.rows.size());
  for (size_t i = 0; i < active_.size(); ++i) {
    if (!active_[i].chooses) continue;
    const StepPlan::Rows& rows = run_.rows[i];
    LiveSequence& live = *active_[i].live;
    const int64_t first = builder_.logit_row(i) + rows.logit_rows - 1 - rows.drafts;
    const std::span<const int32_t> drafts = std::span(live.proposed).first(size_t(rows.drafts));
    const auto acceptance = std::span(work.reports[active_[i].entry].acceptance).first(drafts.size());
    choices_.push_back(
        {&live.sampler, first, drafts, rows.first + rows.count - rows.drafts, live.generated(), acceptance});
  }
  chosen_.clear();
  chosen_begin_.assign(1, 0);
  if (!choices_.empty()) {
    sampler_.begin_choice(logits_, choices_);
    if (!will_draft(work)) foresee();
    sampler_.end_choice(choices_, chosen_, chosen_begin_);
  }
  // Spread over all entries of the plan: ended ones and pieces that are not the last have no tokens.
  StepResult& result = work.result;
  result.tokens = chosen_;
  result.begin.assign(1, 0);
  result.proposed.assign(work.plan.rows.size(), 0);
  size_t chosen = 0, next = 0;
  for (size_t entry = 0; entry < work.plan.rows.size(); ++entry) {
    EntryReport& told = work.reports[entry];
    told.rows = told.replayed_rows = told.drafts = 0;
    told.confidence.fill(std::numeric_limits<float>::quiet_NaN());
    told.logprobs.clear();
    told.prompt_logprobs.clear();
    told.error.reset();
    if (next < active_.size() && active_[next].entry == entry) {
      if (active_[next].chooses) ++chosen;
      const auto from = size_t(result.begin.back());
      report(work, next, std::span(chosen_).subspan(from, size_t(chosen_begin_[chosen]) - from));
      ++next;
    }
    result.begin.push_back(chosen_begin_[chosen]);
  }
}

// Whether drafts may be proposed behind this step.
bool Runner::will_draft(const StepWork& work) const {
  return port_.block > 0 && std::any_of(active_.begin(), active_.end(), [&](const Active& active) {
           const LiveSequence& live = *active.live;
           return active.chooses && live.drafts > 0 && (work.policy != DraftPolicy::none || live.verify_all);
         });
}

// While the device works: what the next step will be if every sequence goes on and none comes. Where drafts are
// proposed this runs behind propose(), when all that is unknown is which tokens they are.
void Runner::foresee() {
  if (!port_.expect) return;
  next_.clear();
  next_live_.clear();
  for (size_t i = 0; i < active_.size(); ++i) {
    const Active& active = active_[i];
    const LiveSequence& live = *active.live;
    if (!active.chooses) return;        // the rest of a prompt comes next, and such steps are not foreseen
    const bool known = active.goes_on;  // its newest token is in its ids
    if (live.ended || (!known && live.remaining() <= 1)) continue;
    StepPlan::Rows rows = run_.rows[i];
    rows.first = known ? live.cached : rows.first + rows.count;
    rows.drafts = known ? std::min(drafts_for(live.remaining(), live.drafts), port_.block) : 0;
    rows.count = rows.decoder_count = rows.logit_rows = 1 + rows.drafts;
    next_.rows.push_back(rows);
    next_live_.push_back(active.live);
  }
  if (!next_.rows.empty()) port_.expect(foreseen_.foresee(next_, next_live_));
}

void Runner::report(StepWork& work, size_t active, std::span<const int32_t> tokens) {
  Active& one = active_[active];
  EntryReport& told = work.reports[one.entry];
  const StepPlan::Rows& rows = run_.rows[active];
  told.rows = rows.count;
  told.replayed_rows = int(std::clamp<int64_t>(one.live->replay.store_from - rows.first, 0, rows.count));
  told.drafts = rows.drafts;
  told.verified_confidence = one.live->confidence;
  tell_logprobs(active, tokens, told);
  advance(one, tokens, told);
}

// Before the sequence moves on: the law of a token depends on the answer so far. The row at position p of a prompt
// tells the token at p + 1; its last row tells the first token of the answer.
void Runner::tell_logprobs(size_t active, std::span<const int32_t> tokens, EntryReport& told) {
  const StepPlan::Rows& rows = run_.rows[active];
  const LiveSequence& live = *active_[active].live;
  if (live.prompt_logprobs && live.generated() == 0) {
    for (int64_t i = 0; i < rows.logit_rows && rows.first + i + 1 < live.prompt_tokens; ++i) {
      told.prompt_logprobs.push_back(
          logprob_of(logits(active, i), live.ids[size_t(rows.first + i + 1)], live.top_logprobs));
    }
  }
  if (live.top_logprobs < 0) return;
  const Sampling& wanted = live.sampler.settings;
  for (size_t i = 0; i < tokens.size(); ++i) {
    const auto raw = logits(active, rows.logit_rows - 1 - rows.drafts + int64_t(i));
    told.logprobs.push_back(wanted.logprobs_of == LogprobsOf::raw
                                ? logprob_of(raw, tokens[i], live.top_logprobs, wanted.sum_smaller_probs)
                                : sampler_.sampled_logprob(raw, live.sampler, tokens.first(i), live.generated(),
                                                           tokens[i], live.top_logprobs, wanted.sum_smaller_probs));
    // All but the last are accepted drafts.
    if (i + 1 < tokens.size()) told.logprobs.back().nextn_logprob = live.draft_logprob[i];
  }
}

void Runner::advance(Active& active, std::span<const int32_t> tokens, EntryReport& told) {
  LiveSequence& live = *active.live;
  if (!active.chooses) {
    live.cached += told.rows;
    return;
  }
  // The newest token and the accepted drafts, or the rest of the prompt.
  live.cached += active.before < live.prefill_tokens ? told.rows : int64_t(tokens.size());
  live.proposed.clear();
  live.sampler.draft_laws.clear();
  const Taken taken = take(tokens, live.stop_ids, live.remaining());
  const auto kept = tokens.first(size_t(taken.count));
  live.ids.insert(live.ids.end(), kept.begin(), kept.end());
  live.cached = std::min(live.cached, int64_t(live.ids.size()));
  live.ended = taken.finish.has_value();
  if (live.ended) return;
  for (const int32_t token : kept) count_token(live.sampler, token);
  if (live.guide) {
    if (auto advanced = live.guide->commit(kept); !advanced) {
      told.error = advanced.error();
      live.ended = true;
      return;
    }
  }
  active.goes_on = true;
}

// Windows can be copied only as long as no row so far behind them has been run that it took their place in the ring.
void Runner::take_snapshots(StepWork& work) {
  for (size_t i = 0; i < active_.size(); ++i) {
    const LiveSequence& live = *active_[i].live;
    const int64_t position = live.cached / kBlockTokens * kBlockTokens;
    if (!live.snapshots || port_.window_bytes == 0 || position == 0 || position <= active_[i].before) continue;
    if (!ring_holds(port_.shape, position, run_.rows[i].first + run_.rows[i].count)) continue;
    if (!windows_complete(port_.shape, live.mode, live.replay, position)) continue;
    work.snapshots.push_back({active_[i].entry, position, std::vector<uint8_t>(size_t(port_.window_bytes))});
    port_.save_windows(live.slot, position, work.snapshots.back().bytes);
  }
}

void Runner::propose(StepWork& work) {
  drafting_.clear();
  forced_.clear();
  for (auto* list : {&tokens_, &slots_}) list->clear();
  last_.clear();
  replay_.clear();
  int steps = 0;
  for (const Active& active : active_) {
    LiveSequence& live = *active.live;
    if (!active.goes_on || (work.policy == DraftPolicy::none && !live.verify_all)) continue;
    const int drafts = std::min(drafts_for(live.remaining(), live.drafts), port_.block);
    if (drafts == 0) continue;
    check(live.cached == int64_t(live.ids.size()) - 1, "drafts follow the newest token");
    drafting_.push_back(&live);
    forced_.push_back(live.guide ? live.guide->forced() : std::vector<int32_t>());
    tokens_.push_back(live.ids.back());
    last_.push_back(live.cached - 1);
    slots_.push_back(live.slot);
    replay_.push_back(live.replay);
    steps = std::max(steps, drafts);
  }
  if (drafting_.empty()) return;
  const auto unseen = [](const LiveSequence* live) {
    return !live->guide && draws_unseen(live->sampler, live->generated(), live->top_logprobs >= 0);
  };
  if (port_.propose && std::all_of(drafting_.begin(), drafting_.end(), unseen)) {
    queue_drafts(steps);
    if (work.policy == DraftPolicy::fixed) foresee();
    take_drafts(steps);
  } else {
    propose_in_steps(steps);
  }
  for (const Active& active : active_) {
    LiveSequence& live = *active.live;
    if (live.proposed.empty()) continue;
    // The token behind the last draft needs a mask as well: what leads to none is not proposed.
    if (live.guide) live.proposed.resize(size_t(live.guide->fill(live.proposed)) - 1);
    work.result.proposed[active.entry] = int(live.proposed.size());
    std::copy_n(live.confidence.begin(), live.proposed.size(), work.reports[active.entry].confidence.begin());
  }
}

DraftBatch Runner::draft_batch() const {
  const auto count = int64_t(drafting_.size());
  return {View<const int32_t, 1>(tokens_.data(), {count}), View<const int64_t, 1>(last_.data(), {count}),
          View<const int32_t, 1>(slots_.data(), {count}), replay_};
}

// A round whose logits nobody has to see: all of it is queued before anybody knows what its first draft is.
void Runner::queue_drafts(int steps) {
  DraftDraws draws;
  draws.positions = steps;
  draws_.clear();
  for (int step = 0; step < steps; ++step) {
    for (const LiveSequence* live : drafting_) {
      draws_.push_back(draft_sampling(live->sampler, int64_t(live->ids.size()) + step, port_.vocabulary));
      if (verified_by_laws(live->sampler)) draws.law_tokens = most_draft_tokens(port_.vocabulary);
    }
  }
  draws.rows = draws_;
  draws.law_tokens = std::min(draws.law_tokens, port_.vocabulary);
  drawn_ = port_.propose(draft_batch(), draws);
}

void Runner::take_drafts(int steps) {
  queue_->wait();
  const auto count = int64_t(drafting_.size());
  for (int64_t i = 0; i < count; ++i) {
    LiveSequence& live = *drafting_[size_t(i)];
    const int own = std::min(steps, drafts_for(live.remaining(), live.drafts));  // near its end fewer than others
    for (int step = 0; step < own; ++step) {
      const int32_t id = drawn_.ids(step, i);
      live.proposed.push_back(id);
      live.confidence[size_t(step)] = confidence_of(drawn_.scores(step, i));
      live.draft_logprob[size_t(step)] = 0;  // the largest logit is certain
      if (!verified_by_laws(live.sampler)) continue;
      const auto law = drawn_.laws.row(step * count + i).first(size_t(drawn_.counts[step * count + i]));
      live.sampler.draft_laws.append(law);
      if (live.top_logprobs >= 0) live.draft_logprob[size_t(step)] = logprob_in(law, id);
    }
  }
}

// A round in which somebody's logits are changed or looked at between two drafts.
void Runner::propose_in_steps(int steps) {
  port_.draft(draft_batch());
  const auto bytes = int64_t(drafting_.size()) * port_.vocabulary * int64_t(sizeof(float));
  if (draft_logits_.bytes() < bytes) {
    auto room = port_.logits_memory.allocate(bytes);
    check(room.ok(), "no memory for the logits of drafts: lower --sequences");
    draft_logits_ = std::move(*room);
  }
  confidence_.resize(drafting_.size());
  drafts_ = tokens_;  // the token before the first draft is the newest one
  for (int step = 0; step < steps; ++step) propose_step(step);
}

void Runner::propose_step(int step) {
  const int64_t count = int64_t(drafting_.size());
  const View<float, 2> logits(reinterpret_cast<float*>(draft_logits_.data()), {count, port_.vocabulary});
  port_.markov(step, View<const int32_t, 1>(drafts_.data(), {count}), logits,
               View<float, 1>(confidence_.data(), {count}));
  choices_.clear();
  for (size_t i = 0; i < drafting_.size(); ++i) {
    LiveSequence* live = drafting_[i];
    bool active = step < drafts_for(live->remaining(), live->drafts);  // near its end it takes fewer than others
    if (active && live->guide) {
      active = int(live->proposed.size()) == step && live->guide->fill(live->proposed) == step + 1;
    }
    if (active && size_t(step) < forced_[i].size()) {
      propose_forced(*live, i, step);
      active = false;
    }
    choices_.push_back({.state = active ? &live->sampler : nullptr,
                        .drafts = live->proposed,
                        .position = int64_t(live->ids.size()) + step,
                        .generated = live->generated(),
                        .logprob = live->top_logprobs < 0 ? nullptr : &live->draft_logprob[size_t(step)]});
  }
  sampler_.propose(logits, choices_, drafts_);
  for (size_t i = 0; i < drafting_.size(); ++i) {
    if (choices_[i].state == nullptr) continue;
    drafting_[i]->proposed.push_back(drafts_[i]);
    drafting_[i]->confidence[size_t(step)] = confidence_[i];
  }
}

// Jump-forward: a token that must come is a draft as it is, ahead of the model's. Where the text may be cut into
// tokens in another way, verification decides as always: its law is that one token.
void Runner::propose_forced(LiveSequence& live, size_t place, int step) {
  const int32_t token = forced_[place][size_t(step)];
  drafts_[place] = token;
  live.proposed.push_back(token);
  live.confidence[size_t(step)] = 1;
  live.draft_logprob[size_t(step)] = 0;
  if (verified_by_laws(live.sampler)) live.sampler.draft_laws.append(token);
}

}  // namespace fathom
