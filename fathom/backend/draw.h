// fathom/backend/draw.h
// Random draws by name, exact in integers. A draw is named by (seed, position, role); the attempt counts up when a
// number is rejected, so that no value is favoured. Every backend draws by these functions. Source: spec/engine.md 8.2,
//
#pragma once
#include <cstdint>

#include "fathom/backend/ops.h"
#include "fathom/base/philox.h"

namespace fathom {

inline constexpr uint32_t kFresh = 0, kResidual = 1, kAccept = 2, kCoupled = 3;  // roles; 3: race.h

/// 64 random bits.
constexpr uint64_t random_bits(uint64_t seed, uint32_t position, uint32_t role, uint32_t attempt) {
  const auto words = philox(seed, {position, role, attempt, 0});
  return words[0] | uint64_t(words[1]) << 32;
}

/// A uniform integer in [0, total), total > 0: the high half of bits * total. 2^64 mod total of the 2^64 products would
/// make some results likelier than others; they are the ones whose low half is below that remainder, and are drawn
/// again.
constexpr uint64_t uniform_below(uint64_t total, uint64_t seed, uint32_t position, uint32_t role) {
  const uint64_t remainder = (0 - total) % total;  // 2^64 mod total
  for (uint32_t attempt = 0;; ++attempt) {
    const auto product = static_cast<unsigned __int128>(random_bits(seed, position, role, attempt)) * total;
    if (uint64_t(product) >= remainder) return uint64_t(product >> 64);
  }
}

}  // namespace fathom
