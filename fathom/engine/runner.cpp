#include "fathom/engine/runner.h"

#include <algorithm>

#include "fathom/engine/answer_guide.h"

namespace fathom {

Runner::Runner(ModelPort port, const Operations& ops, Queue& queue)
    : port_(std::move(port)), builder_(port_.history), sampler_(ops, queue, port_.vocabulary) {}

const StepResult& Runner::run(const StepPlan& plan, std::span<Sequence* const> sequences) {
  for (const BlockCopy& copy : plan.copies) port_.copy_block(copy.from, copy.to);
  for (const BlockCopy& copy : plan.slot_copies) port_.copy_slot(copy.from, copy.to);
  for (const StepPlan::Restore& one : plan.restores) port_.restore_windows(one.slot, one.position, one.bytes);
  logits_ = port_.forward(builder_.build(plan, sequences));
  choices_.clear();
  for (size_t i = 0; i < plan.rows.size(); ++i) {
    const StepPlan::Rows& rows = plan.rows[i];
    const int64_t end = rows.first + rows.count;
    if (end < sequences[i]->prefill_tokens) continue;  // a piece that is not the last
    const int64_t first = builder_.logit_row(i) + rows.logit_rows - 1 - rows.drafts;
    const std::span<const int32_t> drafts = std::span(sequences[i]->proposed).first(size_t(rows.drafts));
    choices_.push_back({&sequences[i]->sampler, first, drafts, end - rows.drafts, sequences[i]->generated()});
  }
  result_.tokens.clear();
  chosen_begin_.assign(1, 0);
  sampler_.choose(logits_, choices_, result_.tokens, chosen_begin_);
  // Spread over all entries of the plan: a piece that is not the last has no tokens.
  result_.begin.assign(1, 0);
  size_t chosen = 0;
  for (size_t i = 0; i < plan.rows.size(); ++i) {
    const bool has_tokens = plan.rows[i].first + plan.rows[i].count >= sequences[i]->prefill_tokens;
    result_.begin.push_back(chosen_begin_[has_tokens ? ++chosen : chosen]);
  }
  return result_;
}

std::span<const float> Runner::logits(size_t entry, int64_t row) const {
  return logits_.row(builder_.logit_row(entry) + row);
}

TokenLogprob Runner::logprob_of_chosen(size_t entry, const StepPlan::Rows& rows, const Sequence& sequence,
                                       std::span<const int32_t> chosen, int top) {
  const auto raw = logits(entry, rows.logit_rows - 1 - rows.drafts + int64_t(chosen.size()) - 1);
  if (sequence.sampler.settings.logprobs_of == LogprobsOf::raw) return logprob_of(raw, chosen.back(), top);
  return sampler_.sampled_logprob(raw, sequence.sampler, chosen.first(chosen.size() - 1), sequence.generated(),
                                  chosen.back(), top);
}

void Runner::propose(std::span<Sequence* const> sequences) {
  drafting_.clear();
  for (auto* array : {&tokens_, &slots_}) array->clear();
  last_.clear();
  replay_.clear();
  int steps = 0;
  for (Sequence* sequence : sequences) {
    sequence->proposed.clear();
    sequence->sampler.draft_laws.clear();
    const int drafts = std::min(drafts_for(*sequence), port_.block);
    if (drafts == 0) continue;
    check(sequence->cached == int64_t(sequence->ids.size()) - 1, "drafts follow the newest token");
    drafting_.push_back(sequence);
    tokens_.push_back(sequence->ids.back());
    last_.push_back(sequence->cached - 1);
    slots_.push_back(sequence->cache.slot);
    replay_.push_back(sequence->replay);
    steps = std::max(steps, drafts);
  }
  if (drafting_.empty()) return;
  const int64_t count = int64_t(drafting_.size());
  port_.draft({View<const int32_t, 1>(tokens_.data(), {count}), View<const int64_t, 1>(last_.data(), {count}),
               View<const int32_t, 1>(slots_.data(), {count}), replay_});
  draft_logits_.resize(size_t(count * port_.vocabulary));
  confidence_.resize(size_t(count));
  drafts_ = tokens_;  // the token before the first draft is the newest one
  for (int step = 0; step < steps; ++step) propose_step(step, drafting_);
  for (Sequence* sequence : drafting_) {
    // The token behind the last draft needs a mask as well: what leads to none is not proposed.
    if (sequence->guide != nullptr) sequence->proposed.resize(size_t(sequence->guide->fill(sequence->proposed)) - 1);
  }
}

void Runner::propose_step(int step, std::span<Sequence* const> sequences) {
  const int64_t count = int64_t(sequences.size());
  const View<float, 2> logits(draft_logits_.data(), {count, port_.vocabulary});
  port_.markov(step, View<const int32_t, 1>(drafts_.data(), {count}), logits,
               View<float, 1>(confidence_.data(), {count}));
  choices_.clear();
  for (Sequence* sequence : sequences) {
    bool active = step < drafts_for(*sequence);  // near its end a sequence takes fewer drafts than others
    if (active && sequence->guide != nullptr) {
      active = int(sequence->proposed.size()) == step && sequence->guide->fill(sequence->proposed) == step + 1;
    }
    choices_.push_back({active ? &sequence->sampler : nullptr, 0, sequence->proposed,
                        int64_t(sequence->ids.size()) + step, sequence->generated()});
  }
  sampler_.propose(logits, choices_, drafts_);
  for (size_t i = 0; i < sequences.size(); ++i) {
    if (choices_[i].state != nullptr) sequences[i]->proposed.push_back(drafts_[i]);
  }
}

}  // namespace fathom
