// fathom/engine/simulated_drafts.h
// Drafts without a model: whether draft k of a round would be accepted, and what the confidence head says of it. Both
// follow from (seed, request, position of the round), so that two policies meet the same drafts where they stand at the
// same place of an answer.
//
//   chance      of draft k, if those before it were accepted: (1 - spread) rate_k + spread u^((1 - rate_k) / rate_k),
//               u uniform: mean rate_k; drafts differ the more, the larger the spread (some are nearly certain, a tail
//               is hopeless), as those of real text do
//   confidence  the chance itself when bias is 0 (calibrated), else with its log-odds moved by bias
//
// Source: spec/engine.md 7.1, 7.6; acceptance of public reports: 2.8 tokens a round on GSM8K (7.6), 2.8 to 3.5 (issue
// 5).
#pragma once
#include <array>
#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "fathom/engine/cost_curve.h"
#include "fathom/engine/draft_schedule.h"
#include "fathom/engine/request.h"
#include "fathom/engine/speculate.h"

namespace fathom {

/// The rate, the same at every position, with which all of `drafts` drafts bring so many tokens a round on average (the
/// accepted ones and one more). `tokens` from 1 to 1 + drafts. Errors: usage.
Result<std::vector<double>> rates_for(double tokens, int drafts);
/// Tokens that a round brings which verifies all drafts: 1 + r_1 + r_1 r_2 + ...
double tokens_of(std::span<const double> rates);

struct AcceptanceLaw {
  std::vector<double> rates{0.7, 0.7, 0.7, 0.7, 0.7};  // of position 1, 2, ...
  double spread = 0.5;                                 // 0 to 1
  double bias = 0;                                     // of confidences, in log-odds; above 0: too sure
  uint64_t seed = 1;
};

/// The drafts of one round of one answer.
struct DraftRound {
  int drafts = 0;
  int64_t position = 0;  // tokens of the answer before it
  std::array<float, kMaxDrafts> chance{}, confidence{};
};
/// Pure. `rates` may be the request's own instead of the law's.
DraftRound draw_round(const AcceptanceLaw& law, std::span<const double> rates, uint64_t answer, int64_t position,
                      int drafts);
/// How many of the first `verified` drafts are accepted. Pure.
int accepted_of(const DraftRound& round, const AcceptanceLaw& law, uint64_t answer, int verified);

enum class SpeculationPolicy { none, fixed, scheduled, guarded };
const char* name_of(SpeculationPolicy policy);
std::optional<SpeculationPolicy> speculation_policy_of(std::string_view name);

/// Decides how many drafts each sequence of a step verifies. `guarded` is the engine's own DraftSchedule, so that what
/// is measured is what serves; `scheduled` is the same choice of rows without a guard, which the engine never runs:
/// what the guard costs and saves is their difference. Rows are split by the engine's VerificationPlanner. One thread.
class SimulatedSpeculation {
 public:
  /// `curve`: what the engine measured at start; `padded`: steps have the curve's sizes only.
  SimulatedSpeculation(SpeculationPolicy policy, AcceptanceLaw law, CostCurve curve, bool padded);

  /// A decoding sequence of a step.
  struct Entry {
    size_t answer = 0;   // its number, dense
    uint64_t seed = 0;   // of its draws
    int bound = 0;       // drafts that the plan reserves rows for
    bool ahead = false;  // planned while an earlier step of it is in flight
    bool alive = true;   // at execution: it has not ended
    std::span<const double> rates;
  };
  struct Decision {
    DraftPolicy policy = DraftPolicy::none;
    int rows = 0;  // of all decoding sequences; scheduled only
  };

  /// When the step is planned: with what the host knows then. `mixed`: it has prompt pieces too.
  Decision decide(std::span<const Entry> entries, bool mixed);
  /// When it runs: rows of each entry, its newest token included.
  void split(const Decision& decision, std::span<const Entry> entries, std::vector<int>& rows);
  /// Accepted drafts of an entry that ran `rows` rows.
  int accepted(const Entry& entry, int rows) const;
  /// At the end of a step: the next round's drafts, behind `position` tokens of the answer.
  void draft(const Entry& entry, int64_t position, int drafts);
  /// Drafts that are there for the next step.
  int drafts_of(size_t answer) const { return answer < rounds_.size() ? rounds_[answer].newest.drafts : 0; }
  /// It was preempted, or has ended.
  void forget(size_t answer);
  /// A decode step without prompt pieces is over. `seconds`: since the end of the step before.
  void record(const Decision& decision, int sequences, int rows, double forward_ms, double other_ms, int64_t tokens,
              double seconds);

  SpeculationPolicy policy() const { return policy_; }

 private:
  struct Rounds {
    DraftRound newest;
    DraftHistory history;  // confidences of the last two rounds, as the loop keeps them
  };
  Rounds& of(size_t answer);

  SpeculationPolicy policy_;
  AcceptanceLaw law_;
  std::optional<DraftSchedule> schedule_;  // of `guarded`
  CostCorrection correction_;              // of `scheduled`
  VerificationPlanner planner_;
  std::deque<Rounds> rounds_;  // candidates point into it while it grows
  std::vector<DraftCandidate> candidates_;
  std::vector<float> values_;
  std::vector<int> drafts_;
};

}  // namespace fathom
