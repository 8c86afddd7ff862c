// fathom/model/config.h
// config.json as values. Everything that the network, the cache and the planner need to know of a checkpoint is here,
// and it has been checked: whoever holds a ModelConfig from parse_model_config() need not doubt a shape or a source.
// Source: spec/model.md 1, spec/checkpoint.md 6.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "fathom/base/json.h"
#include "fathom/base/result.h"

namespace fathom {

/// Stretching of the rotary frequencies of layers with a global cache. No attention scale belongs to it (model.md 5.2).
struct YarnScaling {
  double factor = 16;
  double beta_fast = 32;
  double beta_slow = 1;
  int64_t original_max_position_embeddings = 65536;
  friend bool operator==(const YarnScaling&, const YarnScaling&) = default;
};

/// The tower that turns pixels into rows (model.md 1.3, 12).
struct VisionConfig {
  int num_hidden_layers = 32;
  int64_t hidden_size = 1024;
  int64_t num_attention_heads = 16;
  int64_t intermediate_size = 2816;
  int64_t patch_size = 14;
  double rope_theta = 10000;
  int64_t downsample_ratio = 3;
  int64_t max_image_tokens = 1024;
  int64_t min_pixels = 295936;
  std::optional<double> max_wh_ratio = {};
  friend bool operator==(const VisionConfig&, const VisionConfig&) = default;
};

/// Which routed experts a folder holds: all, or those of one rank of an expert-parallel group (make-checkpoint's preset
/// flash-rank). Rank r of n holds experts [r * c, (r + 1) * c), c = ceil(experts / n). Numbers stay global.
struct ExpertShare {
  int rank = 0;
  int ranks = 1;
  bool holds(int expert, int experts) const { return expert / ((experts + ranks - 1) / ranks) == rank; }
  friend bool operator==(const ExpertShare&, const ExpertShare&) = default;
};

/// Names and default values are those of DeepSeek-V4.1-Flash. Sizes count elements unless the name says otherwise.
struct ModelConfig {
  // top level
  int32_t bos_token_id = 0;
  int32_t eos_token_id = 1;
  int32_t pad_token_id = 2;
  std::optional<int32_t> image_token_id = 129264;  // present whenever `vision` is

  // trunk
  int64_t vocab_size = 129280;
  int64_t hidden_size = 5120;
  int num_hidden_layers = 40;
  double rms_norm_eps = 1e-20;
  int64_t max_position_embeddings = 1048576;

  // attention
  int64_t num_attention_heads = 64;
  int64_t head_dim = 512;
  int64_t qk_rope_head_dim = 64;  // the last channels of head_dim
  int64_t q_lora_rank = 1280;
  int64_t o_lora_rank = 1024;
  int64_t o_groups = 8;
  int64_t sliding_window = 128;  // tokens
  double rope_theta = 10000;
  double compress_rope_theta = 160000;
  std::optional<YarnScaling> rope_scaling = YarnScaling{};

  // compressed keys and values, sparse index
  std::vector<int> compress_ratios = flash_ratios();  // tokens in one entry; backbone layers, then draft stages
  std::vector<int> kv_source_layer_ids = {2, 8, 14, 20};
  std::vector<int> index_source_layer_ids = {2, 8, 14, 20, 24, 28, 32, 36};
  std::vector<int> index_k_source_layer_ids = {2, 8, 14, 20};  // absent in the file: kv_source_layer_ids
  int64_t index_n_heads = 32;
  int64_t index_head_dim = 128;
  int64_t index_topk = 512;
  std::optional<int> candidate_source_layer_id = 20;  // none: no two-level selection
  int64_t candidate_topk_blocks = 2048;
  int64_t candidate_block_size = 8;
  bool use_fp4_sparse_kv = true;

  // mixture of experts
  int n_routed_experts = 384;
  int num_experts_per_tok = 6;
  int64_t moe_intermediate_size = 2304;
  double routed_scaling_factor = 1.5;
  double swiglu_limit = 10;  // 0: no clamp
  double gate_temp = 1;

  // hyper-connections
  int hc_mult = 4;
  int hc_sinkhorn_iters = 20;
  double hc_eps = 1e-6;

  // Engram
  std::vector<int> engram_layer_ids = {1, 14};
  std::vector<int64_t> engram_num_embeddings = {384006168, 384016682};  // rows of the tables
  int engram_max_ngram_size = 4;
  int64_t engram_vocab_size = 16000000;
  int engram_n_heads = 8;
  int64_t engram_head_dim = 256;
  int32_t engram_pad_token_id = 2;
  int64_t engram_compressed_vocab_size = 99092;

  // DSpark draft stages
  int num_nextn_predict_layers = 3;
  int dspark_block_size = 5;
  int32_t dspark_noise_token_id = 128799;
  std::vector<int> dspark_target_layer_ids = {37, 38, 39};
  int64_t dspark_markov_rank = 256;
  int dspark_n_routed_experts = 128;
  int dspark_num_experts_per_tok = 3;

  std::optional<VisionConfig> vision = VisionConfig{};

  ExpertShare expert_share;  // our own key `fathom_expert_share`; absent: all experts

  friend bool operator==(const ModelConfig&, const ModelConfig&) = default;

  /// [0, 0] + [2] * 18 + [1] * 20 + [0] * 3
  static std::vector<int> flash_ratios();
};

/// What was read, whole or not: `config` can be relied on only when `problems` is empty.
struct ConfigReading {
  ModelConfig config;
  std::vector<Error> problems;        // every one, in the order of model.md 1
  std::vector<std::string> warnings;  // keys that we do not know, one line each
};

/// Reads and checks the whole of config.json. `where` names the file in errors. When model_type or architectures name
/// another model, that is the only problem: the rest of the file is then a different format.
ConfigReading read_model_config(const Json& config_json, std::string_view where);

/// The same, all or nothing: the first problem as the error (bad_input, or unsupported for a legal value that this
/// program does not implement). Each names the key, the value found and the value expected.
Result<ModelConfig> parse_model_config(const Json& config_json, std::string_view where);

/// All problems, for people who want to mend a file in one go.
std::vector<Error> config_problems(const Json& config_json, std::string_view where);

/// The relations of model.md 1.5 and checkpoint.md 6 between the fields of `config`, for configurations made in memory.
std::vector<Error> config_problems(const ModelConfig& config, std::string_view where);

/// config.json of this configuration: read_model_config() gives the same value back.
Json to_json(const ModelConfig& config);

// ---------------------------------------------------------------- derived values
/// P: number of encoder layers, the index of the first layer with ratio 1; all layers when there is none.
int encoder_layers(const ModelConfig& config);
inline int decoder_layers(const ModelConfig& config) { return config.num_hidden_layers - encoder_layers(config); }
/// Backbone layers and draft stages; a stage i counts as layer num_hidden_layers + i.
inline int all_layers(const ModelConfig& config) { return config.num_hidden_layers + config.num_nextn_predict_layers; }
/// The last of the sorted `sources` that is not behind `layer`; -1 when there is none.
int source_of(const std::vector<int>& sources, int layer);
/// Routed experts, and experts a token, of a layer or draft stage.
int experts_of(const ModelConfig& config, int layer);
int experts_per_token_of(const ModelConfig& config, int layer);
/// Engram rows that a token reads in one layer: n-gram sizes x heads (24 for Flash).
inline int engram_lookups(const ModelConfig& config) {
  return (config.engram_max_ngram_size - 1) * config.engram_n_heads;
}

}  // namespace fathom
