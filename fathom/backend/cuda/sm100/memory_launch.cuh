// fathom/backend/cuda/sm100/memory_launch.cuh
// The kernel of product_memory.cuh for the device, and its launch.
#pragma once
#include "fathom/backend/cuda/decode_codes.cuh"
#include "fathom/backend/cuda/product_tensor.cuh"
#include "fathom/backend/cuda/sm100/tensor_memory.cuh"
// The names that it needs come before it.
#include "fathom/backend/cuda/sm100/product_memory.cuh"

namespace fathom::cuda::sm100 {

template <DType Type, bool Scaled>
void launch_memory_tiles(Call& call, const Product& p) {
  using Shape = MemoryShape<Type, Scaled>;
  const auto kernel = memory_kernel<Type, Scaled>;
  static const cudaError_t allowed =
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, 227 * 1024 - 1024);
  expect(allowed, "a product");
  static const int processors = [] {
    int device = 0, count = 0;
    expect(cudaGetDevice(&device), "a product");
    expect(cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device), "a product");
    return count;
  }();
  const ProductGrid tiles = memory_tiles<Type, Scaled>(p);
  const int bytes = Shape::kStages * Shape::kStageBytes + 1024 + ExpertTiles::bytes(p.expert_count);
  const int64_t most = most_row_tiles(p, Shape::kMostRows) * p.groups * tiles.n_tiles;
  kernel<<<unsigned(std::min<int64_t>(most, processors)), kThreads, bytes, call.stream()>>>(p, tiles);
}

}  // namespace fathom::cuda::sm100
