// fathom/backend/law.h
// How logits become a law: an integer for each token, floor(p * 2^31). Every backend computes these integers by exactly
// these steps, so that the same logits give the same token on every machine (spec/engine.md ). All numbers
// are double, and every operation is rounded by itself (no fused multiply-add).
//   x          logit / temperature; `best` is the largest. A logit of NaN counts as -inf.
//   w          law_weight(x - best). What is below -700, so also -inf, counts as -700: its law is 0 anyway.
//   sum of w   in eight lanes: lane l adds the tokens with id mod 8 = l in rising order; then (l) + (l + 4), (l) + (l +
//   2),
//              and the last two
//   min-p      keeps w >= min_p (the largest w is 1)
//   top-k/p    tokens by falling logit, ties by rising id (+0 and -0 are equal): the shortest prefix whose count
//   reaches
//              top_k, or whose sum of floor(w / sum * 2^31), with the sum over all tokens before any filter, reaches
//              floor(top_p * 2^31) + 1. top_p = 1 keeps all.
//   law        floor(w / sum of kept w * 2^31)
// A temperature below 1e-5 (and a row without a finite largest logit) is greedy: the first of the largest logits has
// the law 2^31, all others 0.
#pragma once
#include <algorithm>
#include <bit>
#include <cstdint>

namespace fathom {

inline constexpr double kCertain = 0x1p31;  // probability 1 in a law
inline constexpr float kGreedyBelow = 1e-5f;

/// e^max(x, -700) for x <= 0: x = n ln 2 + r, then a polynomial in r, then 2^n. Within 1e-15 of the true value,
/// relative.
[[gnu::always_inline]] constexpr double law_weight(double x) {
  constexpr double kRound = 6755399441055744.0;  // 1.5 * 2^52: adding it leaves an integer in the low bits
  // Among numbers <= 0 the smaller has the larger bits. (A choice between doubles would keep the compiler from
  // vectors.)
  const double bounded = std::bit_cast<double>(std::min(std::bit_cast<uint64_t>(x), std::bit_cast<uint64_t>(-700.0)));
  const double shifted = bounded * 1.4426950408889634 + kRound;
  const double n = shifted - kRound;
  const double r = (bounded - n * 6.93147180369123816490e-01) - n * 1.90821492927058770002e-10;
  double p = 1.0 / 6227020800.0;  // 1 / 13!, and so on down
  p = p * r + 1.0 / 479001600.0;
  p = p * r + 1.0 / 39916800.0;
  p = p * r + 1.0 / 3628800.0;
  p = p * r + 1.0 / 362880.0;
  p = p * r + 1.0 / 40320.0;
  p = p * r + 1.0 / 5040.0;
  p = p * r + 1.0 / 720.0;
  p = p * r + 1.0 / 120.0;
  p = p * r + 1.0 / 24.0;
  p = p * r + 1.0 / 6.0;
  p = p * r + 0.5;
  p = p * r + 1.0;
  p = p * r + 1.0;
  const double power = std::bit_cast<double>((std::bit_cast<uint64_t>(shifted) + 1023) << 52);
  return p * power;
}

}  // namespace fathom
