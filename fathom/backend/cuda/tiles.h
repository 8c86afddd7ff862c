// fathom/backend/cuda/tiles.h
// Every decision of a launch: how many threads, which tile, how a sum over K is cut. Pure functions of shapes, so that
// they are tested on any machine. What decides the order of a sum depends on K alone, never on the number of rows:
// a row's result is the same in every batch (spec/engine.md R-36).
#pragma once
#include <cstdint>

namespace fathom::cuda {

/// Threads of a block that works on one row of `items` (vectors or elements): a power of two of 32 to `most`.
int row_threads(int64_t items, int most = 256);

/// Elements a thread takes at once: 8 when the row's address, the distance of rows (both in bytes) and the number of
/// columns allow loads of 16 bytes, else 1.
int vector_width(uintptr_t address, int64_t stride_bytes, int64_t columns);

/// A product's K is cut into segments of this many columns, a multiple of 128: each is summed from zero, and the
/// segments are added in rising order. About 1,280, so that a few rows still spread over the whole GPU.
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

/// Rows of x that the kernel for few rows (product_few.cuh) takes at a time: 8 or 16; 0: there are too many, 65 or more
/// of a weight, or on average 17 or more of an expert. A weight with more rows is read again for each 8 or 16 of them.
int few_rows(int64_t rows);
int few_rows_of_experts(int64_t rows, int64_t experts);

inline constexpr int64_t kProcessors = 132;  // multiprocessors of an H200 (and of an H100 SXM)

/// Rows of x in a tile of the kernel for many rows (product_many.cuh), whose tiles have kManyWeightRows weight rows:
/// 128 or 192; 0: the kernels for few rows take the product. Which of the two takes it depends on the number of rows,
/// and their bits differ in the last places (theirs are added 32 columns at a time in float, its in one chain by the
/// tensor core), so with `batch_invariant` it is always 0. Arguments as of product_tile.
inline constexpr int kManyWeightRows = 192;
int many_rows_tile(int64_t rows, int64_t n, int64_t weights, bool batch_invariant);

/// Columns of a row that one block of the stream-mix product sums; the segments are added in rising order.
inline constexpr int64_t kMixSegment = 1280;

}  // namespace fathom::cuda
