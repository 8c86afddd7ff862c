// fathom/tensor/view.h
// Pointers with shapes. A view owns nothing and is passed by value; whoever made the memory keeps it alive.
#pragma once
#include <array>
#include <cstdint>
#include <span>

#include "fathom/base/check.h"
#include "fathom/tensor/dtype.h"

namespace fathom {

/// Row-major elements of a type known to the compiler. Strides are in elements; the last one is 1.
template <class T, int Rank>
struct View {
  T* data = nullptr;
  std::array<int64_t, Rank> shape{};
  std::array<int64_t, Rank> stride{};

  View() = default;
  /// Dense memory.
  View(T* memory, std::array<int64_t, Rank> dims) : data(memory), shape(dims) {
    int64_t step = 1;
    for (int i = Rank - 1; i >= 0; --i) {
      stride[size_t(i)] = step;
      step *= dims[size_t(i)];
    }
  }
  View(T* memory, std::array<int64_t, Rank> dims, std::array<int64_t, Rank> strides)
      : data(memory), shape(dims), stride(strides) {}
  /// A mutable view is a read-only one.
  template <class U>
  requires(std::is_same_v<T, const U>) View(const View<U, Rank>& other)
      : data(other.data), shape(other.shape), stride(other.stride) {}

  int64_t size() const {
    int64_t n = 1;
    for (const int64_t s : shape) n *= s;
    return n;
  }
  bool empty() const { return data == nullptr || size() == 0; }

  template <class... Index>
  T& operator()(Index... index) const {
    static_assert(sizeof...(Index) == Rank);
    const std::array<int64_t, Rank> at{int64_t(index)...};
    int64_t offset = 0;
    for (size_t i = 0; i < Rank; ++i) offset += at[i] * stride[i];
    return data[offset];
  }
  T& operator[](int64_t i) const requires(Rank == 1) { return data[i * stride[0]]; }
  /// Row `i`: a span of the last dimension for rank 2, a view of rank - 1 above.
  auto row(int64_t i) const requires(Rank >= 2) {
    if constexpr (Rank == 2) {
      return std::span<T>(data + i * stride[0], size_t(shape[1]));
    } else {
      std::array<int64_t, Rank - 1> dims, steps;
      for (size_t k = 1; k < Rank; ++k) {
        dims[k - 1] = shape[k];
        steps[k - 1] = stride[k];
      }
      return View<T, Rank - 1>(data + i * stride[0], dims, steps);
    }
  }
};

/// Rows of elements whose type is known at run time: weights and activations. Rows may lie apart (`row_stride`), the
/// elements of a row are dense. For f4_e2m1, `cols` and `row_stride` count elements, two a byte.
template <class Byte>
struct BasicAnyView {
  Byte* data = nullptr;
  DType dtype = DType::f32;
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t row_stride = 0;  // in elements

  BasicAnyView() = default;
  BasicAnyView(Byte* memory, DType type, int64_t row_count, int64_t col_count)
      : BasicAnyView(memory, type, row_count, col_count, col_count) {}
  BasicAnyView(Byte* memory, DType type, int64_t row_count, int64_t col_count, int64_t stride)
      : data(memory), dtype(type), rows(row_count), cols(col_count), row_stride(stride) {}
  template <class Other>
  requires(std::is_same_v<Byte, const Other>) BasicAnyView(const BasicAnyView<Other>& other)
      : BasicAnyView(other.data, other.dtype, other.rows, other.cols, other.row_stride) {}

  bool empty() const { return data == nullptr || rows == 0 || cols == 0; }
  Byte* row(int64_t r) const { return data + r * row_stride * bits_of(dtype) / 8; }
  /// Rows [begin, begin + count).
  BasicAnyView slice(int64_t begin, int64_t count) const { return {row(begin), dtype, count, cols, row_stride}; }
  /// Columns [begin, begin + count) of every row. For f4_e2m1 both are even.
  BasicAnyView columns(int64_t begin, int64_t count) const {
    return {data + begin * bits_of(dtype) / 8, dtype, rows, count, row_stride};
  }
  /// The same dense elements as `new_rows` rows.
  BasicAnyView reshape(int64_t new_rows, int64_t new_cols) const {
    check(row_stride == cols && new_rows * new_cols == rows * cols, "reshape needs dense rows and the same size");
    return {data, dtype, new_rows, new_cols, new_cols};
  }
  template <class T>
  auto as() const {
    using Element = std::conditional_t<std::is_const_v<Byte>, const T, T>;
    check(int(sizeof(T)) * 8 == bits_of(dtype), "element size fits the view's dtype");
    return View<Element, 2>(reinterpret_cast<Element*>(data), {rows, cols}, {row_stride, 1});
  }
};

using AnyView = BasicAnyView<const uint8_t>;
using AnyViewMut = BasicAnyView<uint8_t>;

/// A matrix as stored: values and, for the block formats, their power-of-two scales.
///   f32, bf16    no scales
///   f8_e4m3      scales f8_e8m0 [ceil(rows / scale_rows), cols / 32]: weights have scale_rows 32, activations,
///                Engram tables and cached rows 1
///   f4_e2m1      scales f8_e8m0 [rows, cols / 32]
/// Element (r, c) = value(r, c) * 2^(scale(r / scale_rows, c / 32) - 127). Source: spec/checkpoint.md 2.
struct Matrix {
  AnyView values;
  AnyView scales;
  int scale_rows = 1;

  Matrix() = default;
  Matrix(AnyView dense) : values(dense) {}
  Matrix(AnyViewMut dense) : values(dense) {}
  Matrix(AnyView codes, AnyView exponents, int rows_of_scale)
      : values(codes), scales(exponents), scale_rows(rows_of_scale) {}

  DType dtype() const { return values.dtype; }
  int64_t rows() const { return values.rows; }
  int64_t cols() const { return values.cols; }
  bool empty() const { return values.empty(); }
  /// Rows [begin, begin + count); for 32-row scale tiles both are multiples of 32 (or end at the last row).
  Matrix slice(int64_t begin, int64_t count) const {
    check(begin % scale_rows == 0, "a slice starts at a scale tile");
    if (scales.data == nullptr) return Matrix(values.slice(begin, count));
    return Matrix(values.slice(begin, count), scales.slice(begin / scale_rows, (count + scale_rows - 1) / scale_rows),
                  scale_rows);
  }
};

}  // namespace fathom
