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
  Report out{runs, {}, lost, seconds};
  for (const DraftPolicy policy : kPolicies) out.tokens_per_second[size_t(policy)] = of[size_t(policy)].rate();
  return out;
}

// The two policies that do not run take turns. A trial that would overdraw the book waits.
void DraftGuard::Load::begin_trial() {
  const Estimate& running = of[size_t(runs)];
  if (running.steps < kTrial || since_trial < kTrial) return;
  DraftPolicy next = last_tried;
  do {
    next = kPolicies[(size_t(next) + 1) % kPolicies.size()];
  } while (next == runs);
  const Estimate& other = of[size_t(next)];
  const double step_seconds = running.seconds / running.weight;
  // Of a policy that nothing is known of, the loss is taken to be half the time.
  const double share = other.steps == 0 ? 0.5 : std::max(0.0, 1 - other.rate() / running.rate());
  const bool first = other.steps < kLeastTrials * (kTrial - kLead);
  const double expected = (share + 0.05) * (kTrial + kLead) * step_seconds;
  if (!first && lost + expected > kBudget * seconds) return;
  tried = last_tried = next;
  trial = {};
  trial_steps = kTrial;
  Estimate& kept = of[size_t(next)];
  if (kept.weight > kTrialMemory) kept.fade(kTrialMemory / kept.weight);
}

// A policy that is ahead beyond margin and doubt takes over.
void DraftGuard::Load::decide() {
  for (const DraftPolicy policy : kPolicies) {
    const Estimate &other = of[size_t(policy)], &running = of[size_t(runs)];
    if (policy == runs || other.steps < kLeastTrials * (kTrial - kLead)) continue;
    const double doubt = std::hypot(other.doubt(), running.doubt());
    if (other.rate() - kDoubt * doubt > running.rate() * (1 + kMargin)) runs = policy;
  }
}

DraftPolicy DraftGuard::choose(int sequences) {
  Load& load = loads_[load_of(sequences)];
  if (load.trial_steps == 0) load.begin_trial();
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
  load.seconds += seconds;
  load.lost *= 1 - 1e-4;  // what was lost long ago is long paid for
  load.seconds *= 1 - 1e-4;
  const Estimate& running = load.of[size_t(load.runs)];
  if ((policy != load.runs || lead_ > 0) && running.seconds > 0) {
    load.lost = std::max(0.0, load.lost + seconds - double(tokens) / running.rate());
  }
  lead_ = policy != last_ ? kLead : std::max(0, lead_ - 1);
  last_ = policy;
  if (lead_ > 0) return;
  Estimate& own = load.of[size_t(policy)];
  own.add(double(tokens), seconds);
  if (policy == load.runs) {
    if (own.steps > 4 * kTrial && std::abs(own.quick / own.rate() - 1) > kShift) own.fade(0.9);
  } else {
    load.trial.add(double(tokens), seconds);
    if (load.trial.steps == kTrial - kLead && has_shifted(own, load.trial)) own = load.trial;
  }
  load.decide();
}

}  // namespace fathom
