// fathom/backend/cuda/block_scan.cuh
// Exact sums over the threads of a block, in integers, and the search in a running sum.
#pragma once
#include <cstdint>

namespace fathom::cuda {

/// The sum over the threads before this one; `total` over all. `lanes` has a T for each warp. Every thread calls it.
template <class T>
__device__ inline T before_in_block(T own, T* lanes, T& total) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  T sum = own;
  for (int step = 1; step < 32; step *= 2) {
    const T other = __shfl_up_sync(~0u, sum, step);
    if (lane >= step) sum += other;
  }
  __syncthreads();  // what was there has been read
  if (lane == 31) lanes[warp] = sum;
  __syncthreads();
  T before = 0;
  total = 0;
  for (int w = 0; w < int(blockDim.x) / 32; ++w) {
    if (w == warp) before = total;
    total += lanes[w];
  }
  return before + sum - own;
}

/// The first i of [0, n) whose running sum of weight(i) exceeds `left`; n - 1 when none does. Every thread calls it and
/// gets the result. `found` is a number in shared memory.
template <class Weight>
__device__ inline int64_t find_in_sum(int64_t n, uint64_t left, uint64_t* lanes, int64_t* found, const Weight& weight) {
  __syncthreads();
  if (threadIdx.x == 0) *found = -1;
  uint64_t before_chunk = 0;
  for (int64_t first = 0; first < n; first += blockDim.x) {
    const int64_t i = first + threadIdx.x;
    const uint64_t own = i < n ? weight(i) : 0;
    uint64_t total = 0;
    const uint64_t before = before_chunk + before_in_block(own, lanes, total);
    if (before <= left && left < before + own) *found = i;
    __syncthreads();
    if (*found >= 0) break;
    before_chunk += total;
  }
  __syncthreads();
  return *found < 0 ? n - 1 : *found;
}

}  // namespace fathom::cuda
