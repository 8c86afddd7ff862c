// fathom/cache/prefix_key.h
// What names a cached prefix: a chain of 16-byte keys, one for each full block of 128 tokens. Two sequences have the
// same key at block i when everything that its bytes depend on is the same: model, numerics, replay class, salt, all
// tokens and all images up to its end. Every part is framed before hashing, so that none can imitate another; nothing
// of this process enters, so the same keys name blocks in every tier and on every host (docs/formats/prefix-keys.md).
// Pure functions. Source: spec/engine.md R-18.
#pragma once
#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fathom/cache/page_spec.h"
#include "fathom/cache/replay.h"

namespace fathom {

struct PrefixKey {
  std::array<uint8_t, 16> bytes{};
  friend bool operator==(const PrefixKey&, const PrefixKey&) = default;
};

/// Prompts that ran with an approximation of the encoder never share blocks with those that may not.
enum class ReplayClass { bounded, exact };
ReplayClass replay_class_of(ReplayMode mode);  // compact, mask: bounded; halo, off: exact

/// All that a prefix depends on besides its tokens and images.
struct PrefixRoot {
  std::string model;           // id
  std::string weights_digest;  // of the checkpoint, as it was computed; any bytes
  uint32_t cache_format = 1;   // version of the bytes inside a block
  std::string numerics;        // profile: "reference", "deepinfer"
  ReplayClass replay = ReplayClass::bounded;
  std::string salt;  // of the tenant, or of several
};

/// One kind of hash for all keys of a root.
using KeyHash = PrefixKey (*)(std::span<const uint8_t> framed);
PrefixKey xxh3_key(std::span<const uint8_t> framed);
PrefixKey sha256_key(std::span<const uint8_t> framed);  // the first 128 bits
/// Tenants that share a salt could find collisions of XXH3 against each other.
inline KeyHash key_hash_of(bool several_tenants) { return several_tenants ? sha256_key : xxh3_key; }

/// The positions that one image takes. Spans of a sequence rise and do not overlap.
struct ImageSpan {
  int64_t first = 0, count = 0;
  std::array<uint8_t, 32> digest{};  // image_digest
};
/// SHA-256 of an image's bytes and of the size in pixels that the recipe chose for it.
std::array<uint8_t, 32> image_digest(std::span<const uint8_t> bytes, uint32_t width, uint32_t height);
/// Those with a position in [first, first + count).
std::span<const ImageSpan> images_in(std::span<const ImageSpan> images, int64_t first, int64_t count);

/// The framed parts of a root: what k_0 is the hash of, and what tells two roots apart for certain.
std::vector<uint8_t> framed_root(const PrefixRoot& root);
/// Key of the block that follows `parent` (the hash of the framed root for block 0): `tokens` [128], the images with a
/// position in it.
PrefixKey next_key(KeyHash hash, const PrefixKey& parent, std::span<const int32_t> tokens,
                   std::span<const ImageSpan> images);

}  // namespace fathom
