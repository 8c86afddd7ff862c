// The kernel of product_memory.cuh, its own text, run by a model of the machine (tensor_memory_model.h): its roles,
// rings and barriers, the places of operands and scales, tiles and their edges, results. What a GPU has to show yet:
// that the manual was read right, fences, how sums round, and speed.
#include "fathom/backend/cuda/sm100/tensor_memory_model.h"
// The names that it needs come before it.
#include "fathom/backend/cuda/product_cases.h"
#include "fathom/backend/cuda/sm100/kernel_text.h"

namespace fathom::cuda_model::sm100 {
namespace {

template <DType Type, bool Scaled>
void run(const Case& c) {
  SCOPED_TRACE(testing::Message() << name_of(Type) << (Scaled ? " scaled" : "") << ", " << c.rows << " rows, " << c.n
                                  << " x " << c.k << " x " << c.groups);
  ProductCase product(c, Type, Scaled ? 0 : kPairRows);
  const Product& p = product.p;
  model::run_blocks(c.blocks, kThreads, [&] { memory_kernel<Type, Scaled>(p, memory_tiles<Type, Scaled>(p)); });
  product.expect_product(double(c.k) * 0x1p-52);  // sums are double
}

void run_all(const Case& c) {
  run<DType::bf16, false>(c);
  run<DType::f8_e4m3, false>(c);
  run<DType::f4_e2m1, false>(c);
  run<DType::f8_e4m3, true>(c);
  run<DType::f4_e2m1, true>(c);
}

// 130 and 194 weight rows end inside a tile of 128; 200 rows are one tile of 224 or two of 128 (scaled); 384 columns of
// bf16 are six steps of a ring of four.
TEST(MemoryProductTest, TilesAndTheirEdgesAreTheProduct) { run_all({.rows = 200, .n = 194, .k = 384}); }

// One block has both row tiles and both tiles of weights in turn: two sets of sums, each used again.
TEST(MemoryProductTest, ABlockTakesTilesInTurns) {
  run_all({.rows = 264, .n = 130, .k = 128, .out = DType::bf16, .blocks = 1});
}

TEST(MemoryProductTest, GroupsMeetTheirOwnColumns) {
  run_all({.rows = 40, .n = 264, .k = 128, .out = DType::bf16, .groups = 3});
}

// Few rows, none, more than a tile, some; rows of x are gathered. Steps of 128 columns: six of a ring of five.
TEST(MemoryProductTest, ExpertsHaveAsManyRowsAsTheyHave) {
  run_all({.rows = 280, .n = 128, .k = 768, .begin = {0, 5, 5, 262, 280}});
}

// Above 2 (FP4) or 2^7 (FP8) a code's factor is beyond bf16.
TEST(MemoryProductTest, ScalesOfWeightsMayBeLarge) {
  const Case c = {.rows = 17, .n = 128, .k = 256, .blocks = 1, .low = 120, .high = 150};
  run<DType::f8_e4m3, false>(c);
  run<DType::f4_e2m1, false>(c);
  run<DType::f8_e4m3, true>(c);
  run<DType::f4_e2m1, true>(c);
}

}  // namespace
}  // namespace fathom::cuda_model::sm100
