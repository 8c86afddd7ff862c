// Products with few rows on the device: against the definition, and bit for bit a row alone, in batches on both sides
// of its thresholds, and as an expert's. From the released formats: Q8 rows, FP8 weights of 32 x 32, FP4 weights.
// Across kernels: product_order_test.cpp.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "fathom/backend/backend.h"
#include "fathom/backend/stored_matrix.h"

namespace fathom {
namespace {

Tensor run(const Operations& ops, Queue& queue, const Matrix& x, const Matrix& w, int groups = 1) {
  Tensor out(DType::f32, x.rows(), w.rows());
  Linear op;
  op.x = x;
  op.weight = w;
  op.out = out.out();
  op.groups = groups;
  ops.linear(queue, op);
  return out;
}

/// A weight's type, and whether the queue is batch-invariant: each has its order of sums.
using Case = std::pair<DType, bool>;
class FewRowsTest : public testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    if (!backend.ok()) GTEST_SKIP() << to_string(backend.error());
    queue = std::move(*backend->open_queue(1));
    queue->batch_invariant = GetParam().second;
  }
  const DType weight_type = GetParam().first;
  Result<Backend> backend = cuda_backend();
  std::unique_ptr<Queue> queue;
};
INSTANTIATE_TEST_SUITE_P(Weights, FewRowsTest,
                         testing::Values(Case(DType::f8_e4m3, false), Case(DType::f8_e4m3, true),
                                         Case(DType::f4_e2m1, false), Case(DType::f4_e2m1, true)),
                         [](const auto& info) {
                           return std::string(name_of(info.param.first)) + (info.param.second ? "_invariant" : "");
                         });

// K: one step; half a stage of FP4; two segments of nine steps; four of ten; a K whose rows do not fit (another
// kernel). N: not a tile's, one, many of a block.
TEST_P(FewRowsTest, AgreesWithTheDefinition) {
  for (const auto& [rows, n, k, groups] : std::vector<std::array<int64_t, 4>>{{1, 16, 128, 1},
                                                                              {3, 40, 384, 1},
                                                                              {8, 100, 2304, 1},
                                                                              {9, 33, 5120, 1},
                                                                              {16, 64, 1280, 1},
                                                                              {33, 48, 2304, 1},
                                                                              {2, 256, 512, 4},
                                                                              {11, 16, 30720, 1}}) {
    SCOPED_TRACE(testing::Message() << rows << " x " << n << " x " << k << ", groups " << groups);
    const Stored x = stored(DType::f8_e4m3, rows, k * groups, 1, 3), w = stored_weight(weight_type, n, k, 4);
    const Operations definition = reference_operations();
    Queue host{1};
    const Tensor got = run(backend->ops, *queue, x, w, int(groups));
    const Tensor want = run(definition, host, x, w, int(groups));
    const Tensor size = run(definition, host, x.absolute(), w.absolute(), int(groups));
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t i = 0; i < n; ++i) {
        ASSERT_NEAR(got.at(r, i), want.at(r, i), double(size.at(r, i)) * double(k + k / 32 + 2) * 0x1p-24)
            << r << ", " << i;
      }
    }
  }
}

// Above 2 (FP4) or 2^7 (FP8) a code's factor is beyond bf16; 2^-60 leaves values far below one. And rows of bf16.
TEST_P(FewRowsTest, ScalesMayBeLargeOrSmallAndRowsBf16) {
  const Operations definition = reference_operations();
  Queue host{1};
  for (const DType type : {DType::f8_e4m3, DType::bf16}) {
    for (const auto& [low, high] : {std::pair{120, 150}, {60, 80}, {127, 129}}) {
      for (const int64_t rows : {1, 13}) {
        SCOPED_TRACE(testing::Message() << name_of(type) << ", scales from 2^" << low - 127 << ", rows " << rows);
        const Stored x = stored(type, rows, 640, 1, 13), w = stored_weight(weight_type, 50, 640, 14, low, high);
        const Tensor got = run(backend->ops, *queue, x, w), want = run(definition, host, x, w),
                     size = run(definition, host, x.absolute(), w.absolute());
        for (int64_t r = 0; r < rows; ++r) {
          for (int64_t i = 0; i < 50; ++i) {
            ASSERT_NEAR(got.at(r, i), want.at(r, i), double(size.at(r, i)) * 660 * 0x1p-24) << r << ", " << i;
          }
        }
      }
    }
  }
}

// Not batch-invariant: as long as this kernel takes them, of a small weight up to 64.
TEST_P(FewRowsTest, ARowHasTheSameBitsInAnyBatch) {
  for (const int64_t k : {512, 2304, 5120}) {
    const Stored x = stored(DType::f8_e4m3, 47, k, 1, 5), w = stored_weight(weight_type, 72, k, 6);
    const Tensor all = run(backend->ops, *queue, x, w);
    for (const int64_t count : {1, 2, 8, 9, 16, 17, 32, 33}) {
      for (const int64_t begin : {int64_t(0), int64_t(5), 47 - count}) {
        if (begin + count > 47) continue;
        const Tensor some = run(backend->ops, *queue, Matrix(x).slice(begin, count), w);
        for (int64_t r = 0; r < count; ++r) {
          EXPECT_EQ(std::memcmp(some.row(r).data(), all.row(begin + r).data(), some.row(r).size()), 0)
              << "K " << k << ", row " << r << " of " << count << " from " << begin;
        }
      }
    }
  }
}

// Experts with none, one, eight, nine, seventeen and more rows, in an order of x's rows that is not theirs.
TEST_P(FewRowsTest, AnExpertsRowsAreThoseOfItsWeightAlone) {
  const std::vector<int64_t> counts{0, 1, 8, 9, 0, 17, 3, 40, 0};
  const std::vector<int32_t> one{0, 1};
  for (const auto& [n, k] : std::vector<std::array<int64_t, 2>>{{2320, 512}, {72, 2304}, {40, 5120}}) {
    const Stored x = stored(DType::f8_e4m3, 30, k, 1, 7);
    std::vector<Stored> weights;
    std::vector<int32_t> begin{0}, x_row;
    for (size_t e = 0; e < counts.size(); ++e) {
      weights.push_back(stored_weight(weight_type, n, k, 10 + e));
      for (int64_t i = 0; i < counts[e]; ++i) x_row.push_back(int32_t((i * 7 + int64_t(e)) % 30));
      begin.push_back(int32_t(x_row.size()));
    }
    const std::vector<Matrix> views(weights.begin(), weights.end());
    Tensor out(DType::f32, int64_t(x_row.size()), n);
    GroupedLinear op;
    op.x = x;
    op.x_row = view(std::as_const(x_row));
    op.begin = view(std::as_const(begin));
    op.weights = views;
    op.out = out.out();
    backend->ops.grouped_linear(*queue, op);
    for (size_t e = 0; e < counts.size(); ++e) {
      for (int32_t a = begin[e]; a < begin[e + 1]; ++a) {
        Tensor alone(DType::f32, 1, n);
        backend->ops.grouped_linear(*queue,
                                    {Matrix(x).slice(x_row[size_t(a)], 1), {}, view(one), {&views[e], 1}, alone.out()});
        EXPECT_EQ(std::memcmp(alone.row(0).data(), out.row(a).data(), alone.row(0).size()), 0)
            << "expert " << e << ", assignment " << a << ", N " << n << ", K " << k;
      }
    }
  }
}

// Each product of a chain begins before the one ahead has ended, and waits for its rows.
TEST_P(FewRowsTest, AChainOfProductsAndQuantizersIsInOrder) {
  constexpr int64_t kSide = 1024;
  const Stored start = stored(DType::f8_e4m3, 3, kSide, 1, 11), w = stored_weight(weight_type, kSide, kSide, 12);
  const auto device = [&](const Tensor& host) {
    auto memory = backend->memory.allocate(int64_t(host.bytes.size()));
    backend->memory.copy(memory->data(), host.bytes.data(), int64_t(host.bytes.size()));
    return std::move(*memory);
  };
  const Buffer values = device(w.values), scales = device(w.scales), codes = device(start.values),
               code_scales = device(start.scales);
  const Matrix weights(AnyView(values.data(), w.values.dtype, kSide, kSide),
                       AnyView(scales.data(), DType::f8_e8m0, w.scales.rows, kSide / 32), w.scale_rows);
  auto memory = backend->memory.allocate(3 * kSide * 2);
  const AnyViewMut out{memory->data(), DType::bf16, 3, kSide};
  const AnyViewMut x_codes{const_cast<uint8_t*>(codes.data()), DType::f8_e4m3, 3, kSide},
      x_scales{const_cast<uint8_t*>(code_scales.data()), DType::f8_e8m0, 3, kSide / 32};
  std::vector<uint8_t> first, again(3 * kSide * 2);
  for (int repeat = 0; repeat < 20; ++repeat) {
    backend->memory.copy(x_codes.data, start.values.bytes.data(), 3 * kSide);
    backend->memory.copy(x_scales.data, start.scales.bytes.data(), 3 * kSide / 32);
    for (int i = 0; i < 6; ++i) {
      backend->ops.linear(*queue, {Matrix(AnyView(x_codes), AnyView(x_scales), 1), weights, out, 1});
      backend->ops.quantize_rows(*queue, {AnyView(out), x_codes, x_scales});
      if (repeat == 0) queue->wait();
    }
    queue->wait();
    backend->memory.copy(again.data(), memory->data(), int64_t(again.size()));
    if (repeat == 0) first = again;
    EXPECT_EQ(again, first) << repeat;
  }
}

}  // namespace
}  // namespace fathom
