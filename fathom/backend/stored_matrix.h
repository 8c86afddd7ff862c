// fathom/backend/stored_matrix.h
// Matrices in the formats of checkpoints that own their memory, for tests of products.
#pragma once
#include "fathom/backend/owned_values.h"

namespace fathom {

/// A stored matrix that owns its bytes.
struct Stored {
  Tensor values, scales;
  int scale_rows = 1;
  operator Matrix() const { return scales.bytes.empty() ? Matrix(values) : Matrix(values, scales, scale_rows); }
  /// Magnitudes only.
  Stored absolute() const {
    Stored out = *this;
    const size_t step = values.dtype == DType::f32 ? 4 : values.dtype == DType::bf16 ? 2 : 1;
    for (size_t i = step - 1; i < out.values.bytes.size(); i += step) {
      out.values.bytes[i] &= values.dtype == DType::f4_e2m1 ? 0x77 : 0x7f;
    }
    return out;
  }
};

/// Random elements: for the coded formats every code but NaN, scales of 2^(low - 127) up to, exclusively, 2^(high -
/// 127), one for `scale_rows` rows of 32 columns.
inline Stored stored(DType dtype, int64_t rows, int64_t cols, int scale_rows, uint64_t seed, int low = 122,
                     int high = 133) {
  Stored out;
  out.values = Tensor(dtype, rows, cols);
  if (dtype == DType::f32 || dtype == DType::bf16) {
    out.values = noise(dtype, rows, cols, seed);
    return out;
  }
  uint32_t i = 0;
  const auto random = [&] { return philox(seed, {i++, 0, 0, 3})[0]; };
  for (auto& byte : out.values.bytes) {
    byte = uint8_t(random() >> 8);
    if (dtype == DType::f8_e4m3 && (byte & 0x7f) == 0x7f) byte ^= 1;
  }
  out.scale_rows = scale_rows;
  out.scales = Tensor(DType::f8_e8m0, (rows + scale_rows - 1) / scale_rows, cols / 32);
  for (auto& byte : out.scales.bytes) byte = uint8_t(uint32_t(low) + random() % uint32_t(high - low));
  return out;
}
/// As weights are stored: FP8 in tiles of 32 x 32, FP4 with scales of each row.
inline Stored stored_weight(DType dtype, int64_t rows, int64_t cols, uint64_t seed, int low = 122, int high = 133) {
  return stored(dtype, rows, cols, dtype == DType::f8_e4m3 ? 32 : 1, seed, low, high);
}

}  // namespace fathom
