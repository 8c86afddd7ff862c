#include "fathom/model/tensor_list.h"

#include <algorithm>
#include <string>
#include <unordered_set>

#include "fathom/model/config.h"
#include "fathom/model/layer_plan.h"

namespace fathom {
namespace {

class List {
 public:
  explicit List(const ModelConfig& config) : config_(config), plan_(plan_layers(config)) {}

  std::vector<TensorSpec> take() {
    const int64_t h = config_.hidden_size, v = config_.vocab_size;
    bf16("embed.weight", {v, h});
    for (int layer = 0; layer < config_.num_hidden_layers; ++layer) {
      const std::string prefix = "layers." + std::to_string(layer) + ".";
      block(prefix, config_.n_routed_experts);
      extras(prefix, layer);
    }
    bf16("norm.weight", {h});
    bf16("head.weight", {v, h});
    for (int stage = 0; stage < config_.num_nextn_predict_layers; ++stage) draft_stage(stage);
    if (config_.vision) vision(*config_.vision);
    return std::move(out_);
  }

 private:
  void add(std::string name, DType dtype, Shape shape) { out_.push_back({std::move(name), dtype, shape}); }
  void bf16(std::string name, Shape shape) { add(std::move(name), DType::bf16, shape); }
  void f32(std::string name, Shape shape) { add(std::move(name), DType::f32, shape); }
  // Weight with one scale for 32 x 32 elements.
  void fp8(const std::string& name, int64_t out, int64_t in) {
    add(name + ".weight", DType::f8_e4m3, {out, in});
    add(name + ".scale", DType::f8_e8m0, {(out + 31) / 32, (in + 31) / 32});
  }
  // Packed weight, two inputs a byte, with one scale for 32 inputs of a row.
  void fp4(const std::string& name, int64_t out, int64_t in) {
    add(name + ".weight", DType::i8, {out, in / 2});
    add(name + ".scale", DType::f8_e8m0, {out, in / 32});
  }

  void block(const std::string& prefix, int experts) {
    const ModelConfig& c = config_;
    const int64_t h = c.hidden_size, heads = c.num_attention_heads, d = c.head_dim;
    const std::string attention = prefix + "attn.";
    f32(attention + "attn_sink", {heads});
    fp8(attention + "wq_a", c.q_lora_rank, h);
    bf16(attention + "q_norm.weight", {c.q_lora_rank});
    fp8(attention + "wq_b", heads * d, c.q_lora_rank);
    fp8(attention + "wkv", d, h);
    bf16(attention + "kv_norm.weight", {d});
    fp8(attention + "wo_a", c.o_groups * c.o_lora_rank, heads * d / c.o_groups);
    fp8(attention + "wo_b", h, c.o_groups * c.o_lora_rank);
    bf16(prefix + "attn_norm.weight", {h});
    bf16(prefix + "ffn_norm.weight", {h});
    const int64_t streams = c.hc_mult, mixes = streams * (streams + 2);
    for (const char* site : {"hc_attn_", "hc_ffn_"}) {
      f32(prefix + site + "fn", {mixes, streams * h});
      f32(prefix + site + "base", {mixes});
      f32(prefix + site + "scale", {3});
    }
    feed_forward(prefix + "ffn.", experts);
  }

  void feed_forward(const std::string& prefix, int experts) {
    const int64_t h = config_.hidden_size, inner = config_.moe_intermediate_size;
    bf16(prefix + "gate.weight", {experts, h});
    f32(prefix + "gate.bias", {experts});
    f32(prefix + "gate.bias_vl", {experts});
    fp8(prefix + "shared_experts.w1", inner, h);
    fp8(prefix + "shared_experts.w3", inner, h);
    fp8(prefix + "shared_experts.w2", h, inner);
    for (int expert = 0; expert < experts; ++expert) {
      if (!config_.expert_share.holds(expert, experts)) continue;
      const std::string name = prefix + "experts." + std::to_string(expert);
      fp4(name + ".w1", inner, h);
      fp4(name + ".w3", inner, h);
      fp4(name + ".w2", h, inner);
    }
  }

  void extras(const std::string& prefix, int layer) {
    const ModelConfig& c = config_;
    const LayerPlan& plan = plan_[size_t(layer)];
    const int64_t h = c.hidden_size, d = c.head_dim;
    if (plan.kv_source == layer) {
      bf16(prefix + "attn.compressor.wkv.weight", {d, h});
      if (plan.ratio > 1) bf16(prefix + "attn.compressor.wgate.weight", {d, h});
      bf16(prefix + "attn.compressor.norm.weight", {d});
    }
    if (plan.index_source == layer) {
      fp8(prefix + "attn.indexer.wq_b", c.index_n_heads * c.index_head_dim, c.q_lora_rank);
      bf16(prefix + "attn.indexer.weights_proj.weight", {c.index_n_heads, h});
    }
    if (source_of(c.index_k_source_layer_ids, layer) == layer) {
      bf16(prefix + "attn.indexer.wk.weight", {c.index_head_dim, d});
      bf16(prefix + "attn.indexer.k_norm.weight", {c.index_head_dim});
    }
    if (plan.engram) engram(prefix + "engram.", layer);
  }

  void engram(const std::string& prefix, int layer) {
    const ModelConfig& c = config_;
    const auto at = std::find(c.engram_layer_ids.begin(), c.engram_layer_ids.end(), layer) - c.engram_layer_ids.begin();
    const int64_t rows = c.engram_num_embeddings[size_t(at)], channels = c.engram_head_dim;
    add(prefix + "embed.weight", DType::f8_e4m3, {rows, channels});
    add(prefix + "embed.scale", DType::f8_e8m0, {rows, channels / 32});
    fp8(prefix + "wkv", c.hidden_size * (c.hc_mult + 1), engram_lookups(c) * channels);
    bf16(prefix + "q_weight", {c.hc_mult, c.hidden_size});
    bf16(prefix + "k_weight", {c.hc_mult, c.hidden_size});
  }

  void draft_stage(int stage) {
    const ModelConfig& c = config_;
    const int64_t h = c.hidden_size;
    const std::string prefix = "mtp." + std::to_string(stage) + ".";
    block(prefix, c.dspark_n_routed_experts);
    if (stage == 0) {
      fp8(prefix + "main_proj", h, h * int64_t(c.dspark_target_layer_ids.size()));
      bf16(prefix + "main_norm.weight", {h});
    }
    if (stage == c.num_nextn_predict_layers - 1) {
      bf16(prefix + "norm.weight", {h});
      bf16(prefix + "markov_head.embed.weight", {c.vocab_size, c.dspark_markov_rank});
      bf16(prefix + "markov_head.head.weight", {c.vocab_size, c.dspark_markov_rank});
      bf16(prefix + "confidence_head.proj.weight", {1, h + c.dspark_markov_rank});
    }
  }

  void vision(const VisionConfig& v) {
    const int64_t h = config_.hidden_size, w = v.hidden_size;
    for (const char* name : {"image_start", "image_end", "image_newline"}) bf16(name, {h});
    bf16("vision.patch_embed.proj.weight", {w, 3 * v.patch_size * v.patch_size});
    bf16("vision.patch_embed.proj.bias", {w});
    for (int b = 0; b < v.num_hidden_layers; ++b) {
      const std::string prefix = "vision.blocks." + std::to_string(b) + ".";
      bf16(prefix + "norm1.weight", {w});
      bf16(prefix + "norm2.weight", {w});
      bf16(prefix + "attn.wqkv.weight", {3 * w, w});
      bf16(prefix + "attn.wqkv.bias", {3 * w});
      bf16(prefix + "attn.wo.weight", {w, w});
      bf16(prefix + "attn.wo.bias", {w});
      bf16(prefix + "mlp.w1.weight", {2 * v.intermediate_size, w});
      bf16(prefix + "mlp.w2.weight", {w, v.intermediate_size});
    }
    bf16("vision.norm.weight", {w});
    bf16("aligner.w1.weight", {h, w * v.downsample_ratio * v.downsample_ratio});
    bf16("aligner.w1.bias", {h});
    bf16("aligner.w2.weight", {h, h});
    bf16("aligner.w2.bias", {h});
  }

  const ModelConfig& config_;
  std::vector<LayerPlan> plan_;
  std::vector<TensorSpec> out_;
};

bool contains(std::string_view text, std::string_view part) { return text.find(part) != std::string_view::npos; }

// mtp.2.embed.weight and the like: the draft stages use the backbone's, so a copy of it says nothing new.
bool is_copy_of_backbone(std::string_view name) {
  if (!name.starts_with("mtp.")) return false;
  const auto rest = name.substr(std::min(name.find('.', 4), name.size()));
  return rest == ".embed.weight" || rest == ".head.weight";
}

}  // namespace

std::vector<TensorSpec> tensor_list(const ModelConfig& config) { return List(config).take(); }

const char* name_of(WeightGroup group) {
  switch (group) {
    case WeightGroup::routed_experts: return "routed experts";
    case WeightGroup::engram_tables: return "Engram tables";
    case WeightGroup::dspark: return "DSpark";
    case WeightGroup::attention: return "attention";
    case WeightGroup::shared_experts: return "shared experts";
    case WeightGroup::embed: return "embed";
    case WeightGroup::head: return "head";
    case WeightGroup::vision: return "vision";
    case WeightGroup::engram_projections: return "Engram projections";
    case WeightGroup::gates: return "gates";
    case WeightGroup::hyper_connections: return "hyper-connections";
    case WeightGroup::indexers: return "indexers";
    case WeightGroup::compressors: return "compressors";
    case WeightGroup::block_norms: return "block norms";
    case WeightGroup::final_norm: return "final norm";
  }
  return "final norm";
}

WeightGroup group_of(std::string_view name) {
  if (name.starts_with("mtp.")) return WeightGroup::dspark;
  if (name == "embed.weight") return WeightGroup::embed;
  if (name == "head.weight") return WeightGroup::head;
  if (name == "norm.weight") return WeightGroup::final_norm;
  if (!name.starts_with("layers.")) return WeightGroup::vision;
  if (contains(name, ".ffn.experts.")) return WeightGroup::routed_experts;
  if (contains(name, ".ffn.shared_experts.")) return WeightGroup::shared_experts;
  if (contains(name, ".ffn.gate.")) return WeightGroup::gates;
  if (contains(name, ".engram.embed.")) return WeightGroup::engram_tables;
  if (contains(name, ".engram.")) return WeightGroup::engram_projections;
  if (contains(name, ".hc_")) return WeightGroup::hyper_connections;
  if (contains(name, ".attn.compressor.")) return WeightGroup::compressors;
  if (contains(name, ".attn.indexer.")) return WeightGroup::indexers;
  if (contains(name, ".attn.")) return WeightGroup::attention;
  return WeightGroup::block_norms;
}

std::vector<Error> compare(const Checkpoint& checkpoint, std::span<const TensorSpec> expected) {
  std::vector<Error> problems;
  std::unordered_set<std::string_view> known;
  known.reserve(expected.size());
  for (const TensorSpec& want : expected) {
    known.insert(want.name);
    const TensorInfo* found = checkpoint.find(want.name);
    if (!found) {
      if (checkpoint.unreadable(want.name)) continue;  // its file is already a problem
      problems.push_back(Error{ErrorCode::not_found, "tensor " + want.name + " is missing", checkpoint.location(),
                               std::string("config.json demands ") + name_of(want.dtype) + " " + to_string(want.shape) +
                                   "; use a complete checkpoint"});
      continue;
    }
    const auto file = checkpoint.path_of(checkpoint.shards()[size_t(found->shard)].file);
    if (found->spec.dtype != want.dtype) {
      problems.push_back(Error{
          ErrorCode::bad_input,
          "tensor " + want.name + " has dtype " + name_of(found->spec.dtype) + ", expected " + name_of(want.dtype),
          file, "use a checkpoint in the released format, not a repack"});
    } else if (found->spec.shape != want.shape) {
      problems.push_back(Error{
          ErrorCode::bad_input,
          "tensor " + want.name + " has shape " + to_string(found->spec.shape) + ", expected " + to_string(want.shape),
          file, "config.json and weights must belong together"});
    }
  }
  for (const TensorInfo& tensor : checkpoint.tensors()) {
    if (known.contains(tensor.spec.name) || is_copy_of_backbone(tensor.spec.name)) continue;
    problems.push_back(Error{ErrorCode::bad_input,
                             "tensor " + tensor.spec.name + " (" + name_of(tensor.spec.dtype) + " " +
                                 to_string(tensor.spec.shape) + ") is unknown",
                             checkpoint.path_of(checkpoint.shards()[size_t(tensor.shard)].file),
                             "config.json demands no such tensor; use a DeepSeek V4.1 checkpoint"});
  }
  return problems;
}

}  // namespace fathom
