// Layout of blocks and state slots. The numbers of V4.1 Flash come from spec/engine.md 5.1 and spec/memory.md 1.
#include "fathom/cache/page_spec.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace fathom {
namespace {

constexpr int kLatent = 512, kIndex = 128, kWindow = 128, kBacktrack = 6;  // channels, channels, tokens, tokens

// The formulas of memory.md 1: latent D/2 + D/16, index key id/2 + id/32, window row D + D/32, compressor state 2 D
// floats.
std::vector<PageSpec> flash_specs() {
  std::vector<PageSpec> specs;
  for (const auto& [layer, ratio] : {std::pair{2, 2}, {8, 2}, {14, 2}, {20, 1}}) {
    specs.push_back({"latent." + std::to_string(layer), kLatent / 2 + kLatent / 16, ratio, {}});
    specs.push_back({"index_keys." + std::to_string(layer), kIndex / 2 + kIndex / 32, ratio, {}});
  }
  for (int layer = 0; layer < 43; ++layer) {
    specs.push_back({"ring." + std::to_string(layer), kLatent + kLatent / 32, 1, kWindow + kBacktrack});
  }
  for (const int layer : {2, 8, 14}) {
    specs.push_back({"compressor." + std::to_string(layer), 2 * kLatent * 4, 1, 2 + kBacktrack - 1});
  }
  return specs;
}

TEST(PageSpec, TheBlockAndTheSlotOfFlashHaveTheSizesOfTheSpecification) {
  const CacheLayout layout = lay_out(flash_specs());
  EXPECT_EQ(layout.block_bytes, 114'048);
  EXPECT_EQ(layout.slot_bytes, 3'128'928);
}

TEST(PageSpec, FlashKeeps890BytesATokenForEver) {
  int64_t block_bytes = 0;
  for (const PageSpec& spec : flash_specs()) {
    if (!spec.window) block_bytes += kBlockTokens / spec.tokens_per_entry * spec.bytes_per_entry;
  }
  EXPECT_EQ(block_bytes, 113'920);
  EXPECT_EQ(block_bytes, 890 * kBlockTokens);
}

TEST(PageSpec, RegionsAreAlignedAndDoNotOverlap) {
  // Entry sizes of a small model: 36 and 34 bytes are no multiples of 32, so padding is needed between regions.
  const std::vector<PageSpec> small = {{"latent.0", 36, 2, {}},     {"ring.0", 66, 1, 39},
                                       {"index_keys.0", 34, 2, {}}, {"compressor.0", 512, 1, 7},
                                       {"latent.1", 36, 1, {}},     {"ring.1", 66, 1, 39}};
  for (const auto& specs : {flash_specs(), small}) {
    const CacheLayout layout = lay_out(specs);
    ASSERT_EQ(layout.offset.size(), specs.size());
    int64_t block_end = 0, slot_end = 0;
    for (size_t i = 0; i < specs.size(); ++i) {
      int64_t& end = specs[i].window ? slot_end : block_end;
      EXPECT_EQ(layout.offset[i] % 32, 0) << specs[i].name;
      EXPECT_GE(layout.offset[i], end) << specs[i].name;
      const int64_t entries = specs[i].window ? *specs[i].window : kBlockTokens / specs[i].tokens_per_entry;
      end = layout.offset[i] + entries * specs[i].bytes_per_entry;
    }
    EXPECT_LE(block_end, layout.block_bytes);
    EXPECT_LE(slot_end, layout.slot_bytes);
    EXPECT_EQ(layout.block_bytes % 128, 0);
    EXPECT_EQ(layout.slot_bytes % 32, 0);
  }
}

TEST(PageSpec, NoPagesTakeNoBytes) {
  EXPECT_EQ(lay_out({}).block_bytes, 0);
  EXPECT_EQ(lay_out({}).slot_bytes, 0);
}

}  // namespace
}  // namespace fathom
