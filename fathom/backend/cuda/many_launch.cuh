// fathom/backend/cuda/many_launch.cuh
// The kernel of product_many.cuh for the device, and its launch.
#pragma once
#include "fathom/backend/cuda/decode_codes.cuh"
#include "fathom/backend/cuda/multiply_group.cuh"
#include "fathom/backend/cuda/product_tensor.cuh"
#include "fathom/backend/cuda/warpgroup.cuh"

namespace fathom::cuda {
/// What the launch gives a block beside its own variables.
extern __shared__ uint8_t many_memory[];
}  // namespace fathom::cuda

// The names that it needs come before it.
#include "fathom/backend/cuda/product_many.cuh"

namespace fathom::cuda {

template <DType Type, int XRows>
void launch_many_tile(cudaStream_t stream, const Product& p) {
  using Shape = ManyShape<Type, XRows>;
  const int bytes = Shape::kStages * Shape::kStageBytes + 1024 + (p.expert_count + 1) * 4;
  const auto kernel = many_kernel<Type, XRows>;
  expect(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes), "a product");
  const ManyTiles tiles = many_tiles<Type, XRows>(p);
  const int64_t most = most_row_tiles(p, XRows) * p.groups * tiles.n_tiles;
  kernel<<<unsigned(std::min<int64_t>(most, kProcessors)), Shape::kThreads, bytes, stream>>>(p, tiles);
}

template <DType Type>
void launch_many_product(Call& call, const Product& p, int x_rows) {
  if (x_rows == 192) return launch_many_tile<Type, 192>(call.stream(), p);
  launch_many_tile<Type, 128>(call.stream(), p);
}

}  // namespace fathom::cuda
