// The kernel of product_many.cuh, its own text, run by a model of the machine (warpgroup_model.h): its roles, rings and
// barriers, the places of operands, which registers hold what and until when, tiles and their edges, results. On a
// device the same is shown by product_many_test.cpp; here by any machine, and asynchronous things are as late as they
// may be.
#include "fathom/backend/cuda/many_text.h"
#include "fathom/backend/cuda/product_cases.h"

namespace fathom::cuda_model {
namespace {

template <DType Type, int XRows>
void run(const Case& c) {
  SCOPED_TRACE(testing::Message() << name_of(Type) << ", tiles of " << XRows << ", " << c.rows << " rows, " << c.n
                                  << " x " << c.k << " x " << c.groups);
  ProductCase product(c, Type, XRows);
  const Product& p = product.p;
  machine::run_warpgroups({.blocks = c.blocks, .threads = ManyShape<Type, XRows>::kThreads},
                          [&] { many_kernel<Type, XRows>(p, many_tiles<Type, XRows>(p)); });
  product.expect_product(double(c.k) / 16 * 0x1p-24);  // float sums of 16 columns each
}

template <int XRows>
void run_all(const Case& c) {
  run<DType::bf16, XRows>(c);
  run<DType::f8_e4m3, XRows>(c);
  run<DType::f4_e2m1, XRows>(c);
}

// 330 weight rows end inside a tile of 192 and inside a warp's 16; 200 rows are two row tiles; 512 columns are four
// steps of a ring of three or, bf16, eight of one of four or six.
TEST(ManyProductModelTest, TilesAndTheirEdgesAreTheProduct) {
  run_all<128>({.rows = 200, .n = 330, .k = 512});
  run_all<192>({.rows = 200, .n = 330, .k = 512});
}

// One block has four tiles in turn: the ring goes on from one to the next, five steps each.
TEST(ManyProductModelTest, ABlockTakesTilesInTurns) {
  run_all<128>({.rows = 130, .n = 194, .k = 640, .out = DType::bf16, .blocks = 1});
}

TEST(ManyProductModelTest, GroupsMeetTheirOwnColumns) {
  run_all<128>({.rows = 40, .n = 396, .k = 128, .out = DType::bf16, .groups = 2});
}

// Few rows, none, one, more than a tile, some; rows of x are gathered.
TEST(ManyProductModelTest, ExpertsHaveAsManyRowsAsTheyHave) {
  run_all<128>({.rows = 166, .n = 192, .k = 256, .begin = {0, 5, 5, 6, 150, 166}});
}

// Above 2 (FP4) or 2^7 (FP8) a code's factor is beyond bf16.
TEST(ManyProductModelTest, ScalesOfWeightsMayBeLarge) {
  const Case c = {.rows = 17, .n = 192, .k = 256, .blocks = 1, .low = 120, .high = 150};
  run<DType::f8_e4m3, 128>(c);
  run<DType::f4_e2m1, 128>(c);
}

}  // namespace
}  // namespace fathom::cuda_model
