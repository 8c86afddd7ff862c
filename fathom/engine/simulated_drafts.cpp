#include "fathom/engine/simulated_drafts.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "fathom/base/philox.h"

namespace fathom {
namespace {

enum class Role : uint32_t { chance = 1, accept = 2 };

// One uniform number in (0, 1) for each draft of a round.
std::array<double, kMaxDrafts> uniforms(uint64_t seed, uint64_t answer, int64_t position, Role role) {
  std::array<double, kMaxDrafts> out{};
  for (uint32_t half = 0; half < kMaxDrafts / 4; ++half) {
    const auto words = philox(seed ^ answer * 0x9E3779B97F4A7C15ull,
                              {uint32_t(position), uint32_t(uint64_t(position) >> 32), uint32_t(role), half});
    for (uint32_t i = 0; i < 4; ++i) out[half * 4 + i] = (double(words[i]) + 0.5) / 4294967296.0;
  }
  return out;
}

}  // namespace

double tokens_of(std::span<const double> rates) {
  double tokens = 1, all = 1;
  for (const double rate : rates) tokens += all *= rate;
  return tokens;
}

Result<std::vector<double>> rates_for(double tokens, int drafts) {
  if (!(tokens >= 1 && tokens <= 1 + drafts)) {
    return Error{ErrorCode::usage, std::to_string(tokens) + " tokens a round", "--acceptance",
                 "a round of " + std::to_string(drafts) + " drafts brings 1 to " + std::to_string(drafts + 1)};
  }
  double low = 0, high = 1;
  for (int i = 0; i < 60; ++i) {
    const double middle = (low + high) / 2;
    (tokens_of(std::vector<double>(size_t(drafts), middle)) < tokens ? low : high) = middle;
  }
  return std::vector<double>(size_t(drafts), (low + high) / 2);
}

DraftRound draw_round(const AcceptanceLaw& law, std::span<const double> rates, uint64_t answer, int64_t position,
                      int drafts) {
  DraftRound round;
  round.drafts = std::min(drafts, kMaxDrafts);
  round.position = position;
  const auto u = uniforms(law.seed, answer, position, Role::chance);
  for (size_t k = 0; k < size_t(round.drafts); ++k) {
    const double rate = k < rates.size() ? rates[k] : rates.empty() ? 0 : rates.back();
    const double spread = rate > 0 ? law.spread * std::pow(u[k], (1 - rate) / rate) : 0;
    const double chance = std::clamp((1 - law.spread) * rate + spread, 0.0, 1.0);
    round.chance[k] = float(chance);
    const double inside = std::clamp(chance, 1e-6, 1 - 1e-6);
    const double told = 1 / (1 + std::exp(-(std::log(inside / (1 - inside)) + law.bias)));
    round.confidence[k] = law.bias == 0 ? float(chance) : float(told);
  }
  return round;
}

int accepted_of(const DraftRound& round, const AcceptanceLaw& law, uint64_t answer, int verified) {
  const auto u = uniforms(law.seed, answer, round.position, Role::accept);
  int accepted = 0;
  const int most = std::min(verified, round.drafts);
  while (accepted < most && u[size_t(accepted)] < double(round.chance[size_t(accepted)])) ++accepted;
  return accepted;
}

const char* name_of(SpeculationPolicy policy) {
  switch (policy) {
    case SpeculationPolicy::none: return "none";
    case SpeculationPolicy::fixed: return "fixed";
    case SpeculationPolicy::scheduled: return "scheduled";
    case SpeculationPolicy::guarded: return "guarded";
  }
  return "guarded";
}

std::optional<SpeculationPolicy> speculation_policy_of(std::string_view name) {
  for (const auto policy :
       {SpeculationPolicy::none, SpeculationPolicy::fixed, SpeculationPolicy::scheduled, SpeculationPolicy::guarded}) {
    if (name == name_of(policy)) return policy;
  }
  return {};
}

SimulatedSpeculation::SimulatedSpeculation(SpeculationPolicy policy, AcceptanceLaw law, CostCurve curve, bool padded)
    : policy_(policy), law_(std::move(law)), correction_(curve, padded) {
  if (policy == SpeculationPolicy::guarded) schedule_.emplace(std::move(curve), padded);
}

SimulatedSpeculation::Rounds& SimulatedSpeculation::of(size_t answer) {
  if (answer >= rounds_.size()) rounds_.resize(answer + 1);
  return rounds_[answer];
}

SimulatedSpeculation::Decision SimulatedSpeculation::decide(std::span<const Entry> entries, bool mixed) {
  Decision decision;
  const int sequences = int(entries.size());
  switch (policy_) {
    case SpeculationPolicy::none: return decision;
    case SpeculationPolicy::fixed: decision.policy = DraftPolicy::fixed; return decision;
    case SpeculationPolicy::scheduled: decision.policy = DraftPolicy::scheduled; break;
    case SpeculationPolicy::guarded: break;
  }
  candidates_.clear();
  for (const Entry& one : entries) {
    candidates_.push_back({&of(one.answer).history, std::min(one.bound, kMaxDrafts), one.ahead, false});
  }
  if (schedule_) {
    const DraftDecision made = schedule_->decide(candidates_, mixed);
    return {made.policy, made.verify_rows};
  }
  if (sequences == 0) return decision;
  values_.clear();
  drafts_.clear();
  for (const DraftCandidate& one : candidates_) {
    // The round before the one that is verified: a sequence with a step in flight has not shown the newest one yet.
    const Confidence& round = one.in_flight ? one.history->newest : one.history->older;
    values_.insert(values_.end(), round.begin(), round.end());
    drafts_.push_back(one.drafts);
  }
  const Confidences older{View<const float, 2>(values_.data(), {sequences, kMaxDrafts}), drafts_};
  decision.rows = planner_.choose_rows(correction_.cost(sequences), older).rows;
  return decision;
}

void SimulatedSpeculation::split(const Decision& decision, std::span<const Entry> entries, std::vector<int>& rows) {
  rows.assign(entries.size(), 1);
  if (decision.policy == DraftPolicy::none || entries.empty()) return;
  values_.assign(entries.size() * kMaxDrafts, std::numeric_limits<float>::quiet_NaN());
  drafts_.clear();
  for (size_t i = 0; i < entries.size(); ++i) {
    const DraftRound& newest = of(entries[i].answer).newest;
    // Fixed rows of what has ended meanwhile run for nothing; the split gives it one row (engine.md 4.2).
    const int there = entries[i].alive ? std::min(entries[i].bound, newest.drafts) : 0;
    if (decision.policy == DraftPolicy::fixed) rows[i] = 1 + (entries[i].alive ? there : entries[i].bound);
    drafts_.push_back(there);
    for (size_t k = 0; k < size_t(there); ++k) values_[i * kMaxDrafts + k] = newest.confidence[k];
  }
  if (decision.policy == DraftPolicy::fixed) return;
  const Confidences view{View<const float, 2>(values_.data(), {int64_t(entries.size()), kMaxDrafts}), drafts_};
  planner_.split_rows(decision.rows, view, rows);
}

int SimulatedSpeculation::accepted(const Entry& entry, int rows) const {
  if (entry.answer >= rounds_.size()) return 0;
  return accepted_of(rounds_[entry.answer].newest, law_, entry.seed, rows - 1);
}

void SimulatedSpeculation::draft(const Entry& entry, int64_t position, int drafts) {
  Rounds& rounds = of(entry.answer);
  rounds.newest = draw_round(law_, entry.rates.empty() ? std::span<const double>(law_.rates) : entry.rates, entry.seed,
                             position, drafts);
  Confidence told;
  told.fill(std::numeric_limits<float>::quiet_NaN());
  std::copy_n(rounds.newest.confidence.begin(), rounds.newest.drafts, told.begin());
  rounds.history.add(told);
}

void SimulatedSpeculation::forget(size_t answer) { of(answer) = {}; }

void SimulatedSpeculation::record(const Decision& decision, int sequences, int rows, double forward_ms, double other_ms,
                                  int64_t tokens, double seconds) {
  correction_.record(sequences, rows, forward_ms, other_ms);
  // As StepLoop::measure: what a step took beside its forward pass is told with it.
  if (schedule_) schedule_->record(decision.policy, sequences, rows, tokens, forward_ms / 1000, seconds);
}

}  // namespace fathom
