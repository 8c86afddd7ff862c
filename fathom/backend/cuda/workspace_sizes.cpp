#include "fathom/backend/cuda/workspace_sizes.h"

#include <algorithm>

#include "fathom/backend/cuda/tiles.h"

namespace fathom::cuda {

GatePlan gate_plan(int64_t rows, int64_t columns, bool tensor, bool batch_invariant) {
  constexpr int64_t kMostRowTiles = 65535;  // of a launch
  constexpr int64_t kMostSplitRows = 1024;  // 25 MB of parts
  constexpr int64_t kMostOwnRows = 2048;    // in queues that are not batch-invariant
  if (!tensor || rows > 64 * kMostRowTiles || (rows > kMostOwnRows && !batch_invariant)) return {};
  const bool split = rows <= kMostSplitRows;
  return {true, split, split ? divide_up(columns, kGateSegment) : 1};
}

int64_t workspace_bytes(const GateShape& g, bool batch_invariant) {
  if (g.rows == 0) return 0;
  const GatePlan plan = gate_plan(g.rows, g.columns, g.tensor, batch_invariant);
  const int64_t logits = workspace_array(plan.parts * g.rows * g.experts * 4);
  if (plan.own || !g.tensor) return logits;
  const ProductShape product{.rows = g.rows, .n = g.experts, .columns = g.columns, .weights = WeightKind::bf16};
  return logits + device_workspace_bytes(product, batch_invariant);
}

int64_t workspace_bytes(const MixShape& m) {
  const int64_t outputs = (2 + m.streams) * m.streams;
  return workspace_array(divide_up(m.columns, kMixTensorSegment) * m.rows * (outputs + 1) * 4);
}

int64_t score_capacity(int64_t entries) { return divide_up(entries, 8) * 8; }

int64_t rows_together(int64_t rows, int64_t entries) {
  constexpr int64_t kScores = int64_t(1) << 26;
  const int64_t most = entries > kMostDirect ? 512 : 32768;
  return std::min(rows, std::clamp<int64_t>(kScores / std::max<int64_t>(1, entries), 1, most));
}

int64_t worth_capacity(const SelectShape& s) {
  return s.source_block > 0 ? (score_capacity(s.entries) / s.source_block + 8) / 4 * 4 : 0;
}

int64_t workspace_bytes(const SelectShape& s) {
  if (s.rows == 0) return 0;
  const int64_t rows = rows_together(s.rows, s.entries), capacity = score_capacity(s.entries);
  const int64_t scores = workspace_array(rows * capacity * 4);
  if (capacity <= kMostDirect) return scores;
  const int64_t kinds = s.source_block > 0 ? 2 : 1, bins = kinds * rows * kTallyBins;
  return scores + (s.source_block > 0 ? workspace_array(rows * worth_capacity(s) * 4) : 0) +
         workspace_array(kinds * rows * kTallyFound) + workspace_array(kinds * rows * kTallyCandidates * 8) +
         (bins > kMostTallyCounters ? workspace_array(bins * 4) : 0);
}

int64_t workspace_bytes(const SampleShape& s) {
  if (s.rows == 0) return 0;
  if (!s.lists && s.vocabulary <= kMostClusterTokens) {
    return workspace_array(std::min(s.rows, kRowsSampledAtOnce) * kRunTableBytes);
  }
  return s.laws ? 0 : workspace_array(s.rows * s.vocabulary * 4);
}

}  // namespace fathom::cuda
