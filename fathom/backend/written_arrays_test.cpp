#include "fathom/backend/written_arrays.h"

#include <gtest/gtest.h>

#include <cmath>

#include "fathom/backend/cpu/isa.h"
#include "fathom/backend/kernel_cases.h"

namespace fathom {
namespace {

struct Sum {
  std::vector<float> a, b;
  AddRows op() {
    return {View<const float, 2>(a.data(), {1, int64_t(a.size())}),
            View<const float, 2>(b.data(), {1, int64_t(b.size())}),
            View<float, 2>(a.data(), {1, int64_t(a.size())})};  // in place
  }
};

/// A table whose sums are off by `Hundredths` of one in the first column.
template <int Hundredths>
Operations wrong_sums() {
  Operations table = reference_operations();
  table.add_rows = [](Queue& queue, const AddRows& op) {
    reference_operations().add_rows(queue, op);
    op.out(0, 0) += float(Hundredths) / 100;
  };
  return table;
}

TEST(WrittenArrays, AnErrorIsTheLargestDifferenceOverTheLargestMagnitude) {
  Sum sum{{1, -3, 2}, {1, -5, 0.5f}};
  Queue queue(1);
  EXPECT_EQ(error_of_entry<&Operations::add_rows>(reference_operations(), queue, sum.op()), 0);
  EXPECT_NEAR(error_of_entry<&Operations::add_rows>(wrong_sums<4>(), queue, sum.op()), 0.04 / 8, 1e-7);
}

TEST(WrittenArrays, WhatIsReadAndWrittenStaysAsItWas) {
  Sum sum{{1, -3, 2}, {1, -5, 0.5f}};
  Queue queue(1);
  error_of_entry<&Operations::add_rows>(wrong_sums<4>(), queue, sum.op());
  EXPECT_EQ(sum.a, (std::vector<float>{1, -3, 2}));
}

TEST(WrittenArrays, ANumberOnOneSideOnlyIsAnErrorOfOneAndOnNeitherIsNone) {
  Sum sum{{NAN, 1}, {1, 1}};
  Queue queue(1);
  EXPECT_EQ(error_of_entry<&Operations::add_rows>(reference_operations(), queue, sum.op()), 0);
  Operations table = reference_operations();
  table.add_rows = [](Queue&, const AddRows& op) { op.out(0, 0) = op.out(0, 1) = 2; };
  EXPECT_EQ(error_of_entry<&Operations::add_rows>(table, queue, sum.op()), 1);
}

TEST(WrittenArrays, OfChoicesTheShareCountsThatDiffers) {
  std::vector<int32_t> chosen{7, 8, 9, 10};
  WrittenArray array;
  array.choices = true;
  const std::vector<WrittenArray> arrays{array};
  EXPECT_EQ(error_of(arrays, {{7, 8, 9, 10}}, {{7, 8, 9, 10}}), 0);
  EXPECT_EQ(error_of(arrays, {{7, 8, 9, 10}}, {{7, 8, 9, 11}}), 0.25);
}

// Every operation that `fathom bench kernels` times. bf16 is off by at most 2^-8 of a number, and its largest rounding
// may fall to the other side; codes by a step of their largest: E4M3 2^-4, E2M1 a third. Choices among random scores
// are the same but for ties.
TEST(WrittenArrays, EveryOperationOfTheMiniatureIsCloseToItsDefinition) {
  const Operations ops = cpu::cpu_operations(cpu::detected_processor());
  Queue queue(2);
  for (const KernelCase& c : kernel_cases(0, 1 << 20)) {
    if (c.model != "miniature") continue;
    const auto make = c.open();
    ASSERT_TRUE(make.ok()) << c.op;
    for (const int64_t rows : {1, 3}) {
      const auto run = (*make)(rows);
      ASSERT_TRUE(run.ok()) << c.op;
      const bool fp4 = c.weights == "q4k" || c.weights == "q4i";
      const double bound = c.op == "encode_rows" && fp4                       ? 0.34
                           : c.op == "encode_rows" || c.op == "quantize_rows" ? 0.07
                                                                              : 0.0079;
      EXPECT_LE(run->error(ops, queue), bound) << c.op << " " << c.weights << " " << c.shape << " " << c.place;
      EXPECT_EQ(run->error(reference_operations(), queue), 0) << c.op;
    }
  }
}

}  // namespace
}  // namespace fathom
