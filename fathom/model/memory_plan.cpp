#include "fathom/model/memory_plan.h"

#include <algorithm>
#include <functional>

#include "fathom/backend/workspace.h"
#include "fathom/checkpoint/tensor_spec.h"
#include "fathom/model/attention/cache_map.h"
#include "fathom/model/layer_plan.h"
#include "fathom/model/step_tables.h"
#include "fathom/model/tensor_list.h"

namespace fathom {
namespace {

CacheMap map_of(const ModelConfig& config, const Numerics& numerics) {
  return map_cache(config, plan_layers(config), numerics, longest_backtrack(config));
}

int64_t blocks_of(const CacheDemand& demand, int64_t context) {
  return (context + demand.block_tokens - 1) / demand.block_tokens;
}

}  // namespace

int longest_backtrack(const ModelConfig& config) {
  return config.num_nextn_predict_layers > 0 ? config.dspark_block_size + 1 : 1;
}

CacheSizes cache_sizes(const ModelConfig& config, const Numerics& numerics) {
  CacheSizes sizes;
  sizes.layout = lay_out(map_of(config, numerics).specs);
  for (const PageSpec& spec : sizes.layout.specs) {
    if (!spec.window) sizes.bytes_per_token += double(spec.bytes_per_entry) / spec.tokens_per_entry;
  }
  return sizes;
}

int64_t growing_cache_bytes(const ModelConfig& config, int64_t tokens) {
  int64_t bytes = 0;
  for (const PageSpec& spec : map_of(config, kReferenceNumerics).specs) {
    if (!spec.window) bytes += tokens / spec.tokens_per_entry * spec.bytes_per_entry;
  }
  return bytes;
}

int64_t minimum_state_bytes(const ModelConfig& config) {
  const CacheMap map = map_of(config, kReferenceNumerics);
  const auto plan = plan_layers(config);
  int64_t bytes = 0;
  for (size_t layer = 0; layer < plan.size(); ++layer) {
    bytes += config.sliding_window * map.specs[size_t(map.rings[layer])].bytes_per_entry;
    if (map.states[layer] >= 0) bytes += plan[layer].ratio * map.specs[size_t(map.states[layer])].bytes_per_entry;
  }
  return bytes;
}

int64_t encoder_ring_bytes(const ModelConfig& config) {
  const CacheMap map = map_of(config, kReferenceNumerics);
  int64_t bytes = 0;
  for (int layer = 0; layer < encoder_layers(config); ++layer) {
    const PageSpec& ring = map.specs[size_t(map.rings[size_t(layer)])];
    bytes += *ring.window * ring.bytes_per_entry;
  }
  return bytes;
}

int64_t device_weight_bytes(const ModelConfig& config, const WeightPlacement& placement) {
  int64_t experts = 0, tables = 0, rest = 0;
  for (const TensorSpec& tensor : tensor_list(config)) {
    const WeightGroup group = group_of(tensor.name);
    if (tensor.name.find(".ffn.experts.") != std::string::npos) {
      experts += tensor.bytes();
    } else if (group == WeightGroup::engram_tables) {
      tables += tensor.bytes();
    } else if (!(group == WeightGroup::embed && !placement.embed_on_device) &&
               !(group == WeightGroup::vision && !placement.vision_on_device)) {
      rest += tensor.bytes();
    }
  }
  const auto share = [](int64_t bytes, int ranks) { return (bytes + ranks - 1) / ranks; };
  if (placement.experts_on_device) rest += share(experts, placement.expert_ranks);
  if (placement.engram_on_device) rest += share(tables, placement.engram_ranks);
  return rest;
}

int64_t activation_bytes(const ModelConfig& config, int64_t rows, int64_t context, int64_t score_limit_bytes) {
  const int64_t trunk = config.hc_mult * config.hidden_size * 2;
  const int64_t queries = config.num_attention_heads * config.head_dim * 2;
  // gate and up branch of the chosen experts and the shared one, BF16
  const int64_t experts = int64_t(config.num_experts_per_tok + 1) * 2 * config.moe_intermediate_size * 2;
  const int64_t scores = std::min(rows * context * 2, std::max(score_limit_bytes, context * 2));
  return rows * (trunk + queries + experts) + scores;
}

namespace {

using Ask = std::function<void(const ProductShape&)>;

// Of the numbers of rows up to `most`, those of which one takes the most: few, which have kernels of their own, and of
// many the last `span` (backend/workspace.h).
template <class Visit>
void for_greediest_rows(int64_t most, int64_t span, const Visit& visit) {
  for (int64_t rows = 1; rows <= std::min(most, kManyRows); ++rows) visit(rows);
  for (int64_t rows = std::max(kManyRows, most - span) + 1; rows <= most; ++rows) visit(rows);
}

void ask_experts(const ModelConfig& c, int64_t count, int64_t each, int64_t most, const Ask& ask) {
  if (count == 0 || each == 0) return;
  const int64_t h = c.hidden_size, inner = c.moe_intermediate_size;
  const int64_t own = (count + c.expert_share.ranks - 1) / c.expert_share.ranks;
  for_greediest_rows(most, kPaddedRows * own / each + 1, [&](int64_t rows) {
    const int64_t chosen = rows * each;
    ask({.rows = rows, .assignments = chosen, .experts = own, .n = inner, .columns = h});
    ask({.rows = chosen, .assignments = chosen, .experts = own, .n = h, .columns = inner});
  });
}

// Products of `rows` rows: of those with as many columns, the one that takes most.
void ask_products(const ModelConfig& c, int64_t rows, const Ask& ask) {
  const int64_t h = c.hidden_size, q = c.num_attention_heads * c.head_dim, inner = c.moe_intermediate_size;
  const auto plain = [&](int64_t n, int64_t columns, int64_t groups = 1, WeightKind weights = WeightKind::codes) {
    ask({.rows = rows, .n = n, .columns = columns, .groups = groups, .weights = weights});
  };
  plain(c.q_lora_rank, h);                                   // wq_a
  plain(c.head_dim, h);                                      // wkv
  plain(q, c.q_lora_rank);                                   // wq_b
  plain(c.index_n_heads * c.index_head_dim, c.q_lora_rank);  // wq_b of the indexer
  plain(c.o_groups * c.o_lora_rank, q, c.o_groups);          // wo_a
  plain(h, c.o_groups * c.o_lora_rank);                      // wo_b
  plain(inner, h);                                           // shared expert
  plain(h, inner);
  plain(c.vocab_size, h, 1, WeightKind::bf16);  // head; compressors and head weights of indexers: as many columns
  if (!c.engram_layer_ids.empty()) plain(h * (c.hc_mult + 1), engram_lookups(c) * c.engram_head_dim);
  if (c.num_nextn_predict_layers == 0) return;
  plain(h, h * int64_t(c.dspark_target_layer_ids.size()));  // main_proj
  plain(1, h + c.dspark_markov_rank, 1, WeightKind::bf16);  // confidence
}

// Tables of recorded steps are as wide as the next 16 blocks (step_tables.h).
int64_t most_selected(const ModelConfig& c, int64_t rows, int64_t context) {
  const int64_t blocks = (context + kBlockTokens - 1) / kBlockTokens + kTableBlocks - 1;
  int64_t most = 0;
  for (int64_t entries = kBlockTokens / 2; entries <= blocks * kBlockTokens; entries += kBlockTokens / 2) {
    most = std::max(most, device_workspace_bytes(
                              SelectShape{.rows = rows, .entries = entries, .source_block = c.candidate_block_size}));
  }
  return most;
}

}  // namespace

int64_t step_workspace_bytes(const ModelConfig& c, const StepSizes& of) {
  int64_t most = most_selected(c, of.rows, of.context);
  const auto asks = [&](int64_t bytes) { most = std::max(most, bytes); };
  const Ask ask = [&](const ProductShape& product) { asks(device_workspace_bytes(product, of.batch_invariant)); };
  for_greediest_rows(std::max(of.rows, of.drafted), kPaddedRows, [&](int64_t rows) {
    ask_products(c, rows, ask);
    asks(device_workspace_bytes(GateShape{.rows = rows, .experts = c.n_routed_experts, .columns = c.hidden_size},
                                of.batch_invariant));
  });
  ask_experts(c, c.n_routed_experts, c.num_experts_per_tok, of.rows, ask);
  ask_experts(c, c.dspark_n_routed_experts, c.dspark_num_experts_per_tok, of.drafted, ask);
  asks(device_workspace_bytes(MixShape{.rows = of.rows, .streams = c.hc_mult, .columns = c.hc_mult * c.hidden_size}));
  for (const bool lists : {false, true}) {
    asks(device_workspace_bytes(SampleShape{.rows = of.drawn, .vocabulary = c.vocab_size, .lists = lists}));
  }
  return most;
}

int64_t side_workspace_bytes(const ModelConfig& c) {
  int64_t most = 0;
  for (const bool invariant : {true, false}) {
    for (int64_t rows = 1; rows <= kMostRowsBeside; ++rows) {
      const auto ask = [&](int64_t n, int64_t columns) {
        most =
            std::max(most, device_workspace_bytes(ProductShape{.rows = rows, .n = n, .columns = columns}, invariant));
      };
      ask(c.moe_intermediate_size, c.hidden_size);
      ask(c.hidden_size, c.moe_intermediate_size);
    }
  }
  return most;
}

CacheFit fit_cache(const CacheDemand& demand) {
  CacheFit fit;
  const int64_t sequences = std::max<int64_t>(demand.sequences, 1);
  const int64_t each = blocks_of(demand, demand.context) * demand.block_bytes + demand.slot_bytes;
  fit.needed_bytes = demand.sequences * each;
  fit.fits = fit.needed_bytes <= demand.free_bytes;
  const int64_t room = std::max<int64_t>(demand.free_bytes / sequences - demand.slot_bytes, 0);
  if (demand.block_bytes > 0) fit.largest_context = room / demand.block_bytes * demand.block_tokens;
  if (each > 0) fit.largest_sequences = std::max<int64_t>(demand.free_bytes, 0) / each;
  return fit;
}

Result<void> check_fit(const CacheDemand& demand, const CacheFit& fit) {
  if (fit.fits) return {};
  const bool one = demand.sequences == 1;
  return Error{ErrorCode::out_of_memory,
               "context of " + with_commas(demand.context) + " tokens for " + with_commas(demand.sequences) +
                   (one ? " sequence" : " sequences") + " takes " + with_commas(fit.needed_bytes) +
                   " bytes of cache, " + with_commas(std::max<int64_t>(demand.free_bytes, 0)) + " are free",
               "--context, --sequences",
               "the largest context that fits is " + with_commas(fit.largest_context) +
                   " tokens for as many sequences; " + with_commas(fit.largest_sequences) +
                   " sequences fit with this context"};
}

}  // namespace fathom
