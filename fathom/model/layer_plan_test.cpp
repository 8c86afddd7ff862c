#include "fathom/model/layer_plan.h"

#include <gtest/gtest.h>

#include "fathom/model/presets.h"

namespace fathom {
namespace {

using Mode = LayerPlan::Mode;

// One line a layer: mode, ratio, sources, then what is special about it.
std::string line(const LayerPlan& plan) {
  std::string text = std::string(name_of(plan.mode)) + " " + std::to_string(plan.ratio) + " " +
                     std::to_string(plan.kv_source) + " " + std::to_string(plan.index_source);
  if (plan.engram) text += " engram";
  if (plan.decoder) text += " decoder";
  if (plan.candidate_source) text += " candidates";
  if (plan.in_candidates) text += " inside";
  if (plan.draft_input) text += " taps";
  if (plan.draft) text += " draft";
  return text;
}

std::vector<std::string> lines(const ModelConfig& config) {
  std::vector<std::string> out;
  for (const LayerPlan& plan : plan_layers(config)) out.push_back(line(plan));
  return out;
}

// The table of spec/model.md 2.
TEST(LayerPlan, OfFlashIsTheTableOfTheSpecification) {
  const auto plan = plan_layers(ModelConfig{});
  ASSERT_EQ(plan.size(), 43u);
  for (int l = 0; l < 43; ++l) {
    const LayerPlan& row = plan[size_t(l)];
    const int kv = l < 2 || l >= 40 ? -1 : l < 8 ? 2 : l < 14 ? 8 : l < 20 ? 14 : 20;
    const int index = kv < 20 ? kv : l < 24 ? 20 : l < 28 ? 24 : l < 32 ? 28 : l < 36 ? 32 : 36;
    const Mode mode = kv < 0 ? Mode::window_only : kv == l ? Mode::full : index == l ? Mode::reindex : Mode::reuse;
    EXPECT_EQ(row.mode, mode) << l;
    EXPECT_EQ(row.ratio, kv < 0 ? 0 : l < 20 ? 2 : 1) << l;
    EXPECT_EQ(row.kv_source, kv) << l;
    EXPECT_EQ(row.index_source, index) << l;
    EXPECT_EQ(row.engram, l == 1 || l == 14) << l;
    EXPECT_EQ(row.decoder, l >= 20 && l < 40) << l;
    EXPECT_EQ(row.candidate_source, l == 20) << l;
    EXPECT_EQ(row.in_candidates, l == 24 || l == 28 || l == 32 || l == 36) << l;
    EXPECT_EQ(row.draft_input, l >= 37 && l <= 39) << l;
    EXPECT_EQ(row.draft, l >= 40) << l;
  }
  EXPECT_EQ(encoder_layers(ModelConfig{}), 20);
}

TEST(LayerPlan, OfTinyHasEveryKindOfLayer) {
  EXPECT_EQ(lines(*preset_config("tiny")),
            (std::vector<std::string>{"window_only 0 -1 -1", "window_only 0 -1 -1 engram", "full 2 2 2",
                                      "reuse 2 2 2 engram", "full 1 4 4 decoder candidates", "reuse 1 4 4 decoder taps",
                                      "reindex 1 4 6 decoder inside taps", "reuse 1 4 6 decoder taps",
                                      "window_only 0 -1 -1 draft", "window_only 0 -1 -1 draft",
                                      "window_only 0 -1 -1 draft"}));
}

TEST(LayerPlan, OfTheMiniatureHasTwoEncoderSources) {
  EXPECT_EQ(lines(*preset_config("mini-random")),
            (std::vector<std::string>{"window_only 0 -1 -1", "window_only 0 -1 -1 engram", "full 2 2 2", "reuse 2 2 2",
                                      "full 2 4 4 engram", "full 1 5 5 decoder candidates", "reuse 1 5 5 decoder",
                                      "reindex 1 5 7 decoder inside taps", "reuse 1 5 7 decoder taps",
                                      "reindex 1 5 9 decoder inside taps", "window_only 0 -1 -1 draft",
                                      "window_only 0 -1 -1 draft", "window_only 0 -1 -1 draft"}));
}

TEST(LayerPlan, WithoutRatioOneThereIsNoDecoder) {
  ModelConfig config;
  config.num_hidden_layers = 3;
  config.num_nextn_predict_layers = 0;
  config.compress_ratios = {0, 2, 2};
  config.kv_source_layer_ids = config.index_k_source_layer_ids = config.index_source_layer_ids = {1};
  config.candidate_source_layer_id.reset();
  config.engram_layer_ids = {};
  EXPECT_EQ(encoder_layers(config), 3);
  EXPECT_EQ(decoder_layers(config), 0);
  EXPECT_EQ(lines(config), (std::vector<std::string>{"window_only 0 -1 -1", "full 2 1 1", "reuse 2 1 1"}));
}

TEST(LayerPlan, StagesAreNumberedBehindTheBackbone) {
  const ModelConfig config;
  EXPECT_EQ(draft_stage(config, 39), std::nullopt);
  EXPECT_EQ(draft_stage(config, 40), 0);
  EXPECT_EQ(draft_stage(config, 42), 2);
  EXPECT_EQ(experts_of(config, 39), 384);
  EXPECT_EQ(experts_of(config, 40), 128);
  EXPECT_EQ(experts_per_token_of(config, 40), 3);
}

}  // namespace
}  // namespace fathom
