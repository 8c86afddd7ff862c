#include "fathom/backend/cpu/calls.h"

#include <algorithm>

namespace fathom::cpu {
namespace {

constexpr float kTimes = 10;       // a loop gets shorter by half of itself at best, and waits for its lines
constexpr float kLeastNs = 100;    // of a call as the clock shows it
constexpr float kMostNs = 10'000;  // of a sleeper, who is not to be remembered for long

}  // namespace

bool CallCost::worth(double ns) {
  const float cost = ns_.load(std::memory_order_relaxed);
  if (float(ns) > kTimes * cost) return true;
  ns_.store(std::max(cost * (1 - 1.0f / 16384), kLeastNs), std::memory_order_relaxed);
  return false;
}

// What it costs is what it costs as a rule: one late answer changes little, quick ones count soon.
void CallCost::learn(double ns) {
  const float cost = ns_.load(std::memory_order_relaxed), sample = std::min(float(ns), kMostNs);
  ns_.store(std::max(cost + (sample - cost) / (sample < cost ? 2 : 16), kLeastNs), std::memory_order_relaxed);
}

}  // namespace fathom::cpu
