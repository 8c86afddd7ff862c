#include "fathom/backend/cuda/expert_table.h"

#include <map>
#include <mutex>
#include <vector>

#include "fathom/backend/cuda/device_memory.h"
#include "fathom/backend/cuda/workspace_moves.h"

namespace fathom::cuda {
namespace {

constexpr size_t kMostKept = 8192;  // blocks x 3 of many models; an expert takes 16 bytes

struct Kept {
  std::vector<WeightPointers> pointers;
  Buffer device;
  bool aligned = true;
};

struct AllKept {
  std::mutex mutex;
  std::map<const Matrix*, Kept> by_place;
};

// Never destroyed: its buffers would be freed after the driver has ended.
AllKept& all_kept() {
  static auto* all = new AllKept;
  return *all;
}

bool is_aligned(const WeightPointers& expert) {
  return reinterpret_cast<uintptr_t>(expert.values) % 16 == 0 && reinterpret_cast<uintptr_t>(expert.scales) % 4 == 0;
}

bool same(const Kept& kept, std::span<const Matrix> weights) {
  if (kept.pointers.size() != weights.size()) return false;
  for (size_t e = 0; e < weights.size(); ++e) {
    if (kept.pointers[e].values != weights[e].values.data || kept.pointers[e].scales != weights[e].scales.data) {
      return false;
    }
  }
  return true;
}

}  // namespace

ExpertTable passing_experts(Call& call, std::span<const Matrix> weights) {
  std::vector<WeightPointers> experts;
  ExpertTable out;
  out.aligned = true;
  for (const Matrix& weight : weights) {
    const Matrix here = call.in(weight);
    experts.push_back({here.values.data, here.scales.data});
    out.aligned = out.aligned && is_aligned(experts.back());
  }
  out.first = experts[0];
  out.on_device = call.in(experts.data(), int64_t(experts.size()));
  return out;
}

ExpertTable expert_table(Call& call, std::span<const Matrix> weights) {
  AllKept& all = all_kept();
  const std::scoped_lock lock(all.mutex);
  if (const auto found = all.by_place.find(weights.data()); found != all.by_place.end()) {
    const Kept& kept = found->second;
    if (same(kept, weights)) {
      return {kept.pointers[0], reinterpret_cast<const WeightPointers*>(kept.device.data()), kept.aligned};
    }
  }
  for (const Matrix& weight : weights) {
    if (!is_reachable(weight.values.data) || (weight.scales.data != nullptr && !is_reachable(weight.scales.data))) {
      return passing_experts(call, weights);
    }
  }
  auto device = allocate_device(int64_t(weights.size() * sizeof(WeightPointers)));
  if (!device) return passing_experts(call, weights);
  // Who reads the old addresses is done first: copy() comes after everything that was queued.
  if (all.by_place.size() >= kMostKept) {
    all.by_place.clear();
    end_recordings();
  }
  const auto [at, fresh] = all.by_place.try_emplace(weights.data());
  if (!fresh) end_recordings();
  Kept& kept = at->second;
  kept = {};
  for (const Matrix& weight : weights) {
    kept.pointers.push_back({weight.values.data, weight.scales.data});
    kept.aligned = kept.aligned && is_aligned(kept.pointers.back());
  }
  kept.device = std::move(*device);
  copy(kept.device.data(), kept.pointers.data(), kept.device.bytes());
  return {kept.pointers[0], reinterpret_cast<const WeightPointers*>(kept.device.data()), kept.aligned};
}

}  // namespace fathom::cuda
