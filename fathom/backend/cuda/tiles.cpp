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
int64_t many_tiles(int most_rows, int64_t rows, int64_t n, int64_t weights) {
  return row_tiles(int(rows), most_rows) * divide_up(n, kManyWeightRows) * weights;
}
int64_t many_time(int most_rows, int64_t rows, int64_t n, int64_t weights) {
  const int of_tile = many_multiplied_rows(most_rows, tile_rows(int(rows), most_rows));
  return divide_up(many_tiles(most_rows, rows, n, weights), kProcessors) * (of_tile + 64);
}

// The same of pairs. Measured: a row tile takes as long as 80 rows and seven tenths of its own, 64 at least; start and
// end as in pair_parts(), which says how many pairs share a tile where `parts` is 0.
int64_t pairs_time(int most_rows, int64_t rows, int64_t n, int64_t groups, int64_t steps, int parts) {
  const PairClusters clusters;
  const int64_t tiles = row_tiles(int(rows), most_rows) * divide_up(n, 2 * kPairWeightRows) * groups;
  if (parts == 0) parts = pair_parts(tiles, steps, clusters);
  return divide_up(tiles, clusters.of_pairs[parts / 2]) * (divide_up(steps, parts) + (parts > 1 ? 6 : 3)) *
         (80 + std::max(64, tile_rows(int(rows), most_rows)) * 11 / 16);
}

}  // namespace

RowTiling row_tiling(int64_t rows, int64_t n, int64_t groups, int64_t steps) {
  RowTiling best;
  if (rows <= kPairRows) {
    // One row tile of a weight whose K is not shared may leave most of the GPU idle: smaller ones bring its weights
    // more often, and have to promise a fifth.
    if (sum_parts(n, groups, steps) > 1) return best;
    int64_t least = pairs_time(kPairRows, rows, n, groups, steps, 1);
    for (const int most_rows : {128, 64}) {
      const int64_t time = pairs_time(most_rows, rows, n, groups, steps, 1);
      if (5 * time < 4 * least) best = {true, most_rows}, least = time;
    }
    return best;
  }
  // What the others promise has to be a twentieth less; tiles of 192 with four turns and more are as good as that.
  const int64_t pairs = pairs_time(kPairRows, rows, n, groups, steps, 0);
  int64_t least = 0;
  for (const int most_rows : {128, kManyLargeRows}) {
    const int64_t own = many_tiles(most_rows, rows, n, groups),
                  time = many_time(most_rows, rows, n, groups) * (steps + 3);
    const int64_t most = pairs * (most_rows == kManyLargeRows && own >= 4 * kProcessors ? 105 : 95) / 100;
    if (10 * own >= 7 * kProcessors && time < most && (best.pairs || time < least)) {
      best = {false, most_rows}, least = time;
    }
  }
  return best;
}

RowTiling row_tiling_of_experts(int64_t rows, int64_t n, int64_t experts) {
  constexpr int64_t kPairs = 1024, kFewestTurns = 4;
  if (rows * experts <= kPairs || many_tiles(kManyLargeRows, rows, n, experts) < kFewestTurns * kProcessors) return {};
  // Chance gives many of them a sixteenth more than the average.
  const auto time = [rows](int most_rows) {
    const int tiles = row_tiles(int(rows + rows / 16), most_rows);
    return tiles * (many_multiplied_rows(most_rows, int(divide_up(rows, tiles))) + 64);
  };
  return {false, time(kManyLargeRows) <= time(kManySmallRows) ? kManyLargeRows : kManySmallRows};
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
    plan.tiling = row_tiling_of_experts(p.assignments / p.experts, n, p.experts);
    plan.weight_parts = 1;
    plan.parts = batch_invariant ? 1 : 0;
    return plan;
  }
  plan.few_rows = batch_invariant ? 0 : few_rows(p.rows, p.n, k);
  plan.rows_in_chains = few_rows_in_chains(p.rows, k);
  plan.weight_parts = sum_parts(n, p.groups, k / step);
  plan.parts = batch_invariant || p.rows <= kPairRows ? plan.weight_parts : 0;
  if (plan.parts <= 1) plan.tiling = row_tiling(p.rows, n, p.groups, k / 128);
  return plan;
}

int64_t product_workspace_bytes(const ProductShape& p, bool batch_invariant) {
  const int64_t rows = p.experts > 0 ? p.assignments : p.rows;
  if (rows == 0) return 0;
  const ProductPlan plan = product_plan(p, batch_invariant);
  if (plan.few_rows > 0 || plan.rows_in_chains > 0) return 0;
  return arranged_rows(rows, p.experts) * p.columns * 2;
}

}  // namespace fathom::cuda
