// fathom/backend/cuda/multiply_step.cuh
// 32 columns of a tile on Hopper's asynchronous products, for the kernels that decode weights into registers
// (product_many.cuh, product_pairs.cuh). No instruction of its own: they have those of warpgroup.cuh and
// multiply_group.cuh, or a model of them (warpgroup_model.h).
#pragma once
#include <cstdint>

namespace fathom::cuda {

/// sum += left . x of two products of 16 columns. They may still be under way; those before them have ended, so that
/// their left operands may be written.
template <int Rows>
__device__ __forceinline__ void multiply_step(float (&sum)[Rows / 2], const uint32_t (&left)[2][4], uint64_t x) {
  hold(sum);
  begin_products();
#pragma unroll
  for (int k = 0; k < 2; ++k) multiply_group<Rows>(sum, left[k], x + 2 * k, true);
  commit_products();
  hold(sum);
  wait_products<1>();
}

}  // namespace fathom::cuda
