// fathom/backend/cuda/many_launch.cuh
// The kernel of product_many.cuh for the device, and its launch.
#pragma once
#include "fathom/backend/cuda/decode_codes.cuh"
#include "fathom/backend/cuda/multiply_group.cuh"
#include "fathom/backend/cuda/product_few_parts.cuh"
#include "fathom/backend/cuda/product_tensor.cuh"
#include "fathom/backend/cuda/warpgroup.cuh"

namespace fathom::cuda {
/// What the launch gives a block beside its own variables.
extern __shared__ uint8_t many_memory[];
}  // namespace fathom::cuda

// The names that it needs come before it.
#include "fathom/backend/cuda/product_many.cuh"

namespace fathom::cuda {

template <DType Type, int MostRows>
void launch_many_tiles(cudaStream_t stream, const Product& p, int most_rows) {
  using Shape = ManyShape<Type, MostRows>;
  const auto kernel = many_kernel<Type, MostRows>;
  static const cudaError_t allowed =
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, Shape::kMostShared);
  expect(allowed, "a product");
  const ProductGrid tiles = product_grid(p, most_rows, kManyWeightRows, Shape::kColumns);
  const int bytes = Shape::kStages * Shape::kStageBytes + 1024 + ExpertTiles::bytes(p.expert_count);
  const int64_t most = most_row_tiles(p, most_rows) * p.groups * tiles.n_tiles;
  kernel<<<unsigned(std::min<int64_t>(most, kProcessors)), Shape::kThreads, bytes, stream>>>(p, tiles);
}

template <DType Type>
void launch_many_product(Call& call, const Product& p, int most_rows) {
  if (most_rows > kManySmallRows) return launch_many_tiles<Type, kManyLargeRows>(call.stream(), p, most_rows);
  launch_many_tiles<Type, kManySmallRows>(call.stream(), p, most_rows);
}

}  // namespace fathom::cuda
