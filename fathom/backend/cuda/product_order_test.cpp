// The order of a product's sums belongs to its weight (tiles.h): in a batch-invariant queue a row has the same bits
// alone and in any batch, on both sides of every number of rows at which another kernel or another of its variants
// takes the product. Weights whose K has one, two and four parts, with groups, of experts.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>

#include "fathom/backend/backend.h"
#include "fathom/backend/cuda/tiles.h"
#include "fathom/backend/stored_matrix.h"

namespace fathom {
namespace {

struct Types {
  const char* name;
  DType x, weight;
};
constexpr std::array<Types, 5> kTypes{{{"q8_fp8", DType::f8_e4m3, DType::f8_e4m3},
                                       {"bf16_fp8", DType::bf16, DType::f8_e4m3},
                                       {"q8_fp4", DType::f8_e4m3, DType::f4_e2m1},
                                       {"bf16_fp4", DType::bf16, DType::f4_e2m1},
                                       {"bf16_bf16", DType::bf16, DType::bf16}}};

class ProductOrderTest : public testing::TestWithParam<Types> {
 protected:
  void SetUp() override {
    if (!backend.ok()) GTEST_SKIP() << to_string(backend.error());
    queue = std::move(*backend->open_queue(1));
    queue->batch_invariant = true;
  }
  Tensor run(const Matrix& x, const Matrix& w, int groups = 1) {
    Tensor out(DType::f32, x.rows(), w.rows());
    std::fill(out.bytes.begin(), out.bytes.end(), uint8_t(0xff));  // NaN: what is not written shows
    backend->ops.linear(*queue, {x, w, out.out(), groups});
    return out;
  }
  Tensor run(const Matrix& x, std::span<const int32_t> x_row, std::span<const int32_t> begin,
             std::span<const Matrix> weights) {
    Tensor out(DType::f32, int64_t(x_row.size()), weights[0].rows());
    std::fill(out.bytes.begin(), out.bytes.end(), uint8_t(0xff));
    GroupedLinear op;
    op.x = x;
    op.x_row = {x_row.data(), {int64_t(x_row.size())}};
    op.begin = {begin.data(), {int64_t(begin.size())}};
    op.weights = weights;
    op.out = out.out();
    backend->ops.grouped_linear(*queue, op);
    return out;
  }
  Result<Backend> backend = cuda_backend();
  std::unique_ptr<Queue> queue;
};
INSTANTIATE_TEST_SUITE_P(Types, ProductOrderTest, testing::ValuesIn(kTypes),
                         [](const auto& info) { return std::string(info.param.name); });

TEST_P(ProductOrderTest, ARowHasTheSameBitsInAnyBatch) {
  struct Shape {
    int64_t n, k;
    int groups, parts;
  };
  for (const auto& [n, k, groups, parts] : std::vector<Shape>{
           {1346, 2560, 1, 4}, {4608, 2304, 1, 2}, {8200, 256, 1, 1}, {2048, 256, 8, 1}, {80, 8192, 1, 4}}) {
    SCOPED_TRACE(testing::Message() << n << " x " << k << ", groups " << groups);
    const int64_t unit = GetParam().weight == DType::bf16 ? 64 : 128;
    ASSERT_EQ(cuda::sum_parts(n / groups, groups, k / unit), parts);
    constexpr int64_t kAll = 601;
    const Stored x = stored(GetParam().x, kAll, k * groups, 1, 21), w = stored_weight(GetParam().weight, n, k, 22);
    const Tensor all = run(x, w, groups);
    for (const int64_t count : {1,   2,   7,   8,   9,   16,  17,  31,  32,  33,  64,  65,  96,  97,  128,
                                129, 160, 161, 192, 193, 224, 225, 256, 257, 320, 321, 511, 512, 513, 600}) {
      const int64_t begin = count * 37 % (kAll - count + 1);
      const Tensor some = run(Matrix(x).slice(begin, count), w, groups);
      for (int64_t r = 0; r < count; ++r) {
        ASSERT_TRUE(std::ranges::equal(some.row(r), all.row(begin + r)))
            << "row " << r << " of " << count << " from " << begin;
      }
    }
  }
}

// Thousands of rows, K in one part: tiles of 192 and of 128 rows.
TEST_P(ProductOrderTest, ThousandsOfRowsHaveTheBitsOfOne) {
  constexpr int64_t kN = 11330, kK = 384;
  ASSERT_EQ(cuda::sum_parts(kN, 1, kK / 128), 1);
  const Stored x = stored(GetParam().x, 1153, kK, 1, 23), w = stored_weight(GetParam().weight, kN, kK, 24);
  for (const int64_t count : {1153, 1100}) {
    ASSERT_FALSE(cuda::row_tiling(count, kN, 1, kK / 128).pairs);
    const Tensor all = run(Matrix(x).slice(0, count), w);
    for (const int64_t r : {int64_t(0), int64_t(127), int64_t(700), count - 1}) {
      ASSERT_TRUE(std::ranges::equal(run(Matrix(x).slice(r, 1), w).row(0), all.row(r)))
          << "row " << r << " of " << count;
    }
  }
}

// Few assignments of each expert, some, many, thousands; experts without any.
TEST_P(ProductOrderTest, AnAssignmentHasTheBitsThatItHasAlone) {
  const std::vector<std::vector<int32_t>> batches{
      {0, 1, 0, 3, 8, 9}, {16, 0, 17, 12, 2, 40}, {0, 256, 1, 300, 257, 33}, {2300, 100, 0, 1, 900, 129}};
  for (const auto& [n, k] : std::vector<std::array<int64_t, 2>>{{2320, 1280}, {200, 5120}}) {
    const Stored x = stored(GetParam().x, 50, k, 1, 25);
    std::vector<Stored> owned;
    for (size_t e = 0; e < 6; ++e) owned.push_back(stored_weight(GetParam().weight, n, k, 30 + e));
    const std::vector<Matrix> weights(owned.begin(), owned.end());
    for (const auto& counts : batches) {
      std::vector<int32_t> begin{0}, x_row;
      for (const int32_t count : counts) {
        for (int32_t i = 0; i < count; ++i) x_row.push_back((i * 7 + int32_t(begin.size())) % 50);
        begin.push_back(int32_t(x_row.size()));
      }
      const Tensor all = run(x, x_row, begin, weights);
      for (size_t e = 0; e < counts.size(); ++e) {
        for (const int32_t i : {0, counts[e] / 2, counts[e] - 1}) {
          if (counts[e] == 0) continue;
          const int32_t a = begin[e] + i, alone_begin[2] = {0, 1};
          const Tensor alone = run(x, {&x_row[size_t(a)], 1}, alone_begin, {&weights[e], 1});
          ASSERT_TRUE(std::ranges::equal(alone.row(0), all.row(a)))
              << "expert " << e << ", assignment " << a << " of " << all.rows << ", " << n << " x " << k;
        }
      }
    }
  }
}

}  // namespace
}  // namespace fathom
