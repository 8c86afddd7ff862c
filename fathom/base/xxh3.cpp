#include "fathom/base/xxh3.h"

#include <xxhash.h>

#include <algorithm>

namespace fathom {

std::array<uint8_t, 16> xxh3_128(std::span<const uint8_t> bytes) {
  XXH128_canonical_t canonical;
  XXH128_canonicalFromHash(&canonical, XXH3_128bits(bytes.data(), bytes.size()));
  std::array<uint8_t, 16> out{};
  std::copy_n(canonical.digest, out.size(), out.begin());
  return out;
}

}  // namespace fathom
