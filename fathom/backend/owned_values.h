// fathom/backend/owned_values.h
// Tensors, rows, pages and rings that own their memory, for tests and benchmarks of operations.
#pragma once
#include <numeric>
#include <utility>
#include <vector>

#include "fathom/backend/element.h"
#include "fathom/backend/ops.h"
#include "fathom/base/philox.h"

namespace fathom {

/// Rows of some type that own their memory. Not aligned beyond 16 bytes, as views may be.
struct Tensor {
  DType dtype = DType::f32;
  int64_t rows = 0, cols = 0;
  std::vector<uint8_t> bytes;

  Tensor() = default;
  Tensor(DType type, int64_t row_count, int64_t col_count)
      : dtype(type), rows(row_count), cols(col_count), bytes(size_t(bytes_of(type, row_count * col_count))) {}
  /// Rounded to f32 or bf16.
  Tensor(DType type, int64_t row_count, int64_t col_count, const std::vector<float>& values)
      : Tensor(type, row_count, col_count) {
    for (size_t i = 0; i < values.size(); ++i) store(dtype, bytes.data(), int64_t(i), values[i]);
  }
  operator AnyView() const { return {bytes.data(), dtype, rows, cols}; }
  AnyViewMut out() { return {bytes.data(), dtype, rows, cols}; }
  float at(int64_t r, int64_t c) const { return load(dtype, bytes.data(), r * cols + c); }
  /// The bytes of one row, to compare bit for bit.
  std::vector<uint8_t> row(int64_t r) const {
    const int64_t n = bytes_of(dtype, cols);
    return {bytes.begin() + r * n, bytes.begin() + (r + 1) * n};
  }
};

/// Uniform in [-1, 1), the same for the same seed.
inline std::vector<float> noise(int64_t count, uint64_t seed) {
  std::vector<float> out;
  for (int64_t i = 0; i < count; ++i) {
    out.push_back(float(philox(seed, {uint32_t(i), 0, 0, 7})[0] >> 8) * 0x1p-23f - 1);
  }
  return out;
}

inline Tensor noise(DType dtype, int64_t rows, int64_t cols, uint64_t seed) {
  return Tensor(dtype, rows, cols, noise(rows * cols, seed));
}

/// Half a unit in the last place, relative: what one rounding to the type may lose.
inline double rounding(DType dtype) { return dtype == DType::bf16 ? 0x1p-8 : 0x1p-24; }

template <class T>
View<T, 1> view(std::vector<T>& values) {
  return {values.data(), {int64_t(values.size())}};
}
template <class T>
View<const T, 1> view(const std::vector<T>& values) {
  return {values.data(), {int64_t(values.size())}};
}
template <class T>
View<T, 2> view(std::vector<T>& values, int64_t cols) {
  return {values.data(), {int64_t(values.size()) / cols, cols}};
}
template <class T>
View<const T, 2> view(const std::vector<T>& values, int64_t cols) {
  return {values.data(), {int64_t(values.size()) / cols, cols}};
}

/// Rows of a step that own their arrays: for each sequence the first position and the number of rows.
struct OwnedRows {
  std::vector<int64_t> positions;
  std::vector<int32_t> sequence, begin{0};

  OwnedRows() = default;
  OwnedRows(const std::vector<std::pair<int64_t, int64_t>>& pieces) {
    for (size_t s = 0; s < pieces.size(); ++s) {
      for (int64_t i = 0; i < pieces[s].second; ++i) {
        positions.push_back(pieces[s].first + i);
        sequence.push_back(int32_t(s));
      }
      begin.push_back(int32_t(positions.size()));
    }
  }
  operator RowSet() const { return {view(positions), view(sequence), view(begin)}; }
};

/// Pages with one kind of entry. Blocks of a sequence lie apart and out of order; what is not written is 0xee.
struct OwnedPages {
  std::vector<uint8_t> bytes;
  std::vector<int32_t> blocks;
  PagedRegion region;

  /// `gap`: bytes behind a block.
  OwnedPages(int64_t sequences, int64_t entries, int entry_bytes, int entries_per_block, int gap = 24) {
    const int64_t per_sequence = (entries + entries_per_block - 1) / entries_per_block + 1;
    const int64_t count = sequences * per_sequence, stride = int64_t(entries_per_block) * entry_bytes + gap;
    bytes.assign(size_t(count * stride), 0xee);
    // A step that shares no factor with the count visits every block once.
    int64_t step = count / 2 + 1;
    while (std::gcd(step, count) != 1) ++step;
    for (int64_t i = 0; i < count; ++i) blocks.push_back(int32_t(i * step % count));
    region.base = bytes.data();
    region.block_stride = stride;
    region.entries_per_block = entries_per_block;
    region.entry_bytes = entry_bytes;
    region.blocks = view(std::as_const(blocks), per_sequence);
  }
  OwnedPages(const OwnedPages&) = delete;
};

/// Rings with one kind of entry, slots in falling order; what is not written is 0xee.
struct OwnedRings {
  std::vector<uint8_t> bytes;
  std::vector<int32_t> slots;
  RingRegion region;

  OwnedRings(int64_t sequences, int capacity, int entry_bytes) {
    const int64_t stride = int64_t(capacity) * entry_bytes + 40;
    bytes.assign(size_t(sequences * stride), 0xee);
    for (int64_t s = sequences; s-- > 0;) slots.push_back(int32_t(s));
    region.base = bytes.data();
    region.slot_stride = stride;
    region.capacity = capacity;
    region.entry_bytes = entry_bytes;
    region.slots = view(std::as_const(slots));
  }
  OwnedRings(const OwnedRings&) = delete;
};

}  // namespace fathom
