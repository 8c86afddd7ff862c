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

int few_rows(int64_t rows) { return rows <= 8 ? 8 : rows <= 64 ? 16 : 0; }

int few_rows_of_experts(int64_t rows, int64_t experts) {
  // Up to six on average few experts have more than eight, and sixteen at a time cost a third more instructions.
  return rows <= 6 * experts ? 8 : rows <= 16 * experts ? 16 : 0;
}

bool few_rows_are_faster(int64_t rows, int64_t n, int64_t k) {
  constexpr int64_t kSmall = 7'000'000;  // measured at 64 rows: 1280 x 5120 is, 2304 x 5120 is not
  return few_rows(rows) > 0 && n * k <= kSmall;
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

int many_rows_tile(int64_t rows, int64_t n, int64_t weights, bool batch_invariant) {
  constexpr int64_t kFewestRows = 17, kPairs = 1024, kFewestTurns = 4;
  if (batch_invariant || rows < kFewestRows) return 0;
  const auto tiles = [&](int64_t x_rows) { return divide_up(rows, x_rows) * divide_up(n, kManyWeightRows) * weights; };
  if (rows * weights <= kPairs || tiles(128) < kFewestTurns * kProcessors) return kPairRowStep;
  // Blocks take tiles in turns. A tile's time is its products' and, measured, that of 64 more rows.
  const auto time = [&](int64_t x_rows) { return divide_up(tiles(x_rows), kProcessors) * (x_rows + 64); };
  return time(192) < time(128) ? 192 : 128;
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

int64_t most_row_tiles(int64_t rows, int64_t experts, int64_t x_rows) {
  if (experts == 0) return divide_up(rows, x_rows);
  return std::min<int64_t>(rows, (rows + experts * (x_rows - 1)) / x_rows);
}

int64_t product_workspace_bytes(const ProductShape& p, bool batch_invariant) {
  const bool grouped = p.experts > 0;
  const int64_t all = grouped ? p.assignments : p.rows, weights = grouped ? p.experts : p.groups, n = p.n / p.groups;
  if (all == 0) return 0;
  if (grouped || !few_rows_are_faster(all, p.n, p.columns / p.groups)) {
    if (const int tile = many_rows_tile(grouped ? all / weights : all, n, weights, batch_invariant); tile > 0) {
      return most_row_tiles(all, p.experts, tile) * tile * p.columns * 2;
    }
  }
  if ((grouped ? few_rows_of_experts(all, weights) : few_rows(all)) > 0) return 0;
  const int64_t parts = segments(p.columns / p.groups);
  const bool split = product_tile(grouped ? divide_up(all, weights) : all, n, weights).split;
  return p.rows * p.columns * 2 + (split && parts > 1 ? parts * all * p.n * int64_t(sizeof(float)) : 0);
}

}  // namespace fathom::cuda
