// What the fields of a configuration must be to each other, and values derived from them.
// Source: spec/model.md 1.2, 1.3, 1.5; spec/checkpoint.md 6.
#include <algorithm>
#include <functional>
#include <string>

#include "fathom/model/config.h"
#include "fathom/model/engram/engram_hash.h"

namespace fathom {
namespace {

std::string list_text(const std::vector<int>& values) {
  std::string text = "[";
  for (const int value : values) {
    if (text.size() > 1) text += ", ";
    text += std::to_string(value);
  }
  return text + "]";
}

bool contains(const std::vector<int>& sorted, int value) {
  return std::binary_search(sorted.begin(), sorted.end(), value);
}

class Checks {
 public:
  Checks(const ModelConfig& config, std::string_view where) : config_(config), where_(where) {}

  std::vector<Error> run() {
    multiples();
    ratios();
    sorted("kv_source_layer_ids", config_.kv_source_layer_ids);
    sorted("index_source_layer_ids", config_.index_source_layer_ids);
    sorted("index_k_source_layer_ids", config_.index_k_source_layer_ids);
    sorted("engram_layer_ids", config_.engram_layer_ids);
    sorted("dspark_target_layer_ids", config_.dspark_target_layer_ids);
    // The topology can only be walked when the lists are sound.
    if (lists_are_sound_ && int(config_.compress_ratios.size()) == all_layers(config_)) {
      sources();
      halves();
      candidates();
      engram();
      drafts();
    }
    experts();
    token_ids();
    vision();
    return std::move(problems_);
  }

 private:
  void fail(std::string_view key, std::string found, std::string expected, ErrorCode code = ErrorCode::bad_input,
            std::string_view section = "text_config.") {
    problems_.push_back(Error{code, std::string(key) + " is " + std::move(found),
                              where_ + ": " + std::string(section) + std::string(key), std::move(expected)});
  }

  void multiple(std::string_view key, int64_t value, int64_t of) {
    if (value % of != 0) fail(key, std::to_string(value), "it must be a multiple of " + std::to_string(of));
  }

  void product_multiple(std::string_view key, int64_t value, std::string_view formula, int64_t product) {
    if (product % 32 != 0) {
      fail(key, std::to_string(value),
           std::string(formula) + " is " + std::to_string(product) + " and must be a multiple of 32");
    }
  }

  // Quantization groups are 32 wide and must not straddle rows.
  void multiples() {
    multiple("hidden_size", config_.hidden_size, 32);
    multiple("head_dim", config_.head_dim, 32);
    multiple("q_lora_rank", config_.q_lora_rank, 32);
    multiple("moe_intermediate_size", config_.moe_intermediate_size, 32);
    multiple("index_head_dim", config_.index_head_dim, 32);
    multiple("engram_head_dim", config_.engram_head_dim, 32);
    multiple("qk_rope_head_dim", config_.qk_rope_head_dim, 2);
    const int64_t widest = std::min(config_.head_dim, config_.index_head_dim);
    if (config_.qk_rope_head_dim > widest) {
      fail("qk_rope_head_dim", std::to_string(config_.qk_rope_head_dim),
           "it must be at most " + std::to_string(widest) + ", the smaller of head_dim and index_head_dim");
    }
    if (config_.num_attention_heads % config_.o_groups != 0) {
      fail("o_groups", std::to_string(config_.o_groups),
           "it must divide num_attention_heads, " + std::to_string(config_.num_attention_heads));
    } else {
      product_multiple("o_groups", config_.o_groups, "num_attention_heads * head_dim / o_groups",
                       config_.num_attention_heads * config_.head_dim / config_.o_groups);
    }
    product_multiple("o_lora_rank", config_.o_lora_rank, "o_groups * o_lora_rank",
                     config_.o_groups * config_.o_lora_rank);
  }

  void ratios() {
    const auto& ratios = config_.compress_ratios;
    if (int(ratios.size()) != all_layers(config_)) {
      return fail("compress_ratios", "a list of " + std::to_string(ratios.size()),
                  "it must have num_hidden_layers + num_nextn_predict_layers = " + std::to_string(all_layers(config_)) +
                      " entries");
    }
    for (size_t l = size_t(config_.num_hidden_layers); l < ratios.size(); ++l) {
      if (ratios[l] != 0) {
        fail("compress_ratios", std::to_string(ratios[l]) + " at entry " + std::to_string(l),
             "draft stages have ratio 0");
      }
    }
  }

  void sorted(std::string_view key, const std::vector<int>& ids) {
    const bool increasing = std::adjacent_find(ids.begin(), ids.end(), std::greater_equal<>()) == ids.end();
    const bool inside = ids.empty() || (ids.front() >= 0 && ids.back() < config_.num_hidden_layers);
    if (increasing && inside) return;
    lists_are_sound_ = false;
    fail(key, list_text(ids),
         "it must be sorted, without repetition, with layers from 0 to " +
             std::to_string(config_.num_hidden_layers - 1));
  }

  void subset(std::string_view key, const std::vector<int>& of, std::string_view in_key, const std::vector<int>& in) {
    if (!std::includes(in.begin(), in.end(), of.begin(), of.end())) {
      fail(key, list_text(of), "every layer of it must be in " + std::string(in_key) + ", " + list_text(in));
    }
  }

  void sources() {
    const auto &kv = config_.kv_source_layer_ids, &keys = config_.index_k_source_layer_ids,
               &index = config_.index_source_layer_ids;
    subset("kv_source_layer_ids", kv, "index_k_source_layer_ids", keys);
    subset("index_k_source_layer_ids", keys, "index_source_layer_ids", index);
    if (keys != kv) {
      fail("index_k_source_layer_ids", list_text(keys),
           "fathom computes index keys where it computes latents: it must equal kv_source_layer_ids, " + list_text(kv),
           ErrorCode::unsupported);
    }
    for (int l = 0; l < config_.num_hidden_layers; ++l) {
      const int ratio = config_.compress_ratios[size_t(l)];
      const std::string layer = "layer " + std::to_string(l) + " with ratio " + std::to_string(ratio);
      const int kv_source = source_of(kv, l), index_source = source_of(index, l);
      if (ratio == 0) {
        if (kv_source == l) fail("kv_source_layer_ids", list_text(kv), layer + " has nothing to be a source of");
        if (index_source == l) fail("index_source_layer_ids", list_text(index), layer + " has nothing to select from");
        continue;
      }
      if (kv_source < 0) {
        fail("kv_source_layer_ids", list_text(kv), layer + " needs a source at or before it");
      } else if (config_.compress_ratios[size_t(kv_source)] != ratio) {
        fail("compress_ratios", std::to_string(ratio) + " at entry " + std::to_string(l),
             "it must be that of its source, layer " + std::to_string(kv_source) + ": " +
                 std::to_string(config_.compress_ratios[size_t(kv_source)]));
      }
      if (index_source < 0) fail("index_source_layer_ids", list_text(index), layer + " needs a source at or before it");
    }
  }

  void halves() {
    const int first = encoder_layers(config_);
    if (first == config_.num_hidden_layers) return;
    if (!contains(config_.kv_source_layer_ids, first)) {
      fail("kv_source_layer_ids", list_text(config_.kv_source_layer_ids),
           "layer " + std::to_string(first) + ", the first with ratio 1, must be in it");
    }
    for (int l = first; l < config_.num_hidden_layers; ++l) {
      if (config_.compress_ratios[size_t(l)] != 1) {
        fail("compress_ratios", std::to_string(config_.compress_ratios[size_t(l)]) + " at entry " + std::to_string(l),
             "every layer from " + std::to_string(first) + ", the first with ratio 1, has ratio 1");
      }
    }
  }

  void candidates() {
    if (!config_.candidate_source_layer_id) return;
    const int source = *config_.candidate_source_layer_id;
    const auto& index = config_.index_source_layer_ids;
    if (!contains(index, source)) {
      return fail("candidate_source_layer_id", std::to_string(source),
                  "it must be one of index_source_layer_ids, " + list_text(index));
    }
    for (const int layer : index) {
      if (layer > source && config_.compress_ratios[size_t(layer)] != config_.compress_ratios[size_t(source)]) {
        fail("candidate_source_layer_id", std::to_string(source),
             "the later index source " + std::to_string(layer) + " must have the same compress ratio");
      }
    }
    const int64_t candidates = config_.candidate_topk_blocks * config_.candidate_block_size;
    if (candidates < config_.index_topk) {
      fail("candidate_topk_blocks", std::to_string(config_.candidate_topk_blocks),
           "candidate_topk_blocks * candidate_block_size is " + std::to_string(candidates) +
               " and must be at least index_topk, " + std::to_string(config_.index_topk));
    }
  }

  void engram() {
    const auto& layers = config_.engram_layer_ids;
    if (!layers.empty() && layers.back() >= encoder_layers(config_)) {
      fail("engram_layer_ids", list_text(layers),
           "every layer of it must be below " + std::to_string(encoder_layers(config_)) + ", the first with ratio 1");
    }
    if (config_.engram_num_embeddings.size() != layers.size()) {
      return fail("engram_num_embeddings", "a list of " + std::to_string(config_.engram_num_embeddings.size()),
                  "it must have one entry for each of engram_layer_ids, " + std::to_string(layers.size()));
    }
    const auto hashes = engram_hashes(config_);
    for (size_t i = 0; i < hashes.size(); ++i) {
      if (config_.engram_num_embeddings[i] != hashes[i].rows) {
        fail("engram_num_embeddings",
             std::to_string(config_.engram_num_embeddings[i]) + " at entry " + std::to_string(i),
             "it must be the sum of the primes from engram_vocab_size on, " + std::to_string(hashes[i].rows));
      }
    }
    if (config_.engram_compressed_vocab_size > config_.vocab_size) {
      fail("engram_compressed_vocab_size", std::to_string(config_.engram_compressed_vocab_size),
           "it must be at most vocab_size, " + std::to_string(config_.vocab_size));
    }
  }

  void drafts() {
    if (config_.num_nextn_predict_layers == 0) return;
    const auto& targets = config_.dspark_target_layer_ids;
    const int first = encoder_layers(config_);
    if (targets.empty()) return fail("dspark_target_layer_ids", "[]", "draft stages need at least one layer to read");
    if (targets.front() < first && targets.back() >= first) {
      fail("dspark_target_layer_ids", list_text(targets),
           "all must lie on one side of layer " + std::to_string(first) + ", where the decoder begins");
    }
  }

  void chosen(std::string_view key, int choose, std::string_view of_key, int experts) {
    if (choose > experts) {
      fail(key, std::to_string(choose), "it must be at most " + std::string(of_key) + ", " + std::to_string(experts));
    }
  }

  void experts() {
    chosen("num_experts_per_tok", config_.num_experts_per_tok, "n_routed_experts", config_.n_routed_experts);
    if (config_.num_nextn_predict_layers > 0) {
      chosen("dspark_num_experts_per_tok", config_.dspark_num_experts_per_tok, "dspark_n_routed_experts",
             config_.dspark_n_routed_experts);
    }
  }

  void token_id(std::string_view key, int64_t id, std::string_view section = "") {
    if (id < 0 || id >= config_.vocab_size) {
      fail(key, std::to_string(id), "it must be below vocab_size, " + std::to_string(config_.vocab_size),
           ErrorCode::bad_input, section);
    }
  }

  void token_ids() {
    token_id("bos_token_id", config_.bos_token_id);
    token_id("eos_token_id", config_.eos_token_id);
    token_id("pad_token_id", config_.pad_token_id);
    if (config_.image_token_id) token_id("image_token_id", *config_.image_token_id);
    if (!config_.engram_layer_ids.empty()) token_id("engram_pad_token_id", config_.engram_pad_token_id, "text_config.");
    if (config_.num_nextn_predict_layers > 0) {
      token_id("dspark_noise_token_id", config_.dspark_noise_token_id, "text_config.");
    }
  }

  void vision() {
    if (!config_.vision) return;
    const VisionConfig& vision = *config_.vision;
    if (vision.hidden_size % vision.num_attention_heads != 0) {
      fail("hidden_size", std::to_string(vision.hidden_size),
           "it must be a multiple of num_attention_heads, " + std::to_string(vision.num_attention_heads),
           ErrorCode::bad_input, "vision_config.");
    } else if (vision.hidden_size / vision.num_attention_heads % 4 != 0) {
      fail("hidden_size", std::to_string(vision.hidden_size),
           "hidden_size / num_attention_heads is " + std::to_string(vision.hidden_size / vision.num_attention_heads) +
               " and must be a multiple of 4",
           ErrorCode::bad_input, "vision_config.");
    }
  }

  const ModelConfig& config_;
  std::string where_;
  std::vector<Error> problems_;
  bool lists_are_sound_ = true;
};

}  // namespace

std::vector<Error> config_problems(const ModelConfig& config, std::string_view where) {
  return Checks(config, where).run();
}

std::vector<int> ModelConfig::flash_ratios() {
  std::vector<int> ratios(43, 0);
  std::fill(ratios.begin() + 2, ratios.begin() + 20, 2);
  std::fill(ratios.begin() + 20, ratios.begin() + 40, 1);
  return ratios;
}

int encoder_layers(const ModelConfig& config) {
  const auto first = config.compress_ratios.begin();
  const auto last = first + std::min<int64_t>(config.num_hidden_layers, int64_t(config.compress_ratios.size()));
  const auto at = std::find(first, last, 1);
  return at == last ? config.num_hidden_layers : int(at - first);
}

int source_of(const std::vector<int>& sources, int layer) {
  const auto after = std::upper_bound(sources.begin(), sources.end(), layer);
  return after == sources.begin() ? -1 : *(after - 1);
}

int experts_of(const ModelConfig& config, int layer) {
  return layer < config.num_hidden_layers ? config.n_routed_experts : config.dspark_n_routed_experts;
}

int experts_per_token_of(const ModelConfig& config, int layer) {
  return layer < config.num_hidden_layers ? config.num_experts_per_tok : config.dspark_num_experts_per_tok;
}

}  // namespace fathom
