// fathom/backend/chi_square.h
// Pearson's chi-square test of counts against a law.
#pragma once
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <vector>

namespace fathom {

/// The chance that draws from `law` (any positive scale) deviate at least as much as `seen` does. A token that was seen
/// although its probability is 0 gives 0.
inline double chi_square_p(const std::vector<int64_t>& seen, const std::vector<double>& law) {
  double draws = 0, total = 0, statistic = 0;
  int freedom = -1;
  for (const int64_t n : seen) draws += double(n);
  for (const double p : law) total += p;
  for (size_t i = 0; i < seen.size(); ++i) {
    const double expected = draws * law[i] / total;
    if (expected == 0) {
      if (seen[i] > 0) return 0;
      continue;
    }
    statistic += (double(seen[i]) - expected) * (double(seen[i]) - expected) / expected;
    ++freedom;
  }
  if (freedom <= 0) return 1;
  // Q(a + 1, x) = Q(a, x) + x^a e^-x / Gamma(a + 1), from a = 1/2 or 1.
  const double x = statistic / 2;
  double a = freedom % 2 ? 0.5 : 1, q = freedom % 2 ? std::erfc(std::sqrt(x)) : std::exp(-x);
  for (; a < freedom / 2.0; a += 1) q += std::exp(a * std::log(x) - x - std::lgamma(a + 1));
  return q;
}

}  // namespace fathom
