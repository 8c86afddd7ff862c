#include "fathom/model/layer_plan.h"

#include <algorithm>

#include "fathom/model/config.h"

namespace fathom {
namespace {

bool contains(const std::vector<int>& ids, int layer) { return std::find(ids.begin(), ids.end(), layer) != ids.end(); }

LayerPlan plan_layer(const ModelConfig& config, int layer) {
  LayerPlan plan;
  plan.ratio = config.compress_ratios[size_t(layer)];
  plan.engram = contains(config.engram_layer_ids, layer);
  plan.decoder = layer >= encoder_layers(config);
  plan.draft_input = config.num_nextn_predict_layers > 0 && contains(config.dspark_target_layer_ids, layer);
  if (plan.ratio == 0) return plan;
  plan.kv_source = source_of(config.kv_source_layer_ids, layer);
  plan.index_source = source_of(config.index_source_layer_ids, layer);
  const auto candidate = config.candidate_source_layer_id;
  plan.candidate_source = candidate == layer;
  plan.in_candidates = candidate && plan.index_source == layer && layer > *candidate;
  plan.mode = plan.kv_source == layer      ? LayerPlan::Mode::full
              : plan.index_source == layer ? LayerPlan::Mode::reindex
                                           : LayerPlan::Mode::reuse;
  return plan;
}

}  // namespace

const char* name_of(LayerPlan::Mode mode) {
  switch (mode) {
    case LayerPlan::Mode::window_only: return "window_only";
    case LayerPlan::Mode::full: return "full";
    case LayerPlan::Mode::reindex: return "reindex";
    case LayerPlan::Mode::reuse: return "reuse";
  }
  return "window_only";
}

std::vector<LayerPlan> plan_layers(const ModelConfig& config) {
  std::vector<LayerPlan> plan;
  for (int layer = 0; layer < config.num_hidden_layers; ++layer) plan.push_back(plan_layer(config, layer));
  LayerPlan stage;
  stage.draft = true;
  plan.resize(size_t(all_layers(config)), stage);
  return plan;
}

std::optional<int> draft_stage(const ModelConfig& config, int layer) {
  if (layer < config.num_hidden_layers) return {};
  return layer - config.num_hidden_layers;
}

}  // namespace fathom
