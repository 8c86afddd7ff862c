// fathom/backend/cuda/widen.h
// Q8 rows as the tensor-core products want them: as bf16, or codes as f16. Both are exact: a code has four significant
// bits, its scale is a power of two.
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

/// The codes alone as f16, in the order of product_codes.cuh. In each 32 columns, lane t of four has eight in a row: of
/// FP4 weights columns 8 t + (0, 4, 1, 5, 2, 6, 3, 7), else 4 t ... 4 t + 3 and 16 + 4 t ... 16 + 4 t + 3.
void arrange_q8(cudaStream_t stream, const Q8Rows& in, bool for_fp4, uint16_t* out);

}  // namespace fathom::cuda
