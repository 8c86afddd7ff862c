// The kernel of product_memory.cuh, its own text, run by a model of the machine (machine_model.h): its roles, rings and
// barriers, the places of operands and scales, tiles and their edges, results. What a GPU has to show yet: that the
// manual was read right, fences, how sums round, and speed.
#include "fathom/backend/cuda/sm100/machine_model.h"
// The names that it needs come before it.
#include "fathom/backend/cuda/sm100/kernel_text.h"
#include "fathom/backend/cuda/sm100/stored_values.h"

namespace fathom::cuda_model::sm100 {
namespace {

struct Case {
  int64_t rows, n, k;
  DType out = DType::f32;
  unsigned blocks = 2;
  int groups = 1;
  std::vector<int32_t> begin = {};  // of experts
  int low = 122, high = 133;        // scales of weights
};
constexpr int64_t kGathered = 37;  // rows of x that experts' assignments name

std::vector<double> values_of(const Stored& of) {
  std::vector<double> out;
  for (int64_t r = 0; r < of.values.rows; ++r) {
    for (int64_t c = 0; c < of.values.cols; ++c) out.push_back(value_of(of, r, c));
  }
  return out;
}

int64_t x_row(const Case& c, int64_t assignment) { return c.begin.empty() ? assignment : assignment * 11 % kGathered; }

// x as arrange_tiles.cu lays it out for kPairRowStep: tiles of 64 columns of each row tile, pairs of columns in the
// order of a weight type. Rows that do not exist are NaN.
std::vector<uint16_t> arranged(const Case& c, const Stored& x, DType weight, const std::vector<int32_t>& begin) {
  const int64_t columns = x.values.cols;
  int64_t rows = 0, first = 0;
  for (size_t e = 0; e + 1 < begin.size(); ++e) rows += padded_rows(begin[e + 1] - begin[e]);
  std::vector<uint16_t> out(size_t(rows * columns), 0x7fc0);
  for (size_t e = 0; e + 1 < begin.size(); ++e) {
    const int count = begin[e + 1] - begin[e], own = count > 0 ? pair_tile_rows(count) : 1;
    for (int a = 0; a < count; ++a) {
      const int tile = a / own, row = a % own, tile_rows = std::min(own, padded_rows(count - tile * own));
      for (int64_t column = 0; column < columns; ++column) {
        const int inside = int(column % 64), k = inside % 32;
        int piece = inside / 8, element = inside % 8;
        if (weight == DType::f4_e2m1) {
          piece = inside / 32 * 4 + k % 4, element = 2 * (k / 8) + k % 8 / 4;
        } else if (weight == DType::f8_e4m3) {
          piece = inside / 32 * 4 + 2 * (k / 16) + k % 2, element = 2 * (k % 16 / 4) + k % 4 / 2;
        }
        const int64_t at = (first + tile * own) * columns + column / 64 * (tile_rows * 64) + row * 64 +
                           (piece ^ (row & 7)) * 8 + element;
        out[size_t(at)] = float_to_bf16(float(value_of(x, x_row(c, begin[e] + a), column)));
      }
    }
    first += padded_rows(count);
  }
  return out;
}

template <DType Type, bool Scaled>
void run(const Case& c) {
  SCOPED_TRACE(testing::Message() << name_of(Type) << (Scaled ? " scaled" : "") << ", " << c.rows << " rows, " << c.n
                                  << " x " << c.k << " x " << c.groups);
  const int experts = std::max(1, int(c.begin.size()) - 1);
  const DType x_type = Type == DType::bf16 ? DType::bf16 : DType::f8_e4m3;
  const Stored x = stored(x_type, c.begin.empty() ? c.rows : kGathered, c.k * c.groups, 1, 5);
  std::vector<Stored> weights;
  std::vector<WeightPointers> pointers;
  for (int e = 0; e < experts; ++e) {
    const uint64_t seed = uint64_t(e) + 9;
    weights.push_back(Type == DType::bf16 ? stored(Type, c.n, c.k, 1, seed)
                                          : stored_weight(Type, c.n, c.k, seed, c.low, c.high));
  }
  for (const Stored& one : weights) pointers.push_back({one.values.bytes.data(), one.scales.bytes.data()});
  std::vector<int32_t> rows;
  for (int64_t a = 0; a < c.rows; ++a) rows.push_back(int32_t(x_row(c, a)));
  const std::vector<int32_t> begin = c.begin.empty() ? std::vector<int32_t>{0, int32_t(c.rows)} : c.begin;
  const std::vector<uint16_t> wide = arranged(c, x, Type, begin);
  Tensor out(c.out, c.rows, c.n + 2);  // two columns that are not the product's
  std::fill(out.bytes.begin(), out.bytes.end(), uint8_t(0xff));

  Product p;
  p.x = Scaled ? x.values.bytes.data() : reinterpret_cast<const uint8_t*>(wide.data());
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
  p.out_stride = c.n + 2;
  model::run_blocks(c.blocks, [&] { memory_kernel<Type, Scaled>(p, memory_tiles<Type, Scaled>(p)); });

  const std::vector<double> x_values = values_of(x);
  size_t expert = 0;
  std::vector<double> weight_values = values_of(weights[0]);
  for (int64_t a = 0; a < c.rows; ++a) {
    for (; a >= begin[expert + 1]; weight_values = values_of(weights[expert])) ++expert;
    for (int64_t n = 0; n < c.n; ++n) {
      const double* left = &weight_values[size_t(n * c.k)];
      const double* right = &x_values[size_t(x_row(c, a) * x.values.cols + n / (c.n / c.groups) * c.k)];
      double want = 0, size = 0;
      for (int64_t k = 0; k < c.k; ++k) {
        want += left[k] * right[k];
        size += std::abs(left[k] * right[k]);
      }
      // Sums are double; the result is rounded to float, and from there to bf16.
      const double rounded = c.out == DType::bf16 ? rounding(c.out) + 0x1p-24 : 0x1p-24;
      ASSERT_NEAR(out.at(a, n), want, rounded * std::abs(want) + double(c.k) * 0x1p-52 * size)
          << "row " << a << ", " << n;
    }
    for (int64_t n = c.n; n < c.n + 2; ++n) ASSERT_TRUE(std::isnan(out.at(a, n))) << "written behind row " << a;
  }
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
