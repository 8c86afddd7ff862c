// fathom/backend/cuda/product_many.cuh
// Products with many rows, bound by arithmetic: Q8 rows times FP8 or FP4 weights, bf16 times any, on Hopper's
// asynchronous products (warpgroup.cuh). Weights are the left operand: they are decoded to bf16 in the registers from
// which they are multiplied, so that nothing but their codes goes through shared memory. x is the right one, as tiles
// of bf16 that arrange_tiles made once a call. Both are exact: a scale is a power of two, and only float sums round.
//
// A block stays and walks over tiles of 192 weight rows by a row tile of x: as many rows as are there, in steps of 32,
// up to 192. Four warps bring codes and scales by cp.async and x by bulk copies, 128 columns a step (bf16: 64), into a
// ring of stages. Each of three warpgroups decodes 32 columns of its 64 weight rows while the 32 before them are
// multiplied. They share nothing but the ring, so one stores its sums while others multiply.
//
// Sums: k from 0 upwards in one chain of float sums by the tensor core, 16 columns at a time (its sums may cut where
// others round): the order of product_pairs.cuh in one part.
//
// Time, measured: a step of 64 columns takes 6 * (rows + 64) cycles, of which 6 * rows are products at their peak.
// Bytes: N * K * (1/2, 1 or 2) for each row tile, 2 * K * rows for each 192 of N, mostly from the L2 cache: tiles that
// run together share one or the other. Operations: 2 * rows * N * K.
//
// This text has no instruction of its own: whoever includes it has those of CUDA, warpgroup.cuh, multiply_group.cuh and
// decode_codes.cuh (many_launch.cuh), or a model of them on the processor (warpgroup_model.h).
#pragma once
#include "fathom/backend/cuda/multiply_step.cuh"
#include "fathom/backend/cuda/product_tiles.cuh"
#include "fathom/backend/cuda/tiles.h"
#include "fathom/tensor/dtype.h"

namespace fathom::cuda {

constexpr int kConsumers = kManyWeightRows / 64;  // warpgroups that decode and multiply
constexpr int kProducers = 128;                   // threads that copy

template <DType Type, int MostRows>
struct ManyShape {
  static constexpr bool kCodes = Type != DType::bf16;
  static constexpr int kColumns = kCodes ? 128 : 64;  // of a step
  static constexpr int kHalves = kColumns / 64;
  static constexpr int kRowBytes = Type == DType::f4_e2m1 ? 64 : 128;  // of a weight row and step
  static constexpr int kWeightRows = kManyWeightRows;
  static constexpr int kXBytes = MostRows * kColumns * 2, kWeightBytes = kWeightRows * kRowBytes;
  static constexpr int kScaleBytes = kCodes ? kWeightRows * 4 : 0;
  static constexpr int kStageBytes = (kXBytes + kWeightBytes + kScaleBytes + 1023) / 1024 * 1024;
  static constexpr int kMostBytes = 224 * 1024 - 1024;  // of 227 KB; the tables take the rest
  static constexpr int kStages = kMostBytes / kStageBytes < 6 ? kMostBytes / kStageBytes : 6;
  static_assert(kStages >= 3, "one is multiplied, one is full or filled, one is under way");
  static constexpr int kMostShared = kStages * kStageBytes + 1024 + ExpertTiles::bytes(kMostExperts);
  static constexpr int kThreads = 128 * kConsumers + kProducers;
};

// ------------------------------------------------------------------------------------------------ codes
/// Where the 16-byte piece of a weight row lies in its stage: without bank conflicts for ldmatrix.
template <DType Type>
__device__ inline int piece_place(int row, int piece) {
  if constexpr (Type == DType::f4_e2m1) return row * 64 + ((piece ^ (row >> 1 & 3)) << 4);
  return swizzled(row, piece);
}

/// Codes of 64 columns, half a step, of this warp's 16 weight rows from `rows` on, as ldmatrix hands them over: FP4 a
/// word for rows g and g + 8 of each 32 columns, FP8 of each 16.
template <DType Type>
__device__ __forceinline__ void load_half(uint32_t weights, int rows, int half, uint32_t (&raw)[kWords<Type>]) {
  const int lane = threadIdx.x % 32;
  const int row = rows + lane % 16, upper = lane / 16;  // ldmatrix: lanes 0 to 15 the first piece, 16 to 31 the next
#pragma unroll
  for (int i = 0; i < kWords<Type> / 4; ++i) {
    uint32_t four[4];
    load_matrices(four, weights + piece_place<Type>(row, kWords<Type> / 2 * half + 2 * i + upper));
#pragma unroll
    for (int k = 0; k < 4; ++k) raw[4 * i + k] = four[k];
  }
}

// ------------------------------------------------------------------------------------------------ results
/// Stores 64 x Rows sums of a warpgroup: this warp's 16 weight rows from n_first on. The rows of x are at a stride.
template <int Rows>
__device__ __forceinline__ void store_sums(const Product& p, const Place& place, int64_t n_first,
                                           const float (&sum)[Rows / 2]) {
  const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
#pragma unroll
  for (int j = 0; j < Rows / 8; ++j) {
    if (p.out_type == DType::bf16) {
      // Exchanged: a lane has two neighbours of a row of the result.
      const __nv_bfloat162 low = __floats2bfloat162_rn(sum[4 * j], sum[4 * j + 1]),
                           high = __floats2bfloat162_rn(sum[4 * j + 2], sum[4 * j + 3]);
      const uint32_t pair[2] = {transposed(*reinterpret_cast<const uint32_t*>(&low)),
                                transposed(*reinterpret_cast<const uint32_t*>(&high))};
      const int64_t a = place.first + 8 * j + g;
      if (a >= place.end) continue;
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const int64_t n = n_first + 8 * h + 2 * t;
        if (n < place.n_end) *reinterpret_cast<uint32_t*>(p.out + 2 * (a * p.out_stride + n)) = pair[h];
      }
    } else {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int64_t a = place.first + 8 * j + 2 * t + i % 2, n = n_first + 8 * (i / 2) + g;
        if (a < place.end && n < place.n_end) reinterpret_cast<float*>(p.out)[a * p.out_stride + n] = sum[4 * j + i];
      }
    }
  }
}

// ------------------------------------------------------------------------------------------------ copies
/// How the copying threads bring `Rows` rows of `Pieces` pieces each: thread i has piece i % Pieces of row i / Pieces
/// and of every kApart-th row after it. Where those rows begin is in a table in the order in which a thread needs it.
template <int Rows, int Pieces, int RowBytes>
struct Copies {
  static constexpr int kPieces = Pieces, kApart = kProducers / Pieces, kEach = (Rows + kApart - 1) / kApart;
  static constexpr int kTable = kApart * kEach;
  static constexpr int kAtOnce = kEach % 4 == 0 ? 4 : kEach % 2 == 0 ? 2 : 1;
  __device__ static int place(int row) { return row % kApart * kEach + row / kApart; }
  /// Pieces of `Bytes` (the unit of the table too) from `from` + table to `to` + RowBytes * row.
  template <int Bytes>
  __device__ static __forceinline__ void copy(int id, const uint32_t* table, const uint8_t* from, uint32_t to) {
    const uint32_t* own = table + id / Pieces * kEach;
#pragma unroll
    for (int first = 0; first < kEach; first += kAtOnce) {
      uint32_t at[kAtOnce];
      if constexpr (kAtOnce == 4) {
        const uint4 v = *reinterpret_cast<const uint4*>(own + first);
        at[0] = v.x, at[1] = v.y, at[2] = v.z, at[3] = v.w;
      } else {
#pragma unroll
        for (int i = 0; i < kAtOnce; ++i) at[i] = own[first + i];
      }
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        if (Rows % kApart != 0 && id / Pieces + (first + i) * kApart >= Rows) continue;
        copy_async<Bytes>(to + (first + i) * (kApart * RowBytes), from + uint64_t(at[i]) * Bytes);
      }
    }
  }
};

// ------------------------------------------------------------------------------------------------ products
/// Sums of a tile of `Rows` rows of x: this warpgroup's 64 weight rows, of which this warp's begin at `rows`.
/// half_bytes: from a step's first 64 columns of x to the others. stages: their address.
template <DType Type, int Rows, class Shape>
__device__ __forceinline__ void multiply_tile(int steps, int rows, uint32_t half_bytes, uint32_t stages,
                                              uint64_t (&full)[Shape::kStages], uint64_t (&empty)[Shape::kStages],
                                              RingPlace<Shape::kStages>& ring, float (&sum)[Rows / 2]) {
#pragma unroll
  for (int i = 0; i < Rows / 2; ++i) sum[i] = 0;
  uint32_t a[2][2][4];  // 32 columns are decoded while the 32 before them are multiplied
#pragma unroll 1
  for (int step = 0; step < steps; ++step) {
    wait_phase(full[ring.stage], ring.parity);
    const uint32_t stage = stages + ring.stage * Shape::kStageBytes, weights = stage + Shape::kXBytes;
    // Once products of this stage are all that is under way.
    const auto release_stage_before = [&] {
      if (step > 0 && threadIdx.x % 32 == 0) {
        arrive(empty[ring.stage > 0 ? ring.stage - 1 : Shape::kStages - 1]);
      }
    };
    if constexpr (Shape::kCodes) {
      const uint32_t at = weights + Shape::kWeightBytes + 4 * (rows + threadIdx.x % 32 / 4);
      const uint32_t scales[2] = {load_shared(at), load_shared(at + 32)};
      const bool large = __any_sync(~0u, ((scales[0] | scales[1]) & 0x80808080u) != 0);
#pragma unroll
      for (int half = 0; half < Shape::kHalves; ++half) {
        uint32_t raw[kWords<Type>];
        load_half<Type>(weights, rows, half, raw);
        const uint64_t x = describe_tile(stage + half * half_bytes);
#pragma unroll
        for (int q = 0; q < 2; ++q) {
          decode<Type>(raw, half, q, scales, large, a[q]);
          multiply_step<Rows>(sum, a[q], x + 4 * q);
          if (half == 0 && q == 0) release_stage_before();
        }
      }
    } else {
      const int lane = threadIdx.x % 32;
      const uint64_t x = describe_tile(stage);
#pragma unroll
      for (int q = 0; q < 2; ++q) {
#pragma unroll
        for (int k = 0; k < 2; ++k) {
          load_matrices(a[q][k], weights + piece_place<Type>(rows + lane % 16, 4 * q + 2 * k + lane / 16));
        }
        multiply_step<Rows>(sum, a[q], x + 4 * q);
        if (q == 0) release_stage_before();
      }
    }
    ring.next();
  }
  wait_products<0>();
  __syncwarp();  // all lanes have read the codes
  if (threadIdx.x % 32 == 0) arrive(empty[ring.stage > 0 ? ring.stage - 1 : Shape::kStages - 1]);
  hold(sum);
}

// ------------------------------------------------------------------------------------------------ the kernel
template <DType Type, int MostRows>
__global__ void __launch_bounds__(ManyShape<Type, MostRows>::kThreads, 1)
    many_kernel(const __grid_constant__ Product p, const __grid_constant__ ProductGrid tiles) {
  using Shape = ManyShape<Type, MostRows>;
  constexpr int kStages = Shape::kStages, kPieces = Shape::kRowBytes / 16, kHalves = Shape::kHalves;
  __shared__ uint64_t full[kStages], empty[kStages];
  // Where the weights' rows begin, in units of 16 bytes, and their scales, in units of 4.
  using WeightCopies = Copies<Shape::kWeightRows, kPieces, Shape::kRowBytes>;
  using ScaleCopies = Copies<Shape::kWeightRows, 1, 4>;
  __shared__ __align__(16) uint32_t weight_from[Shape::kWeightRows], scale_from[ScaleCopies::kTable];
  uint8_t* stages = many_memory + (1024 - shared_address(many_memory) % 1024) % 1024;
  const ExpertTiles experts(stages + kStages * Shape::kStageBytes, p.expert_count);

  const int warp = threadIdx.x / 32;
  if (threadIdx.x == 0) {
    for (int s = 0; s < kStages; ++s) {
      init_barrier(full[s], kProducers + 1);
      init_barrier(empty[s], 4 * kConsumers);
    }
    publish_barriers();
  }
  if (p.begin != nullptr && warp == 1) count_row_tiles(p, tiles, experts);
  __syncthreads();
  const int all = all_tiles(p, tiles, experts);
  const uint32_t first_stage = shared_address(stages);
  RingPlace<kStages> ring;

  if (warp >= 4 * kConsumers) {  // the warps that copy
    give_registers<56>();
    const int id = threadIdx.x - 128 * kConsumers;
    const int64_t weight_stride = Type == DType::bf16      ? p.weight_stride * 2
                                  : Type == DType::f4_e2m1 ? p.weight_stride / 2
                                                           : p.weight_stride;
    const int weight_to = piece_place<Type>(id / kPieces, id % kPieces);
    for (int tile = blockIdx.x; tile < all; tile += gridDim.x) {
      const TilePlace place = tile_place(p, tiles, experts, tile);
      meet(1, kProducers);  // the tables are no longer read
      for (int i = id; i < Shape::kWeightRows; i += kProducers) {
        const int64_t n = min(place.n_first + i, place.n_end - 1);
        weight_from[WeightCopies::place(i)] = uint32_t(n * weight_stride >> 4);
        if (Shape::kCodes) scale_from[ScaleCopies::place(i)] = uint32_t(n / p.scale_rows * p.scale_stride >> 2);
      }
      meet(1, kProducers);
      const uint32_t half_bytes = uint32_t(place.rows) * 128, x_bytes = kHalves * half_bytes;
      const uint8_t* x = p.x + place.x_first * (int64_t(tiles.x_blocks) * 128) + place.x_column / 64 * half_bytes;
      const uint8_t* codes = place.weight.values + id % kPieces * 16;
      const uint8_t* scales = place.weight.scales;
      for (int step = 0; step < tiles.steps; ++step) {
        wait_phase(empty[ring.stage], ring.parity ^ 1);
        const uint32_t stage = first_stage + ring.stage * Shape::kStageBytes;
        if (id == 0) {
          expect_bytes(full[ring.stage], x_bytes);
          copy_bulk(stage, x, x_bytes, full[ring.stage]);
        }
        WeightCopies::template copy<16>(id, weight_from, codes, stage + Shape::kXBytes + weight_to);
        if constexpr (Shape::kCodes) {
          ScaleCopies::template copy<4>(id, scale_from, scales, stage + Shape::kXBytes + Shape::kWeightBytes + 4 * id);
          scales += 4;
        }
        // Only ldmatrix and loads read what these threads copy, so nothing has to be published to the products.
        arrive_after_copies(full[ring.stage]);
        x += x_bytes;
        codes += Shape::kRowBytes;
        ring.next();
      }
    }
    commit_copies();
    wait_copies<0>();  // who copies does not end before its copies
  } else {
    take_registers<152>();
    const int rows = 16 * warp;  // of the tile's weight rows
    for (int tile = blockIdx.x; tile < all; tile += gridDim.x) {
      const auto find = [&] { return tile_place(p, tiles, experts, tile); };
      const int x_rows = find().rows;
      const auto run = [&]<int Rows>() {
        float sum[Rows / 2];
        multiply_tile<Type, Rows, Shape>(tiles.steps, rows, uint32_t(x_rows) * 128, first_stage, full, empty, ring,
                                         sum);
        const TilePlace place = find();  // again: not kept while products need the registers
        store_sums<Rows>(p, place, place.n_first + rows, sum);
      };
      if constexpr (MostRows == kManyLargeRows) {  // with more code the sums find no registers (C7512)
        x_rows <= 160 ? run.template operator()<160>() : run.template operator()<192>();
      } else {
        switch (x_rows) {
          case 32:
          case 64: run.template operator()<64>(); break;
          case 96: run.template operator()<96>(); break;
          case 128: run.template operator()<128>(); break;
          default: run.template operator()<160>(); break;
        }
      }
    }
  }
}

}  // namespace fathom::cuda
