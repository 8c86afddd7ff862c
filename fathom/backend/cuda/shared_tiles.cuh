// fathom/backend/cuda/shared_tiles.cuh
// Tiles of rows of 128 bytes in shared memory, 64 columns of bf16, as Hopper's products read them: where their pieces
// lie, and how they are described. Source: PTX ISA, 9.7.15.5 (shared memory of wgmma). No instruction, so that a model
// of the machine runs the same text (warpgroup_model.h).
#pragma once
#include <cstdint>

namespace fathom::cuda {

/// Where piece `piece` (16 bytes) of row `row` lies in a tile of rows of 128 bytes.
__device__ inline int swizzled(int row, int piece) { return row * 128 + ((piece ^ (row & 7)) << 4); }

/// Describes such a tile, aligned to 1,024 bytes, to the products. 16 columns further: + 2.
__device__ inline uint64_t describe_tile(uint32_t address) {
  return uint64_t(address >> 4 & 0x3fff) | uint64_t(1) << 16 | uint64_t(64) << 32 | uint64_t(1) << 62;
}

/// Describes tiles of 64 rows of 128 bytes (describe_tile()) that lie behind each other, 8,192 bytes each, to a product
/// that sums over rows: 16 rows further: + 128.
__device__ inline uint64_t describe_transposed_tiles(uint32_t address) {
  return uint64_t(address >> 4 & 0x3fff) | uint64_t(512) << 16 | uint64_t(64) << 32 | uint64_t(1) << 62;
}

}  // namespace fathom::cuda
