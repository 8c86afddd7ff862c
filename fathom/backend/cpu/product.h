// fathom/backend/cpu/product.h
// Products of activation rows with stored weights, the work of linear, grouped_linear and gate.
//
// A weight matrix stays as the checkpoint stores it. A piece of work takes 32 of its rows (32 outputs: a panel),
// decodes some hundred columns of them into a tile that lies in a near cache, and multiplies it with all rows of x. How
// an output is added up depends on nothing but the kind of elements, so a row's bits never depend on its neighbours
// (spec/engine.md R-36), on the tile or on the thread.
//
// Two kinds of elements.
// Float: both sides are decoded to float, exactly, outputs side by side. An output is the sum over blocks of 32
// columns,
//     in rising order, of scale(block) * (products of the block, added in rising order of columns), as
//     spec/model.md 3.3 writes it.
// Bf16 (AVX512-BF16): both sides are decoded to bf16 with their scales in them, which is exact too: a code has four
//     significant bits at most, and weights with scales beyond 2^-60 .. 2^60 are left to float. product_avx512_bf16.h
//     says how an output is added up. The instructions take values and sums below 2^-126 as 0 and add the two products
//     of a pair one after the other.
// So both kinds differ from the exact sum by at most
//     (K + K / 32 + 1) * 2^-24 * sum |x w|  +  (K + 1) * 2^-126 * (largest |x|, |w|, scale, or 1), and the rounding of
//     the output.
#pragma once
#include <algorithm>
#include <cstdint>

#include "fathom/backend/ops.h"

namespace fathom::cpu {

inline constexpr int kPanel = 32;  // outputs
inline constexpr int kBlock = 32;  // columns that share a scale
/// Rows [first, first + count) of a weight matrix, count <= kPanel. Rows past the end repeat the last one: vector code
/// decodes whole groups of 16.
struct Panel {
  DType dtype = DType::f32;
  int count = 0;
  const uint8_t* values = nullptr;  // of row 0
  int64_t row_bytes = 0;
  const uint8_t* scale_values = nullptr;  // of row 0; null: the format has no scales
  int64_t scale_bytes = 0;                // from one row of scales to the next
  int scale_rows = 1;                     // rows that share a row of scales
  int scale_offset = 0;                   // place of row 0 among them

  Panel(const Matrix& weight, int64_t first, int outputs)
      : dtype(weight.dtype()),
        count(outputs),
        values(weight.values.row(first)),
        row_bytes(weight.values.row_stride * bits_of(weight.dtype()) / 8),
        scale_rows(weight.scale_rows) {
    if (weight.scales.data == nullptr) return;
    scale_values = weight.scales.row(first / scale_rows);
    scale_bytes = weight.scales.row_stride;
    scale_offset = int(first % scale_rows);
  }
  const uint8_t* row(int i) const { return values + std::min(i, count - 1) * row_bytes; }
  const uint8_t* scales(int i) const {
    const int row = scale_offset + std::min(i, count - 1);
    return scale_values + (scale_rows == 1 ? row : row / scale_rows) * scale_bytes;
  }
  bool scaled() const { return scale_values != nullptr; }
  bool one_scale_row() const { return scale_offset + count <= scale_rows; }
  int scale_row_count() const { return (scale_offset + count - 1) / scale_rows + 1; }
  const uint8_t* scale_row(int i) const { return scale_values + i * scale_bytes; }
};

/// A decoded chunk of a panel and the rows that meet it.
struct Tile {
  const uint8_t* x = nullptr;      // decoded rows, at the chunk's first column
  int64_t x_stride = 0;            // bytes
  const int32_t* x_row = nullptr;  // row r is x_row[r]; null: r
  int64_t rows = 0;
  int count = 0;           // outputs
  float* sums = nullptr;   // [rows][32]
  bool first = true;       // the sums start at 0
  uint8_t* out = nullptr;  // not null: the sums are complete and go here as `out_dtype`
  int64_t out_bytes = 0;   // from one row of `out` to the next
  DType out_dtype = DType::f32;

  // Float: the panel is [columns][32], its scales [blocks][32].
  void* panel = nullptr;  // room for a decoded chunk
  float* scales = nullptr;
  int64_t blocks = 0;  // of 32 columns
  // Bf16: the panel is [lanes][steps][32 pairs of columns]; scales are in it.
  int64_t steps = 0;

  const uint8_t* row(int64_t r) const { return x + (x_row ? int64_t(x_row[r]) : r) * x_stride; }
};

/// How one instruction set does it, for one kind of elements.
struct ProductKernels {
  DType element = DType::f32;  // f32 or bf16
  int64_t chunk = 256;         // columns decoded at once
  /// Columns [begin, begin + count) of a row of x as elements in the order of `weight`, zeros up to a whole vector;
  /// room is a multiple of kRowColumns.
  void (*decode_x)(const Matrix& x, int64_t row, int64_t begin, int64_t count, DType weight, void* out) = nullptr;
  /// Columns [begin, begin + count) of a panel, count <= chunk, and its scales: fills the second half of a tile.
  void (*decode_panel)(const Panel& panel, int64_t begin, int64_t count, Tile& tile) = nullptr;
  /// Multiplies, and stores sums that are complete.
  void (*multiply)(const Tile& tile) = nullptr;
  /// The whole product of a panel and at most `few_rows` rows at once, decoding in registers, stored to tile.out. May
  /// be null. False: these rows need the way above; nothing is stored.
  bool (*multiply_few)(const Panel& panel, const Tile& tile, int64_t columns) = nullptr;
  int few_rows = 0;
  /// Whether elements hold the values of this panel. Null: always.
  bool (*takes)(const Panel& panel, int64_t columns) = nullptr;

  /// Rows of x are multiplied where they lie.
  bool reads_x(DType x, DType weight, int64_t columns) const {
    return x == element && columns % kBlock == 0 && (element == DType::f32 || weight == DType::bf16);
  }
};

/// The kernels of an instruction set: `f32` always, `bf16` where the processor multiplies bf16 (else null).
struct ProductVariant {
  const ProductKernels* f32 = nullptr;
  const ProductKernels* bf16 = nullptr;
  bool wide = false;  // AVX-512, for what goes with the products

  /// Codes whose product is wanted as float belong to a float mode (Engram's rows do): it is compared with the
  /// reference closely enough to be computed as spec/model.md 3.3 writes it, block by block.
  const ProductKernels& pick(DType x, DType weight, DType out) const {
    const bool float_mode = x == DType::f32 || (x == DType::f8_e4m3 && out == DType::f32);
    return bf16 && !float_mode && weight != DType::f32 ? *bf16 : *f32;
  }
};

/// `count` sums of each of `rows` rows as f32 or bf16; `out_bytes` from one row of `out` to the next.
void store_sums(const float* sums, int64_t rows, int count, DType dtype, uint8_t* out, int64_t out_bytes);

extern const ProductKernels kProductPortable, kProductAvx2, kProductAvx512, kProductAvx512Bf16;

void run_linear(Queue& queue, const Linear& op, const ProductVariant& variant);
void run_grouped_linear(Queue& queue, const GroupedLinear& op, const ProductVariant& variant);
/// Needs AVX2.
void run_gate(Queue& queue, const Gate& op, const ProductVariant& variant);

}  // namespace fathom::cpu
