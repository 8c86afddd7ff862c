// fathom/backend/race.h
// The coupled draw: a race of exponential times, one a token, named by (seed, position, token) and by nothing else. The
// token of smallest time / weight wins; that is Gumbel-max with g = -ln(time). Its law is exactly weight / sum, and two
// laws that are alike mostly have the same winner: a draft and its target run the same race, and the draft is accepted
// iff it wins the target's race too. What is emitted is the target's winner whatever the draft says, so the text of a
// seed is the same without drafts and with any number of them. Source: spec/engine.md 9, R-37.
//
//   time(token)  -ln(u), u = (k + 1/2) / 2^52; k: the 52 high bits of the token's 64. Those are words 0, 1 (even token)
//                or 2, 3 (odd) of philox(seed, {position, 3, token / 2, 0}), the low word first.
//   winner       the smallest double time / weight among weights > 0, ties to the lower id
//
// All numbers are double, each operation rounded by itself, so that every backend has the same winner. The grid of u
// moves a probability by at most 2^-52, the rounding of times by about 1e-15 of itself: far below the 2^-31 of a law.
#pragma once
#include <bit>
#include <cstdint>

#include "fathom/backend/draw.h"

namespace fathom {

/// -ln((k + 1/2) / 2^52), k = bits / 2^12; positive, within 1e-15 of the true value, relative. u = 2^n m with m between
/// the roots of 1/2 and 2, ln m = 2 artanh(f), f = (m - 1) / (m + 1).
[[gnu::always_inline]] constexpr double exponential_time(uint64_t bits) {
  constexpr uint64_t kOne = 0x3ff0000000000000, kRootHalf = 0x3fe6a09e667f3bcd, kFraction = 0x000fffffffffffff;
  constexpr uint64_t kTo52 = 0x4330000000000000;  // 2^52: as the upper bits of a double, it reads an integer below it
  const double u = ((std::bit_cast<double>((bits >> 12) | kTo52) - 0x1p52) + 0.5) * 0x1p-52;
  const uint64_t shifted = std::bit_cast<uint64_t>(u) + (kOne - kRootHalf);
  const double n = std::bit_cast<double>((shifted >> 52) | kTo52) - (0x1p52 + 1023);
  const double m = std::bit_cast<double>((shifted & kFraction) + kRootHalf);
  const double f = (m - 1.0) / (m + 1.0);
  const double z = f * f;
  double p = 1.0 / 21.0;
  p = p * z + 1.0 / 19.0;
  p = p * z + 1.0 / 17.0;
  p = p * z + 1.0 / 15.0;
  p = p * z + 1.0 / 13.0;
  p = p * z + 1.0 / 11.0;
  p = p * z + 1.0 / 9.0;
  p = p * z + 1.0 / 7.0;
  p = p * z + 1.0 / 5.0;
  p = p * z + 1.0 / 3.0;
  p = p * z + 1.0;
  return n * -0.693147180559945309417 - (f + f) * p;
}

/// The bits of one token's time.
constexpr uint64_t race_bits(uint64_t seed, uint32_t position, uint32_t token) {
  const auto words = philox(seed, {position, kCoupled, token / 2, 0});
  return token % 2 == 0 ? words[0] | uint64_t(words[1]) << 32 : words[2] | uint64_t(words[3]) << 32;
}

}  // namespace fathom
