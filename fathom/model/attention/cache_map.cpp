#include "fathom/model/attention/cache_map.h"

#include <string>

namespace fathom {

CacheFormats cache_formats(const ModelConfig& c, const Numerics& numerics) {
  if (!numerics.round_caches) return {RowFormat::f32, RowFormat::f32, RowFormat::f32};
  return {RowFormat::q8, c.use_fp4_sparse_kv ? RowFormat::q4k : RowFormat::q8, RowFormat::q4i};
}

CacheMap map_cache(const ModelConfig& c, const std::vector<LayerPlan>& plan, const Numerics& numerics, int backtrack) {
  CacheMap out;
  out.format = cache_formats(c, numerics);
  const auto add = [&](const std::string& name, int layer, int64_t bytes, int tokens, std::optional<int> window) {
    out.specs.push_back({name + "." + std::to_string(layer), int(bytes), tokens, window});
    return int(out.specs.size()) - 1;
  };
  const int layers = int(plan.size());
  for (auto* list : {&out.latents, &out.keys, &out.rings, &out.states}) list->assign(size_t(layers), -1);
  for (int l = 0; l < layers; ++l) {
    const LayerPlan& row = plan[size_t(l)];
    if (row.kv_source != l) continue;
    out.latents[size_t(l)] = add("latent", l, row_bytes(out.format.latent, c.head_dim), row.ratio, {});
    out.keys[size_t(l)] = add("index_keys", l, row_bytes(out.format.key, c.index_head_dim), row.ratio, {});
  }
  const int ring = int(c.sliding_window) + backtrack;
  for (int l = 0; l < layers; ++l) {
    out.rings[size_t(l)] = add("ring", l, row_bytes(out.format.window, c.head_dim), 1, ring);
  }
  for (int l = 0; l < layers; ++l) {
    const LayerPlan& row = plan[size_t(l)];
    if (row.kv_source != l || row.ratio < 2) continue;
    out.states[size_t(l)] = add("compressor", l, 2 * c.head_dim * 4, 1, row.ratio + backtrack - 1);
  }
  return out;
}

}  // namespace fathom
