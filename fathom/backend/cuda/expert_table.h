// fathom/backend/cuda/expert_table.h
// The addresses of a block's experts, as kernels read them. They are the same in every step, so the device keeps them.
#pragma once
#include <span>

#include "fathom/backend/cuda/call.h"
#include "fathom/backend/cuda/product.h"

namespace fathom::cuda {

struct ExpertTable {
  WeightPointers first{};
  const WeightPointers* on_device = nullptr;  // [experts]
  bool aligned = false;                       // values at multiples of 16, scales of 4
};

/// Weights in memory that the device reaches are remembered by where `weights` lies and what it says; others are staged
/// for this call.
ExpertTable expert_table(Call& call, std::span<const Matrix> weights);

/// Of weights that lie elsewhere in the next call: their addresses travel with this one.
ExpertTable passing_experts(Call& call, std::span<const Matrix> weights);

}  // namespace fathom::cuda
