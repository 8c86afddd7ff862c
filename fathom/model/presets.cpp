#include "fathom/model/presets.h"

#include <algorithm>
#include <charconv>

#include "fathom/checkpoint/checkpoint.h"
#include "fathom/model/engram/engram_hash.h"

namespace fathom {
namespace {

Error usage(std::string message, std::string where, std::string remedy) {
  return Error{ErrorCode::usage, std::move(message), std::move(where), std::move(remedy)};
}

// The table sizes that belong to the hash constants.
void size_engram_tables(ModelConfig& config) {
  config.engram_num_embeddings.clear();
  for (const EngramHash& hash : engram_hashes(config)) config.engram_num_embeddings.push_back(hash.rows);
}

ModelConfig tiny_config() {
  ModelConfig c;
  c.vocab_size = 384;
  c.hidden_size = 128;
  c.num_hidden_layers = 8;
  c.max_position_embeddings = 4096;
  c.num_attention_heads = 4;
  c.head_dim = 64;
  c.qk_rope_head_dim = 16;
  c.q_lora_rank = 64;
  c.o_lora_rank = 32;
  c.o_groups = 2;
  c.sliding_window = 16;
  c.rope_scaling = YarnScaling{.factor = 4, .original_max_position_embeddings = 256};
  c.compress_ratios = {0, 0, 2, 2, 1, 1, 1, 1, 0, 0, 0};
  c.kv_source_layer_ids = c.index_k_source_layer_ids = {2, 4};
  c.index_source_layer_ids = {2, 4, 6};
  c.index_n_heads = 8;
  c.index_head_dim = 32;
  c.index_topk = 16;
  c.candidate_source_layer_id = 4;
  c.candidate_topk_blocks = 8;
  c.candidate_block_size = 4;
  c.n_routed_experts = 8;
  c.num_experts_per_tok = 2;
  c.moe_intermediate_size = 64;
  c.engram_layer_ids = {1, 3};
  c.engram_vocab_size = 61;
  c.engram_n_heads = 2;
  c.engram_head_dim = 32;
  c.engram_compressed_vocab_size = 333;
  c.dspark_noise_token_id = 3;
  c.dspark_target_layer_ids = {5, 6, 7};
  c.dspark_markov_rank = 32;
  c.dspark_n_routed_experts = 4;
  c.dspark_num_experts_per_tok = 2;
  c.image_token_id = 4;
  c.vision.reset();
  size_engram_tables(c);
  return c;
}

Result<ModelConfig> mini_config() {
  const auto model = Checkpoint::open(embedded_model());
  if (!model) return model.error();
  return parse_model_config(model->config(), model->path_of("config.json"));
}

// Window-only 0 and 1; sources at 2, 8, 14 below E, at E and every 4th after; drafts fed by the last three.
Result<ModelConfig> slice_config(const PresetOptions& options) {
  const int encoder = options.encoder_layers, decoder = options.decoder_layers, layers = encoder + decoder;
  if (encoder < 2 || decoder < 1 || encoder > 128 || decoder > 128) {
    return usage("layers " + std::to_string(encoder) + "+" + std::to_string(decoder) + " make no model", "--layers",
                 "give 2 to 128 encoder and 1 to 128 decoder layers, e.g. 4+8");
  }
  ModelConfig c;
  if (options.experts < c.num_experts_per_tok || options.experts > 4096) {
    return usage(std::to_string(options.experts) + " experts", "--experts",
                 "a token chooses " + std::to_string(c.num_experts_per_tok) + ": give that many to 4096");
  }
  c.num_hidden_layers = layers;
  c.compress_ratios.assign(size_t(layers + c.num_nextn_predict_layers), 0);
  std::fill(c.compress_ratios.begin() + 2, c.compress_ratios.begin() + encoder, 2);
  std::fill(c.compress_ratios.begin() + encoder, c.compress_ratios.begin() + layers, 1);
  std::vector<int> sources;
  for (const int layer : {2, 8, 14}) {
    if (layer < encoder) sources.push_back(layer);
  }
  sources.push_back(encoder);
  c.kv_source_layer_ids = c.index_k_source_layer_ids = sources;
  for (int layer = encoder + 4; layer < layers; layer += 4) sources.push_back(layer);
  c.index_source_layer_ids = sources;
  c.candidate_source_layer_id = encoder;
  c.dspark_target_layer_ids.clear();
  for (int layer = layers - std::min(3, decoder); layer < layers; ++layer) c.dspark_target_layer_ids.push_back(layer);
  std::erase_if(c.engram_layer_ids, [&](int layer) { return layer >= encoder; });
  c.n_routed_experts = options.experts;
  c.dspark_n_routed_experts = std::min(options.experts, 128);
  return c;
}

Result<ModelConfig> rank_config(const PresetOptions& options) {
  ModelConfig c;
  if (options.ranks < 1 || c.n_routed_experts % options.ranks != 0) {
    return usage("expert parallelism over " + std::to_string(options.ranks), "--ep",
                 "give a divisor of " + std::to_string(c.n_routed_experts) + ", the routed experts of a layer");
  }
  if (options.rank < 0 || options.rank >= options.ranks) {
    return usage("rank " + std::to_string(options.rank), "--rank", "give 0 to " + std::to_string(options.ranks - 1));
  }
  c.expert_share = {options.rank, options.ranks};
  return c;
}

Result<ModelConfig> with_engram(Result<ModelConfig> config, int64_t engram_vocab) {
  if (!config) return config;
  if (engram_vocab < 2 || engram_vocab > int64_t(1) << 31) {
    return usage("Engram vocabulary of " + std::to_string(engram_vocab), "--engram-vocab", "give 2 to 2147483648");
  }
  config->engram_vocab_size = engram_vocab;
  size_engram_tables(*config);
  return config;
}

}  // namespace

const std::vector<std::string>& preset_names() {
  static const std::vector<std::string> names = {"tiny", "mini-random", "flash-slice", "flash-sparse", "flash-rank"};
  return names;
}

Result<ModelConfig> preset_config(std::string_view preset, const PresetOptions& options) {
  if (preset == "tiny") return tiny_config();
  if (preset == "mini-random") return mini_config();
  if (preset == "flash-slice") return with_engram(slice_config(options), options.engram_vocab);
  if (preset == "flash-sparse") return ModelConfig{};
  if (preset == "flash-rank") return with_engram(rank_config(options), options.engram_vocab);
  std::string names;
  for (const std::string& name : preset_names()) names += (names.empty() ? "" : ", ") + name;
  return usage("no preset \"" + std::string(preset) + "\"", "--preset", "choose one of " + names);
}

Result<void> parse_layers(std::string_view text, PresetOptions& options) {
  const char* end = text.data() + text.size();
  int encoder = 0, decoder = 0;
  const auto first = std::from_chars(text.data(), end, encoder);
  if (first.ec == std::errc{} && first.ptr != end && *first.ptr == '+') {
    const auto second = std::from_chars(first.ptr + 1, end, decoder);
    if (second.ec == std::errc{} && second.ptr == end) {
      options.encoder_layers = encoder;
      options.decoder_layers = decoder;
      return {};
    }
  }
  return usage("layers \"" + std::string(text) + "\"", "--layers", "give encoder + decoder layers, e.g. 4+8");
}

ModelConfig mini8_config() {
  ModelConfig c;
  c.hidden_size = 256;
  c.vocab_size = 1024;
  c.num_hidden_layers = 8;
  c.num_attention_heads = 8;
  c.head_dim = 128;
  c.q_lora_rank = 128;
  c.o_groups = 2;
  c.o_lora_rank = 64;
  c.sliding_window = 16;
  c.compress_ratios = {0, 0, 2, 2, 1, 1, 1, 1, 0, 0, 0};
  c.kv_source_layer_ids = c.index_k_source_layer_ids = {2, 4};
  c.index_source_layer_ids = {2, 4, 6};
  c.index_n_heads = 8;
  c.index_topk = 8;
  c.candidate_source_layer_id = 4;
  c.candidate_topk_blocks = 4;
  c.n_routed_experts = 16;
  c.num_experts_per_tok = 3;
  c.moe_intermediate_size = 128;
  c.engram_layer_ids = {1};
  c.engram_num_embeddings = {6126};
  c.engram_n_heads = 2;
  c.engram_head_dim = 32;
  c.engram_vocab_size = 1000;
  c.engram_compressed_vocab_size = 1024;
  c.dspark_noise_token_id = 3;
  c.dspark_target_layer_ids = {5, 6, 7};
  c.dspark_markov_rank = 32;
  c.dspark_n_routed_experts = 8;
  c.dspark_num_experts_per_tok = 2;
  c.image_token_id = 4;
  c.vision =
      VisionConfig{.num_hidden_layers = 2, .hidden_size = 64, .num_attention_heads = 4, .intermediate_size = 128};
  return c;
}

}  // namespace fathom
