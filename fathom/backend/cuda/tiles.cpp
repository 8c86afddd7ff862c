#include "fathom/backend/cuda/tiles.h"

#include <algorithm>

namespace fathom::cuda {

int row_threads(int64_t items, int most) {
  int threads = 32;
  while (threads < most && threads < items) threads *= 2;
  return threads;
}

int vector_width(uintptr_t address, int64_t stride_bytes, int64_t columns) {
  return address % 16 == 0 && stride_bytes % 16 == 0 && columns % 8 == 0 ? 8 : 1;
}

int64_t segment_columns(int64_t k) {
  constexpr int64_t kAbout = 1280, kStep = 128;
  const int64_t count = std::max<int64_t>(1, divide_up(k, kAbout));
  return divide_up(divide_up(k, count), kStep) * kStep;
}

int64_t segments(int64_t k) { return divide_up(k, segment_columns(k)); }

int few_rows(int64_t rows, int64_t n, int64_t k) {
  constexpr int64_t kSmall = 7'000'000;  // measured at 64 rows: 1280 x 5120 is, 2304 x 5120 is not
  return rows <= 8 ? 8 : rows <= (n * k <= kSmall ? 64 : 16) ? 16 : 0;
}

int few_rows_in_chains(int64_t rows, int64_t k) {
  constexpr int64_t kLong = 4096;  // measured at 16 rows: K = 1280, 2304 and 4096 are not too long, 5120 is
  return rows <= 8 ? 8 : rows <= 16 && k <= kLong ? 16 : 0;
}

int few_rows_of_experts(int64_t rows, int64_t experts) {
  // Up to six on average few experts have more than eight, and sixteen at a time cost a third more instructions.
  return rows <= 6 * experts ? 8 : rows <= 16 * experts ? 16 : 0;
}

ProductTile product_tile(int64_t rows, int64_t n, int64_t weights) {
  // Weight-bound: a block of 64 weight rows and one segment streams its weights once for all rows of x.
  if (rows <= 8) return {.m_tiles = 1, .n_tiles = 1, .warps_n = 4, .warps_x = 1, .split = true};
  if (rows <= 16) return {.m_tiles = 1, .n_tiles = 2, .warps_n = 4, .warps_x = 1, .split = true};
  if (rows <= 32) return {.m_tiles = 1, .n_tiles = 4, .warps_n = 4, .warps_x = 1, .split = true};
  // Large tiles only where two of them come to each of the 132 multiprocessors.
  const int64_t large = divide_up(rows, 128) * divide_up(n, 128) * weights;
  if (rows <= 96 || large < 264) return {.m_tiles = 1, .n_tiles = 8, .warps_n = 4, .warps_x = 1, .split = true};
  // Arithmetic-bound: 128 x 128.
  return {.m_tiles = 2, .n_tiles = 8, .warps_n = 4, .warps_x = 2, .split = false};
}

namespace {

// Tiles of product_many.cuh, and the time of its turns: a tile's is that of its products and, measured, of 64 more
// rows.
int64_t many_tiles(int64_t x_rows, int64_t rows, int64_t n, int64_t weights) {
  return divide_up(rows, x_rows) * divide_up(n, kManyWeightRows) * weights;
}
int64_t many_time(int64_t x_rows, int64_t rows, int64_t n, int64_t weights) {
  return divide_up(many_tiles(x_rows, rows, n, weights), kProcessors) * (x_rows + 64);
}

}  // namespace

int many_rows_tile(int64_t rows, int64_t n, int64_t groups, int64_t steps) {
  if (rows <= kPairRows) return kPairRowStep;
  const PairClusters clusters;
  const int64_t tiles = pair_row_tiles(int(rows)) * divide_up(n, 2 * kPairWeightRows) * groups;
  const int parts = pair_parts(tiles, steps, clusters);
  // Measured: a row tile of pairs takes as long as 80 rows and seven tenths of its own; start and end as in
  // pair_parts().
  const int64_t pairs = divide_up(tiles, clusters.of_pairs[parts / 2]) *
                        (divide_up(steps, parts) + (parts > 1 ? 6 : 3)) * (80 + pair_tile_rows(int(rows)) * 11 / 16);
  // What the others promise has to be a twentieth less; tiles of 192 with four turns and more are as good as that.
  int best = kPairRowStep;
  int64_t least = 0;
  for (const int x_rows : {128, 192}) {
    const int64_t own = many_tiles(x_rows, rows, n, groups), time = many_time(x_rows, rows, n, groups) * (steps + 3);
    const int64_t most = pairs * (x_rows == 192 && own >= 4 * kProcessors ? 105 : 95) / 100;
    if (10 * own >= 7 * kProcessors && time < most && (best == kPairRowStep || time < least))
      best = x_rows, least = time;
  }
  return best;
}

int many_rows_tile_of_experts(int64_t rows, int64_t n, int64_t experts) {
  constexpr int64_t kPairs = 1024, kFewestTurns = 4;
  if (rows * experts <= kPairs || many_tiles(128, rows, n, experts) < kFewestTurns * kProcessors) return kPairRowStep;
  return many_time(192, rows, n, experts) < many_time(128, rows, n, experts) ? 192 : 128;
}

int pair_parts(int64_t tiles, int64_t steps, const PairClusters& clusters) {
  // In steps: the start and the end of a tile take three, sharing it three more. A guess has to promise a fifth.
  int best = 1;
  int64_t least = divide_up(tiles, clusters.of_pairs[0]) * (steps + 3);
  for (int i = 1; i < 3 && steps >= 1 << i && clusters.of_pairs[i] > 0; ++i) {
    const int64_t time = divide_up(tiles, clusters.of_pairs[i]) * (divide_up(steps, 1 << i) + 6);
    if (5 * time < 4 * least) best = 1 << i, least = time;
  }
  return best;
}

int sum_parts(int64_t n, int64_t groups, int64_t steps) {
  return pair_parts(divide_up(n, 2 * kPairWeightRows) * groups, steps, PairClusters());
}

int64_t most_row_tiles(int64_t rows, int64_t experts, int64_t x_rows) {
  if (experts == 0) return divide_up(rows, x_rows);
  return std::min<int64_t>(rows, (rows + experts * (x_rows - 1)) / x_rows);
}

ProductPlan product_plan(const ProductShape& p, bool batch_invariant, int64_t step) {
  const int64_t n = p.n / p.groups, k = p.columns / p.groups;
  ProductPlan plan{};
  if (p.experts > 0) {
    const int few = few_rows_of_experts(p.assignments, p.experts);
    plan.few_rows = batch_invariant ? 0 : few;
    plan.rows_in_chains = few;
    plan.x_rows = many_rows_tile_of_experts(p.assignments / p.experts, n, p.experts);
    plan.weight_parts = 1;
    plan.parts = batch_invariant ? 1 : 0;
    return plan;
  }
  plan.few_rows = batch_invariant ? 0 : few_rows(p.rows, p.n, k);
  plan.rows_in_chains = few_rows_in_chains(p.rows, k);
  plan.weight_parts = sum_parts(n, p.groups, k / step);
  plan.parts = batch_invariant || p.rows <= kPairRows ? plan.weight_parts : 0;
  plan.x_rows = plan.parts > 1 ? kPairRowStep : many_rows_tile(p.rows, n, p.groups, k / 128);
  return plan;
}

int64_t product_workspace_bytes(const ProductShape& p, bool batch_invariant) {
  const int64_t rows = p.experts > 0 ? p.assignments : p.rows;
  if (rows == 0) return 0;
  const ProductPlan plan = product_plan(p, batch_invariant);
  if (plan.few_rows > 0 || plan.rows_in_chains > 0) return 0;
  return most_row_tiles(rows, p.experts, plan.x_rows) * plan.x_rows * p.columns * 2;
}

}  // namespace fathom::cuda
