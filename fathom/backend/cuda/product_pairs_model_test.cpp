// The kernel of product_pairs.cuh, its own text, run by a model of the machine (block_pair_model.h) as
// product_many_model_test.cpp does: clusters of two to eight blocks at the same time, which copy into each other's
// shared memory and arrive at each other's barriers.
#include "fathom/backend/cuda/pairs_text.h"
#include "fathom/backend/cuda/product_cases.h"

namespace fathom::cuda_model {
namespace {

/// c.blocks: clusters, of `parts` pairs.
template <DType Type>
void run(const Case& c, int parts = 1, int most_rows = kPairRows) {
  SCOPED_TRACE(testing::Message() << name_of(Type) << ", " << parts << " parts, " << c.rows << " rows, " << c.n << " x "
                                  << c.k << " x " << c.groups);
  ProductCase product(c, Type, most_rows);
  const Product& p = product.p;
  PairTiles tiles = pair_tiles(p, most_rows);
  tiles.parts = parts;
  const unsigned cluster = unsigned(2 * parts);
  machine::run_warpgroups({.blocks = c.blocks * cluster, .threads = PairShape<Type>::kThreads, .cluster = cluster},
                          [&] { pair_kernel<Type>(p, tiles); });
  // Float sums of 16 columns each, and of parts.
  product.expect_product((double(c.k) / 16 + parts) * 0x1p-24);
}

void run_all(const Case& c, int parts = 1) {
  run<DType::bf16>(c, parts);
  run<DType::f8_e4m3>(c, parts);
  run<DType::f4_e2m1>(c, parts);
}

// 330 weight rows end inside the second block of a pair's tile; 384 columns are six steps of a ring of four or five.
// 330 rows are two row tiles, of 192 and of 160; one cluster has three or four tiles in turns.
TEST(PairProductModelTest, TilesAndTheirEdgesAreTheProduct) { run_all({.rows = 330, .n = 330, .k = 384, .blocks = 1}); }

// Each number of rows that has code of its own. Results in fours, or, where rows are not aligned to them, in twos.
TEST(PairProductModelTest, TilesHaveAsManyRowsAsThereAre) {
  for (const int64_t rows : {1, 64, 100, 224, 256}) {
    run<DType::f8_e4m3>({.rows = rows, .n = 128, .k = 128, .out = DType::bf16, .blocks = 1, .behind = 4});
  }
  run_all({.rows = 33, .n = 126, .k = 128, .out = DType::bf16, .blocks = 1});
  run<DType::f4_e2m1>({.rows = 130, .n = 128, .k = 128, .blocks = 1}, 1, 64);
}

TEST(PairProductModelTest, GroupsMeetTheirOwnColumns) {
  run_all({.rows = 40, .n = 528, .k = 128, .out = DType::bf16, .groups = 2});
}

// Few rows, none, one, more than a tile, some; rows of x are gathered.
TEST(PairProductModelTest, ExpertsHaveAsManyRowsAsTheyHave) {
  run<DType::f4_e2m1>({.rows = 286, .n = 256, .k = 256, .begin = {0, 5, 5, 6, 270, 286}});
}

// A part is two steps or, as 640 columns are five times 128, four; sums lie where stages were, and tiles follow.
TEST(PairProductModelTest, PairsShareATileAPartOfKEach) {
  run_all({.rows = 64, .n = 300, .k = 640, .out = DType::bf16, .blocks = 1}, 2);
  run<DType::f8_e4m3>({.rows = 70, .n = 256, .k = 640, .blocks = 1}, 4);
}

TEST(PairProductModelTest, ScalesOfWeightsMayBeLarge) {
  const Case c = {.rows = 17, .n = 256, .k = 256, .blocks = 1, .low = 120, .high = 150};
  run<DType::f8_e4m3>(c);
  run<DType::f4_e2m1>(c);
}

}  // namespace
}  // namespace fathom::cuda_model
