// fathom/backend/cuda/product_pairs.cuh
// Products with more rows than a few and fewer than thousands: Q8 rows times FP8 or FP4 weights, bf16 times any, on
// Hopper's asynchronous products (warpgroup.cuh). Weights are the left operand: they are decoded to bf16 in the
// registers from which they are multiplied, so that nothing but their codes goes through shared memory. x is the right
// one, as tiles of bf16 that arrange_tiles made once a call. Both are exact: a scale is a power of two, and only float
// sums round.
//
// Two blocks are a pair: each has 128 weight rows, both the same row tile of up to 256 rows of x, and each brings half
// of it for both, which halves what the L2 cache has to give. Where tiles are few, two or four pairs are a cluster and
// share a tile, a part of K each (pair_parts() of tiles.h). Clusters stay and take tiles in turns. In a block four
// warps bring codes and scales by cp.async and x by bulk copies, 64 columns a step, into a ring of stages. Each of two
// warpgroups decodes 32 columns of its 64 weight rows while the 32 before them are multiplied. They share nothing but
// the ring, so one stores its sums while the other multiplies. A row tile has as many rows as are there, in steps of
// 32: code for numbers of them.
//
// Sums: of each part k upwards in one chain of float sums by the tensor core, 16 columns at a time (its sums may cut
// where others round). Parts are added through the cluster's shared memory in rising order. So results depend on
// shapes, never on time, and where the parts are those of the weight (sum_parts() of tiles.h) not on the number of rows
// either: bits are then those of the kernel for few rows.
//
// Bytes: N * K * (1/2, 1 or 2) for each 256 rows of x, 2 * K * rows for each 256 of N, mostly from the L2 cache: tiles
// that run together share one or the other. Operations: 2 * rows * N * K.
//
// This text has no instruction of its own: whoever includes it has those of CUDA, block_pair.cuh, multiply_group.cuh
// and decode_weights.cuh (pairs_launch.cuh), or a model of them on the processor (block_pair_model.h).
#pragma once
#include "fathom/backend/cuda/multiply_step.cuh"
#include "fathom/backend/cuda/product_tiles.cuh"
#include "fathom/backend/cuda/tiles.h"
#include "fathom/tensor/dtype.h"

namespace fathom::cuda {

constexpr int kPairConsumers = kPairWeightRows / 64;  // warpgroups that decode and multiply
constexpr int kPairProducers = 128;                   // threads that copy

/// The tiles of a launch: of a pair, which has 2 * kPairWeightRows weight rows.
struct PairTiles : ProductGrid {
  int parts = 1;       // pairs of a cluster
  bool fours = false;  // bf16 results are stored in fours
};

template <DType Type>
struct PairShape {
  static constexpr bool kCodes = Type != DType::bf16;
  static constexpr int kRowBytes = Type == DType::f4_e2m1 ? 32 : Type == DType::f8_e4m3 ? 64 : 128;  // of a step
  static constexpr int kPieces = kRowBytes / 16;
  static constexpr int kUnit = kCodes ? 2 : 1;  // steps that stay together: scales come for 128 columns
  static constexpr int kXBytes = kPairRows * 128, kWeightBytes = kPairWeightRows * kRowBytes;
  static constexpr int kScaleBytes = kCodes ? kPairWeightRows * 4 : 0;
  static constexpr int kStageBytes = (kXBytes + kWeightBytes + kScaleBytes + 1023) / 1024 * 1024;
  static constexpr int kMostBytes = 216 * 1024;  // of 227 KB; the tables take the rest
  static constexpr int kStages = kMostBytes / kStageBytes < 5 ? kMostBytes / kStageBytes : 5;
  static_assert(kStages >= 4, "one is multiplied, one is read ahead, one is full or filled, one is under way");
  static_assert(kStages * kStageBytes >= kPairRows * kPairWeightRows * 4, "the sums of a part fit where stages were");
  static constexpr int kThreads = 128 * kPairConsumers + kPairProducers;
  // Of a thread, in steps of 8: what all threads have at the start is shared anew, and has to be enough.
  static constexpr int kRegisters = 65536 / kThreads / 8 * 8, kCopying = 56, kMultiplying = 224;
  static_assert(kPairProducers * kCopying + 128 * kPairConsumers * kMultiplying <= kThreads * kRegisters);
};

// ------------------------------------------------------------------------------------------------ codes
/// Where the 16-byte piece of a weight row lies in its stage: without bank conflicts for ldmatrix.
template <DType Type>
__device__ inline int pair_piece(int row, int piece) {
  if constexpr (Type == DType::f4_e2m1) return row * 32 + ((piece ^ (row >> 2 & 1)) << 4);
  if constexpr (Type == DType::f8_e4m3) return row * 64 + ((piece ^ (row >> 1 & 3)) << 4);
  return swizzled(row, piece);
}

/// Codes of a step of this warp's 16 weight rows, as ldmatrix hands them over: FP4 a word for rows g and
/// g + 8 of each 32 columns, FP8 of each 16. own: where this lane's rows are (ldmatrix: lanes 0 to 15 give the first of
/// two pieces, 16 to 31 the next).
template <DType Type>
__device__ __forceinline__ void load_codes(uint32_t weights, const uint32_t (&own)[kWords<Type> / 4],
                                           uint32_t (&raw)[kWords<Type>]) {
#pragma unroll
  for (int i = 0; i < kWords<Type> / 4; ++i) {
    uint32_t four[4];
    load_matrices(four, weights + own[i]);
#pragma unroll
    for (int k = 0; k < 4; ++k) raw[4 * i + k] = four[k];
  }
}

// ------------------------------------------------------------------------------------------------ tiles
/// Where each pair has all of K.
inline PairTiles pair_tiles(const Product& p, int most_rows) {
  PairTiles tiles{product_grid(p, most_rows, 2 * kPairWeightRows, 64)};
  tiles.fours = p.out_type == DType::bf16 && tiles.per_group % 4 == 0 &&
                (reinterpret_cast<uintptr_t>(p.out) | uintptr_t(p.out_stride * 2)) % 8 == 0;
  return tiles;
}

/// What this block does of a tile.
struct PairPlace : TilePlace {
  int begin_step, end_step;
};
template <int Step>
__device__ inline PairPlace pair_place(const Product& p, const PairTiles& tiles, const ExpertTiles& experts, int tile,
                                       int rank) {
  PairPlace place{tile_place(p, tiles, experts, tile)};
  const int part = rank / 2;
  place.begin_step = tiles.steps / Step * part / tiles.parts * Step;
  place.end_step = tiles.steps / Step * (part + 1) / tiles.parts * Step;
  place.n_first += rank % 2 * kPairWeightRows;
  return place;
}

/// Which of a warp's 16 weight rows is row i of its products: such that two lanes have four neighbours between them.
__device__ inline int weight_row(int i) { return (i & 9) | (i & 2) << 1 | (i & 4) >> 1; }

/// Where a lane stores the sums of its warp's 16 weight rows, eight rows of x at a time.
struct PairStore {
  uint8_t* to;
  int64_t stride;      // bytes from a row of x to the next
  int left;            // rows of x from the lane's first on
  bool first, second;  // whether its weight rows exist
  bool half, fours;
  __device__ PairStore(const Product& p, const PairTiles& tiles, const Place& place, int64_t n_first)
      : half(p.out_type == DType::bf16), fours(tiles.fours) {
    const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    // bf16: four neighbours of row g. float: weight rows g and g + 8 of rows 2 t and 2 t + 1.
    const int row = half ? g : 2 * t, bytes = half ? 2 : 4;
    const int64_t n = n_first + (half ? 4 * t : weight_row(g)), next = half ? n + 2 : n + 8;
    stride = p.out_stride * bytes;
    to = p.out + (place.first + row) * stride + n * bytes;
    left = int(place.end - place.first) - row;
    first = n < place.n_end, second = next < place.n_end;
  }
  /// Sums of rows 8 j ... 8 j + 7, as the products give them.
  __device__ __forceinline__ void store(int j, float a, float b, float c, float d) const {
    uint8_t* at = to + 8 * j * stride;
    if (half) {
      const __nv_bfloat162 low = __floats2bfloat162_rn(a, b), high = __floats2bfloat162_rn(c, d);
      const uint32_t mine = transposed(*reinterpret_cast<const uint32_t*>(&low)),
                     other = transposed(*reinterpret_cast<const uint32_t*>(&high));
      const bool upper = threadIdx.x & 2;
      const uint32_t got = __shfl_xor_sync(~0u, upper ? mine : other, 2);
      const uint2 four = make_uint2(upper ? got : mine, upper ? other : got);
      if (fours) {
        if (8 * j < left && first) *reinterpret_cast<uint2*>(at) = four;
      } else {
        if (8 * j < left && first) *reinterpret_cast<uint32_t*>(at) = four.x;
        if (8 * j < left && second) *reinterpret_cast<uint32_t*>(at + 4) = four.y;
      }
    } else {
      if (8 * j < left && first) *reinterpret_cast<float*>(at) = a;
      if (8 * j < left && second) *reinterpret_cast<float*>(at + 32) = c;
      if (8 * j + 1 < left && first) *reinterpret_cast<float*>(at + stride) = b;
      if (8 * j + 1 < left && second) *reinterpret_cast<float*>(at + stride + 32) = d;
    }
  }
};

/// Of a tile that `Parts` pairs share, when each block's sums lie where its stages were: adds all parts of this block's
/// share of the rows.
template <int Parts, int Rows>
__device__ __forceinline__ void add_parts(const PairStore& store, const uint8_t* sums, int rank) {
  constexpr int kShare = Rows / 8 / Parts;
  const int part = rank / 2, thread = threadIdx.x % 128, group = threadIdx.x / 128;
  uint32_t from[Parts];
#pragma unroll
  for (int i = 0; i < Parts; ++i) from[i] = address_in_block(sums, uint32_t(2 * i + rank % 2));
#pragma unroll
  for (int i = 0; i < kShare; ++i) {
    const int j = part * kShare + i;
    const uint32_t place = uint32_t((group * 32 + j) * 128 + thread) * 16;
    float4 v[Parts];
#pragma unroll
    for (int k = 0; k < Parts; ++k) v[k] = load_of_block(from[k] + place);
#pragma unroll
    for (int k = 1; k < Parts; ++k) v[0].x += v[k].x, v[0].y += v[k].y, v[0].z += v[k].z, v[0].w += v[k].w;
    store.store(j, v[0].x, v[0].y, v[0].z, v[0].w);
  }
}

// ------------------------------------------------------------------------------------------------ the kernel
/// A tile of a multiplying warpgroup, with `Rows` rows of x. Addresses: the stages, the barriers `full`, and `empty` of
/// block `lane` of the pair. find() is where the tile is.
template <DType Type, int Rows, class Find>
__device__ __forceinline__ void multiply_tile(const Product& p, const PairTiles& tiles, int begin_step, int end_step,
                                              uint8_t* sums, uint32_t stages, uint32_t full, uint32_t released,
                                              int rank, RingPlace<PairShape<Type>::kStages>& ring, const Find& find) {
  using Shape = PairShape<Type>;
  const int lane = threadIdx.x % 32, rows = threadIdx.x / 32 * 16;  // of the tile's weight rows
  constexpr int kOwn = Shape::kCodes ? kWords<Type> / 4 : 4;
  uint32_t own[kOwn];  // of ldmatrix
#pragma unroll
  for (int i = 0; i < kOwn; ++i) {
    own[i] = uint32_t(Shape::kXBytes + pair_piece<Type>(rows + weight_row(lane % 16), 2 * i + lane / 16));
  }
  const uint32_t own_scales = uint32_t(Shape::kXBytes + Shape::kWeightBytes + 4 * (rows + weight_row(lane / 4)));
  float sum[Rows / 2];
#pragma unroll
  for (int i = 0; i < Rows / 2; ++i) sum[i] = 0;
  uint32_t a[2][2][4];  // 32 columns are decoded while the 32 before them are multiplied
  uint32_t scales[2] = {0, 0};
  bool large = false;
  int before = -1;  // the stage whose products may be under way
  uint32_t raw[kWords<Type>];
  wait_phase(full + 8 * ring.stage, ring.parity);
  if constexpr (Shape::kCodes) load_codes<Type>(stages + ring.stage * Shape::kStageBytes, own, raw);
#pragma unroll 1
  for (int step = begin_step; step < end_step; ++step) {
    const uint32_t stage = stages + ring.stage * Shape::kStageBytes;
    const uint64_t x = describe_tile(stage);
    if constexpr (Shape::kCodes) {
      if (step % 2 == 0) {
        scales[0] = load_shared(stage + own_scales), scales[1] = load_shared(stage + own_scales + 32);
        large = __any_sync(~0u, ((scales[0] | scales[1]) & 0x80808080u) != 0);
      }
    }
#pragma unroll
    for (int q = 0; q < 2; ++q) {
      if constexpr (Shape::kCodes) {
        decode<Type>(raw, 0, q, scales, large, a[q]);
      } else {
#pragma unroll
        for (int k = 0; k < 2; ++k) load_matrices(a[q][k], stage + own[2 * q + k]);
      }
      multiply_step<Rows>(sum, a[q], x + 4 * q);
      if (q == 0) {
        __syncwarp();  // all lanes have read the codes
        if (before >= 0 && lane < 2) arrive_in_block(released + 8 * before);
        before = ring.stage;
      }
    }
    scales[0] >>= 16, scales[1] >>= 16;
    ring.next();
    if (step + 1 < end_step) {  // while the last products run
      wait_phase(full + 8 * ring.stage, ring.parity);
      if constexpr (Shape::kCodes) load_codes<Type>(stages + ring.stage * Shape::kStageBytes, own, raw);
    }
  }
  wait_products<0>();
  __syncwarp();
  if (lane < 2) arrive_in_block(released + 8 * before);
  hold(sum);
  if (tiles.parts > 1) {
    meet(1, 128 * kPairConsumers);  // nobody reads the stages any more
    float4* to = reinterpret_cast<float4*>(sums) + threadIdx.x / 128 * (32 * 128) + threadIdx.x % 128;
#pragma unroll
    for (int j = 0; j < Rows / 8; ++j) {
      to[j * 128] = make_float4(sum[4 * j], sum[4 * j + 1], sum[4 * j + 2], sum[4 * j + 3]);
    }
    meet_cluster();
  }
  const PairPlace place = find();  // again: not kept while products need the registers
  const PairStore store(p, tiles, place, place.n_first + rows);
  if (tiles.parts == 1) {
#pragma unroll
    for (int j = 0; j < Rows / 8; ++j) {
      store.store(j, sum[4 * j], sum[4 * j + 1], sum[4 * j + 2], sum[4 * j + 3]);
    }
    return;
  }
  if (tiles.parts == 2) {
    add_parts<2, Rows>(store, sums, rank);
  } else {
    add_parts<4, Rows>(store, sums, rank);
  }
  publish_to_products();  // copies come there next
  meet_cluster();
}

template <DType Type>
__global__ void __launch_bounds__(PairShape<Type>::kThreads, 1)
    pair_kernel(const __grid_constant__ Product p, const __grid_constant__ PairTiles tiles) {
  using Shape = PairShape<Type>;
  constexpr int kStages = Shape::kStages, kPieces = Shape::kPieces;
  __shared__ uint64_t full[kStages], empty[kStages];
  uint8_t* stages = pair_memory + (1024 - shared_address(pair_memory) % 1024) % 1024;
  const ExpertTiles experts(stages + kStages * Shape::kStageBytes, p.expert_count);

  const int warp = threadIdx.x / 32, rank = int(rank_in_cluster());
  if (threadIdx.x == 0) {
    for (int s = 0; s < kStages; ++s) {
      init_barrier(full[s], kPairProducers + 1);
      init_barrier(empty[s], 2 * 4 * kPairConsumers);
    }
    publish_barriers();
  }
  // The product beside this one began when x and all else was there, which this one needs too, and let this one start.
  if (p.beside) {
    __threadfence();  // what lies in this multiprocessor's cache may be older
  } else {
    wait_for_kernel_ahead();
  }
  let_kernel_behind_start();
  if (p.begin != nullptr && warp == 1) count_row_tiles(p, tiles, experts);
  __syncthreads();
  meet_cluster();
  const int all = all_tiles(p, tiles, experts);
  const int size = 2 * tiles.parts, first = int(blockIdx.x) / size, clusters = int(gridDim.x) / size;
  const uint32_t first_stage = shared_address(stages), first_full = shared_address(full);
  RingPlace<kStages> ring;

  if (warp >= 4 * kPairConsumers) {  // the warps that copy
    give_registers<Shape::kCopying>();
    const int id = threadIdx.x - 128 * kPairConsumers;
    constexpr int kApart = kPairProducers / kPieces, kEach = kPairWeightRows / kApart;
    const int64_t weight_stride = Type == DType::bf16      ? p.weight_stride * 2
                                  : Type == DType::f4_e2m1 ? p.weight_stride / 2
                                                           : p.weight_stride;
    const uint32_t first_empty = shared_address(empty);
    static_assert(kApart % 8 == 0, "a thread's rows have their pieces in the same order");
    const uint32_t to = Shape::kXBytes + uint32_t(pair_piece<Type>(id / kPieces, id % kPieces));
    for (int tile = first; tile < all; tile += clusters) {
      const PairPlace place = pair_place<Shape::kUnit>(p, tiles, experts, tile, rank);
      // A thread has piece id % kPieces of row id / kPieces and of every kApart-th after it. Behind the last row its
      // bytes are read again and not used.
      uint32_t from[kEach];  // in units of 16 bytes
#pragma unroll
      for (int i = 0; i < kEach; ++i) {
        from[i] = uint32_t(min(place.n_first + id / kPieces + i * kApart, place.n_end - 1) * weight_stride >> 4);
      }
      const uint8_t* codes = place.weight.values + place.begin_step * Shape::kRowBytes + id % kPieces * 16;
      const uint8_t* scales = nullptr;
      if constexpr (Shape::kCodes) {
        const int n = int(min(place.n_first + id, place.n_end - 1));
        scales = place.weight.scales + n / p.scale_rows * p.scale_stride + place.begin_step * 2;
      }
      const uint32_t x_bytes = uint32_t(place.rows) * 128, half = x_bytes / 2, own_half = uint32_t(rank % 2) * half;
      const uint8_t* x = p.x + place.x_first * (int64_t(tiles.x_blocks) * 128) +
                         (place.x_column / 64 + place.begin_step) * x_bytes + own_half;
      for (int step = place.begin_step; step < place.end_step; ++step) {
        wait_phase(first_empty + 8 * ring.stage, ring.parity ^ 1);
        const uint32_t stage = first_stage + ring.stage * Shape::kStageBytes;
        if (id == 0) {
          expect_bytes(full[ring.stage], x_bytes);
          copy_bulk_to_pair(stage + own_half, x, half, full[ring.stage], rank);
        }
#pragma unroll
        for (int i = 0; i < kEach; ++i) {
          copy_async<16>(stage + to + i * (kApart * Shape::kRowBytes), codes + uint64_t(from[i]) * 16);
        }
        if constexpr (Shape::kCodes) {
          if (step % 2 == 0) {
            copy_async<4>(stage + Shape::kXBytes + Shape::kWeightBytes + 4 * id, scales);
            scales += 4;
          }
        }
        arrive_after_copies(first_full + 8 * ring.stage);
        x += x_bytes;
        codes += Shape::kRowBytes;
        ring.next();
      }
      if (tiles.parts > 1) {  // sums lie in the stages between
        meet_cluster();
        meet_cluster();
      }
    }
  } else {
    take_registers<Shape::kMultiplying>();
    const uint32_t released = address_in_block(&empty[0], uint32_t(rank / 2 * 2) + threadIdx.x % 2);
    for (int tile = first; tile < all; tile += clusters) {
      const auto find = [&] { return pair_place<Shape::kUnit>(p, tiles, experts, tile, rank); };
      int begin_step, end_step, rows;
      {
        const PairPlace place = find();
        begin_step = place.begin_step, end_step = place.end_step, rows = place.rows;
      }
      const auto run = [&]<int Rows>() {
        multiply_tile<Type, Rows>(p, tiles, begin_step, end_step, stages, first_stage, first_full, released, rank, ring,
                                  find);
      };
      switch (rows) {
        // Up to 128 rows decoding takes longer than products do; rows that were not copied are multiplied, not stored.
        case 32:
        case 64: run.template operator()<64>(); break;
        case 96:
        case 128: run.template operator()<128>(); break;
        case 160: run.template operator()<160>(); break;
        case 192: run.template operator()<192>(); break;
        case 224: run.template operator()<224>(); break;
        default: run.template operator()<256>(); break;
      }
    }
  }
  if (p.beside) wait_for_kernel_ahead();  // whoever waits for this one waits for both
  meet_cluster();                         // the other blocks' copies and arrivals come here
}

}  // namespace fathom::cuda
