// fathom/backend/cuda/product_tiles.cuh
// The tiles of a product whose x arrange_tiles made: which weight rows and which row tile of x, and where that lies.
// Row tiles have as many rows as are there (tile_rows() of tiles.h). A grouped product's are counted on the device.
//
// This text has no instruction of its own: whoever includes it has Product and Place (product_tensor.cuh), or a model
// of them on the processor (machine_model.h).
#pragma once
#include "fathom/backend/cuda/tiles.h"

namespace fathom::cuda {

/// The tiles of a launch.
struct ProductGrid {
  int most_rows = 0;    // of x in a row tile
  int weight_rows = 0;  // of a tile
  int per_group = 0;    // weight rows of a group or expert
  int n_tiles = 0;      // of a group or expert
  int row_tiles = 0;    // plain: of all rows
  int row_block = 1;    // plain: row tiles that are worked on together
  int steps = 0;        // of K
  int x_blocks = 0;     // 64 columns each, of a row of x
};

/// `columns`: of K, a step's.
inline ProductGrid product_grid(const Product& p, int most_rows, int weight_rows, int columns) {
  ProductGrid grid;
  grid.most_rows = most_rows;
  grid.weight_rows = weight_rows;
  grid.per_group = int(p.n / p.groups);
  grid.n_tiles = int(divide_up(grid.per_group, weight_rows));
  grid.row_tiles = row_tiles(int(p.rows), most_rows);
  grid.row_block = grid.row_tiles < 8 ? grid.row_tiles : 8;
  grid.steps = int(p.k / columns);
  grid.x_blocks = int(p.k * p.groups / 64);
  return grid;
}

/// Of a grouped product, in shared memory. Few experts have tiles for few turns of the GPU, of which the last one may
/// be short: those with the largest row tiles come first. fits_many() asks whether 16 bits are enough.
struct ExpertTiles {
  static constexpr int kSorted = 32;  // experts or fewer
  uint16_t* order;                    // [kSorted]: experts in the order of their tiles; of more it is that of experts
  uint16_t* starts;                   // [experts + 1]: the first row tile of each, in that order
  uint16_t* steps;                    // [experts + 1]: the first row in the arranged x, in steps of kRowStep
  static constexpr int bytes(int experts) { return (kSorted + 2 * (experts + 1)) * int(sizeof(uint16_t)); }
  __device__ ExpertTiles(uint8_t* memory, int experts)
      : order(reinterpret_cast<uint16_t*>(memory)), starts(order + kSorted), steps(starts + experts + 1) {}
};

/// Fills them. One warp.
__device__ inline void count_row_tiles(const Product& p, const ProductGrid& grid, const ExpertTiles& experts) {
  const int lane = int(threadIdx.x % 32);
  int tiles_before = 0, steps_before = 0;
  for (int first = 0; first < p.expert_count; first += 32) {
    const int e = first + lane, count = e < p.expert_count ? p.begin[e + 1] - p.begin[e] : 0;
    int tiles = row_tiles(count, grid.most_rows), steps = row_tiles(count, kRowStep);
    if (p.expert_count <= ExpertTiles::kSorted) {
      const int own = count > 0 ? tile_rows(count, grid.most_rows) : 0;
      int rank = 0;
      for (int i = 0; i < p.expert_count; ++i) {
        const int other = __shfl_sync(~0u, own, i);
        rank += int(other > own || (other == own && i < lane));
      }
      experts.order[lane < p.expert_count ? rank : lane] = uint16_t(lane);
      __syncwarp();
      tiles = __shfl_sync(~0u, tiles, experts.order[lane]);
    }
#pragma unroll
    for (int by = 1; by < 32; by *= 2) {
      const int other_tiles = __shfl_up_sync(~0u, tiles, by), other_steps = __shfl_up_sync(~0u, steps, by);
      if (lane >= by) tiles += other_tiles, steps += other_steps;
    }
    if (e < p.expert_count) {
      experts.starts[e + 1] = uint16_t(tiles_before + tiles);
      experts.steps[e + 1] = uint16_t(steps_before + steps);
    }
    tiles_before += __shfl_sync(~0u, tiles, 31);
    steps_before += __shfl_sync(~0u, steps, 31);
  }
  if (lane == 0) experts.starts[0] = experts.steps[0] = 0;
}
/// How many tiles there are.
__device__ inline int all_tiles(const Product& p, const ProductGrid& grid, const ExpertTiles& experts) {
  return (p.begin != nullptr ? int(experts.starts[p.expert_count]) : grid.row_tiles * p.groups) * grid.n_tiles;
}

struct TilePlace : Place {
  int rows;         // of x, padded to steps of kRowStep
  int64_t x_first;  // the row tile's first row in the arranged x
};
/// Tile number `tile`.
__device__ inline TilePlace tile_place(const Product& p, const ProductGrid& grid, const ExpertTiles& experts,
                                       int tile) {
  TilePlace place;
  int row_tile, n_tile;
  if (p.begin != nullptr) {
    row_tile = tile / grid.n_tiles;
    n_tile = tile % grid.n_tiles;
    int low = 0, high = p.expert_count;  // starts[low] <= row_tile < starts[high]
    while (high - low > 1) {
      const int middle = (low + high) / 2;
      (int(experts.starts[middle]) <= row_tile ? low : high) = middle;
    }
    row_tile -= int(experts.starts[low]);
    const int e = p.expert_count <= ExpertTiles::kSorted ? int(experts.order[low]) : low;
    place.weight = p.experts[e];
    place.begin = p.begin[e];
    place.end = p.begin[e + 1];
    place.x_first = int64_t(experts.steps[e]) * kRowStep;
    place.n_first = 0;
    place.n_end = p.n;
    place.x_column = 0;
  } else {
    const int of_group = grid.n_tiles * grid.row_tiles, group = tile / of_group;
    const int block_tiles = grid.row_block * grid.n_tiles, rest = tile % of_group, block = rest / block_tiles;
    const int rows_here = min(grid.row_block, grid.row_tiles - block * grid.row_block), inside = rest % block_tiles;
    row_tile = block * grid.row_block + inside % rows_here;
    n_tile = inside / rows_here;
    place.weight = p.weight;
    place.begin = 0;
    place.end = p.rows;
    place.x_first = 0;
    place.n_first = int64_t(group) * grid.per_group;
    place.n_end = place.n_first + grid.per_group;
    place.x_column = group * p.k;
  }
  const int count = int(place.end - place.begin), own = tile_rows(count, grid.most_rows);
  place.rows = min(own, padded_rows(count - row_tile * own));
  place.first = place.begin + int64_t(row_tile) * own;
  place.end = min(place.end, place.first + own);
  place.x_first += row_tile * own;
  place.n_first += int64_t(n_tile) * grid.weight_rows;
  return place;
}

/// A place in a ring of stages, and the phase of its barriers.
template <int Stages>
struct RingPlace {
  int stage = 0;
  uint32_t parity = 0;
  __device__ void next() {
    if (++stage == Stages) stage = 0, parity ^= 1;
  }
};

}  // namespace fathom::cuda
