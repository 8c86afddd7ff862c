// fathom/checkpoint/tensor_spec.h
// What a tensor is, without its bytes: as a header declares it, or as a configuration demands it.
#pragma once
#include <algorithm>
#include <array>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>

#include "fathom/base/check.h"
#include "fathom/tensor/dtype.h"

namespace fathom {

/// Sizes of up to 8 dimensions, outermost first. A value; allocates nothing.
class Shape {
 public:
  static constexpr int kMaxRank = 8;

  Shape() = default;
  Shape(std::initializer_list<int64_t> dims) {
    for (const int64_t dim : dims) push(dim);
  }

  int rank() const { return rank_; }
  int64_t operator[](int i) const { return dims_[size_t(i)]; }
  std::span<const int64_t> dims() const { return {dims_.data(), size_t(rank_)}; }
  void push(int64_t dim) {
    check(rank_ < kMaxRank, "a shape has at most 8 dimensions");
    dims_[size_t(rank_++)] = dim;
  }
  /// Product of the dimensions; 1 for a scalar. Whoever made the shape has excluded overflow.
  int64_t elements() const {
    int64_t n = 1;
    for (const int64_t dim : dims()) n *= dim;
    return n;
  }
  friend bool operator==(const Shape& a, const Shape& b) { return std::ranges::equal(a.dims(), b.dims()); }

 private:
  std::array<int64_t, kMaxRank> dims_{};
  int rank_ = 0;
};

/// "[512, 5120]"
std::string to_string(const Shape& shape);

struct TensorSpec {
  std::string name;
  DType dtype = DType::f32;
  Shape shape;

  int64_t bytes() const { return bytes_of(dtype, shape.elements()); }
  friend bool operator==(const TensorSpec&, const TensorSpec&) = default;
};

/// 1234567 as "1,234,567": the way numbers of bytes appear in messages.
std::string with_commas(int64_t number);

}  // namespace fathom
