// fathom/backend/cuda/pairs_launch.cuh
// The kernel of product_pairs.cuh for the device, and its launch.
#pragma once
#include "fathom/backend/cuda/block_pair.cuh"
#include "fathom/backend/cuda/decode_codes.cuh"
#include "fathom/backend/cuda/multiply_group.cuh"
#include "fathom/backend/cuda/product_few_parts.cuh"
#include "fathom/backend/cuda/product_tensor.cuh"

namespace fathom::cuda {
/// What the launch gives a block beside its own variables.
extern __shared__ uint8_t pair_memory[];
}  // namespace fathom::cuda

// The names that it needs come before it.
#include "fathom/backend/cuda/product_pairs.cuh"

namespace fathom::cuda {

template <DType Type>
cudaLaunchConfig_t pair_launch(cudaStream_t stream, int parts, int experts, cudaLaunchAttribute (&attributes)[2]) {
  using Shape = PairShape<Type>;
  static const cudaError_t allowed =
      cudaFuncSetAttribute(pair_kernel<Type>, cudaFuncAttributeMaxDynamicSharedMemorySize, 227 * 1024 - 512);
  expect(allowed, "a product");
  attributes[0].id = cudaLaunchAttributeClusterDimension;
  attributes[0].val.clusterDim = {unsigned(2 * parts), 1, 1};
  attributes[1].id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attributes[1].val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t launch{};
  launch.gridDim = dim3(unsigned(2 * parts));
  launch.blockDim = dim3(Shape::kThreads);
  launch.dynamicSmemBytes = size_t(Shape::kStages * Shape::kStageBytes + 1024 + ExpertTiles::bytes(experts));
  launch.stream = stream;
  launch.attrs = attributes;
  launch.numAttrs = 2;
  return launch;
}

/// What this device runs at once; what it does not say stays as it is.
template <DType Type>
PairClusters pair_clusters() {
  PairClusters out;
  for (int i = 1; i < 3; ++i) {
    cudaLaunchAttribute attributes[2];
    cudaLaunchConfig_t launch = pair_launch<Type>(nullptr, 1 << i, 0, attributes);
    launch.numAttrs = 1;
    int count = 0;
    const cudaError_t status = cudaOccupancyMaxActiveClusters(&count, pair_kernel<Type>, &launch);
    if (status == cudaSuccess && count > 0) {
      out.of_pairs[i] = count;
    } else {
      cudaGetLastError();
    }
  }
  return out;
}

template <DType Type>
void launch_pair_product(Call& call, const Product& p, int most_rows, WholeProduct whole) {
  using Shape = PairShape<Type>;
  static const PairClusters clusters = pair_clusters<Type>();
  PairTiles tiles = pair_tiles(p, most_rows);
  tiles.parts = p.parts;
  if (p.parts == 0) {
    // How many rows each expert has is known on the device only: here, half of them have a row tile that is not full.
    const int64_t row_tiles = p.begin == nullptr ? int64_t(tiles.row_tiles) * p.groups
                                                 : divide_up(whole.rows, most_rows) + divide_up(whole.experts, 2);
    tiles.parts = pair_parts(row_tiles * tiles.n_tiles, tiles.steps / Shape::kUnit, clusters);
  }
  const int64_t most = most_row_tiles(p, most_rows) * p.groups * tiles.n_tiles;
  cudaLaunchAttribute attributes[2];
  cudaLaunchConfig_t launch = pair_launch<Type>(call.stream(), tiles.parts, p.expert_count, attributes);
  launch.gridDim.x *= unsigned(std::min<int64_t>(most, clusters.of_pairs[tiles.parts / 2]));
  if (!call.may_start_early()) launch.numAttrs = 1;
  expect(cudaLaunchKernelEx(&launch, pair_kernel<Type>, p, tiles), "a product");
}

}  // namespace fathom::cuda
