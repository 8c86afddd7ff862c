// fathom/base/xxh3.h
// XXH3 with 128 bits: a fast hash that is no cryptographic one: whoever picks the bytes can find collisions. For keys
// whose content is compared on every hit, and for checksums. libxxhash computes it; it stays in xxh3.cpp.
#pragma once
#include <array>
#include <cstdint>
#include <span>

namespace fathom {

/// The canonical (big-endian) 16 bytes, seed 0: the same on every machine. Pure; about 20 bytes a nanosecond.
std::array<uint8_t, 16> xxh3_128(std::span<const uint8_t> bytes);

}  // namespace fathom
