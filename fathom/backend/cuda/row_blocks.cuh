// fathom/backend/cuda/row_blocks.cuh
// Kernels that work on rows element by element: how rows are cut into blocks, and sums that several of them make.
#pragma once
#include <algorithm>

#include "fathom/backend/cuda/encode.cuh"

namespace fathom::cuda {

constexpr int kRowThreads = 256;

/// Calls body(i) for this thread's vectors (or elements) of a row.
template <int Width, class Body>
__device__ void for_each_some(int64_t columns, const Body& body) {
  const int64_t step = int64_t(gridDim.y) * blockDim.x;
  for (int64_t i = int64_t(blockIdx.y) * blockDim.x + threadIdx.x; i < columns / Width; i += step) body(i);
}

/// Blocks of a row: enough rows fill the GPU alone; few rows are cut.
inline int64_t row_pieces(int64_t columns, int width) {
  return std::max<int64_t>(1, (columns / width + kRowThreads - 1) / kRowThreads);
}
inline dim3 row_grid(int64_t rows, int64_t columns, int width) {
  return dim3(grid(rows), unsigned(rows >= 1024 ? 1 : row_pieces(columns, width)));
}
/// Threads that share a row's vectors evenly, in that many blocks or turns: 288 vectors are two times 160, not 256.
inline int row_block(int64_t columns, int width) {
  const int64_t pieces = row_pieces(columns, width), each = (columns / width + pieces - 1) / pieces;
  return int(std::max<int64_t>(1, (each + 31) / 32) * 32);
}

/// Vector i of row r's sum of its routed rows, slots in order, and the shared one.
template <class A, int Width>
__device__ inline void sum_routed(const Rows<const A>& routed, const Rows<const int32_t>& place, int slots,
                                  const Rows<const A>& shared, int64_t r, int64_t i, float (&sum)[Width]) {
  constexpr int kAtOnce = 8;  // their loads
  const Packed<A, Width> own = load_packed<Width>(shared.row(r), i);
  float one[Width];
#pragma unroll
  for (int k = 0; k < Width; ++k) sum[k] = 0;
  for (int first = 0; first < slots; first += kAtOnce) {
    Packed<A, Width> some[kAtOnce];
#pragma unroll
    for (int s = 0; s < kAtOnce; ++s) {
      if (first + s < slots) some[s] = load_packed<Width>(routed.row(place.row(r)[first + s]), i);
    }
#pragma unroll
    for (int s = 0; s < kAtOnce; ++s) {
      if (first + s >= slots) continue;
      unpack(some[s], one);
#pragma unroll
      for (int k = 0; k < Width; ++k) sum[k] += one[k];
    }
  }
  unpack(own, one);
#pragma unroll
  for (int k = 0; k < Width; ++k) sum[k] += one[k];
}

}  // namespace fathom::cuda
