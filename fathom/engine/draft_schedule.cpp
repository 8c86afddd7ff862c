#include "fathom/engine/draft_schedule.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace fathom {

DraftHistory::DraftHistory() {
  newest.fill(std::numeric_limits<float>::quiet_NaN());
  older = newest;
}

namespace {

// Tokens a second. The curve was measured with the draft stages, so that this is rather too low.
double forecast_without_drafts(const StepCost& cost, int sequences) {
  const double milliseconds = step_milliseconds(cost, sequences);
  return std::isfinite(milliseconds) ? 1e3 * sequences / milliseconds : std::numeric_limits<double>::infinity();
}

}  // namespace

DraftDecision DraftSchedule::decide(std::span<const DraftCandidate> candidates, bool prompt_pieces) {
  DraftDecision out{last_, 0};
  if (candidates.empty()) return out;
  const auto count = int(candidates.size());
  const StepCost cost = correction_.cost(count);
  if (!prompt_pieces) out.policy = last_ = guard_.choose(count, forecast_without_drafts(cost, count));
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
  const RowChoice choice = planner_.choose_rows(cost, {values, drafts_});
  out.verify_rows = std::max(others, choice.rows - bound);
  return out;
}

void DraftSchedule::record(DraftPolicy policy, int sequences, int rows, int64_t tokens, double forward_seconds,
                           double total_seconds) {
  correction_.record(sequences, rows, forward_seconds * 1e3, (total_seconds - forward_seconds) * 1e3);
  guard_.record(sequences, policy, tokens, total_seconds);
}

}  // namespace fathom
