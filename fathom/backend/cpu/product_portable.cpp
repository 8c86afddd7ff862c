// fathom/backend/cpu/product_portable.cpp
// Products in plain C++: 16 outputs side by side in arrays that the compiler turns into whatever vectors it may use.
#include <array>
#include <cstring>

#include "fathom/backend/cpu/product.h"
#include "fathom/tensor/number_formats.h"

namespace fathom::cpu {
namespace {

struct E4m3Table {
  std::array<float, 256> value;
  E4m3Table() {
    for (size_t i = 0; i < 256; ++i) value[i] = e4m3_to_float(uint8_t(i));
  }
};

float e4m3(uint8_t code) {
  static const E4m3Table table;
  return table.value[code];
}

/// Columns [begin, begin + count) of a stored row, without scales.
void decode_codes(DType dtype, const uint8_t* row, int64_t begin, int64_t count, float* out, int64_t step) {
  switch (dtype) {
    case DType::f32:
      for (int64_t k = 0; k < count; ++k) std::memcpy(out + k * step, row + (begin + k) * 4, 4);
      return;
    case DType::bf16:
      for (int64_t k = 0; k < count; ++k) {
        uint16_t code;
        std::memcpy(&code, row + (begin + k) * 2, 2);
        out[k * step] = bf16_to_float(code);
      }
      return;
    case DType::f8_e4m3:
      for (int64_t k = 0; k < count; ++k) out[k * step] = e4m3(row[begin + k]);
      return;
    case DType::f4_e2m1:
      for (int64_t k = begin; k < begin + count; ++k) {
        out[(k - begin) * step] = e2m1_to_float(uint8_t(row[k / 2] >> (k % 2 * 4)));
      }
      return;
    default: check(false, "a product's operands are f32, bf16, f8_e4m3 or f4_e2m1");
  }
}

void decode_x(const Matrix& x, int64_t row, int64_t begin, int64_t count, DType, void* out) {
  float* values = static_cast<float*>(out);
  decode_codes(x.dtype(), x.values.row(row), begin, count, values, 1);
  if (x.scales.data) {
    const uint8_t* scales = x.scales.row(row / x.scale_rows);
    for (int64_t k = 0; k < count; ++k) values[k] *= e8m0_to_float(scales[(begin + k) / kBlock]);
  }
  for (int64_t k = count; k % kBlock != 0; ++k) values[k] = 0;
}

void decode_panel(const Panel& panel, int64_t begin, int64_t count, Tile& tile) {
  float* const values = static_cast<float*>(tile.panel);
  float* const scales = tile.scales;
  const int64_t blocks = (count + kBlock - 1) / kBlock;
  for (int i = 0; i < kPanel; ++i) {
    decode_codes(panel.dtype, panel.row(i), begin, count, values + i, kPanel);
    for (int64_t k = count; k < blocks * kBlock; ++k) values[k * kPanel + i] = 0;
    for (int64_t b = 0; b < blocks; ++b) {
      scales[b * kPanel + i] = panel.scaled() ? e8m0_to_float(panel.scales(i)[begin / kBlock + b]) : 1;
    }
  }
}

void multiply(const Tile& tile) {
  constexpr int kLanes = 16;
  for (int first = 0; first < tile.count; first += kLanes) {
    for (int64_t r = 0; r < tile.rows; ++r) {
      const float* x = reinterpret_cast<const float*>(tile.row(r));
      const float* w = static_cast<const float*>(tile.panel) + first;
      float* sums = tile.sums + r * kPanel + first;
      float sum[kLanes];
      for (int i = 0; i < kLanes; ++i) sum[i] = tile.first ? 0 : sums[i];
      for (int64_t b = 0; b < tile.blocks; ++b) {
        float block[kLanes] = {};
        for (int k = 0; k < kBlock; ++k, ++x, w += kPanel) {
#pragma GCC unroll 1
          for (int i = 0; i < kLanes; ++i) block[i] += *x * w[i];  // a loop until it is vectors
        }
        const float* scale = tile.scales + b * kPanel + first;
        for (int i = 0; i < kLanes; ++i) sum[i] += block[i] * scale[i];
      }
      for (int i = 0; i < kLanes; ++i) sums[i] = sum[i];
    }
  }
  if (tile.out) store_sums(tile.sums, tile.rows, tile.count, tile.out_dtype, tile.out, tile.out_bytes);
}

}  // namespace

void store_sums(const float* sums, int64_t rows, int count, DType dtype, uint8_t* out, int64_t out_bytes) {
  for (int64_t r = 0; r < rows; ++r, sums += kPanel, out += out_bytes) {
    if (dtype == DType::f32) {
      std::memcpy(out, sums, size_t(count) * 4);
      continue;
    }
    for (int i = 0; i < count; ++i) {
      const uint16_t code = float_to_bf16(sums[i]);
      std::memcpy(out + i * 2, &code, 2);
    }
  }
}

const ProductKernels kProductPortable = {DType::f32, 256, decode_x, decode_panel, multiply};

}  // namespace fathom::cpu
