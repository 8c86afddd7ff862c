// fathom/backend/cuda/tiles.h
// Every decision of a launch: how many threads, which tile, how a sum over K is cut. Pure functions of shapes, so that
// they are tested on any machine. What decides the order of a sum depends on the weight alone, never on the number of
// rows: a row's result is the same in every batch (spec/engine.md R-35).
#pragma once
#include <cstdint>

#include "fathom/backend/workspace.h"

namespace fathom::cuda {

/// Threads of a block that works on one row of `items` (vectors or elements): a power of two of 32 to `most`.
int row_threads(int64_t items, int most = 256);

/// Elements a thread takes at once: 8 when the row's address, the distance of rows (both in bytes) and the number of
/// columns allow loads of 16 bytes, else 1.
int vector_width(uintptr_t address, int64_t stride_bytes, int64_t columns);

/// The K of product_tensor.cuh is cut into segments of this many columns, a multiple of 128: each is summed from zero,
/// and the segments are added in rising order. About 1,280, so that a few rows still spread over the whole GPU.
int64_t segment_columns(int64_t k);
int64_t segments(int64_t k);

/// How the tensor-core product is tiled: each of `warps_n * warps_x` warps has 16 * m_tiles weight rows and 8 * n_tiles
/// rows of x. The tile changes speed only, not results.
struct ProductTile {
  int m_tiles, n_tiles, warps_n, warps_x;
  int weight_rows() const { return 16 * m_tiles * warps_n; }
  int x_rows() const { return 8 * n_tiles * warps_x; }
  /// Segments go to blocks of their own (few rows), or one block walks through them all (many).
  bool split = false;
  friend bool operator==(const ProductTile&, const ProductTile&) = default;
};

/// `rows` of x (of an expert, on average, in a grouped product), `n` weight rows, `weights` of them (experts, groups).
ProductTile product_tile(int64_t rows, int64_t n, int64_t weights);

/// Parts of K that are summed apart, each in one chain of sums by the tensor core, and added in rising order: 1, 2
/// or 4. The order that the kernels for few rows, for pairs of blocks and (one part) for thousands have in common. It
/// depends on the weight alone, [n, k] or `groups` of them, never on rows: as many parts as use the whole GPU with one
/// row tile. An expert's weight has one. `steps`: of K, 128 columns each (bf16: 64), which stay together.
int sum_parts(int64_t n, int64_t groups, int64_t steps);

/// Rows of x that the kernel for few rows (product_few.cuh) takes at a time: 8 or 16; 0: another is faster. It takes 16
/// rows of a weight [n, k], or of an expert on average; of small weights, whose bytes it brings again four times at
/// most and needs one launch for, 64. In chains: where x is long it fills the shared memory twice as fast, and the
/// kernel for pairs is faster from nine rows on.
int few_rows(int64_t rows, int64_t n, int64_t k);
int few_rows_in_chains(int64_t rows, int64_t k);
int few_rows_of_experts(int64_t rows, int64_t experts);

inline constexpr int64_t kProcessors = 132;  // multiprocessors of an H200 (and of an H100 SXM)

constexpr int64_t divide_up(int64_t a, int64_t b) { return (a + b - 1) / b; }

/// Row tiles of the kernels for many rows have as many rows of x as are there, in steps of so many.
inline constexpr int kRowStep = int(kPaddedRows);
constexpr int padded_rows(int rows) { return (rows + kRowStep - 1) / kRowStep * kRowStep; }
/// Row tiles of `rows` rows (of one expert), of `most` at most, and the rows of each but the last: as equal as they can
/// be.
constexpr int row_tiles(int rows, int most) { return (rows + most - 1) / most; }
constexpr int tile_rows(int rows, int most) {
  return rows <= most ? padded_rows(rows) : padded_rows((rows - 1) / row_tiles(rows, most) + 1);
}

/// The kernel for pairs of blocks (product_pairs.cuh): both have kPairWeightRows weight rows and the same row tile of
/// x, of up to kPairRows rows. Those for thousands of rows (product_many.cuh): kManyWeightRows, and up to
/// kManyLargeRows or kManySmallRows, which has code for fewer rows too.
inline constexpr int kPairWeightRows = 128, kPairRows = 256;
inline constexpr int kManyWeightRows = 192, kManyLargeRows = 192, kManySmallRows = 160;
/// Rows that the second two multiply for a tile of so many.
constexpr int many_multiplied_rows(int most_rows, int rows) {
  return most_rows > kManySmallRows ? (rows <= 160 ? 160 : 192) : (rows <= 64 ? 64 : padded_rows(rows));
}
/// Experts of a grouped product at most, and steps of x: 16 bits for each expert's lie in shared memory.
inline constexpr int kMostExperts = 1024;
inline constexpr int64_t kMostSteps = 65535;

/// Which of the two takes a product, and the rows of a row tile at most. `steps`: of K, 128 columns each. Of experts:
/// `rows` on average of one.
struct RowTiling {
  bool pairs = true;
  int most_rows = kPairRows;
  friend bool operator==(const RowTiling&, const RowTiling&) = default;
};
RowTiling row_tiling(int64_t rows, int64_t n, int64_t groups, int64_t steps);
RowTiling row_tiling_of_experts(int64_t rows, int64_t n, int64_t experts);
/// Rows of x at most in a tile of codes with scales (sm100/product_memory.cuh), whose other tiles have kPairRows: two
/// sets of sums and the scales fit into tensor memory.
inline constexpr int kScaledRows = 192;

/// Clusters that a device runs at once, of one, two and four pairs of blocks. How its multiprocessors are wired
/// decides: an H200 does not run 32 of two pairs nor 16 of four. The defaults are safe there.
struct PairClusters {
  int of_pairs[3] = {int(kProcessors) / 2, 28, 12};
};
/// Pairs of blocks that share a tile, a part of K each, so that few tiles use the whole GPU: 1, 2 or 4. `tiles`: of a
/// pair, all of them; `steps`: of K, 128 columns each (bf16: 64), which stay together.
int pair_parts(int64_t tiles, int64_t steps, const PairClusters& clusters);

/// Row tiles of a product at most: experts may each have a last one that is not full. `experts` 0: one weight.
int64_t most_row_tiles(int64_t rows, int64_t experts, int64_t x_rows);
/// Rows of x as arrange_tiles makes them, at most: those of each expert in whole steps.
inline int64_t arranged_rows(int64_t rows, int64_t experts) {
  return most_row_tiles(rows, experts, kRowStep) * kRowStep;
}

/// How a product is taken by the three kernels that share an order of sums (product.cpp).
struct ProductPlan {
  int few_rows;        // at a time, of Q8, in the order of the kernel for few rows; 0: not by it
  int rows_in_chains;  // at a time, by the kernel for few rows in the weight's order; 0: not by it
  RowTiling tiling;    // else
  int weight_parts;    // of K, as sum_parts()
  int parts;           // of K, of the kernels for many rows; 0: as they like
};
/// Of a product, or of the whole that a grouped one is a part of. `step`: columns that stay together, 128 (bf16: 64).
ProductPlan product_plan(const ProductShape& product, bool batch_invariant, int64_t step = 128);

/// Bytes of the workspace: x as the chosen kernel reads it.
int64_t product_workspace_bytes(const ProductShape& product, bool batch_invariant);

/// Columns of a row that one block of the stream-mix product sums; the segments are added in rising order.
inline constexpr int64_t kMixSegment = 1280;

}  // namespace fathom::cuda
