#include "fathom/backend/tables_under_test.h"

namespace fathom {
namespace {

class RowsTest : public OverTables {};
INSTANTIATE_TEST_SUITE_P(Tables, RowsTest, all_tables(), table_name);

TEST_P(RowsTest, EmbeddingCopiesARowIntoEveryStream) {
  // 33 channels: a tail behind any vector. Values of bf16 stay exact in both activation types.
  const Tensor table = noise(DType::bf16, 5, 33, 1);
  const std::vector<int32_t> ids{4, 0, 4};
  for (const DType dtype : {DType::f32, DType::bf16}) {
    Tensor out(dtype, 3, 4 * 33);
    Embed op;
    op.ids = view(ids);
    op.table = table;
    op.out = out.out();
    op.streams = 4;
    ops().embed(queue, op);
    for (int64_t r = 0; r < 3; ++r) {
      for (int64_t i = 0; i < 4 * 33; ++i) EXPECT_EQ(out.at(r, i), table.at(ids[size_t(r)], i % 33));
    }
  }
}

TEST_P(RowsTest, GatheringMovesWholeRowsOfAnyTypeAndStride) {
  const std::vector<int32_t> index{2, 2, 0};
  for (const DType dtype : {DType::f32, DType::bf16, DType::f8_e4m3, DType::f4_e2m1}) {
    Tensor source(dtype, 3, 64), out(dtype, 3, 64);
    for (size_t i = 0; i < source.bytes.size(); ++i) source.bytes[i] = uint8_t(i * 37 + 11);
    GatherRows op;
    op.source = source;
    op.index = view(index);
    op.out = out.out();
    ops().gather_rows(queue, op);
    for (int64_t i = 0; i < 3; ++i) EXPECT_EQ(out.row(i), source.row(index[size_t(i)]));
  }
  Tensor wide = noise(DType::f32, 3, 10, 1), out(DType::f32, 3, 4);
  GatherRows op;
  op.source = AnyView(wide).columns(3, 4);  // rows of a column range lie apart
  op.index = view(index);
  op.out = out.out();
  ops().gather_rows(queue, op);
  for (int64_t i = 0; i < 3; ++i) EXPECT_EQ(out.at(i, 1), wide.at(index[size_t(i)], 4));
}

TEST_P(RowsTest, AddingIsInFloatAndMayWriteOverItsInput) {
  std::vector<float> a = noise(3 * 37, 1), sum = a;
  const std::vector<float> b = noise(3 * 37, 2);
  AddRows op;
  op.a = view(sum, 37);
  op.b = view(b, 37);
  op.out = view(sum, 37);
  ops().add_rows(queue, op);
  for (size_t i = 0; i < a.size(); ++i) EXPECT_EQ(sum[i], a[i] + b[i]);
}

}  // namespace
}  // namespace fathom
