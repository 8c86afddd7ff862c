#include "fathom/engine/draft_guard.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace fathom {
namespace {

constexpr std::array kPolicies{DraftPolicy::none, DraftPolicy::fixed, DraftPolicy::scheduled};
constexpr int kLeastTrials = 2;  // of a policy, before it may be chosen

}  // namespace

const char* name_of(DraftPolicy policy) {
  switch (policy) {
    case DraftPolicy::none: return "none";
    case DraftPolicy::fixed: return "fixed";
    case DraftPolicy::scheduled: return "scheduled";
  }
  return "scheduled";
}

size_t DraftGuard::load_of(int sequences) {
  return std::min<size_t>(size_t(std::bit_width(unsigned(std::max(sequences, 1) - 1))), kLoads - 1);
}

void DraftGuard::Estimate::add(double step_tokens, double step_seconds) {
  fade(1 - 0.7 / kMemory);  // 2^(-1 / kMemory)
  const double error = seconds > 0 ? step_tokens - rate() * step_seconds : 0;
  weight += 1;
  squared_weight += 1;
  seconds += step_seconds;
  tokens += step_tokens;
  squares += error * error;
  ++steps;
  const double own = step_tokens / step_seconds;
  quick = quick == 0 ? own : quick + (own - quick) / 32;
}

void DraftGuard::Estimate::fade(double part) {
  weight *= part;
  squared_weight *= part * part;
  seconds *= part;
  tokens *= part;
  squares *= part;
}

void DraftGuard::Estimate::begin_anew(const Estimate& with) {
  const double book = lost;
  const int64_t at = measured_at;
  *this = with;
  lost = book;
  measured_at = at;
}

// Beyond what chance explains: more than kShift and more than 2.5 standard errors.
bool DraftGuard::has_shifted(const Estimate& estimate, const Estimate& now) {
  const double difference = std::abs(now.rate() - estimate.rate());
  return difference > kShift * estimate.rate() && difference > 2.5 * std::hypot(now.doubt(), estimate.doubt());
}

// Standard error of the rate: the spread of a step's tokens over the root of the number of steps that count.
double DraftGuard::Estimate::doubt() const {
  if (steps < 2 || weight <= 0) return rate();
  const double counting = std::max(1.0, weight * weight / squared_weight);
  return std::sqrt(squares / weight / counting) * weight / seconds;
}

DraftGuard::Report DraftGuard::Load::report() const {
  Report out{runs, {}, 0, seconds};
  for (const DraftPolicy policy : kPolicies) {
    out.tokens_per_second[size_t(policy)] = of[size_t(policy)].rate();
    out.lost_seconds += of[size_t(policy)].lost;
  }
  return out;
}

std::optional<DraftPolicy> DraftGuard::Load::ahead() const {
  const Estimate& running = of[size_t(runs)];
  for (const DraftPolicy policy : kPolicies) {
    const Estimate& other = of[size_t(policy)];
    if (policy == runs || other.steps < kLeastTrials * (kTrial - kLead)) continue;
    const double doubt = std::hypot(other.doubt(), running.doubt());
    if (other.rate() - kDoubt * doubt > running.rate() * (1 + kMargin)) return policy;
  }
  return {};
}

// A trial that would overdraw the policy's book waits.
bool DraftGuard::Load::may_try(DraftPolicy policy, double none_forecast) const {
  const Estimate &running = of[size_t(runs)], &other = of[size_t(policy)];
  const bool quiet = policy == DraftPolicy::none;
  const bool clearly_worse = quiet && none_forecast * kClearly < running.rate();
  if (other.steps < kLeastTrials * (kTrial - kLead) && !clearly_worse) return true;
  const double rate = other.steps == 0 ? none_forecast : other.rate();
  const double share = std::max(0.0, 1 - rate / running.rate());
  const double expected = (share + 0.05) * (kTrial + kLead) * running.seconds / running.weight;
  const double others = of[size_t(DraftPolicy::fixed)].lost + of[size_t(DraftPolicy::scheduled)].lost;
  return quiet ? other.lost + expected <= kQuietBudget * seconds : others + expected <= kBudget * seconds;
}

// The two policies that do not run take turns.
void DraftGuard::Load::begin_trial(double none_forecast) {
  if (of[size_t(runs)].steps < kTrial || since_trial < kTrial) return;
  std::optional<DraftPolicy> next = ahead();  // decided already, if it were fresh
  DraftPolicy turn = last_tried;
  while (!next) {
    turn = kPolicies[(size_t(turn) + 1) % kPolicies.size()];
    if (turn != runs && may_try(turn, none_forecast)) next = turn;
    if (turn == last_tried) break;
  }
  if (!next) return;
  tried = last_tried = *next;
  trial = {};
  trial_steps = kTrial;
  Estimate& kept = of[size_t(*next)];
  if (kept.weight > kTrialMemory) kept.fade(kTrialMemory / kept.weight);
}

DraftPolicy DraftGuard::choose(int sequences, double none_forecast) {
  Load& load = loads_[load_of(sequences)];
  if (load.trial_steps == 0) load.begin_trial(none_forecast);
  if (load.trial_steps > 0) {
    --load.trial_steps;
    if (load.trial_steps == 0) load.since_trial = 0;
    return load.tried;
  }
  ++load.since_trial;
  return load.runs;
}

void DraftGuard::record(int sequences, DraftPolicy policy, int64_t tokens, double seconds) {
  if (!(seconds > 0) || !std::isfinite(seconds)) return;
  Load& load = loads_[load_of(sequences)];
  ++load.steps;
  constexpr double kForget = 1 - 1e-4;  // what was lost long ago is long paid for
  load.seconds = (load.seconds + seconds) * kForget;
  for (Estimate& one : load.of) one.lost *= kForget;
  const Estimate& running = load.of[size_t(load.runs)];
  if ((policy != load.runs || lead_ > 0) && running.seconds > 0) {
    // The steps after a trial, whose drafts it did not make, are its loss too.
    double& lost = load.of[size_t(policy != load.runs ? policy : load.last_tried)].lost;
    lost = std::max(0.0, lost + seconds - double(tokens) / running.rate());
  }
  lead_ = policy != last_ ? kLead : std::max(0, lead_ - 1);
  last_ = policy;
  if (lead_ > 0) return;
  Estimate& own = load.of[size_t(policy)];
  own.add(double(tokens), seconds);
  if (policy == load.runs) {
    own.measured_at = load.steps;
    if (own.steps > 4 * kTrial && std::abs(own.quick / own.rate() - 1) > kShift) own.fade(0.9);
  } else {
    load.trial.add(double(tokens), seconds);
    if (load.trial.steps == kTrial - kLead) {
      own.measured_at = load.steps;
      if (has_shifted(own, load.trial)) own.begin_anew(load.trial);
    }
  }
  const auto best = load.ahead();
  if (best && load.steps - load.of[size_t(*best)].measured_at < kFresh) load.runs = *best;
}

}  // namespace fathom
