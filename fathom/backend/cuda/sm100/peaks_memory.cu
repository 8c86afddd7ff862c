// What Blackwell's tensor cores reach from shared memory (tcgen05), for the device's peaks. It is full of random
// numbers, because the chip slows down with the power that data cost. Not run on such a GPU yet.
#include "fathom/backend/cuda/best_time.h"
#include "fathom/backend/cuda/measuring.h"
#include "fathom/backend/cuda/sm100/tensor_memory.cuh"
#include "fathom/base/philox.h"

namespace fathom::cuda {
namespace {

using namespace sm100;

constexpr int kPeakRows = 128, kPeakColumns = 256, kPeakThreads = 128, kRounds = 4096;
constexpr int kPeakBytes = (kPeakRows + kPeakColumns) * kTileRowBytes;

// 128 x 256 x (128 bytes of k) by one thread, kRounds times.
template <bool Int8>
__global__ void __launch_bounds__(kPeakThreads, 1) memory_peak_kernel(uint32_t* out) {
  extern __shared__ uint8_t raw[];
  __shared__ uint64_t done;
  __shared__ uint32_t columns;
  uint8_t* shared = raw + (1024 - shared_address(raw) % 1024) % 1024;
  for (int i = int(threadIdx.x); i < kPeakBytes / 4; i += kPeakThreads) {
    // Exponents of bf16 below 128: no infinities.
    reinterpret_cast<uint32_t*>(shared)[i] = philox(7, {uint32_t(i), blockIdx.x, 0, 0})[0] & 0xbfffbfffu;
  }
  publish_to_products();
  if (threadIdx.x < 32) take_columns<kPeakColumns>(columns);
  if (threadIdx.x == 0) {
    init_barrier(done, 1);
    publish_barriers();
  }
  end_before_meeting();
  __syncthreads();
  begin_after_meeting();
  const uint32_t sums = columns;
  if (threadIdx.x == 0) {
    const uint64_t a = describe_rows(shared_address(shared)),
                   b = describe_rows(shared_address(shared + kPeakRows * kTileRowBytes));
#pragma unroll 1
    for (int round = 0; round < kRounds; ++round) {
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        if constexpr (Int8) {
          multiply_int8(sums, a + 2 * k, b + 2 * k, describe_int8_product(kPeakRows, kPeakColumns), round > 0);
        } else {
          multiply_bf16(sums, a + 2 * k, b + 2 * k, describe_bf16_product(kPeakRows, kPeakColumns), round > 0);
        }
      }
    }
    arrive_after_products(done);
  }
  wait_phase(done, 0);
  begin_after_meeting();
  uint32_t v[32], all = 0;
  load_sums(v, sums + (threadIdx.x / 32 * 32 << 16));
#pragma unroll
  for (int i = 0; i < 32; ++i) all ^= v[i];
  out[int64_t(blockIdx.x) * kPeakThreads + threadIdx.x] = all;
  end_before_meeting();
  __syncthreads();
  if (threadIdx.x < 32) give_columns<kPeakColumns>(sums);
}

template <bool Int8>
double rate(cudaStream_t stream, int processors, uint32_t* out) {
  constexpr int kBytes = kPeakBytes + 1024, kK = Int8 ? 128 : 64;
  expect(cudaFuncSetAttribute(memory_peak_kernel<Int8>, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes),
         "the device's peaks");
  const double seconds = best_seconds(
      stream, [&] { memory_peak_kernel<Int8><<<unsigned(processors), kPeakThreads, kBytes, stream>>>(out); });
  return 2.0 * kPeakRows * kPeakColumns * kK * kRounds * processors / seconds;
}

}  // namespace

ProductRates measure_memory_products(cudaStream_t stream, int processors, void* out) {
  auto* to = static_cast<uint32_t*>(out);
  return {rate<false>(stream, processors, to), rate<true>(stream, processors, to), "tcgen05"};
}

}  // namespace fathom::cuda
