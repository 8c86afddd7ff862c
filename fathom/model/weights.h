// fathom/model/weights.h
// The checkpoint's tensors by what they are for. Views into the mapped files; names and shapes are those of
// spec/checkpoint.md 3.
#pragma once
#include <deque>
#include <optional>
#include <vector>

#include "fathom/backend/instruments.h"
#include "fathom/base/result.h"
#include "fathom/checkpoint/checkpoint.h"
#include "fathom/model/config.h"
#include "fathom/model/placement.h"
#include "fathom/tensor/buffer.h"
#include "fathom/tensor/view.h"

namespace fathom {

/// One hyper-connection site: what makes the mixing weights before a sub-layer.
struct MixWeights {
  AnyView fn;                  // [(2 + C) * C, C * H] f32
  View<const float, 1> scale;  // [3]
  View<const float, 1> base;   // [(2 + C) * C]
};

struct CompressorWeights {
  Matrix wkv;    // [D, H] bf16
  Matrix wgate;  // [D, H] bf16; empty at ratio 1
  AnyView norm;  // [1, D]
};

struct IndexerWeights {
  Matrix wq_b;          // [heads * channels, q_lora_rank] fp8
  Matrix weights_proj;  // [heads, H] bf16
  Matrix wk;            // [channels, D] bf16; empty in layers that read another layer's keys
  AnyView k_norm;       // [1, channels]
};

struct EngramWeights {
  Matrix table;                // [rows, engram_head_dim] fp8, a scale for 32 channels
  Matrix wkv;                  // [(C + 1) * H, lookups * engram_head_dim] fp8
  AnyView q_weight, k_weight;  // [C, H] bf16
};

struct BlockWeights {
  MixWeights attn_mix, ffn_mix;
  AnyView attn_norm, ffn_norm;  // [1, H]
  // attention
  View<const float, 1> sink;  // [heads]
  Matrix wq_a, wq_b, wkv, wo_a, wo_b;
  AnyView q_norm, kv_norm;
  std::optional<CompressorWeights> compressor;
  std::optional<IndexerWeights> indexer;
  std::optional<EngramWeights> engram;
  // experts
  AnyView gate;  // [experts, H] bf16
  View<const float, 1> gate_bias, gate_bias_image;
  std::vector<Matrix> w1, w2, w3;     // routed: gate, down, up; of one rank: its own experts only
  View<const int32_t, 2> expert_map;  // [experts, 1] of one rank: the number among its own; empty: all are here
  int32_t first_piece = 0;            // of the routed experts in a stream (moe/expert_stream.h)
  Matrix shared_w1, shared_w2, shared_w3;
};

struct Weights {
  AnyView embed;                     // [V, H]
  Matrix head;                       // [V, H]
  AnyView norm;                      // [1, H]
  std::vector<BlockWeights> blocks;  // backbone layers, then draft stages
  // draft stages
  Matrix main_proj;  // [H, targets * H]
  AnyView main_norm;
  AnyView draft_norm;    // [1, H]
  AnyView markov_embed;  // [V, rank]
  Matrix markov_head;    // [V, rank]
  Matrix confidence;     // [1, H + rank]

  std::deque<std::vector<uint64_t>> aligned;  // copies of tensors whose bytes are not aligned in their file
  std::vector<Buffer> placed;                 // copies in memory of the backend: its own, and the host's that it reads
  std::vector<Buffer> tables;                 // expert maps
};

/// Weights that no file holds: those of initial_weights.h, drawn in a device's memory. The checkpoint declares them.
struct WeightDrawing {
  uint64_t seed = 0;
  void (*draw)(const RandomWeights&, uint8_t*) = nullptr;  // Instruments::draw; null: drawn here and copied
};

/// Fills expert_map of every block that has experts of one rank only. Errors: out_of_memory.
Result<void> make_expert_map(const ModelConfig& config, const Memory& memory, Weights& weights);

/// The number that expert e of a gate has among the `own` experts of its rank, which stand in for all.
constexpr int64_t own_expert(int64_t e, int64_t own) { return e % own; }

/// Binds every tensor that `config` asks for. The views are valid as long as the checkpoint and the result live.
/// Tensors stay where the checkpoint maps them, unless `memory` is a device's: then they are copied to where
/// `placement` says. Experts in RAM are copied to allocate_host() on every backend, the three matrices of each in one
/// run of expert_slot_bytes(). Errors: bad_input with the first missing, mis-shaped or mis-typed tensor; use compare()
/// to list all. out_of_memory.
/// With `drawing`, memory is filled as it says, and the checkpoint's bytes are not read: nothing may stay on disk.
Result<Weights> bind_weights(const Checkpoint& checkpoint, const ModelConfig& config, const Memory& memory,
                             const std::optional<WeightDrawing>& drawing = {}, const Placement& placement = {});

}  // namespace fathom
