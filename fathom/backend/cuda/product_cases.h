// fathom/backend/cuda/product_cases.h
// Products for kernels that a model of the machine runs (machine_model.h), and their results against the definition.
#pragma once
#include <gtest/gtest.h>

#include "fathom/backend/cuda/machine_model.h"
#include "fathom/backend/cuda/stored_values.h"

namespace fathom::cuda_model {

struct Case {
  int64_t rows, n, k;
  DType out = DType::f32;
  unsigned blocks = 2;
  int groups = 1;
  std::vector<int32_t> begin = {};  // of experts
  int low = 122, high = 133;        // scales of weights
  int64_t behind = 2;               // columns of a row of the result that are not the product's
};
constexpr int64_t kGathered = 37;  // rows of x that experts' assignments name

inline std::vector<double> values_of(const Stored& of) {
  std::vector<double> out;
  for (int64_t r = 0; r < of.values.rows; ++r) {
    for (int64_t c = 0; c < of.values.cols; ++c) out.push_back(value_of(of, r, c));
  }
  return out;
}

/// x as arrange_tiles.cu lays it out: tiles of 64 columns of each row tile, pairs of columns in the order of a weight
/// type. most_rows: of each row tile. Rows that do not exist are NaN.
inline std::vector<uint16_t> arranged(const Stored& x, const std::vector<int32_t>& row_of, DType weight,
                                      const std::vector<int32_t>& begin, int most_rows) {
  const int64_t columns = x.values.cols;
  int64_t rows = 0, first = 0;
  for (size_t e = 0; e + 1 < begin.size(); ++e) rows += padded_rows(begin[e + 1] - begin[e]);
  std::vector<uint16_t> out(size_t(rows * columns), 0x7fc0);
  for (size_t e = 0; e + 1 < begin.size(); ++e) {
    const int count = begin[e + 1] - begin[e];
    for (int a = 0; a < count; ++a) {
      const int own = tile_rows(count, most_rows);
      const int tile = a / own, row = a % own, here = std::min(own, padded_rows(count) - tile * own);
      for (int64_t column = 0; column < columns; ++column) {
        const int inside = int(column % 64), k = inside % 32;
        int piece = inside / 8, element = inside % 8;
        if (weight == DType::f4_e2m1) {
          piece = inside / 32 * 4 + k % 4, element = 2 * (k / 8) + k % 8 / 4;
        } else if (weight == DType::f8_e4m3) {
          piece = inside / 32 * 4 + 2 * (k / 16) + k % 2, element = 2 * (k % 16 / 4) + k % 4 / 2;
        }
        const int64_t at =
            (first + tile * own) * columns + column / 64 * (here * 64) + row * 64 + (piece ^ (row & 7)) * 8 + element;
        out[size_t(at)] = float_to_bf16(float(value_of(x, row_of[size_t(begin[e] + a)], column)));
      }
    }
    first += padded_rows(count);
  }
  return out;
}

/// A case's operands and room for its result.
struct ProductCase {
  Case c;
  Stored x;
  std::vector<Stored> weights;
  std::vector<WeightPointers> pointers;
  std::vector<int32_t> rows, begin;
  std::vector<uint16_t> wide;
  Tensor out;
  Product p;

  /// most_rows: as arranged(); 0: x is given as it is, Q8.
  ProductCase(const Case& given, DType type, int most_rows) : c(given) {
    const int experts = std::max(1, int(c.begin.size()) - 1);
    const DType x_type = type == DType::bf16 ? DType::bf16 : DType::f8_e4m3;
    x = stored(x_type, c.begin.empty() ? c.rows : kGathered, c.k * c.groups, 1, 5);
    for (int e = 0; e < experts; ++e) {
      const uint64_t seed = uint64_t(e) + 9;
      weights.push_back(type == DType::bf16 ? stored(type, c.n, c.k, 1, seed)
                                            : stored_weight(type, c.n, c.k, seed, c.low, c.high));
    }
    for (const Stored& one : weights) pointers.push_back({one.values.bytes.data(), one.scales.bytes.data()});
    for (int64_t a = 0; a < c.rows; ++a) rows.push_back(int32_t(c.begin.empty() ? a : a * 11 % kGathered));
    begin = c.begin.empty() ? std::vector<int32_t>{0, int32_t(c.rows)} : c.begin;
    if (most_rows > 0) wide = arranged(x, rows, type, begin, most_rows);
    out = Tensor(c.out, c.rows, c.n + c.behind);
    std::fill(out.bytes.begin(), out.bytes.end(), uint8_t(0xff));

    p.x = most_rows == 0 ? x.values.bytes.data() : reinterpret_cast<const uint8_t*>(wide.data());
    p.x_stride = x.values.cols;
    p.x_scales = x.scales.bytes.data();
    p.x_scale_stride = x.scales.cols;
    p.rows = c.rows;
    p.weight = pointers[0];
    if (!c.begin.empty()) {
      p.x_row = rows.data();
      p.experts = pointers.data();
      p.begin = begin.data();
      p.expert_count = experts;
    }
    p.weight_stride = c.k;
    p.scale_stride = c.k / 32;
    p.scale_rows = weights[0].scale_rows;
    p.n = c.n;
    p.k = c.k;
    p.groups = c.groups;
    p.out = out.bytes.data();
    p.out_type = c.out;
    p.out_stride = c.n + c.behind;
  }
  ProductCase(const ProductCase&) = delete;

  /// sum_error: of a sum of K products, in units of the sum of their magnitudes. The result is rounded to float, and
  /// from there to bf16.
  void expect_product(double sum_error) const {
    const std::vector<double> x_values = values_of(x);
    size_t expert = 0;
    std::vector<double> weight_values = values_of(weights[0]);
    for (int64_t a = 0; a < c.rows; ++a) {
      for (; a >= begin[expert + 1]; weight_values = values_of(weights[expert])) ++expert;
      for (int64_t n = 0; n < c.n; ++n) {
        const double* left = &weight_values[size_t(n * c.k)];
        const double* right = &x_values[size_t(rows[size_t(a)] * x.values.cols + n / (c.n / c.groups) * c.k)];
        double want = 0, size = 0;
        for (int64_t k = 0; k < c.k; ++k) {
          want += left[k] * right[k];
          size += std::abs(left[k] * right[k]);
        }
        const double rounded = c.out == DType::bf16 ? rounding(c.out) + 0x1p-24 : 0x1p-24;
        ASSERT_NEAR(out.at(a, n), want, rounded * std::abs(want) + sum_error * size) << "row " << a << ", " << n;
      }
      for (int64_t n = c.n; n < c.n + c.behind; ++n)
        ASSERT_TRUE(std::isnan(out.at(a, n))) << "written behind row " << a;
    }
  }
};

}  // namespace fathom::cuda_model
