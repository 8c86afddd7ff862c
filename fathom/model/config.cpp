// Reading and writing. What one field must be is here; what fields must be to each other is in config_check.cpp.
#include "fathom/model/config.h"

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <limits>

namespace fathom {
namespace {

constexpr const char* kArchitecture = "DeepseekV41ForCausalLM";
constexpr const char* kModelType = "deepseek_v41";

std::string shown(const Json& value) {
  std::string text = to_string(value);
  if (text.size() > 80) text = text.substr(0, 77) + "...";
  return text;
}

std::string range_text(int64_t low, int64_t high) {
  return "it must be an integer from " + std::to_string(low) + " to " + std::to_string(high);
}

// One object of the file. Remembers which keys were asked for, so that the rest can be reported.
class Section {
 public:
  Section(const Json& object, std::string path, std::string_view where, ConfigReading& out)
      : object_(object), path_(std::move(path)), where_(where), out_(out) {}

  void problem(std::string_view key, std::string message, std::string expected, ErrorCode code = ErrorCode::bad_input) {
    out_.problems.push_back(
        Error{code, std::move(message), where_ + ": " + path_ + std::string(key), std::move(expected)});
  }

  const Json* find(std::string_view key) {
    known_.emplace_back(key);
    return object_.find(key);
  }

  // The value of a key that must be there; the problem is reported otherwise.
  const Json* need(std::string_view key, std::string_view expected) {
    const Json* value = find(key);
    if (!value) problem(key, std::string(key) + " is missing", std::string(expected));
    return value;
  }

  void wrong(std::string_view key, const Json& value, std::string expected, ErrorCode code = ErrorCode::bad_input) {
    problem(key, std::string(key) + " is " + shown(value), std::move(expected), code);
  }

  template <class Integer>
  void integer(std::string_view key, Integer& out, int64_t low, int64_t high) {
    const std::string expected = range_text(low, high);
    const Json* value = need(key, expected);
    if (!value) return;
    const auto number = value->as_int64();
    if (!number || *number < low || *number > high) return wrong(key, *value, expected);
    out = Integer(*number);
  }

  // Finite and at least `low`. Optional keys keep their default.
  void real(std::string_view key, double& out, double low, bool required = true) {
    const std::string expected = low > 0 ? "it must be a number above 0" : "it must be a number of at least 0";
    const Json* value = required ? need(key, expected) : find(key);
    if (!value) return;
    const auto number = value->as_double();
    if (!number || !std::isfinite(*number) || *number < low) return wrong(key, *value, expected);
    out = *number;
  }

  template <class Integer>
  void integers(std::string_view key, std::vector<Integer>& out, int64_t low, int64_t high, bool required = true) {
    const std::string expected =
        "it must be a list of integers from " + std::to_string(low) + " to " + std::to_string(high);
    const Json* value = required ? need(key, expected) : find(key);
    if (!value) return;
    if (!value->is_array() || value->items.size() > 4096) return wrong(key, *value, expected);
    std::vector<Integer> read;
    for (const Json& item : value->items) {
      const auto number = item.as_int64();
      if (!number || *number < low || *number > high) return wrong(key, *value, expected);
      read.push_back(Integer(*number));
    }
    out = std::move(read);
  }

  // A key that can only have one value. A missing optional one has it.
  void fixed(std::string_view key, const Json& expected, bool required = true) {
    const std::string text = "it must be " + to_string(expected);
    const Json* value = required ? need(key, text) : find(key);
    if (value && !same(*value, expected)) wrong(key, *value, text);
  }

  // As fixed(), for a value that the format allows and this program does not implement.
  void only(std::string_view key, bool supported) {
    const Json* value = find(key);
    if (!value) return;
    const auto found = value->as_bool();
    if (!found) return wrong(key, *value, "it must be true or false");
    if (*found != supported) {
      wrong(key, *value, std::string("fathom implements ") + (supported ? "true" : "false") + " only, as released",
            ErrorCode::unsupported);
    }
  }

  void warn_of_unknown_keys() {
    for (const auto& [key, value] : object_.fields) {
      if (std::find(known_.begin(), known_.end(), key) == known_.end()) {
        out_.warnings.push_back(where_ + ": " + path_ + key + " is not a key that fathom knows; ignored");
      }
    }
  }

 private:
  // Numbers by value: 32, 32.0 and 3.2e1 are the same.
  static bool same(const Json& a, const Json& b) {
    if (a.is_number() && b.is_number()) return a.as_double() == b.as_double();
    if (a.kind != b.kind || a.items.size() != b.items.size()) return false;
    for (size_t i = 0; i < a.items.size(); ++i) {
      if (!same(a.items[i], b.items[i])) return false;
    }
    return a.boolean == b.boolean && a.text == b.text;
  }

  const Json& object_;
  std::string path_, where_;
  ConfigReading& out_;
  std::vector<std::string> known_;
};

Json list_of(std::initializer_list<int> values) {
  Json list = Json::array();
  for (const int value : values) list.push(Json::of(value));
  return list;
}

template <class Integer>
Json list_of(const std::vector<Integer>& values) {
  Json list = Json::array();
  for (const Integer value : values) list.push(Json::of(int64_t(value)));
  return list;
}

// The values that make it this storage format (model.md 1.4).
Json quantization_json() {
  Json json = Json::object();
  json.set("quant_method", Json::of("fp8"));
  json.set("activation_scheme", Json::of("dynamic"));
  json.set("weight_block_size", list_of({32, 32}));
  json.set("scale_fmt", Json::of("ue8m0"));
  json.set("expert_dtype", Json::of("fp4"));
  return json;
}

// The upper limits keep every product of sizes far inside int64_t, whatever the file says; none is near a real model.
constexpr int64_t kVocab = int64_t(1) << 24, kWidth = int64_t(1) << 17, kTokens = int64_t(1) << 32;
constexpr double kAboveZero = std::numeric_limits<double>::denorm_min();

void read_trunk(Section& text, ModelConfig& config) {
  text.find("model_type");  // informative
  text.integer("vocab_size", config.vocab_size, 1, kVocab);
  text.integer("hidden_size", config.hidden_size, 32, kWidth);
  text.integer("num_hidden_layers", config.num_hidden_layers, 1, 256);
  text.integer("num_nextn_predict_layers", config.num_nextn_predict_layers, 0, 16);
  text.real("rms_norm_eps", config.rms_norm_eps, 0);
  text.integer("max_position_embeddings", config.max_position_embeddings, 1, kTokens);
  text.fixed("tie_word_embeddings", Json::of(false), false);
  text.fixed("hidden_act", Json::of("silu"));
}

void read_rope_scaling(Section& text, ConfigReading& out, std::string_view where) {
  constexpr std::string_view kExpected = "it must be null or an object with rope_type \"yarn\"";
  const Json* value = text.need("rope_scaling", kExpected);
  out.config.rope_scaling.reset();
  if (!value || value->is_null()) return;
  if (!value->is_object()) return text.wrong("rope_scaling", *value, std::string(kExpected));
  Section scaling(*value, "text_config.rope_scaling.", where, out);
  YarnScaling yarn;
  const bool short_name = value->find("type") != nullptr && value->find("rope_type") == nullptr;
  scaling.find("type");  // may stand beside rope_type
  scaling.fixed(short_name ? "type" : "rope_type", Json::of("yarn"));
  scaling.real("factor", yarn.factor, 1);
  scaling.real("beta_fast", yarn.beta_fast, kAboveZero);
  scaling.real("beta_slow", yarn.beta_slow, kAboveZero);
  scaling.integer("original_max_position_embeddings", yarn.original_max_position_embeddings, 1, kTokens);
  scaling.warn_of_unknown_keys();
  out.config.rope_scaling = yarn;
}

void read_attention(Section& text, ConfigReading& out, std::string_view where) {
  ModelConfig& config = out.config;
  text.integer("num_attention_heads", config.num_attention_heads, 1, 1024);
  text.fixed("num_key_value_heads", Json::of(1));
  text.integer("head_dim", config.head_dim, 32, 4096);
  text.integer("qk_rope_head_dim", config.qk_rope_head_dim, 2, 4096);
  text.integer("q_lora_rank", config.q_lora_rank, 32, kWidth);
  text.integer("o_lora_rank", config.o_lora_rank, 1, kWidth);
  text.integer("o_groups", config.o_groups, 1, 1024);
  text.fixed("attention_bias", Json::of(false), false);
  text.fixed("attention_dropout", Json::of(0), false);
  text.integer("sliding_window", config.sliding_window, 1, int64_t(1) << 20);
  text.real("rope_theta", config.rope_theta, kAboveZero);
  text.real("compress_rope_theta", config.compress_rope_theta, kAboveZero);
  read_rope_scaling(text, out, where);
}

void read_sources(Section& text, ModelConfig& config) {
  text.integers("compress_ratios", config.compress_ratios, 0, 2);
  text.integers("kv_source_layer_ids", config.kv_source_layer_ids, 0, 255);
  text.integers("index_source_layer_ids", config.index_source_layer_ids, 0, 255);
  config.index_k_source_layer_ids = config.kv_source_layer_ids;
  text.integers("index_k_source_layer_ids", config.index_k_source_layer_ids, 0, 255, false);
  text.integer("index_n_heads", config.index_n_heads, 1, 1024);
  text.integer("index_head_dim", config.index_head_dim, 32, 4096);
  text.integer("index_topk", config.index_topk, 1, int64_t(1) << 20);
  constexpr std::string_view kExpected = "it must be a layer number, or null or -1 for no two-level selection";
  const Json* candidate = text.need("candidate_source_layer_id", kExpected);
  config.candidate_source_layer_id.reset();
  if (candidate && !candidate->is_null()) {
    const auto layer = candidate->as_int64();
    if (!layer || *layer < -1 || *layer > 255) {
      text.wrong("candidate_source_layer_id", *candidate, std::string(kExpected));
    } else if (*layer >= 0) {
      config.candidate_source_layer_id = int(*layer);
    }
  }
  text.integer("candidate_topk_blocks", config.candidate_topk_blocks, 1, int64_t(1) << 24);
  text.integer("candidate_block_size", config.candidate_block_size, 1, int64_t(1) << 16);
  text.only("use_fp4_sparse_kv", true);
}

void read_experts(Section& text, ModelConfig& config) {
  text.integer("n_routed_experts", config.n_routed_experts, 1, 4096);
  text.fixed("n_shared_experts", Json::of(1));
  text.integer("num_experts_per_tok", config.num_experts_per_tok, 1, 4096);
  text.integer("moe_intermediate_size", config.moe_intermediate_size, 32, kWidth);
  text.fixed("scoring_func", Json::of("sqrtsoftplus"));
  text.fixed("topk_method", Json::of("noaux_tc"));
  text.fixed("norm_topk_prob", Json::of(true));
  text.real("routed_scaling_factor", config.routed_scaling_factor, kAboveZero);
  text.real("swiglu_limit", config.swiglu_limit, 0);
  text.real("gate_temp", config.gate_temp, kAboveZero, false);
}

void read_streams(Section& text, ModelConfig& config) {
  text.integer("hc_mult", config.hc_mult, 1, 16);
  text.integer("hc_sinkhorn_iters", config.hc_sinkhorn_iters, 1, 1000);
  text.real("hc_eps", config.hc_eps, 0);
  text.only("hc_shifted", true);
}

void read_engram(Section& text, ModelConfig& config) {
  text.integers("engram_layer_ids", config.engram_layer_ids, 0, 255);
  text.integers("engram_num_embeddings", config.engram_num_embeddings, 0, int64_t(1) << 44);
  text.integer("engram_max_ngram_size", config.engram_max_ngram_size, 2, 8);
  text.integer("engram_vocab_size", config.engram_vocab_size, 2, int64_t(1) << 31);
  text.integer("engram_n_heads", config.engram_n_heads, 1, 64);
  text.integer("engram_head_dim", config.engram_head_dim, 32, 4096);
  text.integer("engram_pad_token_id", config.engram_pad_token_id, 0, kVocab);
  text.integer("engram_compressed_vocab_size", config.engram_compressed_vocab_size, 1, kVocab);
}

void read_drafts(Section& text, ModelConfig& config) {
  text.integer("dspark_block_size", config.dspark_block_size, 1, 64);
  text.integer("dspark_noise_token_id", config.dspark_noise_token_id, 0, kVocab);
  text.integers("dspark_target_layer_ids", config.dspark_target_layer_ids, 0, 255);
  text.only("dspark_target_attn_input", true);
  text.integer("dspark_markov_rank", config.dspark_markov_rank, 1, kWidth);
  text.integer("dspark_n_routed_experts", config.dspark_n_routed_experts, 1, 4096);
  text.integer("dspark_num_experts_per_tok", config.dspark_num_experts_per_tok, 1, 4096);
}

void read_vision(Section& top, const Json& json, ConfigReading& out, std::string_view where) {
  top.find("vision_config");
  const Json* value = json.find("vision_config");
  out.config.vision.reset();
  if (!value || value->is_null() || (value->is_object() && value->fields.empty())) return;
  if (!value->is_object())
    return top.wrong("vision_config", *value, "it must be an object; empty means no vision encoder");
  Section section(*value, "vision_config.", where, out);
  VisionConfig vision;
  section.find("model_type");
  section.integer("num_hidden_layers", vision.num_hidden_layers, 1, 256);
  section.integer("hidden_size", vision.hidden_size, 1, kWidth);
  section.integer("num_attention_heads", vision.num_attention_heads, 1, 1024);
  section.integer("intermediate_size", vision.intermediate_size, 1, kWidth);
  section.integer("patch_size", vision.patch_size, 1, 256);
  section.real("rope_theta", vision.rope_theta, kAboveZero);
  section.integer("downsample_ratio", vision.downsample_ratio, 1, 64);
  section.integer("max_image_tokens", vision.max_image_tokens, 1, int64_t(1) << 24);
  section.integer("min_pixels", vision.min_pixels, 1, int64_t(1) << 40);
  const Json* ratio = section.find("max_wh_ratio");
  if (ratio && !ratio->is_null()) {
    const auto number = ratio->as_double();
    if (number && *number >= 1 && std::isfinite(*number)) {
      vision.max_wh_ratio = number;
    } else {
      section.wrong("max_wh_ratio", *ratio, "it must be null or at least 1");
    }
  }
  section.warn_of_unknown_keys();
  out.config.vision = vision;
}

void read_top(Section& top, const Json& json, ConfigReading& out, std::string_view where) {
  ModelConfig& config = out.config;
  top.fixed("dtype", Json::of("bfloat16"));
  top.integer("bos_token_id", config.bos_token_id, 0, kVocab);
  top.integer("eos_token_id", config.eos_token_id, 0, kVocab);
  top.integer("pad_token_id", config.pad_token_id, 0, kVocab);
  read_vision(top, json, out, where);
  config.image_token_id.reset();
  if (config.vision || json.find("image_token_id")) {
    int32_t image = 0;
    top.integer("image_token_id", image, 0, kVocab);
    config.image_token_id = image;
  }
  top.find("image_token_id");
  constexpr std::string_view kExpected = "it must be an object with the values of the released format";
  const Json* quantization = top.need("quantization_config", kExpected);
  if (quantization && !quantization->is_object()) {
    top.wrong("quantization_config", *quantization, std::string(kExpected));
  } else if (quantization) {
    Section section(*quantization, "quantization_config.", where, out);
    const Json expected = quantization_json();
    for (const auto& [key, value] : expected.fields) section.fixed(key, value);
    section.warn_of_unknown_keys();
  }
}

void read_text(const Json& text_config, ConfigReading& out, std::string_view where) {
  Section text(text_config, "text_config.", where, out);
  read_trunk(text, out.config);
  read_attention(text, out, where);
  read_sources(text, out.config);
  read_experts(text, out.config);
  read_streams(text, out.config);
  read_engram(text, out.config);
  read_drafts(text, out.config);
  text.warn_of_unknown_keys();
}

void read_expert_share(const Json& json, ConfigReading& out, std::string_view where) {
  const Json* value = json.find("fathom_expert_share");
  if (!value) return;
  Section share(*value, "fathom_expert_share.", where, out);
  share.integer("ranks", out.config.expert_share.ranks, 1, 4096);
  share.integer("rank", out.config.expert_share.rank, 0, std::max(out.config.expert_share.ranks - 1, 0));
}

Json yarn_json(const YarnScaling& yarn) {
  Json json = Json::object();
  json.set("rope_type", Json::of("yarn"));
  json.set("factor", Json::of(yarn.factor));
  json.set("beta_fast", Json::of(yarn.beta_fast));
  json.set("beta_slow", Json::of(yarn.beta_slow));
  json.set("original_max_position_embeddings", Json::of(yarn.original_max_position_embeddings));
  return json;
}

Json vision_json(const VisionConfig& vision) {
  Json json = Json::object();
  json.set("num_hidden_layers", Json::of(vision.num_hidden_layers));
  json.set("hidden_size", Json::of(vision.hidden_size));
  json.set("num_attention_heads", Json::of(vision.num_attention_heads));
  json.set("intermediate_size", Json::of(vision.intermediate_size));
  json.set("patch_size", Json::of(vision.patch_size));
  json.set("rope_theta", Json::of(vision.rope_theta));
  json.set("downsample_ratio", Json::of(vision.downsample_ratio));
  json.set("max_image_tokens", Json::of(vision.max_image_tokens));
  json.set("min_pixels", Json::of(vision.min_pixels));
  json.set("max_wh_ratio", vision.max_wh_ratio ? Json::of(*vision.max_wh_ratio) : Json{});
  return json;
}

void write_text_trunk(Json& json, const ModelConfig& config) {
  json.set("model_type", Json::of("deepseek_v41_text"));
  json.set("vocab_size", Json::of(config.vocab_size));
  json.set("hidden_size", Json::of(config.hidden_size));
  json.set("num_hidden_layers", Json::of(config.num_hidden_layers));
  json.set("num_nextn_predict_layers", Json::of(config.num_nextn_predict_layers));
  json.set("rms_norm_eps", Json::of(config.rms_norm_eps));
  json.set("max_position_embeddings", Json::of(config.max_position_embeddings));
  json.set("tie_word_embeddings", Json::of(false));
  json.set("hidden_act", Json::of("silu"));
  json.set("num_attention_heads", Json::of(config.num_attention_heads));
  json.set("num_key_value_heads", Json::of(1));
  json.set("head_dim", Json::of(config.head_dim));
  json.set("qk_rope_head_dim", Json::of(config.qk_rope_head_dim));
  json.set("q_lora_rank", Json::of(config.q_lora_rank));
  json.set("o_lora_rank", Json::of(config.o_lora_rank));
  json.set("o_groups", Json::of(config.o_groups));
  json.set("attention_bias", Json::of(false));
  json.set("attention_dropout", Json::of(0));
  json.set("sliding_window", Json::of(config.sliding_window));
  json.set("rope_theta", Json::of(config.rope_theta));
  json.set("compress_rope_theta", Json::of(config.compress_rope_theta));
  json.set("rope_scaling", config.rope_scaling ? yarn_json(*config.rope_scaling) : Json{});
}

void write_text_sources(Json& json, const ModelConfig& config) {
  json.set("compress_ratios", list_of(config.compress_ratios));
  json.set("kv_source_layer_ids", list_of(config.kv_source_layer_ids));
  json.set("index_source_layer_ids", list_of(config.index_source_layer_ids));
  if (config.index_k_source_layer_ids != config.kv_source_layer_ids) {
    json.set("index_k_source_layer_ids", list_of(config.index_k_source_layer_ids));
  }
  json.set("index_n_heads", Json::of(config.index_n_heads));
  json.set("index_head_dim", Json::of(config.index_head_dim));
  json.set("index_topk", Json::of(config.index_topk));
  const auto& candidate = config.candidate_source_layer_id;
  json.set("candidate_source_layer_id", candidate ? Json::of(*candidate) : Json{});
  json.set("candidate_topk_blocks", Json::of(config.candidate_topk_blocks));
  json.set("candidate_block_size", Json::of(config.candidate_block_size));
  if (!config.use_fp4_sparse_kv) json.set("use_fp4_sparse_kv", Json::of(false));
}

void write_text_rest(Json& json, const ModelConfig& config) {
  json.set("n_routed_experts", Json::of(config.n_routed_experts));
  json.set("n_shared_experts", Json::of(1));
  json.set("num_experts_per_tok", Json::of(config.num_experts_per_tok));
  json.set("moe_intermediate_size", Json::of(config.moe_intermediate_size));
  json.set("scoring_func", Json::of("sqrtsoftplus"));
  json.set("topk_method", Json::of("noaux_tc"));
  json.set("norm_topk_prob", Json::of(true));
  json.set("routed_scaling_factor", Json::of(config.routed_scaling_factor));
  json.set("swiglu_limit", Json::of(config.swiglu_limit));
  if (config.gate_temp != 1) json.set("gate_temp", Json::of(config.gate_temp));
  json.set("hc_mult", Json::of(config.hc_mult));
  json.set("hc_sinkhorn_iters", Json::of(config.hc_sinkhorn_iters));
  json.set("hc_eps", Json::of(config.hc_eps));
  json.set("engram_layer_ids", list_of(config.engram_layer_ids));
  json.set("engram_num_embeddings", list_of(config.engram_num_embeddings));
  json.set("engram_max_ngram_size", Json::of(config.engram_max_ngram_size));
  json.set("engram_vocab_size", Json::of(config.engram_vocab_size));
  json.set("engram_n_heads", Json::of(config.engram_n_heads));
  json.set("engram_head_dim", Json::of(config.engram_head_dim));
  json.set("engram_pad_token_id", Json::of(config.engram_pad_token_id));
  json.set("engram_compressed_vocab_size", Json::of(config.engram_compressed_vocab_size));
  json.set("dspark_block_size", Json::of(config.dspark_block_size));
  json.set("dspark_noise_token_id", Json::of(config.dspark_noise_token_id));
  json.set("dspark_target_layer_ids", list_of(config.dspark_target_layer_ids));
  json.set("dspark_markov_rank", Json::of(config.dspark_markov_rank));
  json.set("dspark_n_routed_experts", Json::of(config.dspark_n_routed_experts));
  json.set("dspark_num_experts_per_tok", Json::of(config.dspark_num_experts_per_tok));
}

}  // namespace

ConfigReading read_model_config(const Json& json, std::string_view where) {
  ConfigReading out;
  Section top(json, "", where, out);
  if (!json.is_object()) {
    out.problems.push_back(Error{ErrorCode::bad_input, "the configuration is no JSON object", std::string(where),
                                 "it must be the config.json of a DeepSeek V4.1 checkpoint"});
    return out;
  }
  const std::string expected =
      std::string("fathom runs \"") + kModelType + "\" (DeepSeek V4.1); use a checkpoint of that kind";
  const Json* type = top.need("model_type", expected);
  if (type && !(type->is_string() && type->text == kModelType)) top.wrong("model_type", *type, expected);
  if (!out.problems.empty()) return out;
  Json architectures = Json::array();
  architectures.push(Json::of(kArchitecture));
  top.fixed("architectures", architectures);
  if (!out.problems.empty()) return out;

  read_top(top, json, out, where);
  read_expert_share(json, out, where);
  constexpr std::string_view kTextExpected = "it must be an object with the sizes of the network";
  const Json* text_config = top.need("text_config", kTextExpected);
  if (text_config && !text_config->is_object()) {
    top.wrong("text_config", *text_config, std::string(kTextExpected));
  } else if (text_config) {
    read_text(*text_config, out, where);
  }
  // Relations between fields say nothing while a field is wrong.
  if (out.problems.empty()) out.problems = config_problems(out.config, where);
  return out;
}

Result<ModelConfig> parse_model_config(const Json& json, std::string_view where) {
  ConfigReading out = read_model_config(json, where);
  if (!out.problems.empty()) return out.problems.front();
  return std::move(out.config);
}

std::vector<Error> config_problems(const Json& json, std::string_view where) {
  return read_model_config(json, where).problems;
}

Json to_json(const ModelConfig& config) {
  Json json = Json::object();
  Json architectures = Json::array();
  architectures.push(Json::of(kArchitecture));
  json.set("architectures", std::move(architectures));
  json.set("model_type", Json::of(kModelType));
  json.set("dtype", Json::of("bfloat16"));
  json.set("bos_token_id", Json::of(config.bos_token_id));
  json.set("eos_token_id", Json::of(config.eos_token_id));
  json.set("pad_token_id", Json::of(config.pad_token_id));
  if (config.image_token_id) json.set("image_token_id", Json::of(*config.image_token_id));
  json.set("quantization_config", quantization_json());
  Json text = Json::object();
  write_text_trunk(text, config);
  write_text_sources(text, config);
  write_text_rest(text, config);
  json.set("text_config", std::move(text));
  if (config.expert_share != ExpertShare{}) {
    Json share = Json::object();
    share.set("rank", Json::of(config.expert_share.rank));
    share.set("ranks", Json::of(config.expert_share.ranks));
    json.set("fathom_expert_share", std::move(share));
  }
  json.set("vision_config", config.vision ? vision_json(*config.vision) : Json::object());
  return json;
}

}  // namespace fathom
