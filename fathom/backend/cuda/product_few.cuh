// fathom/backend/cuda/product_few.cuh
// Rows times FP8 or FP4 weights where there are few rows (1 to 16 of a weight) and the weights' bytes are the floor.
//
// One launch, one block a multiprocessor. The tiles (16 weight rows, all of K) of all weights lie in one line; each
// block has an equal piece of it, and its warps take tiles in turn. A warp has a pipeline of its own: 16 rows x 128
// bytes a stage by cp.async, without barriers between warps, running ahead over the ends of tiles and weights. So a
// multiprocessor keeps 64 KB on their way all the time (4.27 TB/s x 700 ns are 23 KB for each of 132). The rows of x
// that a weight meets lie in shared memory, arranged once a weight and block.
// It may begin before the kernel ahead in the stream has ended, where that is another product of this kind
// (programmatic dependent launch): a plain product's first weights are fetched then, everything else after the wait.
// Through a chain of such products a fetch may come before the end of any kernel ahead of it, so a plain product's
// weights must have been there before the stream's last wait or copy; the engine's are loaded before steps begin. A
// block with tiles ends only after its wait, so the kernel behind a chain has waited for all of it. In a captured graph
// the launch is an edge of the type cudaGraphDependencyTypeProgrammatic. Source: CUDA programming guide, programmatic
// dependent launch.
//
// Sums have one of two orders (FewForm). In queues that are batch-invariant, and of bf16 rows, that of
// product_pairs.cuh, whose bits they then are: operands decoded to bf16 by the same code, each of Product::parts one
// chain of sums by the tensor core. Else the one that is faster here: the codes themselves are multiplied, as f16,
// which is exact, and the scales are applied to the float sum of each 32 columns, so that no weight is multiplied by a
// scale and no product waits for the one before; K in segments (tiles.h). In both, parts are added in rising order.
// Where a block has a few tiles only, its warps share each by parts, and the one that ends last adds them.
//
// Bytes: the weights once for each 8 or 16 rows of x. What comes next is instructions: about 53 for 512 FP4 weights.
#pragma once
#include <algorithm>
#include <type_traits>

#include "fathom/backend/cuda/block_scan.cuh"
#include "fathom/backend/cuda/launch.h"
#include "fathom/backend/cuda/product_few_parts.cuh"

namespace fathom::cuda {

template <DType Type, int NTiles, int Warps, int Stages, FewForm Form>
__global__ void __launch_bounds__(32 * Warps, 1)
    few_kernel(const __grid_constant__ Product p, const __grid_constant__ FewPlan plan) {
  using Shared = FewShared<NTiles, Warps, Stages, Form>;
  constexpr int kThreads = 32 * Warps, kX = 8 * NTiles;
  constexpr int kByteColumns = Type == DType::f4_e2m1 ? 2 : 1;
  constexpr int kSteps = 16 * kFewPieces * kByteColumns / kStep;  // of 128 columns in a stage
  constexpr int kXGroup = Shared::kXGroup, kScaleSteps = Shared::kScaleSteps, kScalePitch = Shared::kScalePitch;
  constexpr bool kChain = Form == FewForm::chain;
  extern __shared__ __align__(128) uint8_t few_memory[];
  __shared__ int lanes[Warps];
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  const int k = int(p.k), k_steps = k / kStep, x_row_bytes = Shared::x_row(k);
  uint8_t* const x_memory = few_memory + Shared::kX;
  float* const x_scales = reinterpret_cast<float*>(few_memory + Shared::x_scales(k, plan.x_capacity));
  float* const parts = reinterpret_cast<float*>(few_memory + Shared::parts(k, plan.x_capacity));
  int* const arrived = reinterpret_cast<int*>(parts + plan.most_shared_tiles * plan.ways * (Shared::kPart / 4));
  WeightPointers* const experts = reinterpret_cast<WeightPointers*>(few_memory + Shared::experts(k, plan));
  int* const x_tiles_before = reinterpret_cast<int*>(experts + p.expert_count);  // [expert_count + 1]
  int* const rows_before = x_tiles_before + p.expert_count + 1;                  // [expert_count + 1]

  // The line of tiles: weights, each with its tiles of x ("pairs"), in order; a pair's tiles in order.
  const int plain_x_tiles = int((p.rows + kX - 1) / kX);
  int pairs = plain_x_tiles * p.groups;
  let_kernel_behind_start();
  if (p.begin != nullptr) {
    wait_for_kernel_ahead();
    int before = 0;
    for (int first = 0; first < p.expert_count; first += kThreads) {
      const int e = first + int(threadIdx.x);
      int own = 0, total = 0;
      if (e < p.expert_count) {
        experts[e] = p.experts[e];
        const int begin = p.begin[e];
        rows_before[e] = begin;
        own = (p.begin[e + 1] - begin + kX - 1) / kX;
      }
      const int here = before + before_in_block(own, lanes, total);
      if (e < p.expert_count) x_tiles_before[e] = here;
      before += total;
    }
    if (threadIdx.x == 0) {
      x_tiles_before[p.expert_count] = before;
      rows_before[p.expert_count] = p.begin[p.expert_count];
    }
    pairs = before;
  }
  for (int i = threadIdx.x; i < plan.most_shared_tiles; i += kThreads) arrived[i] = 0;
  __syncthreads();
  const int64_t all = int64_t(pairs) * plan.tiles;
  // As many blocks for each pair where that leaves few without work: a block that has the ends of two waits between.
  int blocks = int(gridDim.x);
  if (pairs > 1 && pairs <= blocks && blocks % pairs * 16 <= blocks) blocks -= blocks % pairs;
  if (int(blockIdx.x) >= blocks) return;
  const int begin_tile = int(all * blockIdx.x / blocks), end_tile = int(all * (blockIdx.x + 1) / blocks);
  if (begin_tile == end_tile) return;

  struct Pair {
    WeightPointers weight;
    int n_first, n_end;  // weight rows
    int first, rows;     // rows of the result
    int x_column;
  };
  const auto pair_of = [&](int number) {
    Pair pair;
    if (p.begin != nullptr) {
      int low = 0, high = p.expert_count;  // x_tiles_before[low] <= number < x_tiles_before[high]
      while (high - low > 1) {
        const int middle = (low + high) / 2;
        (x_tiles_before[middle] <= number ? low : high) = middle;
      }
      pair.weight = experts[low];
      pair.n_first = 0;
      pair.n_end = int(p.n);
      pair.first = rows_before[low] + (number - x_tiles_before[low]) * kX;
      pair.rows = min(kX, rows_before[low + 1] - pair.first);
      pair.x_column = 0;
    } else {
      const int group = number / plain_x_tiles, per_group = int(p.n / p.groups);
      pair.weight = p.weight;
      pair.n_first = group * per_group;
      pair.n_end = pair.n_first + per_group;
      pair.first = number % plain_x_tiles * kX;
      pair.rows = min(kX, int(p.rows) - pair.first);
      pair.x_column = group * k;
    }
    return pair;
  };

  // A warp's place in the line: number `warp` of the block's units (a tile, or a segment of it), then each Warps-th.
  struct Unit {
    int pair, tile, part;
  };
  const int step_tiles = Warps / plan.ways, step_parts = Warps % plan.ways;
  const auto skip = [&](Unit& unit, int tiles, int unit_parts) {
    unit.part += unit_parts;
    unit.tile += tiles;
    if (unit.part >= plan.ways) {
      unit.part -= plan.ways;
      ++unit.tile;
    }
    while (unit.tile >= plan.tiles) {
      unit.tile -= plan.tiles;
      ++unit.pair;
    }
  };
  Unit unit{begin_tile / plan.tiles, begin_tile % plan.tiles, 0};
  skip(unit, warp / plan.ways, warp % plan.ways);
  const Unit end{end_tile / plan.tiles, end_tile % plan.tiles, 0};
  const auto exists = [&](const Unit& u) { return u.pair < end.pair || (u.pair == end.pair && u.tile < end.tile); };
  const auto steps_of = [&](const Unit& u) {
    return plan.ways == 1 ? k_steps : plan.begin[u.part + 1] - plan.begin[u.part];
  };

  // ---- the front of the pipeline
  constexpr int kCopies = kFewRows * kFewPieces / 32;
  constexpr int kScaleLines = 32 / kScaleSteps, kScaleCopies = kFewRows / kScaleLines;  // rows of a copy by the warp
  Unit front_unit = unit;
  int front_left = 0, front_scales_left = 0, front_pair = -1;  // steps
  uint32_t front_stage = 0, front_slot = 0;                    // bytes
  const uint8_t* front = nullptr;
  const uint8_t* front_scale = nullptr;
  uint32_t row_offset[kCopies], scale_offset[kScaleCopies];
  const int piece = lane % kFewPieces;
  const int piece_step = piece * kSteps / kFewPieces, scale_step = lane % kScaleSteps, scale_line = lane / kScaleSteps;
  const uint32_t stages = shared_address(few_memory) + warp * Stages * Shared::kStage;
  const uint32_t slots = shared_address(few_memory) + Shared::kPipes + warp * Stages * Shared::kScales;
  // Pieces of a row change places, so that eight rows of one piece lie in different banks.
  uint32_t to_even = stages + lane / 8 * 128 + (piece ^ lane / 8) * 16;
  uint32_t to_odd = stages + lane / 8 * 128 + (piece ^ (lane / 8 + 4)) * 16 + 512;
  uint32_t to_scales = slots + scale_line * kScalePitch + scale_step * 4;
  keep(to_even), keep(to_odd), keep(to_scales);
  const uint32_t row_stride = uint32_t(p.weight_stride / kByteColumns), scale_stride = uint32_t(p.scale_stride);
  Pair coming;
  const auto next_unit = [&]() {
    if (front_unit.pair != front_pair) {
      front_pair = front_unit.pair;
      coming = pair_of(front_pair);
    }
    const int n = coming.n_first + front_unit.tile * kFewRows, last = min(coming.n_end - n, kFewRows) - 1;
    const int first_step = plan.begin[front_unit.part];
    front = coming.weight.values + int64_t(n) * row_stride + first_step * (kStep / kByteColumns) + piece * 16;
#pragma unroll
    for (int i = 0; i < kCopies; ++i) row_offset[i] = uint32_t(min(lane / 8 + 4 * i, last)) * row_stride;
    const int scale_row = n >> plan.scale_shift;
    front_scale = coming.weight.scales + int64_t(scale_row) * scale_stride + (first_step + scale_step) * kGroups;
#pragma unroll
    for (int i = 0; i < kScaleCopies; ++i) {
      const int row = n + min(scale_line + kScaleLines * i, last);
      scale_offset[i] = uint32_t((row >> plan.scale_shift) - scale_row) * scale_stride;
    }
    front_left = steps_of(front_unit);
    front_scales_left = 0;
    skip(front_unit, step_tiles, step_parts);
  };
  const auto fetch = [&]() {
    if (front_left == 0 && exists(front_unit)) next_unit();
    if (front_left > 0) {
      const uint32_t bytes = piece_step < front_left ? 16 : 0;
#pragma unroll
      for (int i = 0; i < kCopies; ++i) {
        copy_async<16>((i % 2 ? to_odd : to_even) + front_stage + i / 2 * 1024, front + row_offset[i], bytes);
      }
      if (front_scales_left == 0) {
        const uint32_t scale_bytes = scale_step < front_left ? 4 : 0;
#pragma unroll
        for (int i = 0; i < kScaleCopies; ++i) {
          copy_async<4>(to_scales + front_slot + i * kScaleLines * kScalePitch, front_scale + scale_offset[i],
                        scale_bytes);
        }
        front_scale += 4 * kScaleSteps;
        front_slot = front_slot == (Stages - 1) * Shared::kScales ? 0 : front_slot + Shared::kScales;
        front_scales_left = kScaleSteps;
      }
      front += 16 * kFewPieces;
      front_left = max(front_left - kSteps, 0);
      front_scales_left -= kSteps;
    }
    front_stage = front_stage == (Stages - 1) * Shared::kStage ? 0 : front_stage + Shared::kStage;
    commit_copies();
  };
  // Weights are nobody's result: they may be on their way before the kernel ahead has ended.
#pragma unroll 1
  for (int s = 0; s < Stages - 1; ++s) fetch();
  if (p.begin == nullptr) wait_for_kernel_ahead();

  // ---- the products
  uint32_t matrix[4];  // of 16 rows x 32 bytes, in the first stage
#pragma unroll
  for (int q = 0; q < 4; ++q) {
    matrix[q] = stages + lane % 16 * 128 + ((2 * q + lane / 16) ^ (lane & 7)) * 16;
    keep(matrix[q]);
  }
  uint32_t own_scales = slots + g * kScalePitch, stage = 0, slot = (Stages - 1) * Shared::kScales;
  keep(own_scales);
  const uint32_t x_address = shared_address(x_memory) + t * (kXGroup / 4);
  const uint32_t x_scale_address = shared_address(x_scales) + 2 * t * 16;
  const int last_pair = (end_tile - 1) / plan.tiles;
#pragma unroll 1
  for (int number = begin_tile / plan.tiles; number <= last_pair; ++number) {
    const Pair pair = pair_of(number);
    __syncthreads();  // the rows before have been used
    place_rows<Type, kX, kThreads, Form>(p, k, pair.first, pair.rows, pair.x_column, x_row_bytes, x_memory, x_scales);
    __syncthreads();

#pragma unroll 1
    for (; unit.pair == number && exists(unit); skip(unit, step_tiles, step_parts)) {
      const int first_step = plan.begin[unit.part];
      int part = unit.part, left = steps_of(unit), part_left = plan.begin[part + 1] - first_step, scales_left = 0;
      uint32_t x_lane[NTiles];
#pragma unroll
      for (int n = 0; n < NTiles; ++n) {  // rows that do not exist: those of the last one, whose sums are not stored
        x_lane[n] = x_address + min(8 * n + g, pair.rows - 1) * x_row_bytes + first_step * (kGroups * kXGroup);
      }
      uint32_t x_scale = x_scale_address + first_step * (kX * 16), scales = 0;
      float sum[NTiles][4] = {}, total[NTiles][4];
#pragma unroll
      for (int n = 0; n < NTiles; ++n) {
        for (int i = 0; i < 4; ++i) total[n][i] = -0.0f;  // plus x is x, of either sign
      }
#pragma unroll 1
      while (left > 0) {
        wait_copies<Stages - 2>();
        __syncwarp();
        fetch();
        if (scales_left == 0) {
          slot = slot == (Stages - 1) * Shared::kScales ? 0 : slot + Shared::kScales;
          scales = own_scales + slot;
          scales_left = kScaleSteps;
        }
#pragma unroll
        for (int s = 0; s < kSteps; ++s) {
          if (s > 0 && left == 0) break;
          uint32_t own[2];
#pragma unroll
          for (int h = 0; h < 2; ++h) own[h] = load_shared(scales + 8 * h * kScalePitch + 4 * s);
          uint32_t raw[4 / kByteColumns][4];
#pragma unroll
          for (int q = 0; q < 4 / kByteColumns; ++q) {
            load_matrices(raw[q], matrix[q + s * (4 / kByteColumns)] + stage);
          }
          uint32_t x_at[NTiles];
#pragma unroll
          for (int n = 0; n < NTiles; ++n) x_at[n] = x_lane[n] + s * (kGroups * kXGroup);
          if constexpr (kChain) {
            add_in_chain<Type, NTiles>(raw, own, x_at, sum);
          } else {
            add_codes<Type, NTiles, Form>(raw, own, x_at, x_scale + s * (kX * 16), sum);
          }
          --left;
          if (--part_left == 0 || left == 0) {
#pragma unroll
            for (int n = 0; n < NTiles; ++n) {
#pragma unroll
              for (int i = 0; i < 4; ++i) {
                total[n][i] += sum[n][i];
                sum[n][i] = 0;
              }
            }
            if (left > 0) ++part, part_left = plan.begin[part + 1] - plan.begin[part];
          }
        }
        stage = stage == (Stages - 1) * Shared::kStage ? 0 : stage + Shared::kStage;
        scales += 4 * kSteps;
        scales_left -= kSteps;
        if constexpr (!kChain) x_scale += kSteps * kX * 16;
#pragma unroll
        for (int n = 0; n < NTiles; ++n) x_lane[n] += kSteps * kGroups * kXGroup;
      }
      if (plan.ways > 1) {
        const int local = unit.pair * plan.tiles + unit.tile - begin_tile;
        float4* own = reinterpret_cast<float4*>(parts) + local * plan.ways * 32 * NTiles + lane;
#pragma unroll
        for (int n = 0; n < NTiles; ++n) {
          own[(unit.part * NTiles + n) * 32] = make_float4(total[n][0], total[n][1], total[n][2], total[n][3]);
        }
        __threadfence_block();
        __syncwarp();
        int before = 0;
        if (lane == 0) before = atomicAdd(&arrived[local], 1);
        if (__shfl_sync(~0u, before, 0) != plan.ways - 1) continue;
        __threadfence_block();
#pragma unroll
        for (int n = 0; n < NTiles; ++n) {
          for (int s = 0; s < plan.ways; ++s) {
            const float4 v = own[(s * NTiles + n) * 32];
            total[n][0] = s == 0 ? v.x : total[n][0] + v.x;
            total[n][1] = s == 0 ? v.y : total[n][1] + v.y;
            total[n][2] = s == 0 ? v.z : total[n][2] + v.z;
            total[n][3] = s == 0 ? v.w : total[n][3] + v.w;
          }
        }
      }
      const int n_tile = pair.n_first + unit.tile * kFewRows;
      store_tile<NTiles>(p, pair.first, pair.rows, n_tile, pair.n_end, total);
    }
  }
  wait_copies<0>();
}

inline int multiprocessors() {
  static const int count = [] {
    int device = 0, found = 0;
    expect(cudaGetDevice(&device), "a product");
    expect(cudaDeviceGetAttribute(&found, cudaDevAttrMultiProcessorCount, device), "a product");
    return found;
  }();
  return count;
}

/// Tiles of a block at most, with so many rows of x at a time.
inline int64_t few_tiles(const Product& p, int x_rows) {
  return divide_up(most_row_tiles(p, x_rows) * p.groups * divide_up(p.n / p.groups, kFewRows), multiprocessors());
}

/// False: x does not fit into shared memory, and nothing was launched.
template <DType Type, int NTiles, int Warps, int Stages, FewForm Form>
bool launch_few_kernel(const Call& call, const Product& p) {
  constexpr int kX = 8 * NTiles;
  FewPlan plan;
  plan.tiles = int(divide_up(p.n / p.groups, kFewRows));
  const int parts = Form == FewForm::chain ? p.parts : int(std::min<int64_t>(segments(p.k), FewPlan::kMostParts));
  for (int part = 0; part <= parts; ++part) plan.begin[part] = int(p.k / kStep * part / parts);
  plan.x_capacity = int(std::min<int64_t>(kX, p.rows));
  plan.scale_shift = 0;
  while (1 << plan.scale_shift < p.scale_rows) ++plan.scale_shift;
  if (1 << plan.scale_shift != p.scale_rows) return false;
  const int64_t of_block = few_tiles(p, kX);
  constexpr int kStatic = 1024;  // what the kernel has besides, at most
  int bytes = 0;
  const auto fits = [&](int ways) {
    plan.ways = ways;
    plan.most_shared_tiles = ways > 1 ? int(of_block) : 0;
    bytes = FewShared<NTiles, Warps, Stages, Form>::bytes(p.k, plan, p.begin ? p.expert_count : 0);
    return bytes <= kMostShared - kStatic;
  };
  if (!(of_block <= 8 && fits(parts)) && !fits(1)) return false;
  const auto kernel = few_kernel<Type, NTiles, Warps, Stages, Form>;
  static const cudaError_t allowed =
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kMostShared - kStatic);
  expect(allowed, "a product");
  const int64_t tiles = most_row_tiles(p, kX) * p.groups * plan.tiles;
  launch_early(call, kernel, dim3(unsigned(std::min<int64_t>(multiprocessors(), tiles))), 32 * Warps, bytes, p, plan);
  return true;
}

// Warps and stages as measured (docs/performance/cuda.md).
template <DType Type>
bool launch_few_chains(const Call& call, const Product& p, int x_rows) {
  constexpr FewForm kForm = FewForm::chain;
  if (x_rows > 8 &&
      (launch_few_kernel<Type, 2, 16, 3, kForm>(call, p) || launch_few_kernel<Type, 2, 8, 3, kForm>(call, p))) {
    return true;
  }
  // Few tiles of a block want longer pipelines, long rows of x leave room for shorter ones only.
  if (few_tiles(p, 8) * p.parts <= 8 && launch_few_kernel<Type, 1, 8, 6, kForm>(call, p)) return true;
  if constexpr (Type == DType::f4_e2m1) {
    const bool few_of_each = p.begin != nullptr && p.rows <= 2 * p.expert_count;
    if (few_of_each && launch_few_kernel<Type, 1, 16, 3, kForm>(call, p)) return true;
  }
  return launch_few_kernel<Type, 1, 12, 4, kForm>(call, p) || launch_few_kernel<Type, 1, 8, 4, kForm>(call, p);
}
template <DType Type>
bool launch_few_codes(const Call& call, const Product& p, int x_rows) {
  if (x_rows > 8) return launch_few_kernel<Type, 2, 16, 3, FewForm::codes>(call, p);
  if constexpr (Type == DType::f4_e2m1) {
    const bool few_of_each = p.begin != nullptr && p.rows <= 2 * p.expert_count;
    if (few_of_each) return launch_few_kernel<Type, 1, 16, 3, FewForm::halves>(call, p);
  }
  return launch_few_kernel<Type, 1, 12, 4, FewForm::halves>(call, p);
}

template <DType Type>
bool launch_few_product(Call& call, const Product& p, int x_rows, bool in_chains) {
  return in_chains ? launch_few_chains<Type>(call, p, x_rows) : launch_few_codes<Type>(call, p, x_rows);
}

}  // namespace fathom::cuda
