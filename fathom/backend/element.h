// fathom/backend/element.h
// Single elements of views whose type is known at run time: activations (f32, bf16) and stored matrices. Written for
// the definitions in reference/ and for tests; fast variants have their own vector loads.
#pragma once
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <span>
#include <vector>

#include "fathom/tensor/number_formats.h"
#include "fathom/tensor/view.h"

namespace fathom {

/// Element i of a row of f32 or bf16.
inline float load(DType dtype, const uint8_t* row, int64_t i) {
  if (dtype == DType::bf16) return bf16_to_float(reinterpret_cast<const uint16_t*>(row)[i]);
  return reinterpret_cast<const float*>(row)[i];
}

/// Nearest bf16, rounded once: through a float that keeps the lost bits in its last one (rounding to odd).
inline uint16_t double_to_bf16(double value) {
  const float near = float(value);
  uint32_t bits = std::bit_cast<uint32_t>(near);
  if (double(near) != value && !std::isnan(near)) {
    if (std::abs(double(near)) > std::abs(value)) --bits;
    bits |= 1;
  }
  return float_to_bf16(std::bit_cast<float>(bits));
}

/// Rounds a value into element i of a row of f32 or bf16.
inline void store(DType dtype, uint8_t* row, int64_t i, double value) {
  if (dtype == DType::bf16) {
    reinterpret_cast<uint16_t*>(row)[i] = double_to_bf16(value);
  } else {
    reinterpret_cast<float*>(row)[i] = float(value);
  }
}

/// What `store` leaves of a value.
inline float rounded(DType dtype, double value) {
  return dtype == DType::bf16 ? bf16_to_float(double_to_bf16(value)) : float(value);
}

/// A row of f32 or bf16 as floats (exact).
inline void load_row(const AnyView& view, int64_t r, std::span<float> out) {
  const uint8_t* row = view.row(r);
  for (int64_t i = 0; i < int64_t(out.size()); ++i) out[size_t(i)] = load(view.dtype, row, i);
}

inline std::vector<float> load_row(const AnyView& view, int64_t r) {
  std::vector<float> row(size_t(view.cols));
  load_row(view, r, row);
  return row;
}

/// The 256 values of E4M3.
inline const std::array<float, 256>& e4m3_values() {
  static const std::array<float, 256> values = [] {
    std::array<float, 256> all{};
    for (int code = 0; code < 256; ++code) all[size_t(code)] = e4m3_to_float(uint8_t(code));
    return all;
  }();
  return values;
}

/// Columns [begin, begin + out.size()) of row r of a stored matrix, scales applied (exact). `begin` is a multiple
/// of 32.
inline void decode_matrix_row(const Matrix& matrix, int64_t r, int64_t begin, std::span<float> out) {
  const uint8_t* row = matrix.values.row(r);
  const int64_t n = int64_t(out.size());
  if (matrix.dtype() == DType::f32 || matrix.dtype() == DType::bf16) {
    for (int64_t i = 0; i < n; ++i) out[size_t(i)] = load(matrix.dtype(), row, begin + i);
    return;
  }
  check(matrix.dtype() == DType::f8_e4m3 || matrix.dtype() == DType::f4_e2m1,
        "a matrix is f32, bf16, f8_e4m3 or f4_e2m1");
  const uint8_t* scales = matrix.scales.row(r / matrix.scale_rows);
  const auto& e4m3 = e4m3_values();
  for (int64_t i = 0; i < n; ++i) {
    const int64_t c = begin + i;
    const float value = matrix.dtype() == DType::f8_e4m3 ? e4m3[row[c]] : kE2m1[(row[c / 2] >> (c % 2 * 4)) & 15];
    out[size_t(i)] = value * e8m0_to_float(scales[c / 32]);
  }
}

}  // namespace fathom
