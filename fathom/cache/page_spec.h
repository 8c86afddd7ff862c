// fathom/cache/page_spec.h
// What the model asks the cache to keep. The cache knows pages, not attention: a name, a size, and how long.
#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace fathom {

inline constexpr int kBlockTokens = 128;  // a multiple of every compression ratio; one block = one unit of transfer

struct PageSpec {
  std::string name;           // "latent.2", "index_keys.20", "ring.7", "compressor.2"
  int bytes_per_entry = 0;    // 288, 68, 528, 4096
  int tokens_per_entry = 1;   // 2 or 1
  std::optional<int> window;  // entries that a sequence keeps in a ring; none: kept for ever, in shared blocks

  friend bool operator==(const PageSpec&, const PageSpec&) = default;
};

/// Where each page lies: paged specs inside a block, rings inside a state slot. Regions start at multiples of 32 bytes.
struct CacheLayout {
  std::vector<PageSpec> specs;
  std::vector<int64_t> offset;  // of each spec inside its block or slot
  int64_t block_bytes = 0;      // rounded up to lcm(128, largest paged entry): 114,048 for V4.1 Flash
  int64_t slot_bytes = 0;       // rounded up to lcm(32, entry of the first ring): 3,128,928 for V4.1 Flash
};

/// Pure. Source: spec/engine.md 5.1, spec/memory.md 1.
CacheLayout lay_out(std::span<const PageSpec> specs);
/// Numbers of the specs "ring.0" to "ring.<layers - 1>": the encoder's, which a snapshot keeps. Pure.
std::vector<size_t> encoder_rings(const CacheLayout& layout, int encoder_layers);

}  // namespace fathom
