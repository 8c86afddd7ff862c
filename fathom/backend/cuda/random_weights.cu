// Random weights drawn on the device: the definition is backend/random_weights.h. A thread has 32 neighbours of a row,
// which share a scale; the 32 threads of a warp have the 32 rows of an FP8 tile. Cost: a pair is drawn twice, once for
// its values and once for its scales; 100 GB of experts take seconds.
#include "fathom/backend/cuda/device.cuh"
#include "fathom/backend/cuda/device_memory.h"
#include "fathom/backend/cuda/launch.h"
#include "fathom/backend/cuda/measuring.h"
#include "fathom/base/philox.h"

namespace fathom::cuda {
namespace {

constexpr int kThreads = 128;

// Sums of elements [first, first + 32); first is a multiple of 4.
__device__ void draw_sums(const RandomWeights& w, int64_t first, int (&sums)[32]) {
#pragma unroll
  for (int block = 0; block < 8; ++block) {
    const uint64_t at = uint64_t(first) / 4 + uint64_t(block);
    const auto words = philox(w.seed, {uint32_t(at), uint32_t(at >> 32), uint32_t(w.name), uint32_t(w.name >> 32)});
#pragma unroll
    for (int i = 0; i < 4; ++i) sums[4 * block + i] = centred_sum(words[size_t(i)]);
  }
}

// `Tiles`: scale_rows 32, so that a warp has a tile. Groups are numbered tile by tile then, else row by row.
template <bool Fp4, bool Tiles>
__global__ void __launch_bounds__(kThreads)
    pair_kernel(const __grid_constant__ RandomWeights w, int64_t groups, uint8_t* out) {
  const int64_t g = int64_t(blockIdx.x) * kThreads + threadIdx.x;
  if (g >= groups) return;  // whole warps: with tiles, groups come by 32
  const int64_t across = w.cols / 32;
  const int64_t tile = g / 32, lane = g % 32;
  const int64_t row = Tiles ? tile / across * 32 + lane : g / across;
  const int64_t column = Tiles ? tile % across : g % across;  // in groups of 32
  int sums[32];
  draw_sums(w, row * w.cols + column * 32, sums);
  int largest = 0;
#pragma unroll
  for (int i = 0; i < 32; ++i) largest = max(largest, abs(sums[i]));
  if constexpr (Tiles) largest = __reduce_max_sync(~0u, largest);
  const float amax = float(largest) * w.factor;
  const float scale = Fp4 ? pow2_ceil(fmaxf(amax, 6 * 0x1p-126f) / 6.0f) : pow2_ceil(fmaxf(amax, 1e-4f) / 448.0f);
  if (w.part == RandomWeights::Part::scales) {
    if (!Tiles || lane == 0) out[(Tiles ? row / 32 : row) * across + column] = uint8_t(__float_as_uint(scale) >> 23);
    return;
  }
  constexpr int kWords = Fp4 ? 4 : 8, kEach = 32 / kWords;
  auto* to = reinterpret_cast<uint32_t*>(out) + (row * across + column) * kWords;
#pragma unroll
  for (int word = 0; word < kWords; ++word) {
    uint32_t packed = 0;
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      const float value = float(sums[kEach * word + i]) * w.factor / scale;
      packed |= uint32_t(Fp4 ? to_e2m1(value) : to_e4m3(value)) << (32 / kEach * i);
    }
    to[word] = packed;
  }
}

template <class Element>
__global__ void __launch_bounds__(kThreads)
    plain_kernel(const __grid_constant__ RandomWeights w, int64_t elements, Element* out) {
  const int64_t first = (int64_t(blockIdx.x) * kThreads + threadIdx.x) * 32;
  if (first >= elements) return;
  int sums[32];
  draw_sums(w, first, sums);
#pragma unroll
  for (int i = 0; i < 32; ++i) {
    if (first + i < elements) store(out[first + i], float(sums[i]) * w.factor);
  }
}

}  // namespace

void draw_random_weights(const RandomWeights& w, uint8_t* out) {
  const int64_t elements = w.rows * w.cols;
  if (elements == 0) return;
  if (!w.paired()) {
    const unsigned blocks = grid((elements + 32 * kThreads - 1) / (32 * kThreads));
    with_float_type(w.dtype, [&]<class A>(Type<A>) {
      plain_kernel<A><<<blocks, kThreads>>>(w, elements, reinterpret_cast<A*>(out));
    });
  } else {
    check(w.cols % 32 == 0 && w.rows % w.scale_rows == 0, "a pair has whole scales");
    const int64_t groups = elements / 32;
    const unsigned blocks = grid((groups + kThreads - 1) / kThreads);
    if (w.dtype == DType::f4_e2m1) {
      check(w.scale_rows == 1, "FP4 weights have scales of their own in every row");
      pair_kernel<true, false><<<blocks, kThreads>>>(w, groups, out);
    } else if (w.scale_rows == 32) {
      pair_kernel<false, true><<<blocks, kThreads>>>(w, groups, out);
    } else {
      check(w.scale_rows == 1, "FP8 weights have tiles of 32 rows, or rows of their own");
      pair_kernel<false, false><<<blocks, kThreads>>>(w, groups, out);
    }
  }
  expect(cudaGetLastError(), "drawing weights");
}

}  // namespace fathom::cuda
