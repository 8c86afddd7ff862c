// fathom/backend/cuda/index_scores_text.h
// index_scores.cuh for the model of the machine (warpgroup_model.h), as many_text.h.
#pragma once
#pragma GCC system_header
#include "fathom/backend/cuda/warpgroup_model.h"
#include "fathom/backend/ops.h"

namespace fathom::cuda_model {
inline constexpr machine::AlignedMemory index_memory;
inline void hold_pair(float&, float&) {}
inline unsigned count_reader(unsigned& times) { return atomicAdd(&times, 1); }
}  // namespace fathom::cuda_model
#define cuda cuda_model
// The names that it needs come before it.
#include "fathom/backend/cuda/index_scores.cuh"
#undef cuda
