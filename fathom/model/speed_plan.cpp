#include "fathom/model/speed_plan.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "fathom/model/layer_plan.h"
#include "fathom/model/memory_plan.h"
#include "fathom/model/tensor_list.h"

namespace fathom {
namespace {

/// The layer of "layers.12.attn..." ; nothing for others.
std::optional<int> layer_of(const std::string& name) {
  constexpr std::string_view kPrefix = "layers.";
  if (!name.starts_with(kPrefix)) return {};
  return std::stoi(name.substr(kPrefix.size(), name.find('.', kPrefix.size()) - kPrefix.size()));
}

/// Parameters that take part in one token's matrix products, by where they lie.
struct ActiveParameters {
  double encoder = 0, decoder = 0, head = 0;
  double first_source = 0;  // of the decoder's first layer: what makes its cache entries
};

ActiveParameters active_parameters(const ModelConfig& config) {
  ActiveParameters active;
  const int first = encoder_layers(config);
  const std::string source = "layers." + std::to_string(first) + ".attn.";
  for (const TensorSpec& tensor : tensor_list(config)) {
    if (tensor.dtype == DType::f8_e8m0 || tensor.shape.rank() < 2) continue;  // scales, norms, biases
    const WeightGroup group = group_of(tensor.name);
    if (group == WeightGroup::engram_tables || group == WeightGroup::embed) continue;
    double count = double(tensor.shape.elements()) * (tensor.dtype == DType::i8 ? 2 : 1);
    if (group == WeightGroup::head) active.head += count;
    const auto layer = layer_of(tensor.name);
    if (!layer) continue;
    if (group == WeightGroup::routed_experts) {
      count *= double(experts_per_token_of(config, *layer)) / experts_of(config, *layer);
    }
    (*layer < first ? active.encoder : active.decoder) += count;
    const bool makes_entries =
        tensor.name.starts_with(source + "compressor.") || tensor.name == source + "indexer.wk.weight";
    if (makes_entries) active.first_source += count;
  }
  return active;
}

/// Rows that the layers [begin, end) read of the past, and keys that their indexers score, at `context` tokens.
struct PastRows {
  double selected = 0, window = 0, scored = 0;
};

PastRows past_rows(const ModelConfig& config, int begin, int end, double context) {
  PastRows past;
  const auto plan = plan_layers(config);
  for (int layer = begin; layer < end; ++layer) {
    const LayerPlan& row = plan[size_t(layer)];
    past.window += std::min(double(config.sliding_window), context);
    if (row.mode == LayerPlan::Mode::window_only) continue;
    const double entries = context / row.ratio;
    past.selected += std::min(double(config.index_topk), entries);
    const double candidates = double(config.candidate_topk_blocks * config.candidate_block_size);
    if (row.mode != LayerPlan::Mode::reuse) past.scored += row.in_candidates ? std::min(candidates, entries) : entries;
  }
  return past;
}

double attention_flops(const ModelConfig& config, const PastRows& past) {
  return 4.0 * double(config.num_attention_heads * config.head_dim) * (past.window + past.selected);
}
double index_flops(const ModelConfig& config, const PastRows& past) {
  return 2.0 * double(config.index_n_heads * config.index_head_dim) * past.scored;
}

/// The larger of the times of arithmetic and memory, and of links where there are any.
Prediction slowest(const Hardware& hardware, double compute, double memory, double links) {
  Prediction p{memory, "bandwidth", hardware.bandwidth_from};
  if (compute > p.seconds) p = {compute, "compute", hardware.flops_from};
  if (links > p.seconds) p = {links, "links", "bound"};
  return p;
}

double compute_seconds(const Hardware& hardware, double low_precision, double bf16) {
  const double devices = hardware.devices;
  return low_precision / (devices * hardware.flops_fp8) + bf16 / (devices * hardware.flops_bf16);
}

/// Exchange of rows with the ranks that hold their experts, `layers` layers, per device. FP8 rows out, BF16 rows back.
double link_seconds(const ModelConfig& config, const Hardware& hardware, double rows_per_device, double layers) {
  const double e = hardware.devices;
  if (e <= 1 || hardware.link_bytes_per_second <= 0) return 0;
  const double k = config.num_experts_per_tok;
  // Distinct ranks of a row when its k experts fall on e ranks at random; (e - 1) / e of them are remote.
  const double remote = e * (1 - std::pow(1 - 1 / e, k)) * (e - 1) / e;
  const double h = double(config.hidden_size);
  const double bytes = (h + h / 32 + 8 * k) + 2 * h;
  return rows_per_device * remote * bytes * layers / hardware.link_bytes_per_second;
}

}  // namespace

TokenFlops decode_flops(const ModelConfig& config, int64_t context) {
  const ActiveParameters active = active_parameters(config);
  const PastRows past = past_rows(config, 0, config.num_hidden_layers, double(context));
  return {2 * (active.encoder + active.decoder + active.head), attention_flops(config, past),
          index_flops(config, past)};
}

TokenFlops prefill_flops(const ModelConfig& config, int64_t tokens) {
  const ActiveParameters active = active_parameters(config);
  const int encoder = encoder_layers(config);
  // Selection saturates early, so its average is near its end; scoring grows with the position, so its average is half.
  const PastRows end = past_rows(config, 0, encoder, double(tokens));
  const PastRows middle = past_rows(config, 0, encoder, double(tokens) / 2);
  return {2 * (active.encoder + active.first_source), attention_flops(config, end), index_flops(config, middle)};
}

double replay_flops(const ModelConfig& config, int64_t rows, int64_t tokens) {
  const ActiveParameters active = active_parameters(config);
  const PastRows past = past_rows(config, encoder_layers(config), config.num_hidden_layers, double(tokens));
  const double row = 2 * active.decoder + attention_flops(config, past) + index_flops(config, past);
  return double(std::min(rows, tokens)) * row + 2 * active.head;
}

int64_t expert_bytes(const ModelConfig& config) {
  const int64_t weights = 3 * config.hidden_size * config.moe_intermediate_size;
  return weights / 2 + weights / 32;
}

double distinct_experts(const ModelConfig& config, double rows) {
  const double experts = config.n_routed_experts;
  return experts * (1 - std::pow(1 - config.num_experts_per_tok / experts, rows));
}

StepBytes decode_bytes(const ModelConfig& config, int64_t rows, int64_t sequences, int64_t context) {
  StepBytes bytes;
  for (const TensorSpec& tensor : tensor_list(config)) {
    switch (group_of(tensor.name)) {
      case WeightGroup::routed_experts:
      case WeightGroup::engram_tables:
      case WeightGroup::dspark:
      case WeightGroup::embed:
      case WeightGroup::vision: break;
      default: bytes.shared += double(tensor.bytes());
    }
  }
  bytes.experts = config.num_hidden_layers * distinct_experts(config, double(rows)) * double(expert_bytes(config));
  const PastRows past = past_rows(config, 0, config.num_hidden_layers, double(context));
  const double latent = double(config.head_dim) / 2 + double(config.head_dim) / 16;
  const double key = double(config.index_head_dim) / 2 + double(config.index_head_dim) / 32;
  const double window = double(config.head_dim) + double(config.head_dim) / 32;
  bytes.cache = double(sequences) * (past.selected * latent + past.scored * key + past.window * window);
  return bytes;
}

Prediction predict_prefill(const ModelConfig& config, const Hardware& hardware, int64_t tokens, int64_t rows_kept) {
  const TokenFlops token = prefill_flops(config, tokens);
  const double n = double(tokens);
  const double compute = compute_seconds(hardware, n * token.linear + replay_flops(config, rows_kept, tokens),
                                         n * (token.attention + token.index));
  // A prompt long enough reads every expert of both halves once, spread over the devices.
  const StepBytes weights = decode_bytes(config, tokens, 0, 1);
  const double memory = (weights.shared + weights.experts / hardware.devices) / hardware.bytes_per_second;
  const double links = link_seconds(config, hardware, n / hardware.devices, encoder_layers(config)) +
                       link_seconds(config, hardware, double(rows_kept) / hardware.devices, decoder_layers(config));
  return slowest(hardware, compute, memory, links);
}

Prediction predict_decode(const ModelConfig& config, const Hardware& hardware, int64_t sequences, int64_t context) {
  const double devices = hardware.devices;
  const TokenFlops token = decode_flops(config, context);
  const double n = double(sequences);
  const double compute = compute_seconds(hardware, n * token.linear, n * (token.attention + token.index));
  const StepBytes bytes = decode_bytes(config, sequences, sequences, context);
  // Shared weights are replicated: every device reads them; experts and caches are spread.
  const double memory = (bytes.shared + (bytes.experts + bytes.cache) / devices) / hardware.bytes_per_second;
  const double links = link_seconds(config, hardware, n / devices, config.num_hidden_layers);
  return slowest(hardware, compute, memory, links);
}

}  // namespace fathom
