// fathom/model/inspect.h
// What `fathom inspect` knows of a checkpoint, as values without text. Headers only; no weight is read.
// Source: spec/checkpoint.md 4.
#pragma once
#include <array>
#include <cstdint>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "fathom/checkpoint/checkpoint.h"
#include "fathom/model/config.h"
#include "fathom/model/layer_plan.h"
#include "fathom/model/tensor_list.h"

namespace fathom {

struct Totals {
  int64_t tensors = 0;
  int64_t bytes = 0;
  int64_t parameters = 0;  // scales are not counted, a byte of packed FP4 counts twice
  friend bool operator==(const Totals&, const Totals&) = default;
};

struct WeightTotals {
  Totals all;
  std::array<Totals, kWeightGroups> groups;      // by int(WeightGroup)
  std::vector<std::pair<DType, Totals>> dtypes;  // those that occur, by falling bytes
  const Totals& of(WeightGroup group) const { return groups[size_t(group)]; }
};

WeightTotals weight_totals(std::span<const TensorSpec> tensors);
/// Of what a folder really holds.
WeightTotals weight_totals(const Checkpoint& checkpoint);

/// Tensors whose address is no multiple of their element: legal, copied when they are bound.
int64_t unaligned_tensors(const Checkpoint& checkpoint);

/// Tensors whose name matches `glob` (`*` any run, `?` any one character), in the order of names.
std::vector<const TensorInfo*> find_tensors(const Checkpoint& checkpoint, std::string_view glob);

/// Values that follow from config.json. The layer plan is plan_layers(), the list of problems model_problems().
struct Derived {
  int encoder_layers = 0, decoder_layers = 0, draft_stages = 0;
  int engram_lookups = 0;            // rows a token reads in one Engram layer
  double cache_bytes_per_token = 0;  // without padding: 890 for Flash
  int64_t block_bytes = 0;           // of 128 tokens, padded: 114,048
  int64_t slot_bytes = 0;            // of a sequence: 3,128,928
};
Derived derived_values(const ModelConfig& config);

}  // namespace fathom
