// fathom/backend/cuda/product.h
// Matrix products on the device: which kernel runs, and its arguments. All pointers are the device's.
#pragma once
#include "fathom/backend/cuda/call.h"
#include "fathom/backend/cuda/tiles.h"

namespace fathom::cuda {

/// Values and scales of one stored weight; experts differ in these only.
struct WeightPointers {
  const uint8_t* values;
  const uint8_t* scales;
};

/// out[a] = x[row(a)] . weight^T. Plain: one weight. With `groups` > 1: weight rows [g * n / groups, ...) meet the
/// columns [g * k, (g + 1) * k) of x. With `begin`: weight e for the assignments of [begin[e], begin[e + 1]).
struct Product {
  // x
  const uint8_t* x = nullptr;
  DType x_type = DType::bf16;
  int64_t x_stride = 0;  // elements
  const uint8_t* x_scales = nullptr;
  int64_t x_scale_stride = 0;
  int64_t x_rows = 0;              // that exist
  int64_t rows = 0;                // of the result: rows of x, or assignments
  const int32_t* x_row = nullptr;  // [rows]; null: row a of x
  // weights [n, k]
  WeightPointers weight{};                  // plain
  const WeightPointers* experts = nullptr;  // [expert_count]
  const int32_t* begin = nullptr;           // [expert_count + 1]
  int expert_count = 0;
  DType weight_type = DType::bf16;
  int64_t weight_stride = 0;  // elements
  int64_t scale_stride = 0;
  int scale_rows = 1;
  int64_t n = 0, k = 0;
  int groups = 1;
  // Runs with the product just ahead, which has arranged x; may not end before that one has.
  bool beside = false;
  int parts = 0;  // of K, each summed by itself, added in rising order (sum_parts()); 0: as the kernel wants
  // result
  uint8_t* out = nullptr;
  DType out_type = DType::f32;
  int64_t out_stride = 0;
};

/// Whether the tensor cores can run it: bf16 or Q8 inputs, weights of bf16, FP8 or FP4, addresses for 16-byte loads
/// (8 of FP4). Pure.
bool fits_tensor_cores(const Product& product);

/// In float, any formats, any sizes: what the tensor cores cannot run, and the golden modes.
void launch_float_product(Call& call, const Product& product);
/// bf16 x bf16 with float sums; x already bf16.
void launch_tensor_product(Call& call, const Product& product);
template <DType Weight>
void launch_tensor_product(Call& call, const Product& product);  // product_bf16.cu, product_fp8.cu, product_fp4.cu

/// Rows of Q8 or bf16 times FP8 or FP4 weights where few rows meet a weight, 8 or 16 of them (x_rows) at
/// a time; x as it is. In the order of the kernels below (`in_chains`), or the one that is faster here: Q8 rows only.
/// False when it does not fit: nothing was launched.
template <DType Weight>
bool launch_few_product(Call& call, const Product& product, int x_rows, bool in_chains);  // few_fp8.cu, few_fp4.cu
/// Whether its loads can be made: as fits_many with such weights, and x on addresses of 16 bytes. Pure.
bool fits_few(const Product& product);

/// Row tiles of a product at most.
inline int64_t most_row_tiles(const Product& p, int x_rows) {
  return most_row_tiles(p.rows, p.begin == nullptr ? 0 : p.expert_count, x_rows);
}

/// x as row tiles of `most_rows` rows at most (tile_rows() of tiles.h) in the order of the kernels for many rows,
/// arrange_tiles.cu. out: room for arranged_rows() rows of K * groups bf16, at a multiple of 16 bytes: row tiles behind
/// each other, those of each expert and group of rows in whole steps, each as K * groups / 64 tiles of rows of 128
/// bytes.
void arrange_tiles(const Call& call, const Product& p, int most_rows, uint8_t* out);

/// Thousands of rows: Q8 x FP8 or FP4, bf16 x any weight, all of K in one chain; x is what arrange_tiles made with
/// most_rows, kManyLargeRows or less.
template <DType Weight>
void launch_many_product(Call& call, const Product& product, int most_rows);  // many_bf16.cu, many_fp8.cu, many_fp4.cu
/// The same with any number of rows, in Product::parts; most_rows: kPairRows or less. `whole`: of a grouped product,
/// what it is a part of; where parts are free, how K is shared follows it.
template <DType Weight>
void launch_pair_product(Call& call, const Product& product, int most_rows, WholeProduct whole);  // pairs_bf16.cu, ...
/// The same with any number of rows for devices of sm_100a, sm100/, in one chain. `scaled`: codes with their scales,
/// and x is as it lies (fits_few); else x is what arrange_tiles made with kPairRows. A build without those kernels may
/// not call it.
void launch_memory_product(Call& call, const Product& product, bool scaled);
/// Whether these three can run it: the types above; K in steps of 128, of bf16 weights 64; loads of 16 bytes (scales:
/// 4), pairs of results on addresses of their size. Does not ask how many rows there are. Pure.
bool fits_many(const Product& product);

/// Runs one of them.
void run_product(Call& call, Product product);
/// The same of a part of a grouped product.
void run_product(Call& call, Product product, WholeProduct whole);

/// The arguments of a plain product of device views.
Product product_of(const Matrix& x, const Matrix& weight, const AnyViewMut& out, int groups);

}  // namespace fathom::cuda
