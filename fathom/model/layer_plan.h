// fathom/model/layer_plan.h
// What distinguishes one layer from another, one row a layer. All special cases of the network are in this table: code
// that runs a layer reads its row and nothing else of the configuration's lists. Source: spec/model.md 2.
#pragma once
#include <optional>
#include <vector>

namespace fathom {

struct ModelConfig;

struct LayerPlan {
  enum class Mode {
    window_only,  // no global cache
    full,         // own compressor, own index keys, own indexer
    reindex,      // own indexer over the keys of kv_source
    reuse,        // reads cache and selection of its sources
  };
  Mode mode = Mode::window_only;
  int ratio = 0;          // tokens in one global entry: 2 encoder, 1 decoder, 0 window only
  int kv_source = -1;     // layer whose global cache is read; itself if it is the source; -1 for none
  int index_source = -1;  // layer whose selection is read; itself if it is the source; -1 for none
  bool engram = false;
  bool decoder = false;           // at or behind the first layer of ratio 1
  bool candidate_source = false;  // also keeps the best blocks for the index sources behind it
  bool in_candidates = false;     // its indexer scores only the entries of those blocks
  bool draft_input = false;       // what enters its attention feeds the draft stages
  bool draft = false;             // a DSpark stage, not a backbone layer

  friend bool operator==(const LayerPlan&, const LayerPlan&) = default;
};

/// "window_only", "full", "reindex", "reuse".
const char* name_of(LayerPlan::Mode mode);

/// num_hidden_layers rows, then one for each draft stage. `config` must have passed its checks.
std::vector<LayerPlan> plan_layers(const ModelConfig& config);

/// Number of the stage whose row is `layer` (0 for the first), or nothing for a backbone layer.
std::optional<int> draft_stage(const ModelConfig& config, int layer);

}  // namespace fathom
