// The yardsticks of the device: what reading, tensor cores and plain arithmetic reach when nothing else is asked of
// them. Products run from shared memory full of random numbers, because the chip slows down with the power that data
// cost.
#include "fathom/backend/cuda/device.cuh"
#include "fathom/backend/cuda/device_memory.h"
#include "fathom/backend/cuda/measuring.h"
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

// Start address, and eight rows (1,024 bytes) between groups of eight, in units of 16 bytes; the swizzle of 128 bytes.
__device__ uint64_t tile_at(const uint8_t* shared) {
  const auto address = uint32_t(__cvta_generic_to_shared(shared));
  return uint64_t((address & 0x3ffff) >> 4) | uint64_t(1) << 16 | uint64_t(64) << 32 | uint64_t(1) << 62;
}

__device__ void multiply_add(float (&d)[64], uint64_t a, uint64_t b) {
  asm volatile(
      "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 "
      "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
      "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
      "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, "
      "%64, %65, 1, 1, 1, 0, 0;"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]), "+f"(d[8]),
        "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]), "+f"(d[16]),
        "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]), "+f"(d[24]),
        "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31]), "+f"(d[32]),
        "+f"(d[33]), "+f"(d[34]), "+f"(d[35]), "+f"(d[36]), "+f"(d[37]), "+f"(d[38]), "+f"(d[39]), "+f"(d[40]),
        "+f"(d[41]), "+f"(d[42]), "+f"(d[43]), "+f"(d[44]), "+f"(d[45]), "+f"(d[46]), "+f"(d[47]), "+f"(d[48]),
        "+f"(d[49]), "+f"(d[50]), "+f"(d[51]), "+f"(d[52]), "+f"(d[53]), "+f"(d[54]), "+f"(d[55]), "+f"(d[56]),
        "+f"(d[57]), "+f"(d[58]), "+f"(d[59]), "+f"(d[60]), "+f"(d[61]), "+f"(d[62]), "+f"(d[63])
      : "l"(a), "l"(b));
}

__device__ void multiply_add(int32_t (&d)[64], uint64_t a, uint64_t b) {
  asm volatile(
      "wgmma.mma_async.sync.aligned.m64n128k32.s32.s8.s8 "
      "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
      "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
      "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, "
      "%64, %65, 1;"
      : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3]), "+r"(d[4]), "+r"(d[5]), "+r"(d[6]), "+r"(d[7]), "+r"(d[8]),
        "+r"(d[9]), "+r"(d[10]), "+r"(d[11]), "+r"(d[12]), "+r"(d[13]), "+r"(d[14]), "+r"(d[15]), "+r"(d[16]),
        "+r"(d[17]), "+r"(d[18]), "+r"(d[19]), "+r"(d[20]), "+r"(d[21]), "+r"(d[22]), "+r"(d[23]), "+r"(d[24]),
        "+r"(d[25]), "+r"(d[26]), "+r"(d[27]), "+r"(d[28]), "+r"(d[29]), "+r"(d[30]), "+r"(d[31]), "+r"(d[32]),
        "+r"(d[33]), "+r"(d[34]), "+r"(d[35]), "+r"(d[36]), "+r"(d[37]), "+r"(d[38]), "+r"(d[39]), "+r"(d[40]),
        "+r"(d[41]), "+r"(d[42]), "+r"(d[43]), "+r"(d[44]), "+r"(d[45]), "+r"(d[46]), "+r"(d[47]), "+r"(d[48]),
        "+r"(d[49]), "+r"(d[50]), "+r"(d[51]), "+r"(d[52]), "+r"(d[53]), "+r"(d[54]), "+r"(d[55]), "+r"(d[56]),
        "+r"(d[57]), "+r"(d[58]), "+r"(d[59]), "+r"(d[60]), "+r"(d[61]), "+r"(d[62]), "+r"(d[63])
      : "l"(a), "l"(b));
}

// Each warpgroup multiplies 64 x 128 x (128 bytes of k), kRounds times.
template <class Sum>
__global__ void __launch_bounds__(kProductThreads, 1) product_kernel(Sum* out) {
  extern __shared__ uint8_t raw[];
  uint8_t* shared = raw + (1024 - (uint32_t(__cvta_generic_to_shared(raw)) & 1023)) % 1024;
  for (int i = int(threadIdx.x); i < 4 * kTileBytes / 4; i += kProductThreads) {
    // Exponents of bf16 below 128: no infinities.
    reinterpret_cast<uint32_t*>(shared)[i] = philox(7, {uint32_t(i), blockIdx.x, 0, 0})[0] & 0xbfffbfffu;
  }
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  __syncthreads();
  const int group = int(threadIdx.x) / 128;
  const uint64_t a = tile_at(shared + group * kTileBytes), b = tile_at(shared + 2 * kTileBytes);
  Sum sums[64] = {};
  for (int round = 0; round < kRounds; ++round) {
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
    for (int k = 0; k < 4; ++k) multiply_add(sums, a + uint64_t(2 * k), b + uint64_t(2 * k));  // 32 bytes further
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
    asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
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
