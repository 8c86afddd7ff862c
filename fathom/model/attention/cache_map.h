// fathom/model/attention/cache_map.h
// Which page of the cache holds what: the model's list of page specs, and where each layer's are in it. Formats follow
// the numerics. Source: spec/memory.md 1, spec/engine.md 5.1.
#pragma once
#include <vector>

#include "fathom/cache/page_spec.h"
#include "fathom/model/config.h"
#include "fathom/model/layer_plan.h"
#include "fathom/model/numerics.h"
#include "fathom/tensor/row_format.h"

namespace fathom {

struct CacheFormats {
  RowFormat window = RowFormat::q8, latent = RowFormat::q4k, key = RowFormat::q4i;
};
CacheFormats cache_formats(const ModelConfig& config, const Numerics& numerics);

struct CacheMap {
  std::vector<PageSpec> specs;
  CacheFormats format;
  // Spec numbers by layer (draft stages behind the backbone); -1: that layer has none.
  std::vector<int> latents, keys, rings, states;
};

/// `ring` entries a window (window + longest backtrack); compressor states keep ratio + backtrack - 1 rows.
CacheMap map_cache(const ModelConfig& config, const std::vector<LayerPlan>& plan, const Numerics& numerics,
                   int backtrack);

}  // namespace fathom
