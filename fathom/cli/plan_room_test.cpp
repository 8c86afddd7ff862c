#include "fathom/cli/plan_room.h"

#include <gtest/gtest.h>

#include "fathom/model/presets.h"

namespace fathom::cli {
namespace {

// What a step computes in rises with sequences and context: with one more of either nothing fits any more.
TEST(PlanRoom, TheLargestFitAndOneMoreDoesNot) {
  const ModelConfig config = *preset_config("flash-rank");
  const CacheLayout layout = cache_sizes(config).layout;
  for (const bool on_device : {true, false}) {
    for (const int64_t context : {4096, 1'048'576}) {
      PlanRoom room{.free_bytes = int64_t(120) << 30,
                    .block_bytes = layout.block_bytes,
                    .slot_bytes = layout.slot_bytes,
                    .step = {.prompt_rows = 2048, .sequences = 64, .drafts = 5, .context = context}};
      room.step.on_device = on_device;
      const auto fits = [&](int64_t sequences, int64_t tokens) {
        LargestStep step = room.step;
        step.sequences = sequences, step.context = tokens;
        return fit_cache(room.demand(config, step)).fits;
      };
      const int64_t sequences = largest_sequences(config, room);
      EXPECT_GT(sequences, 64);
      EXPECT_TRUE(fits(sequences, context));
      EXPECT_FALSE(fits(sequences + 1, context));
      room.step.sequences = 200;
      const int64_t tokens = largest_context(config, room);
      EXPECT_EQ(tokens % kBlockTokens, 0);
      EXPECT_TRUE(fits(200, tokens));
      EXPECT_FALSE(fits(200, tokens + 1));
    }
  }
}

TEST(PlanRoom, AContextIsTheModelsAtMostAndNothingFitsIntoNothing) {
  const ModelConfig config = *preset_config("tiny");
  const CacheLayout layout = cache_sizes(config).layout;
  PlanRoom room{.free_bytes = int64_t(1) << 40,
                .block_bytes = layout.block_bytes,
                .slot_bytes = layout.slot_bytes,
                .step = {.prompt_rows = 16, .sequences = 2, .drafts = 0, .context = 128}};
  EXPECT_EQ(largest_context(config, room), config.max_position_embeddings);
  room.free_bytes = 0;
  EXPECT_EQ(largest_context(config, room), 0);
  EXPECT_EQ(largest_sequences(config, room), 0);
}

}  // namespace
}  // namespace fathom::cli
