// fathom/backend/cuda/stored_values.h
// The values of a stored matrix, for tests.
#pragma once
#include <cstring>

#include "fathom/backend/stored_matrix.h"
#include "fathom/tensor/number_formats.h"

namespace fathom::cuda {

/// Of a matrix of bf16, FP8 or FP4, with its scale.
inline double value_of(const Stored& of, int64_t row, int64_t column) {
  const uint8_t* at = of.values.bytes.data() + row * bytes_of(of.values.dtype, of.values.cols);
  if (of.values.dtype == DType::bf16) {
    uint16_t code;
    std::memcpy(&code, at + 2 * column, 2);
    return bf16_to_float(code);
  }
  const double scale = e8m0_to_float(of.scales.bytes[size_t(row / of.scale_rows * of.scales.cols + column / 32)]);
  if (of.values.dtype == DType::f8_e4m3) return e4m3_to_float(at[column]) * scale;
  return e2m1_to_float(uint8_t(at[column / 2] >> (column % 2 * 4) & 15)) * scale;
}

}  // namespace fathom::cuda
