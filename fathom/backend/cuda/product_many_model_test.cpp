// The kernel of product_many.cuh, its own text, run by a model of the machine (warpgroup_model.h): its roles, rings and
// barriers, the places of operands, which registers hold what and until when, tiles and their edges, results. On a
// device the same is shown by product_many_test.cpp; here by any machine, and asynchronous things are as late as they
// may be.
#include "fathom/backend/cuda/many_text.h"
#include "fathom/backend/cuda/product_cases.h"

namespace fathom::cuda_model {
namespace {

/// most_rows: of a row tile, MostRows or less.
template <DType Type, int MostRows>
void run(const Case& c, int most_rows = MostRows) {
  using Shape = ManyShape<Type, MostRows>;
  SCOPED_TRACE(testing::Message() << name_of(Type) << ", tiles of " << most_rows << ", " << c.rows << " rows, " << c.n
                                  << " x " << c.k << " x " << c.groups);
  ProductCase product(c, Type, most_rows);
  const Product& p = product.p;
  const ProductGrid grid = product_grid(p, most_rows, kManyWeightRows, Shape::kColumns);
  machine::run_warpgroups({.blocks = c.blocks, .threads = Shape::kThreads},
                          [&] { many_kernel<Type, MostRows>(p, grid); });
  product.expect_product(double(c.k) / 16 * 0x1p-24);  // float sums of 16 columns each
}

template <int MostRows>
void run_all(const Case& c, int most_rows = MostRows) {
  run<DType::bf16, MostRows>(c, most_rows);
  run<DType::f8_e4m3, MostRows>(c, most_rows);
  run<DType::f4_e2m1, MostRows>(c, most_rows);
}

// 330 weight rows end inside a tile of 192 and inside a warp's 16; 200 rows are two row tiles, of 128 and 96; 512
// columns are four steps of a ring of three or four or, bf16, eight of one of four or five.
TEST(ManyProductModelTest, TilesAndTheirEdgesAreTheProduct) {
  run_all<160>({.rows = 200, .n = 330, .k = 512}, 128);
  run_all<192>({.rows = 190, .n = 330, .k = 512});
}

// One block has four tiles in turn: the ring goes on from one to the next, five steps each. Row tiles of 96 and 64.
TEST(ManyProductModelTest, ABlockTakesTilesInTurns) {
  run_all<160>({.rows = 130, .n = 194, .k = 640, .out = DType::bf16, .blocks = 1}, 96);
}

TEST(ManyProductModelTest, GroupsMeetTheirOwnColumns) {
  run_all<160>({.rows = 40, .n = 396, .k = 128, .out = DType::bf16, .groups = 2}, 128);
}

// Few rows, none, one, exactly a step, more than a tile, each number of rows that has code of its own; rows of x are
// gathered.
TEST(ManyProductModelTest, ExpertsHaveAsManyRowsAsTheyHave) {
  run_all<160>({.rows = 582, .n = 192, .k = 256, .begin = {0, 5, 5, 6, 38, 88, 169, 289, 420, 582}});
  run_all<192>({.rows = 330, .n = 192, .k = 256, .begin = {0, 5, 5, 6, 150, 330}});
}

// So many experts that their tiles stay in their order.
TEST(ManyProductModelTest, ManyExpertsKeepTheirOrder) {
  Case c = {.rows = 0, .n = 66, .k = 128, .begin = {0}};
  for (int e = 0; e < 40; ++e) c.begin.push_back(int32_t(c.rows += e * 7 % 5));
  run<DType::f4_e2m1, 160>(c);
}

// Above 2 (FP4) or 2^7 (FP8) a code's factor is beyond bf16.
TEST(ManyProductModelTest, ScalesOfWeightsMayBeLarge) {
  const Case c = {.rows = 17, .n = 192, .k = 256, .blocks = 1, .low = 120, .high = 150};
  run<DType::f8_e4m3, 160>(c);
  run<DType::f4_e2m1, 160>(c);
}

}  // namespace
}  // namespace fathom::cuda_model
