// fathom/backend/cuda/many_text.h
// product_many.cuh for the model of the machine (warpgroup_model.h): in a namespace of its own, for a program has the
// device's kernel too, and as a system's header, for a compiler that does not know `#pragma unroll` and minds
// conversions.
#pragma once
#pragma GCC system_header
#include "fathom/backend/cuda/warpgroup_model.h"

namespace fathom::cuda_model {
inline constexpr machine::DynamicMemory many_memory;
}
#define cuda cuda_model
#include "fathom/backend/cuda/decode_weights.cuh"
#include "fathom/backend/cuda/shared_tiles.cuh"
// The names that it needs come before it.
#include "fathom/backend/cuda/product_many.cuh"
#undef cuda
