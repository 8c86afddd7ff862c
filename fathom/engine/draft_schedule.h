// fathom/engine/draft_schedule.h
// The host's decision about the drafts of a step: the policy (DraftGuard), and for the scheduled one how many rows its
// sequences verify together (VerificationPlanner on a CostCorrection). Puts together what speculate.h, cost_curve.h and
// draft_guard.h define; keeps, of every sequence, the confidences of its last two rounds.
// Source: spec/engine.md 7.3.
#pragma once
#include <array>
#include <span>
#include <vector>

#include "fathom/engine/cost_curve.h"
#include "fathom/engine/draft_guard.h"
#include "fathom/engine/request.h"
#include "fathom/engine/speculate.h"

namespace fathom {

using Confidence = std::array<float, kMaxDrafts>;  // NaN: missing

/// Confidences of one sequence's drafts, as rounds are reported.
struct DraftHistory {
  Confidence newest, older;
  DraftHistory();
  void add(const Confidence& round) {
    older = newest;
    newest = round;
  }
};

/// One decode entry of the step that is planned.
struct DraftCandidate {
  const DraftHistory* history = nullptr;
  int drafts = 0;           // that it can verify, at most
  bool in_flight = false;   // its drafts are still being proposed: the newest round known is the one before
  bool verify_all = false;  // it verifies them all whatever is decided
};

struct DraftDecision {
  DraftPolicy policy = DraftPolicy::fixed;
  int verify_rows = 0;  // of the sequences that are not verify_all, together; with the scheduled policy only
};

/// One thread at a time. Nothing is allocated once the largest step has been seen.
class DraftSchedule {
 public:
  /// `padded`: as for StepCost.
  DraftSchedule(CostCurve curve, bool padded) : correction_(std::move(curve), padded) {}

  /// For the next step. With prompt pieces in it the guard is not asked: the policy of the last step stays.
  DraftDecision decide(std::span<const DraftCandidate> candidates, bool prompt_pieces);
  /// A step without prompt pieces has run `rows` rows for `sequences` sequences and brought `tokens`.
  void record(DraftPolicy policy, int sequences, int rows, int64_t tokens, double forward_seconds,
              double total_seconds);

  const CostCorrection& correction() const { return correction_; }
  DraftGuard::Report report(int sequences) const { return guard_.report(sequences); }

 private:
  CostCorrection correction_;
  DraftGuard guard_;
  VerificationPlanner planner_;
  DraftPolicy last_ = DraftPolicy::scheduled;
  std::vector<float> values_;  // [candidates, kMaxDrafts]
  std::vector<int> drafts_;
};

}  // namespace fathom
