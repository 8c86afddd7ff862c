// fathom/backend/cuda/products_under_test.h
// What the tests of the kernels for many rows share: a queue that may take them, and a comparison with the definition.
#pragma once
#include <gtest/gtest.h>

#include <cmath>

#include "fathom/backend/backend.h"
#include "fathom/backend/cuda/tiles.h"
#include "fathom/backend/stored_matrix.h"

namespace fathom {

/// Skips where there is no GPU.
class ProductsUnderTest : public testing::Test {
 protected:
  void SetUp() override {
    if (!backend.ok()) GTEST_SKIP() << to_string(backend.error());
    queue = std::move(*backend->open_queue(1));
    queue->batch_invariant = false;
  }
  Tensor run(const Stored& x, const Stored& w, DType out_type, int groups = 1) {
    Tensor out(out_type, x.values.rows, w.values.rows);
    std::fill(out.bytes.begin(), out.bytes.end(), uint8_t(0xff));  // NaN: what is not written shows
    backend->ops.linear(*queue, {x, w, out.out(), groups});
    return out;
  }
  /// Result rows against the definition, within the rounding of a chain of float sums that may cut instead of round.
  void compare(const Tensor& got, int64_t first, int64_t count, const Matrix& x, const Matrix& x_size, const Matrix& w,
               const Matrix& w_size, int groups = 1) {
    Tensor want(DType::f32, count, w.rows()), size(DType::f32, count, w.rows());
    const Operations definition = reference_operations();
    Queue plain{1};
    definition.linear(plain, {x, w, want.out(), groups});
    definition.linear(plain, {x_size, w_size, size.out(), groups});
    for (int64_t r = 0; r < count; ++r) {
      for (int64_t i = 0; i < w.rows(); ++i) {
        const double sum = double(size.at(r, i)) * double(w.cols() / 8 + 2) * 0x1p-23;
        const double bound = sum + (std::abs(double(want.at(r, i))) + sum) * rounding(got.dtype);
        ASSERT_NEAR(got.at(first + r, i), want.at(r, i), bound) << "row " << first + r << ", " << i;
      }
    }
  }
  /// The definition is slow: five rows from each of `firsts` on.
  void compare_rows(const Stored& x, const Stored& w, DType out_type, int groups,
                    std::initializer_list<int64_t> firsts) {
    const Tensor got = run(x, w, out_type, groups);
    const Stored x_size = x.absolute(), w_size = w.absolute();
    for (const int64_t first : firsts) {
      compare(got, first, 5, Matrix(x).slice(first, 5), Matrix(x_size).slice(first, 5), w, w_size, groups);
    }
  }
  /// What tiles.h chooses for this product.
  static cuda::RowTiling tiling_of(const Stored& x, const Stored& w, int groups) {
    return cuda::row_tiling(x.values.rows, w.values.rows / groups, groups, Matrix(w).cols() / 128);
  }

  Result<Backend> backend = cuda_backend();
  std::unique_ptr<Queue> queue;
};

constexpr DType kFp8 = DType::f8_e4m3, kFp4 = DType::f4_e2m1, kBf16 = DType::bf16;

}  // namespace fathom
