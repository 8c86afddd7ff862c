// fathom/backend/cuda/measuring.h
// Kernels that make and measure rather than compute: random weights, and the device's peaks. Used by instruments.cpp.
#pragma once
#include <cuda_runtime.h>

#include "fathom/backend/cuda/instruction_set.h"
#include "fathom/backend/machine_peaks.h"
#include "fathom/backend/random_weights.h"
#include "fathom/base/result.h"

namespace fathom::cuda {

/// The bytes that write_random_weights() gives, on the default stream.
void draw_random_weights(const RandomWeights& weights, uint8_t* out);

/// Reading from memory and from the level 2 cache; products of bf16 and int8 tensor cores from shared memory (random
/// operands), multiply-adds of floats. The best of five runs each. Errors: out_of_memory.
Result<MachinePeaks> measure_device_peaks(cudaStream_t stream, InstructionSet instructions);

/// What tensor cores reach from shared memory, in operations a second, and by which instruction.
struct ProductRates {
  double bf16, int8;
  const char* by;
};
/// out: a megabyte of device memory that may be written.
ProductRates measure_warpgroup_products(cudaStream_t stream, int processors, void* out);  // peaks_warpgroup.cu
ProductRates measure_memory_products(cudaStream_t stream, int processors, void* out);     // sm100/peaks_memory.cu

}  // namespace fathom::cuda
