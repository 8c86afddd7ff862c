#include "fathom/engine/draft_schedule.h"

#include <algorithm>
#include <limits>

namespace fathom {

DraftHistory::DraftHistory() {
  newest.fill(std::numeric_limits<float>::quiet_NaN());
  older = newest;
}

DraftDecision DraftSchedule::decide(std::span<const DraftCandidate> candidates, bool prompt_pieces) {
  DraftDecision out{last_, 0};
  if (candidates.empty()) return out;
  const auto count = int(candidates.size());
  if (!prompt_pieces) out.policy = last_ = guard_.choose(count);
  if (out.policy != DraftPolicy::scheduled) return out;
  values_.clear();
  drafts_.clear();
  int others = 0, bound = 0;
  for (const DraftCandidate& one : candidates) {
    const Confidence& round = one.in_flight ? one.history->newest : one.history->older;
    if (one.verify_all) {
      values_.insert(values_.end(), size_t(kMaxDrafts), 1.f);  // these rows come in any case
      bound += 1 + one.drafts;
    } else {
      values_.insert(values_.end(), round.begin(), round.end());
      ++others;
    }
    drafts_.push_back(one.drafts);
  }
  const View<const float, 2> values(values_.data(), {int64_t(count), kMaxDrafts});
  const RowChoice choice = planner_.choose_rows(correction_.cost(count), {values, drafts_});
  out.verify_rows = std::max(others, choice.rows - bound);
  return out;
}

void DraftSchedule::record(DraftPolicy policy, int sequences, int rows, int64_t tokens, double forward_seconds,
                           double total_seconds) {
  correction_.record(sequences, rows, forward_seconds * 1e3, (total_seconds - forward_seconds) * 1e3);
  guard_.record(sequences, policy, tokens, total_seconds);
}

}  // namespace fathom
