// What Hopper's tensor cores reach from shared memory (wgmma), for the device's peaks. It is full of random numbers,
// because the chip slows down with the power that data cost.
#include "fathom/backend/cuda/best_time.h"
#include "fathom/backend/cuda/measuring.h"
#include "fathom/backend/cuda/warpgroup.cuh"
#include "fathom/base/philox.h"

namespace fathom::cuda {
namespace {

// Tiles as wgmma reads them with swizzled rows of 128 bytes: 64 rows of A for each of two warpgroups, 128 of B.
constexpr int kRowBytes = 128, kTileBytes = 64 * kRowBytes, kSharedBytes = 4 * kTileBytes + 1024;
constexpr int kProductThreads = 256, kRounds = 4096;

// Each warpgroup multiplies 64 x 128 x (128 bytes of k), kRounds times.
template <class Sum>
__global__ void __launch_bounds__(kProductThreads, 1) product_kernel(Sum* out) {
  extern __shared__ uint8_t raw[];
  uint8_t* shared = raw + (1024 - shared_address(raw) % 1024) % 1024;
  for (int i = int(threadIdx.x); i < 4 * kTileBytes / 4; i += kProductThreads) {
    // Exponents of bf16 below 128: no infinities.
    reinterpret_cast<uint32_t*>(shared)[i] = philox(7, {uint32_t(i), blockIdx.x, 0, 0})[0] & 0xbfffbfffu;
  }
  publish_to_products();
  __syncthreads();
  const int group = int(threadIdx.x) / 128;
  const uint64_t a = describe_tile(shared_address(shared + group * kTileBytes)),
                 b = describe_tile(shared_address(shared + 2 * kTileBytes));
  Sum sums[64] = {};
  for (int round = 0; round < kRounds; ++round) {
    begin_products();
#pragma unroll
    for (int k = 0; k < 4; ++k) multiply_rows(sums, a + uint64_t(2 * k), b + uint64_t(2 * k));
    commit_products();
    wait_products<0>();
  }
  Sum all = 0;
#pragma unroll
  for (int i = 0; i < 64; ++i) all += sums[i];
  out[int64_t(blockIdx.x) * kProductThreads + threadIdx.x] = all;
}

}  // namespace

ProductRates measure_warpgroup_products(cudaStream_t stream, int processors, void* out) {
  const auto rate = [&]<class Sum>(Sum*, int k) {
    expect(cudaFuncSetAttribute(product_kernel<Sum>, cudaFuncAttributeMaxDynamicSharedMemorySize, kSharedBytes),
           "the device's peaks");
    const double seconds = best_seconds(stream, [&] {
      product_kernel<Sum><<<unsigned(processors), kProductThreads, kSharedBytes, stream>>>(static_cast<Sum*>(out));
    });
    return 2.0 * 64 * 128 * k * kRounds * 2 * processors / seconds;  // two warpgroups a multiprocessor
  };
  return {rate(static_cast<float*>(nullptr), 64), rate(static_cast<int32_t*>(nullptr), 128), "wgmma"};
}

}  // namespace fathom::cuda
