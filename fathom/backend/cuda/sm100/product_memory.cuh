// fathom/backend/cuda/sm100/product_memory.cuh
// Products with more rows than a few on Blackwell's tensor cores, which add into tensor memory: bf16 times bf16, and Q8
// rows times FP8 or FP4 weights in one of two ways.
//
//   widened   codes of weights become bf16 on their way into shared memory, exactly; x is what arrange_tiles made.
//             Only float sums round
//   scaled    codes of both go to the tensor cores as they are, with their scales: FP8 and FP4 with a power of two for
//             32 columns are the hardware's own formats (MXFP8, MXFP4). Nothing is decoded and x needs no launch of its
//             own; how sums round is the hardware's affair. Only in queues with `scaled_products`
//
// Weights are the left operand: a tile has 128 of their rows, the lanes of tensor memory, and as many rows of x as are
// there, in steps of 32, up to 256 (scaled: 192). A block stays and takes tiles in turns. Four warps fill a ring of
// stages, one thread issues the products of what is full, and four warps store sums. There are two sets of sums, so one
// tile is stored while the next is multiplied. Scales have columns of their own for each stage: they are written over
// when the products that read them have ended, not before.
//
// Sums: k from 0 upwards in one chain by the tensor core. The order depends on K alone.
//
// Bytes: N * K * (1/2, 1 or 2) for each 256 (192) rows of x; of x 2 * K (scaled: K) a row for each 128 of N.
// Operations: 2 * rows * N * K.
//
// Not run on such a GPU yet: places and descriptors are tested against a model (descriptors_test.cpp), instructions
// have been looked at (docs/performance/cuda.md). Left for then: pairs of blocks (cta_group::2), which halve what each
// has to read, parts of K where tiles are few, copies of whole tiles (tensor maps).
//
// This text has no instruction of its own: whoever includes it has those of CUDA, tensor_memory.cuh and
// decode_weights.cuh (memory_launch.cuh), or a model of them on the processor (tensor_memory_model.h).
#pragma once
#include "fathom/backend/cuda/product_tiles.cuh"
#include "fathom/backend/cuda/sm100/descriptors.h"
#include "fathom/backend/cuda/tiles.h"
#include "fathom/tensor/dtype.h"

namespace fathom::cuda::sm100 {

constexpr int kTileWeightRows = 128;
constexpr int kStoring = 128, kFilling = 128;       // threads; a whole warp more issues products
constexpr int kThreads = kStoring + kFilling + 32;  // warps 0 to 3: lanes of tensor memory go by the warp's number
constexpr int kAllColumns = 512;

template <DType Type, bool Scaled>
struct MemoryShape {
  static constexpr bool kCodes = Type != DType::bf16;
  static_assert(kCodes || !Scaled, "bf16 has no scales");
  static constexpr int kColumns = Scaled ? 128 : 64;  // of a step: 128 bytes of each row in shared memory
  static constexpr int kMostRows = Scaled ? kScaledRows : kPairRows;
  static constexpr int kXBytes = kMostRows * kTileRowBytes, kWeightBytes = kTileWeightRows * kTileRowBytes;
  static constexpr int kXScaleBlocks = Scaled ? scale_blocks(kMostRows) : 0;
  static constexpr int kScaleBytes = Scaled ? (1 + kXScaleBlocks) * kScaleBlockBytes : 0;  // the weights' first
  static constexpr int kStageBytes = (kXBytes + kWeightBytes + kScaleBytes + 1023) / 1024 * 1024;
  static constexpr int kMostBytes = 216 * 1024;  // of 227 KB; the tables take the rest
  static constexpr int kStages = kMostBytes / kStageBytes;
  static_assert(kStages >= 4, "one is multiplied, one is full or filled, two are under way");
  // Columns of tensor memory: two sets of sums, then the scales of each stage.
  static constexpr int kScaleColumns = Scaled ? (1 + kXScaleBlocks) * kScaleBlockColumns : 0;
  static_assert(2 * kMostRows + kStages * kScaleColumns <= kAllColumns);
};

/// The tiles of a launch.
template <DType Type, bool Scaled>
ProductGrid memory_tiles(const Product& p) {
  using Shape = MemoryShape<Type, Scaled>;
  return product_grid(p, Shape::kMostRows, kTileWeightRows, Shape::kColumns);
}

/// A block's shared memory beside its stages.
template <int Stages>
struct MemoryBarriers {
  uint64_t full[Stages], empty[Stages];
  uint64_t summed[2], stored[2];  // of each set of sums
  uint32_t columns;               // the address of the tensor memory
};

// ------------------------------------------------------------------------------------------------ filling
/// Pairs of bf16 of 32 columns of a weight row, from their codes: four pieces in the order of arrange_tiles, where a
/// pair has columns that are decoded together: of FP4 columns 8 i + piece and + 4, of FP8 16 (piece / 2) + 4 i + piece
/// % 2 and + 2.
template <DType Type>
__device__ __forceinline__ void widen_group(const uint32_t* words, uint32_t scale, uint32_t (&pieces)[4][4]) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    if constexpr (Type == DType::f4_e2m1) {
      pairs_of_e2m1(words[i], 0, pieces[0][i], pieces[1][i]);
      pairs_of_e2m1(words[i], 1, pieces[2][i], pieces[3][i]);
    } else {
      pairs_of_e4m3(words[i], pieces[0][i], pieces[1][i]);
      pairs_of_e4m3(words[4 + i], pieces[2][i], pieces[3][i]);
    }
  }
  const Factors factors = factors_of(scale, Type == DType::f8_e4m3 ? 120 : 126);
#pragma unroll
  for (int i = 0; i < 16; ++i) pieces[i / 4][i % 4] = times(pieces[i / 4][i % 4], factors.first);
  if (factors.two) {
#pragma unroll
    for (int i = 0; i < 16; ++i) pieces[i / 4][i % 4] = times(pieces[i / 4][i % 4], factors.second);
  }
}
/// Fills the stages of a tile with widened weights: a thread has a row, whose codes come two steps ahead.
template <DType Type>
__device__ __forceinline__ void fill_widened(const Product& p, const ProductGrid& tiles, const TilePlace& place,
                                             uint32_t stages,
                                             MemoryBarriers<MemoryShape<Type, false>::kStages>& barriers,
                                             RingPlace<MemoryShape<Type, false>::kStages>& ring) {
  using Shape = MemoryShape<Type, false>;
  constexpr int kRowBytes = Type == DType::f4_e2m1 ? 32 : 64, kLoads = kRowBytes / 16;  // of a step
  const int id = threadIdx.x - kStoring;
  const int64_t n = min(place.n_first + id, place.n_end - 1);  // behind the last row: read, not used
  const uint8_t* codes = place.weight.values + n * (Type == DType::f4_e2m1 ? p.weight_stride / 2 : p.weight_stride);
  const uint8_t* scales = place.weight.scales + n / p.scale_rows * p.scale_stride;
  const uint32_t x_bytes = uint32_t(place.rows) * kTileRowBytes;
  const uint8_t* x = p.x + place.x_first * (int64_t(tiles.x_blocks) * kTileRowBytes) + place.x_column / 64 * x_bytes;
  uint4 ahead[2][kLoads];
  uint32_t scales_ahead = __ldg(reinterpret_cast<const uint32_t*>(scales));
  const auto load = [&](uint4(&to)[kLoads], int step) {
#pragma unroll
    for (int i = 0; i < kLoads; ++i)
      to[i] = __ldg(reinterpret_cast<const uint4*>(codes + int64_t(step) * kRowBytes) + i);
  };
  load(ahead[0], 0);
  load(ahead[1], 1);
#pragma unroll 1
  for (int step = 0; step < tiles.steps; step += 2) {  // scales come for two steps
    const uint32_t four = scales_ahead;
    if (step + 2 < tiles.steps) scales_ahead = __ldg(reinterpret_cast<const uint32_t*>(scales) + step / 2 + 1);
#pragma unroll
    for (int q = 0; q < 2; ++q) {
      uint32_t words[4 * kLoads];
#pragma unroll
      for (int i = 0; i < kLoads; ++i) {
        words[4 * i] = ahead[q][i].x, words[4 * i + 1] = ahead[q][i].y;
        words[4 * i + 2] = ahead[q][i].z, words[4 * i + 3] = ahead[q][i].w;
      }
      if (step + 2 < tiles.steps) load(ahead[q], step + 2 + q);
      wait_phase(barriers.empty[ring.stage], ring.parity ^ 1);
      const uint32_t stage = stages + ring.stage * Shape::kStageBytes;
      if (id == 0) {
        expect_bytes(barriers.full[ring.stage], x_bytes);
        copy_bulk(stage, x + int64_t(step + q) * x_bytes, x_bytes, barriers.full[ring.stage]);
      }
#pragma unroll
      for (int group = 0; group < 2; ++group) {
        uint32_t pieces[4][4];
        widen_group<Type>(words + group * (2 * kLoads), four >> (16 * q + 8 * group) & 0xff, pieces);
#pragma unroll
        for (int i = 0; i < 4; ++i) store_piece(stage + Shape::kXBytes + piece_place(id, 4 * group + i), pieces[i]);
      }
      publish_to_products();
      arrive(barriers.full[ring.stage]);
      ring.next();
    }
  }
}

/// Fills stages by asynchronous copies: bf16 weights with the arranged x, or codes, their scales, and the rows of x as
/// they lie. A thread has piece id % 8 of row id / 8 and of every sixteenth after it.
template <DType Type, bool Scaled>
struct Copying {
  using Shape = MemoryShape<Type, Scaled>;
  static constexpr int kApart = kFilling / 8, kEach = kTileWeightRows / kApart;
  static constexpr int kXEach = Scaled ? Shape::kMostRows / kApart : 1;
  static constexpr int kPieceBytes = Type == DType::f4_e2m1 ? 8 : 16;  // in device memory
  static_assert(kApart % 8 == 0, "a thread's rows have their pieces in the same order");
  int pending = -1;  // the stage whose copies are under way

  /// What was copied into it is there: the copies after them are `Under` groups.
  template <int Under>
  __device__ __forceinline__ void hand_over(MemoryBarriers<Shape::kStages>& barriers) {
    wait_copies<Under>();
    publish_to_products();
    if (pending >= 0) arrive(barriers.full[pending]);
  }

  __device__ __forceinline__ void fill(const Product& p, const ProductGrid& tiles, const TilePlace& place,
                                       uint32_t stages, MemoryBarriers<Shape::kStages>& barriers,
                                       RingPlace<Shape::kStages>& ring) {
    const int id = threadIdx.x - kStoring, piece = id % 8;
    const int64_t row_bytes = Type == DType::bf16      ? p.weight_stride * 2
                              : Type == DType::f4_e2m1 ? p.weight_stride / 2
                                                       : p.weight_stride;
    const uint32_t to = uint32_t(piece_place(id / 8, piece));
    uint32_t weight_from[kEach];  // in units of 16 bytes
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      weight_from[i] = uint32_t(min(place.n_first + id / 8 + i * kApart, place.n_end - 1) * row_bytes >> 4);
    }
    const uint8_t* weights = place.weight.values + piece * kPieceBytes;
    const uint8_t *x = p.x, *weight_scales = nullptr, *x_scales[2] = {};
    const uint8_t* x_from[kXEach];
    uint32_t x_bytes = 0;
    const auto x_row = [&](int row) {  // behind the last one it is read again and not used
      const int64_t a = min(place.first + row, place.end - 1);
      return p.x_row != nullptr ? int64_t(p.x_row[a]) : a;
    };
    if constexpr (Scaled) {
#pragma unroll
      for (int i = 0; i < kXEach; ++i) {
        x_from[i] = p.x + x_row(id / 8 + i * kApart) * p.x_stride + place.x_column + 16 * piece;
      }
      const int64_t n = min(place.n_first + id, place.n_end - 1);
      weight_scales = place.weight.scales + n / p.scale_rows * p.scale_stride;
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        x_scales[i] = p.x_scales + x_row(id + i * kFilling) * p.x_scale_stride + place.x_column / 32;
      }
    } else {
      x_bytes = uint32_t(place.rows) * kTileRowBytes;
      x += place.x_first * (int64_t(tiles.x_blocks) * kTileRowBytes) + place.x_column / 64 * x_bytes;
    }
#pragma unroll 1
    for (int step = 0; step < tiles.steps; ++step) {
      wait_phase(barriers.empty[ring.stage], ring.parity ^ 1);
      const uint32_t stage = stages + ring.stage * Shape::kStageBytes;
#pragma unroll
      for (int i = 0; i < kEach; ++i) {
        copy_async<kPieceBytes>(stage + Shape::kXBytes + to + i * (kApart * kTileRowBytes),
                                weights + uint64_t(weight_from[i]) * 16);
      }
      weights += 8 * kPieceBytes;
      if constexpr (Scaled) {
#pragma unroll
        for (int i = 0; i < kXEach; ++i) {
          if (i * kApart < place.rows)
            copy_async<16>(stage + to + i * (kApart * kTileRowBytes), x_from[i] + step * 128);
        }
        const uint32_t scales = stage + Shape::kXBytes + Shape::kWeightBytes;
        copy_async<4>(scales + scale_place(id), weight_scales + step * 4);
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          const int row = id + i * kFilling;
          if (row < place.rows) copy_async<4>(scales + kScaleBlockBytes + scale_place(row), x_scales[i] + step * 4);
        }
      } else if (id == 0) {
        expect_bytes(barriers.full[ring.stage], x_bytes);
        copy_bulk(stage, x, x_bytes, barriers.full[ring.stage]);
        x += x_bytes;
      }
      commit_copies();
      hand_over<1>(barriers);
      pending = ring.stage;
      ring.next();
    }
  }
};

// ------------------------------------------------------------------------------------------------ products
/// Issues the products of a tile: one thread, and its warp comes along.
template <DType Type, bool Scaled>
__device__ __forceinline__ void multiply_tile(int steps, int rows, uint32_t columns, uint32_t sums, uint32_t stages,
                                              MemoryBarriers<MemoryShape<Type, Scaled>::kStages>& barriers,
                                              RingPlace<MemoryShape<Type, Scaled>::kStages>& ring) {
  using Shape = MemoryShape<Type, Scaled>;
  constexpr Codes kWeightCodes = Type == DType::f4_e2m1 ? Codes::e2m1 : Codes::e4m3;
#pragma unroll 1
  for (int step = 0; step < steps; ++step) {
    wait_phase(barriers.full[ring.stage], ring.parity);
    begin_after_meeting();
    if (elected()) {
      const uint32_t stage = stages + ring.stage * Shape::kStageBytes;
      const uint64_t weights = describe_rows(stage + Shape::kXBytes), x = describe_rows(stage);
      if constexpr (Scaled) {
        const uint32_t from = stage + Shape::kXBytes + Shape::kWeightBytes;
        const uint32_t weight_scales = columns + 2 * Shape::kMostRows + ring.stage * Shape::kScaleColumns;
#pragma unroll
        for (int i = 0; i < 1 + Shape::kXScaleBlocks; ++i) {
          if (i < 2 || rows > (i - 1) * kScaleBlockRows) {
            copy_scales(weight_scales + i * kScaleBlockColumns, describe_scales(from + i * kScaleBlockBytes));
          }
        }
#pragma unroll
        for (int k = 0; k < 4; ++k) {
          multiply_scaled(sums, weights + 2 * k, x + 2 * k,
                          describe_scaled_product(kWeightCodes, Codes::e4m3, kTileWeightRows, rows, k), weight_scales,
                          weight_scales + kScaleBlockColumns, step > 0 || k > 0);
        }
      } else {
        const uint32_t instruction = describe_bf16_product(kTileWeightRows, rows);
#pragma unroll
        for (int k = 0; k < 4; ++k) {
          multiply_bf16(sums, weights + 2 * k, x + 2 * k, instruction, step > 0 || k > 0);
        }
      }
      arrive_after_products(barriers.empty[ring.stage]);
    }
    __syncwarp();
    ring.next();
  }
}

// ------------------------------------------------------------------------------------------------ results
/// Stores the sums of a tile: a thread has a weight row, 32 rows of x at a time.
__device__ __forceinline__ void store_tile(const Product& p, const TilePlace& place, uint32_t sums) {
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int64_t n = place.n_first + 32 * warp + lane;
  const int left = int(place.end - place.first);
#pragma unroll 1
  for (int first = 0; first < place.rows; first += 32) {
    uint32_t v[32];
    load_sums(v, sums + (uint32_t(32 * warp) << 16) + uint32_t(first));
    if (p.out_type == DType::bf16) {
      // Two lanes exchange one of two rows each, so that each stores a pair of neighbours.
      const bool odd = lane % 2 != 0;
      const int64_t at = n - lane % 2;
#pragma unroll
      for (int i = 0; i < 32; i += 2) {
        const uint32_t other = __shfl_xor_sync(~0u, odd ? v[i] : v[i + 1], 1);
        const float low = __uint_as_float(odd ? other : v[i]), high = __uint_as_float(odd ? v[i + 1] : other);
        const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
        const int row = first + i + lane % 2;
        if (row < left && at < place.n_end) {
          *reinterpret_cast<__nv_bfloat162*>(p.out + 2 * ((place.first + row) * p.out_stride + at)) = pair;
        }
      }
    } else {
#pragma unroll
      for (int i = 0; i < 32; ++i) {
        const int row = first + i;
        if (row < left && n < place.n_end) {
          reinterpret_cast<uint32_t*>(p.out)[(place.first + row) * p.out_stride + n] = v[i];
        }
      }
    }
  }
}

// ------------------------------------------------------------------------------------------------ the kernel
template <DType Type, bool Scaled>
__global__ void __launch_bounds__(kThreads, 1)
    memory_kernel(const __grid_constant__ Product p, const __grid_constant__ ProductGrid tiles) {
  using Shape = MemoryShape<Type, Scaled>;
  constexpr int kStages = Shape::kStages, kMostRows = Shape::kMostRows;
  __shared__ MemoryBarriers<kStages> barriers;
  uint8_t* given = dynamic_memory();
  uint8_t* first_stage = given + (1024 - shared_address(given) % 1024) % 1024;
  const ExpertTiles experts(first_stage + kStages * Shape::kStageBytes, p.expert_count);
  const uint32_t stages = shared_address(first_stage);
  const int warp = int(of_warp(threadIdx.x / 32));
  constexpr int kIssuing = (kStoring + kFilling) / 32;  // the warp

  if (threadIdx.x == 0) {
    for (int s = 0; s < kStages; ++s) {
      init_barrier(barriers.full[s], kFilling + (Scaled ? 0 : 1));  // one more brings x
      init_barrier(barriers.empty[s], 1);
    }
    for (int i = 0; i < 2; ++i) {
      init_barrier(barriers.summed[i], 1);
      init_barrier(barriers.stored[i], kStoring);
    }
    publish_barriers();
  }
  if (warp == kIssuing) take_columns<kAllColumns>(barriers.columns);
  if (p.begin != nullptr && warp == 1) count_row_tiles(p, tiles, experts);
  end_before_meeting();
  __syncthreads();
  begin_after_meeting();
  const uint32_t columns = of_warp(barriers.columns);
  const int all = all_tiles(p, tiles, experts);
  const auto find = [&](int tile) { return tile_place(p, tiles, experts, tile); };
  RingPlace<kStages> ring;
  int turn = 0;  // of this block's tiles

  if (warp < kStoring / 32) {
    for (int tile = blockIdx.x; tile < all; tile += gridDim.x, ++turn) {
      const TilePlace place = find(tile);
      wait_phase(barriers.summed[turn % 2], uint32_t(turn / 2 & 1));
      begin_after_meeting();
      store_tile(p, place, columns + uint32_t(turn % 2 * kMostRows));
      end_before_meeting();
      arrive(barriers.stored[turn % 2]);
    }
  } else if (warp < kIssuing) {
    if constexpr (Shape::kCodes && !Scaled) {
      for (int tile = blockIdx.x; tile < all; tile += gridDim.x) {
        fill_widened<Type>(p, tiles, find(tile), stages, barriers, ring);
      }
    } else {
      Copying<Type, Scaled> copying;
      for (int tile = blockIdx.x; tile < all; tile += gridDim.x) {
        copying.fill(p, tiles, find(tile), stages, barriers, ring);
      }
      copying.template hand_over<0>(barriers);
    }
  } else {
    for (int tile = blockIdx.x; tile < all; tile += gridDim.x, ++turn) {
      const int rows = int(of_warp(uint32_t(find(tile).rows))), set = turn % 2;
      wait_phase(barriers.stored[set], uint32_t(turn / 2 & 1) ^ 1);
      begin_after_meeting();
      multiply_tile<Type, Scaled>(tiles.steps, rows, columns, columns + uint32_t(set * kMostRows), stages, barriers,
                                  ring);
      if (elected()) arrive_after_products(barriers.summed[set]);
      __syncwarp();
    }
  }
  end_before_meeting();
  __syncthreads();  // sums have been read, so products and copies have ended
  begin_after_meeting();
  if (warp == kIssuing) give_columns<kAllColumns>(columns);
}

}  // namespace fathom::cuda::sm100
