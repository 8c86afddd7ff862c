// fathom/backend/cuda/widen.h
// Q8 rows as bf16, as product_tensor.cuh wants them. Exact: a code has four significant bits, its scale is a power of
// two.
#pragma once
#include <cuda_runtime.h>

#include <cstdint>

namespace fathom::cuda {

struct Q8Rows {
  const uint8_t* codes;
  int64_t code_stride;
  const uint8_t* scales;
  int64_t scale_stride;
  int64_t rows, columns;  // columns: a multiple of 32
};

/// out: dense [rows, columns] of bf16, 16-byte aligned.
void widen_q8(cudaStream_t stream, const Q8Rows& in, uint16_t* out);

}  // namespace fathom::cuda
