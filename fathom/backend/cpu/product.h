// fathom/backend/cpu/product.h
// Products of activation rows with stored weights, the work of linear, grouped_linear and gate.
//
// A weight matrix stays as the checkpoint stores it. A piece of work takes 32 of its rows (32 outputs: a panel),
// decodes 256 columns of them into a tile that lies in the first cache, outputs side by side, and multiplies it with
// all rows of x. An output is the sum over blocks of 32 columns, in rising order, of
//     scale(block) * (products of the block, added in rising order of columns),
// in float, for every number of rows, place in the batch, tile and thread: a row's bits never depend on its neighbours
// (spec/engine.md R-36). The block's scale meets the sum, not the codes, as spec/model.md 3.3 writes it.
//
// Two kinds of elements. Float: both sides are decoded to float, exactly. Bf16 (AVX512-BF16): both sides are decoded to
// bf16, which is exact too for weights, and for Q8 rows whose values are normal floats (2^-126 or more; the smallest
// scale that quantize_rows writes is 2^-22). The instructions take values and sums below 2^-126 as 0 and add the two
// products of a pair one after the other. So both kinds differ from the exact sum by at most
//     (K + K / 32 + 1) * 2^-24 * sum |x w|  +  (K + 1) * 2^-126 * (largest |x|, |w|, scale, or 1), and the rounding of
//     the output.
#pragma once
#include <algorithm>
#include <cstdint>

#include "fathom/backend/ops.h"

namespace fathom::cpu {

inline constexpr int kPanel = 32;  // outputs
inline constexpr int kBlock = 32;  // columns that share a scale
inline constexpr int kMostFewRows = 8;
inline constexpr int64_t kChunk = 256;  // columns decoded at once: 16 KB as bf16

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
};

/// A decoded chunk of a panel and the rows that meet it. `panel` is [columns][32] floats, or [columns / 2][32] pairs of
/// bf16; `scales` is [blocks][32].
struct Tile {
  const uint8_t* x = nullptr;      // decoded rows, at the chunk's first column
  int64_t x_stride = 0;            // bytes
  const int32_t* x_row = nullptr;  // row r is x_row[r]; null: r
  int64_t rows = 0;
  const void* panel = nullptr;
  const float* scales = nullptr;
  int64_t blocks = 0;
  int count = 0;           // outputs
  float* sums = nullptr;   // [rows][32]
  bool first = true;       // the sums start at 0
  uint8_t* out = nullptr;  // not null: the sums are complete and go here as 32 bf16 a row, not to `sums`
  int64_t out_bytes = 0;   // from one row of `out` to the next

  const uint8_t* row(int64_t r) const { return x + (x_row ? int64_t(x_row[r]) : r) * x_stride; }
};

/// How one instruction set does it, for one kind of elements.
struct ProductKernels {
  DType element = DType::f32;  // f32 or bf16
  /// Columns [begin, begin + count) of a row of x as elements, zeros up to a multiple of kBlock.
  void (*decode_x)(const Matrix& x, int64_t row, int64_t begin, int64_t count, void* out) = nullptr;
  /// Columns [begin, begin + count) of a panel, count <= kChunk, and its scales; 1 where the format has none.
  void (*decode_panel)(const Panel& panel, int64_t begin, int64_t count, void* out, float* scales) = nullptr;
  void (*multiply)(const Tile& tile) = nullptr;
  /// `count` sums of each of `rows` rows as f32 or bf16; `out_bytes` from one row of `out` to the next.
  void (*store)(const float* sums, int64_t rows, int count, DType dtype, uint8_t* out, int64_t out_bytes) = nullptr;
  /// The whole product of a panel and at most `few_rows` rows at once, decoding in registers: sums [rows][32]. May be
  /// null.
  void (*multiply_panel)(const Panel& panel, const uint8_t* const* x, int rows, int64_t columns, float* sums) = nullptr;
  int few_rows = 0;                // at most kMostFewRows
  bool writes_whole_bf16 = false;  // multiply knows Tile::out
};

/// The kernels of an instruction set: `f32` always, `bf16` where the processor multiplies bf16 (else null).
struct ProductVariant {
  const ProductKernels* f32 = nullptr;
  const ProductKernels* bf16 = nullptr;
  bool wide = false;  // AVX-512, for what goes with the products

  const ProductKernels& pick(DType x, DType weight) const {
    return bf16 && x != DType::f32 && weight != DType::f32 ? *bf16 : *f32;
  }
};

extern const ProductKernels kProductPortable, kProductAvx2, kProductAvx512, kProductAvx512Bf16;

void run_linear(Queue& queue, const Linear& op, const ProductVariant& variant);
void run_grouped_linear(Queue& queue, const GroupedLinear& op, const ProductVariant& variant);
/// Needs AVX2.
void run_gate(Queue& queue, const Gate& op, const ProductVariant& variant);

}  // namespace fathom::cpu
