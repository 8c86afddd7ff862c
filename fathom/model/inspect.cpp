#include "fathom/model/inspect.h"

#include <algorithm>

#include "fathom/model/memory_plan.h"

namespace fathom {
namespace {

void add(Totals& totals, const TensorSpec& tensor) {
  ++totals.tensors;
  totals.bytes += tensor.bytes();
  if (tensor.dtype != DType::f8_e8m0)
    totals.parameters += tensor.shape.elements() * (tensor.dtype == DType::i8 ? 2 : 1);
}

void add(WeightTotals& totals, const TensorSpec& tensor) {
  add(totals.all, tensor);
  add(totals.groups[size_t(group_of(tensor.name))], tensor);
  auto at =
      std::find_if(totals.dtypes.begin(), totals.dtypes.end(), [&](const auto& d) { return d.first == tensor.dtype; });
  if (at == totals.dtypes.end()) at = totals.dtypes.insert(at, {tensor.dtype, {}});
  add(at->second, tensor);
}

void order(WeightTotals& totals) {
  std::sort(totals.dtypes.begin(), totals.dtypes.end(), [](const auto& a, const auto& b) {
    return a.second.bytes != b.second.bytes ? a.second.bytes > b.second.bytes : a.first < b.first;
  });
}

// Goes back to the last star at most once a character: the time is bounded by the product of the lengths.
bool matches(std::string_view glob, std::string_view name) {
  size_t g = 0, n = 0, star = std::string_view::npos, resume = 0;
  while (n < name.size()) {
    if (g < glob.size() && glob[g] == '*') {
      star = g++;
      resume = n;
    } else if (g < glob.size() && (glob[g] == '?' || glob[g] == name[n])) {
      ++g, ++n;
    } else if (star != std::string_view::npos) {
      g = star + 1;
      n = ++resume;
    } else {
      return false;
    }
  }
  return glob.find_first_not_of('*', g) == std::string_view::npos;
}

}  // namespace

WeightTotals weight_totals(std::span<const TensorSpec> tensors) {
  WeightTotals totals;
  for (const TensorSpec& tensor : tensors) add(totals, tensor);
  order(totals);
  return totals;
}

WeightTotals weight_totals(const Checkpoint& checkpoint) {
  WeightTotals totals;
  for (const TensorInfo& tensor : checkpoint.tensors()) add(totals, tensor.spec);
  order(totals);
  return totals;
}

int64_t unaligned_tensors(const Checkpoint& checkpoint) {
  return std::count_if(checkpoint.tensors().begin(), checkpoint.tensors().end(),
                       [&](const TensorInfo& tensor) { return !checkpoint.is_aligned(tensor); });
}

std::vector<const TensorInfo*> find_tensors(const Checkpoint& checkpoint, std::string_view glob) {
  std::vector<const TensorInfo*> found;
  for (const TensorInfo& tensor : checkpoint.tensors()) {
    if (matches(glob, tensor.spec.name)) found.push_back(&tensor);
  }
  return found;
}

Derived derived_values(const ModelConfig& config) {
  const CacheSizes sizes = cache_sizes(config);
  return {encoder_layers(config), decoder_layers(config),   config.num_nextn_predict_layers, engram_lookups(config),
          sizes.bytes_per_token,  sizes.layout.block_bytes, sizes.layout.slot_bytes};
}

}  // namespace fathom
