// The yardsticks of the device: what reading, tensor cores and plain arithmetic reach when nothing else is asked of
// them. Products run from shared memory full of random numbers, because the chip slows down with the power that data
// cost.
#include "fathom/backend/cuda/device.cuh"
#include "fathom/backend/cuda/device_memory.h"
#include "fathom/backend/cuda/measuring.h"
#include "fathom/backend/cuda/warpgroup.cuh"
#include "fathom/base/check.h"
#include "fathom/base/philox.h"

namespace fathom::cuda {
namespace {

// ------------------------------------------------------------------------------------------------ reading
constexpr int kReadThreads = 512, kBatch = 8;

// Sums what it reads, so that nothing is left out; the sum is written only when it has one value of 2^32.
__global__ void __launch_bounds__(kReadThreads)
    read_kernel(const uint4* from, int64_t count, int rounds, uint32_t* out) {
  uint32_t sum = 0;
  const int64_t stride = int64_t(gridDim.x) * kReadThreads;
  for (int round = 0; round < rounds; ++round) {
    for (int64_t i = int64_t(blockIdx.x) * kReadThreads + threadIdx.x; i < count; i += stride * kBatch) {
      uint4 v[kBatch];
#pragma unroll
      for (int k = 0; k < kBatch; ++k) v[k] = i + k * stride < count ? __ldcg(from + i + k * stride) : uint4{};
#pragma unroll
      for (int k = 0; k < kBatch; ++k) sum += v[k].x ^ v[k].y ^ v[k].z ^ v[k].w;
    }
  }
  if (sum == 0x9e3779b9u) *out = sum;
}

// ------------------------------------------------------------------------------------------------ arithmetic
constexpr int kRounds = 4096;

__global__ void __launch_bounds__(1024) multiply_add_kernel(float a, float b, float* out) {
  float v[8];
#pragma unroll
  for (int i = 0; i < 8; ++i) v[i] = float(threadIdx.x + i);
  for (int round = 0; round < kRounds; ++round) {
#pragma unroll
    for (int i = 0; i < 8; ++i) v[i] = fmaf(v[i], a, b);
  }
  float sum = 0;
#pragma unroll
  for (int i = 0; i < 8; ++i) sum += v[i];
  if (sum == 12345.678f) *out = sum;
}

// Tiles as wgmma reads them with swizzled rows of 128 bytes: 64 rows of A for each of two warpgroups, 128 of B.
constexpr int kRowBytes = 128, kTileBytes = 64 * kRowBytes, kSharedBytes = 4 * kTileBytes + 1024;
constexpr int kProductThreads = 256;

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

// ------------------------------------------------------------------------------------------------ time
constexpr int kRuns = 5;

template <class Launch>
double best_seconds(cudaStream_t stream, const Launch& launch) {
  cudaEvent_t begin, end;
  expect(cudaEventCreate(&begin), "an event");
  expect(cudaEventCreate(&end), "an event");
  double best = 1e30;
  for (int run = 0; run <= kRuns; ++run) {  // the first one warms up
    expect(cudaEventRecord(begin, stream), "an event");
    launch();
    expect(cudaGetLastError(), "the device's peaks");
    expect(cudaEventRecord(end, stream), "an event");
    expect(cudaEventSynchronize(end), "the device's peaks");
    float ms = 0;
    expect(cudaEventElapsedTime(&ms, begin, end), "an event");
    if (run > 0 && double(ms) * 1e-3 < best) best = double(ms) * 1e-3;
  }
  cudaEventDestroy(begin);
  cudaEventDestroy(end);
  return best;
}

}  // namespace

Result<MachinePeaks> measure_device_peaks(cudaStream_t stream) {
  cudaDeviceProp device;
  expect(cudaGetDeviceProperties(&device, 0), "reading the GPU's properties");
  constexpr int64_t kMemory = int64_t(2) << 30, kCached = int64_t(16) << 20;
  constexpr int kCachedRounds = 64;
  auto memory = allocate_device(kMemory);
  if (!memory) return memory.error();
  RandomWeights noise;  // memory of zeros may be read faster than any data are
  noise.dtype = DType::bf16;
  noise.rows = 1;
  noise.cols = kMemory / 2;
  draw_random_weights(noise, memory->data());
  const auto* from = reinterpret_cast<const uint4*>(memory->data());
  auto* out = reinterpret_cast<uint32_t*>(memory->data());
  const unsigned processors = unsigned(device.multiProcessorCount);

  MachinePeaks peaks;
  peaks.l1_bytes = peaks.l2_bytes = 0;  // shared memory and registers: nothing stays there between kernels
  peaks.l3_bytes = device.l2CacheSize;
  peaks.memory_read = kMemory;
  peaks.memory = double(kMemory) / best_seconds(stream, [&] {
                   read_kernel<<<processors * 4, kReadThreads, 0, stream>>>(from, kMemory / 16, 1, out);
                 });
  peaks.memory_large_pages = peaks.memory;
  peaks.l3_read = kCached;
  peaks.l3 = double(kCached * kCachedRounds) / best_seconds(stream, [&] {
               read_kernel<<<processors * 4, kReadThreads, 0, stream>>>(from, kCached / 16, kCachedRounds, out);
             });
  peaks.l1 = peaks.l2 = peaks.l3;
  const double f32 = best_seconds(stream, [&] {
    multiply_add_kernel<<<processors * 2, 1024, 0, stream>>>(0.999f, 0.5f, reinterpret_cast<float*>(out));
  });
  peaks.f32 = 2.0 * 8 * kRounds * 1024 * 2 * processors / f32;
  peaks.f32_by = "ffma";
  const auto products = [&]<class Sum>(Sum*, int k) {
    expect(cudaFuncSetAttribute(product_kernel<Sum>, cudaFuncAttributeMaxDynamicSharedMemorySize, kSharedBytes),
           "the device's peaks");
    const double seconds = best_seconds(stream, [&] {
      product_kernel<Sum><<<processors, kProductThreads, kSharedBytes, stream>>>(reinterpret_cast<Sum*>(out));
    });
    return 2.0 * 64 * 128 * k * kRounds * 2 * processors / seconds;  // two warpgroups a multiprocessor
  };
  peaks.bf16 = products(static_cast<float*>(nullptr), 64);
  peaks.bf16_by = "wgmma";
  peaks.int8 = products(static_cast<int32_t*>(nullptr), 128);
  peaks.int8_by = "wgmma";
  return peaks;
}

}  // namespace fathom::cuda
