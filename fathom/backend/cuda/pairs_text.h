// fathom/backend/cuda/pairs_text.h
// product_pairs.cuh for the model of the machine (block_pair_model.h), as many_text.h.
#pragma once
#pragma GCC system_header
#include "fathom/backend/cuda/block_pair_model.h"

namespace fathom::cuda_model {
inline constexpr machine::DynamicMemory pair_memory;
}
#define cuda cuda_model
#include "fathom/backend/cuda/decode_weights.cuh"
#include "fathom/backend/cuda/shared_tiles.cuh"
// The names that it needs come before it.
#include "fathom/backend/cuda/product_pairs.cuh"
#undef cuda
