#include "fathom/engine/batch_builder.h"

#include <algorithm>

namespace fathom {

namespace {

int32_t known_or_zero(const std::vector<int32_t>& ids, int64_t i) {
  return i < int64_t(ids.size()) ? ids[size_t(i)] : 0;
}

}  // namespace

void BatchBuilder::add_rows(const StepPlan::Rows& rows, const LiveSequence& sequence, int32_t index) {
  const int64_t known = rows.count - rows.drafts;
  for (int64_t i = 0; i < rows.count; ++i) {
    ids_.push_back(i < known ? known_or_zero(sequence.ids, rows.first + i)
                             : known_or_zero(sequence.proposed, i - known));
    positions_.push_back(rows.first + i);
    sequence_.push_back(index);
  }
  begin_.push_back(int32_t(ids_.size()));
  logit_begin_.push_back(int64_t(logit_rows_.size()));
  for (int i = rows.logit_rows; i > 0; --i) logit_rows_.push_back(int32_t(ids_.size()) - i);
}

void BatchBuilder::add_history(const StepPlan::Rows& rows, const LiveSequence& sequence) {
  for (int64_t back = 1; back <= history_; ++back) {
    const int64_t position = rows.first - back;
    history_ids_.push_back(position < 0 ? -1 : known_or_zero(sequence.ids, position));
  }
}

void BatchBuilder::add_blocks(std::span<const LiveSequence* const> sequences) {
  size_t most = 1;
  for (const LiveSequence* sequence : sequences) most = std::max(most, sequence->blocks.size());
  blocks_.assign(sequences.size() * most, 0);
  for (size_t i = 0; i < sequences.size(); ++i) {
    std::copy(sequences[i]->blocks.begin(), sequences[i]->blocks.end(), blocks_.begin() + ptrdiff_t(i * most));
  }
  batch_.blocks = View<const int32_t, 2>(blocks_.data(), {int64_t(sequences.size()), int64_t(most)});
}

const Batch& BatchBuilder::build(const StepPlan& plan, std::span<const LiveSequence* const> sequences) {
  for (size_t i = 0; i < plan.rows.size(); ++i) {
    const StepPlan::Rows& rows = plan.rows[i];
    const LiveSequence& sequence = *sequences[i];
    check(rows.first + rows.count - rows.drafts <= int64_t(sequence.ids.size()), "a row has a token");
    check(size_t(rows.drafts) <= sequence.proposed.size(), "a draft row has a draft");
    check(rows.first + rows.count <= int64_t(sequence.blocks.size()) * kBlockTokens, "a row has a block");
  }
  return put_together(plan, sequences);
}

const Batch& BatchBuilder::foresee(const StepPlan& plan, std::span<const LiveSequence* const> sequences) {
  return put_together(plan, sequences);
}

const Batch& BatchBuilder::put_together(const StepPlan& plan, std::span<const LiveSequence* const> sequences) {
  for (auto* array : {&ids_, &sequence_, &history_ids_, &slots_, &logit_rows_}) array->clear();
  begin_.assign(1, 0);
  positions_.clear();
  logit_begin_.clear();
  replay_.clear();
  for (size_t i = 0; i < plan.rows.size(); ++i) {
    const StepPlan::Rows& rows = plan.rows[i];
    const LiveSequence& sequence = *sequences[i];
    add_rows(rows, sequence, int32_t(i));
    add_history(rows, sequence);
    slots_.push_back(sequence.slot);
    replay_.push_back(sequence.replay);
  }
  const int64_t count = int64_t(plan.rows.size()), rows = int64_t(ids_.size());
  add_blocks(sequences);
  batch_.rows = {View<const int64_t, 1>(positions_.data(), {rows}), View<const int32_t, 1>(sequence_.data(), {rows}),
                 View<const int32_t, 1>(begin_.data(), {count + 1})};
  batch_.ids = View<const int32_t, 1>(ids_.data(), {rows});
  batch_.image = {};
  batch_.history = View<const int32_t, 2>(history_ids_.data(), {count, int64_t(history_)});
  batch_.slots = View<const int32_t, 1>(slots_.data(), {count});
  batch_.replay = replay_;
  batch_.logit_rows = View<const int32_t, 1>(logit_rows_.data(), {int64_t(logit_rows_.size())});
  return batch_;
}

}  // namespace fathom
