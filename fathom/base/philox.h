// fathom/base/philox.h
// Random numbers by counter: Philox4x32-10. The same key and counter give the same numbers in any batch, order or
// thread, so a draw is named by what it is for (seed, position, role), not by when it happens. Source:
// spec/engine.md 8.2, R-34; J. Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011.
#pragma once
#include <array>
#include <cstdint>

namespace fathom {

/// Four 32-bit numbers for one key and counter. Pure; about 40 integer multiplications.
constexpr std::array<uint32_t, 4> philox(uint64_t key, std::array<uint32_t, 4> counter) {
  uint32_t k0 = uint32_t(key), k1 = uint32_t(key >> 32);
  for (int round = 0; round < 10; ++round) {
    const uint64_t a = uint64_t(0xD2511F53u) * counter[0];
    const uint64_t b = uint64_t(0xCD9E8D57u) * counter[2];
    counter = {uint32_t(b >> 32) ^ counter[1] ^ k0, uint32_t(b), uint32_t(a >> 32) ^ counter[3] ^ k1, uint32_t(a)};
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return counter;
}

}  // namespace fathom
