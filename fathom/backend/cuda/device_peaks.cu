// The yardsticks of the device: what reading, tensor cores and plain arithmetic reach when nothing else is asked of
// them.
#include "fathom/backend/cuda/best_time.h"
#include "fathom/backend/cuda/measuring.h"

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

}  // namespace

Result<MachinePeaks> measure_device_peaks(cudaStream_t stream, InstructionSet instructions) {
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
  const auto products = instructions == InstructionSet::sm_100a ? measure_memory_products : measure_warpgroup_products;
  const ProductRates rates = products(stream, int(processors), out);
  peaks.bf16 = rates.bf16;
  peaks.int8 = rates.int8;
  peaks.bf16_by = peaks.int8_by = rates.by;
  return peaks;
}

}  // namespace fathom::cuda
