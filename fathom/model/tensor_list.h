// fathom/model/tensor_list.h
// The tensors that a configuration demands: every name, dtype and shape follows from config.json, so a checkpoint is
// checked against the whole list before a byte of it is used. Source: spec/checkpoint.md 3.
#pragma once
#include <span>
#include <string_view>
#include <vector>

#include "fathom/base/result.h"
#include "fathom/checkpoint/checkpoint.h"
#include "fathom/checkpoint/tensor_spec.h"

namespace fathom {

struct ModelConfig;

/// Every tensor, in the order of layers; 96,085 for Flash. Routed experts only where config.expert_share holds them.
/// `config` must have passed its checks.
std::vector<TensorSpec> tensor_list(const ModelConfig& config);

/// What a tensor is for; the rows of checkpoint.md 4.
enum class WeightGroup {
  routed_experts,
  engram_tables,
  dspark,
  attention,
  shared_experts,
  embed,
  head,
  vision,  // tower, aligner and the three image vectors
  engram_projections,
  gates,
  hyper_connections,
  indexers,
  compressors,
  block_norms,
  final_norm,
};
inline constexpr int kWeightGroups = 15;

/// "routed experts", "Engram tables", ...
const char* name_of(WeightGroup group);
/// By the name's form; `name` is one that tensor_list() can produce.
WeightGroup group_of(std::string_view name);

/// Everything in which `checkpoint` differs from `expected`: missing, unknown, wrong dtype, wrong shape. Each error
/// names file, tensor, expected and found. Copies of embed and head inside mtp.* are ignored: re-exports have them.
std::vector<Error> compare(const Checkpoint& checkpoint, std::span<const TensorSpec> expected);

}  // namespace fathom
