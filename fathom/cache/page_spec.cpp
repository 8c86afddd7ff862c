#include "fathom/cache/page_spec.h"

#include <algorithm>
#include <numeric>

namespace fathom {
namespace {

int64_t round_up(int64_t bytes, int64_t multiple) { return (bytes + multiple - 1) / multiple * multiple; }

}  // namespace

CacheLayout lay_out(std::span<const PageSpec> specs) {
  CacheLayout out;
  out.specs.assign(specs.begin(), specs.end());
  int64_t largest_entry = 1, first_ring_entry = 1;
  for (const PageSpec& spec : specs) {
    int64_t& end = spec.window ? out.slot_bytes : out.block_bytes;
    out.offset.push_back(end);
    const int64_t entries = spec.window ? *spec.window : kBlockTokens / spec.tokens_per_entry;
    end = round_up(end + entries * spec.bytes_per_entry, 32);
    if (!spec.window) largest_entry = std::max<int64_t>(largest_entry, spec.bytes_per_entry);
    if (spec.window && first_ring_entry == 1) first_ring_entry = spec.bytes_per_entry;
  }
  out.block_bytes = round_up(out.block_bytes, std::lcm(int64_t(128), largest_entry));
  out.slot_bytes = round_up(out.slot_bytes, std::lcm(int64_t(32), first_ring_entry));
  return out;
}

std::vector<size_t> encoder_rings(const CacheLayout& layout, int encoder_layers) {
  std::vector<size_t> out;
  for (int layer = 0; layer < encoder_layers; ++layer) {
    const auto named = [&](const PageSpec& spec) { return spec.name == "ring." + std::to_string(layer); };
    const auto at = std::find_if(layout.specs.begin(), layout.specs.end(), named);
    if (at != layout.specs.end()) out.push_back(size_t(at - layout.specs.begin()));
  }
  return out;
}

}  // namespace fathom
