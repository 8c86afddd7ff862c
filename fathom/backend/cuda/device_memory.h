// fathom/backend/cuda/device_memory.h
// Memory that a GPU reaches: device memory, and pinned host memory that processor and GPU both read and write. Every
// allocation is remembered, so that an operation can tell memory that a kernel may touch from the process's own.
#pragma once
#include <cuda_runtime.h>

#include "fathom/base/result.h"
#include "fathom/tensor/buffer.h"

namespace fathom::cuda {

/// Aborts with CUDA's words when `status` is an error: after a failed launch nothing on the device can be trusted.
void expect(cudaError_t status, const char* what);

/// Zero-filled device memory, 256-byte aligned. Errors: out_of_memory with the sizes wanted and free.
Result<Buffer> allocate_device(int64_t bytes);
/// Zero-filled, page-locked host memory under one address for both sides. The GPU reads it over the bus (about
/// 50 GB/s): for small arrays and for what the processor reads. Errors: out_of_memory.
Result<Buffer> allocate_shared(int64_t bytes);
/// The same, not cleared: gigabytes of weights are written anyway. Pinning takes a second for 2 to 3 GB.
Result<Buffer> allocate_host(int64_t bytes);
/// Memory whose pages lie where they were touched last; settle_migrating() brings all of it to the GPU, in the stream's
/// order. Errors: out_of_memory.
Result<Buffer> allocate_migrating(int64_t bytes);
void settle_migrating(cudaStream_t stream);
/// Whether a kernel may touch it: it lies in memory of the functions above. Any thread.
bool is_reachable(const void* memory);
/// Copies in any direction, after all work queued before, and waits.
void copy(void* to, const void* from, int64_t bytes);

}  // namespace fathom::cuda
