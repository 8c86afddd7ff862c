#include "fathom/backend/tables_under_test.h"

namespace fathom {
namespace {

class RmsNormTest : public OverTables {
 protected:
  static Tensor run(const Operations& table, Queue& queue, const Tensor& x, const Tensor& weight, float eps) {
    Tensor out(x.dtype, x.rows, x.cols);
    RmsNorm op;
    op.x = x;
    op.weight = weight;
    op.out = out.out();
    op.eps = eps;
    table.rms_norm(queue, op);
    return out;
  }
};
INSTANTIATE_TEST_SUITE_P(Tables, RmsNormTest, all_tables(), table_name);

TEST_P(RmsNormTest, DividesByTheRootOfTheMeanSquare) {
  // mean of squares (9 + 16 + 0 + 0) / 4 = 6.25, root 2.5
  const Tensor x(DType::f32, 1, 4, {3, 4, 0, 0}), weight(DType::f32, 1, 4, {1, 2, 5, 5});
  const Tensor out = run(ops(), queue, x, weight, 0);
  EXPECT_FLOAT_EQ(out.at(0, 0), 1.2f);
  EXPECT_FLOAT_EQ(out.at(0, 1), 3.2f);
  EXPECT_EQ(out.at(0, 2), 0);
}

TEST_P(RmsNormTest, ARowOfZerosGivesZerosWithoutNan) {
  for (const float eps : {0.0f, 1e-20f}) {
    const Tensor x(DType::bf16, 2, 48), weight = noise(DType::bf16, 1, 48, 1);
    const Tensor out = run(ops(), queue, x, weight, eps);
    for (int64_t i = 0; i < 48; ++i) EXPECT_EQ(out.at(1, i), 0);
  }
}

TEST_P(RmsNormTest, AgreesWithTheDefinitionAndDoesNotDependOnNeighbours) {
  // 1 and 15: less than a vector; 16, 17: one and a tail; 256, 5120: hidden sizes of the miniature and the model.
  for (const int64_t dim : {1, 15, 16, 17, 256, 1280, 5120}) {
    for (const DType dtype : {DType::f32, DType::bf16}) {
      const Tensor x = noise(dtype, 70, dim, 1), weight = noise(DType::bf16, 1, dim, 2);
      const Tensor want = run(definition(), queue, x, weight, 1e-20f), got = run(ops(), queue, x, weight, 1e-20f);
      // dim / 8 additions a lane at worst, each off by 2^-24, halved by the root; 8 roundings around; then the store.
      const double bound = (double(dim) / 16 + 8) * 0x1p-24 + 2 * rounding(dtype);
      for (int64_t r : {int64_t(0), int64_t(69)}) {
        for (int64_t i = 0; i < dim; ++i) {
          ASSERT_NEAR(got.at(r, i), want.at(r, i), bound * std::abs(want.at(r, i))) << dim << " at " << i;
        }
        Tensor alone(dtype, 1, dim);
        alone.bytes = x.row(r);
        EXPECT_EQ(run(ops(), queue, alone, weight, 1e-20f).bytes, got.row(r));
      }
    }
  }
}

TEST_P(RmsNormTest, MayWriteOverItsInput) {
  Tensor x = noise(DType::bf16, 3, 96, 1);
  const Tensor weight = noise(DType::bf16, 1, 96, 2), apart = run(ops(), queue, x, weight, 1e-6f);
  RmsNorm op;
  op.x = x;
  op.weight = weight;
  op.out = x.out();
  op.eps = 1e-6f;
  ops().rms_norm(queue, op);
  EXPECT_EQ(x.bytes, apart.bytes);
}

}  // namespace
}  // namespace fathom
