// fathom/backend/cuda/sm100/kernel_text.h
// product_memory.cuh for the model of the machine (tensor_memory_model.h): in a namespace of its own, for a program has
// the device's kernel too, and as a system's header, for a compiler that does not know `#pragma unroll` and minds
// conversions.
#pragma once
#pragma GCC system_header
#include "fathom/backend/cuda/sm100/descriptors.h"
#include "fathom/backend/cuda/tiles.h"
#define cuda cuda_model
#include "fathom/backend/cuda/decode_weights.cuh"
// The names that it needs come before it.
#include "fathom/backend/cuda/sm100/product_memory.cuh"
#undef cuda
