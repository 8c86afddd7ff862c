// fathom/backend/cuda/tables.h
// Tables (backend/recorder.h) on the device: pinned memory that the processor writes, and a copy in device memory that
// kernels read.
#pragma once
#include <cuda_runtime.h>

#include "fathom/base/result.h"
#include "fathom/tensor/buffer.h"

namespace fathom::cuda {

Result<Buffer> allocate_tables(int64_t bytes);
void rewrite_tables(const uint8_t* tables);
/// Copies the first `bytes` of an allocation in `stream`.
void send_tables(const uint8_t* tables, int64_t bytes, cudaStream_t stream);
/// Returns when the last send_tables() of this allocation is done.
void await_sent(const uint8_t* tables);
/// Where kernels of `stream` read what lies at `memory`; null: that is no table. It is copied as far as it has not
/// been, unless the stream is being recorded: then it is sent.
const void* table_on_device(const void* memory, int64_t bytes, cudaStream_t stream);

}  // namespace fathom::cuda
