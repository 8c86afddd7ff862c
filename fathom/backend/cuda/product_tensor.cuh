// fathom/backend/cuda/product_tensor.cuh
// x [rows, K] bf16 times weights [N, K] of bf16, FP8 or FP4 on the tensor cores, with float sums. One source for few
// rows (bound by the weights' bytes) and many (bound by arithmetic).
//
// The weights are the left operand: a warp has 16 * MTiles of their rows. They go from device memory straight into
// registers, 16 columns a lane and chunk of 64, and are decoded there to bf16 with their scales: exact, so that only
// the float sums round. The order of K inside a chunk is free as long as both operands agree: lane t of four has the
// columns 16 t ... 16 t + 15, one load of 16 (FP8) or 8 (FP4) bytes. x comes through shared memory by cp.async, four
// stages deep, rows 144 bytes apart (no bank conflicts).
//
// Sums: chunks of 64 in rising order inside a segment (tiles.h), segments in rising order. The split form has a block
// for each segment; the block that ends last adds the parts in that order. Both forms give the same bits.
//
// Bytes: N * K * (1 or 1/2) * (1 + 1/32 or so) once for each 64 (128) rows of x, x once for each 64 (128) of N.
// Operations: 2 * rows * N * K.
#pragma once
#include <algorithm>

#include "fathom/backend/cuda/device.cuh"
#include "fathom/backend/cuda/launch.h"
#include "fathom/backend/cuda/product.h"
#include "fathom/backend/cuda/tensor_core.cuh"

namespace fathom::cuda {

constexpr int kChunk = 64;         // columns of a step
constexpr int kStages = 4;         // chunks of x on their way
constexpr int kRowBytes = 2 * 72;  // of a row of x in shared memory

/// The split form's memory.
struct Parts {
  float* sums = nullptr;        // [segments, rows, N]
  unsigned* arrived = nullptr;  // [tiles] zero before and after a launch
  int64_t segments = 1, segment_columns = 0;
};

// Sixteen columns of a weight row, as loaded.
template <DType Type>
struct Raw {
  static constexpr int kWords = Type == DType::bf16 ? 8 : Type == DType::f8_e4m3 ? 4 : 2;
  uint32_t words[kWords];
  uint32_t scale;
};

template <DType Type>
__device__ inline void load_raw(Raw<Type>& raw, const uint8_t* row, const uint8_t* scales, int64_t column) {
  if constexpr (Type == DType::bf16) {
    const uint4* at = reinterpret_cast<const uint4*>(row + column * 2);
    const uint4 a = __ldg(at), b = __ldg(at + 1);
    raw.words[0] = a.x, raw.words[1] = a.y, raw.words[2] = a.z, raw.words[3] = a.w;
    raw.words[4] = b.x, raw.words[5] = b.y, raw.words[6] = b.z, raw.words[7] = b.w;
  } else {
    if constexpr (Type == DType::f8_e4m3) {
      const uint4 a = __ldg(reinterpret_cast<const uint4*>(row + column));
      raw.words[0] = a.x, raw.words[1] = a.y, raw.words[2] = a.z, raw.words[3] = a.w;
    } else {
      const uint2 a = __ldg(reinterpret_cast<const uint2*>(row + column / 2));
      raw.words[0] = a.x, raw.words[1] = a.y;
    }
    raw.scale = __ldg(scales + column / 32);
  }
}

// The same columns as eight pairs of bf16.
template <DType Type>
__device__ inline void decode_raw(const Raw<Type>& raw, uint32_t (&pairs)[8]) {
  if constexpr (Type == DType::bf16) {
#pragma unroll
    for (int i = 0; i < 8; ++i) pairs[i] = raw.words[i];
  } else {
    const Factors factors = factors_of(raw.scale, Type == DType::f8_e4m3 ? 120 : 126);
    if constexpr (Type == DType::f8_e4m3) {
#pragma unroll
      for (int i = 0; i < 4; ++i) spread_e4m3(raw.words[i], pairs[2 * i], pairs[2 * i + 1]);
    } else {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        uint32_t four[4];
        spread_e2m1(raw.words[i], four);
#pragma unroll
        for (int k = 0; k < 4; ++k) pairs[4 * i + k] = four[k];
      }
    }
#pragma unroll
    for (int i = 0; i < 8; ++i) pairs[i] = times(pairs[i], factors.first);
    if (__any_sync(~0u, factors.two)) {
#pragma unroll
      for (int i = 0; i < 8; ++i) pairs[i] = times(pairs[i], factors.second);
    }
  }
}

// What a block works on.
struct Place {
  WeightPointers weight;
  int64_t n_first, n_end;  // weight rows of the tile, one past those that exist
  int64_t first, end;      // rows of the result
  int64_t begin;           // grouped: the expert's first row
  int64_t x_column;        // where this group's columns begin
};

// The tile of a grouped product: row tile `tile` counts through the experts in order. False behind the last.
template <int XRows>
__device__ inline bool find_expert(const Product& p, int64_t tile, Place& place) {
  __shared__ int found_expert;
  __shared__ int64_t found_first;
  if (threadIdx.x == 0) found_expert = -1;
  __syncthreads();
  if (threadIdx.x < 32) {
    const int lane = int(threadIdx.x);
    int64_t before = 0;
    for (int first = 0; first < p.expert_count && before <= tile; first += 32) {
      const int e = first + lane;
      const int64_t begin = e < p.expert_count ? p.begin[e] : 0;
      const int64_t count = e < p.expert_count ? p.begin[e + 1] - begin : 0;
      const int64_t own = (count + XRows - 1) / XRows;
      int64_t sum = own;
      for (int step = 1; step < 32; step *= 2) {
        const int64_t other = __shfl_up_sync(~0u, sum, step);
        if (lane >= step) sum += other;
      }
      if (tile >= before + sum - own && tile < before + sum) {
        found_expert = e;
        found_first = begin + (tile - (before + sum - own)) * XRows;
      }
      before += __shfl_sync(~0u, sum, 31);
    }
  }
  __syncthreads();
  const int e = found_expert;
  if (e < 0) return false;
  place.weight = p.experts[e];
  place.first = found_first;
  place.begin = p.begin[e];
  place.end = p.begin[e + 1];
  return true;
}

/// Adds the sums of a segment of columns to the totals, in rising order of segments, and begins the next one at 0.
template <int MTiles, int NTiles>
__device__ __forceinline__ void end_segment(float (&sum)[MTiles][NTiles][4], float (&total)[MTiles][NTiles][4],
                                            bool is_first) {
#pragma unroll
  for (int m = 0; m < MTiles; ++m) {
#pragma unroll
    for (int n = 0; n < NTiles; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        total[m][n][i] = is_first ? sum[m][n][i] : total[m][n][i] + sum[m][n][i];
        sum[m][n][i] = 0;
      }
    }
  }
}

// Stores a tile's sums. In the split form of several segments they are parts, and the block that ends last adds them in
// the segments' order.
template <int MTiles, int NTiles, int WarpsN, int WarpsX, bool Split, class Sum>
__device__ inline void finish_tile(const Product& p, const Parts& parts, const Place& place, int64_t group,
                                   int64_t segment, const Sum& sum) {
  constexpr int kThreads = 32 * WarpsN * WarpsX, kN = 16 * MTiles * WarpsN, kX = 8 * NTiles * WarpsX;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  const int warp_n = warp % WarpsN, warp_x = warp / WarpsN;
  const auto put = [&](int64_t a, int64_t n, float value) {
    if (p.out_type == DType::bf16) {
      reinterpret_cast<Bf16*>(p.out)[a * p.out_stride + n] = __float2bfloat16_rn(value);
    } else {
      reinterpret_cast<float*>(p.out)[a * p.out_stride + n] = value;
    }
  };
  const bool alone = !Split || parts.segments == 1;
#pragma unroll
  for (int m = 0; m < MTiles; ++m) {
#pragma unroll
    for (int n = 0; n < NTiles; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int64_t a = place.first + (warp_x * NTiles + n) * 8 + 2 * t + i % 2;
        const int64_t at_n = place.n_first + (warp_n * MTiles + m) * 16 + g + 8 * (i / 2);
        if (a >= place.end || at_n >= place.n_end) continue;
        const float value = sum(m, n, i);
        if (alone) {
          put(a, at_n, value);
        } else {
          parts.sums[(segment * p.rows + a) * p.n + at_n] = value;
        }
      }
    }
  }
  if constexpr (Split) {
    if (alone) return;
    __shared__ bool last;
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) {
      unsigned& arrived = parts.arrived[(group * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x];
      last = atomicAdd(&arrived, 1u) == unsigned(parts.segments) - 1;
      if (last) arrived = 0;
    }
    __syncthreads();
    if (!last) return;
    __threadfence();
    // Eight results a thread at once: their parts are on the way together, where one after the other would wait for
    // each part's way from the L2 cache.
    constexpr int kEach = 8;
    for (int first = int(threadIdx.x); first < kX * kN; first += kEach * kThreads) {
      float value[kEach] = {};
      const auto at = [&](int j, int64_t& a, int64_t& n) {
        const int i = first + j * kThreads;
        a = place.first + i / kN, n = place.n_first + i % kN;
        return i < kX * kN && a < place.end && n < place.n_end;
      };
      int64_t a, n;
#pragma unroll 4
      for (int64_t s = 0; s < parts.segments; ++s) {
        float part[kEach];
#pragma unroll
        for (int j = 0; j < kEach; ++j) part[j] = at(j, a, n) ? __ldcg(&parts.sums[(s * p.rows + a) * p.n + n]) : 0.0f;
#pragma unroll
        for (int j = 0; j < kEach; ++j) value[j] = s == 0 ? part[j] : value[j] + part[j];
      }
#pragma unroll
      for (int j = 0; j < kEach; ++j) {
        if (at(j, a, n)) put(a, n, value[j]);
      }
    }
  }
}

template <DType Type, int MTiles, int NTiles, int WarpsN, int WarpsX, bool Split>
__global__ void __launch_bounds__(32 * WarpsN * WarpsX)
    tensor_kernel(const __grid_constant__ Product p, const __grid_constant__ Parts parts) {
  constexpr int kThreads = 32 * WarpsN * WarpsX, kN = 16 * MTiles * WarpsN, kX = 8 * NTiles * WarpsX;
  constexpr int kAhead = Split ? 4 : 1;              // chunks of weights on their way
  extern __shared__ __align__(16) uint8_t x_tile[];  // [kStages][kX][kRowBytes]
  __shared__ int64_t x_offset[kX];                   // bytes from x to the first column of a row, -1: no row

  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  const int warp_n = warp % WarpsN, warp_x = warp / WarpsN;
  const int64_t group = Split ? blockIdx.z / parts.segments : blockIdx.z;
  const int64_t segment = Split ? blockIdx.z % parts.segments : 0;
  const int64_t per_group = p.n / p.groups;

  Place place;
  if (p.begin != nullptr) {
    if (!find_expert<kX>(p, blockIdx.y, place)) return;
  } else {
    place.weight = p.weight;
    place.first = int64_t(blockIdx.y) * kX;
    place.end = p.rows;
  }
  place.n_first = group * per_group + int64_t(blockIdx.x) * kN;
  place.n_end = (group + 1) * per_group;
  place.x_column = group * p.k;

  for (int i = threadIdx.x; i < kX; i += kThreads) {
    const int64_t a = place.first + i;
    const int64_t r = a >= place.end ? -1 : p.x_row != nullptr ? p.x_row[a] : a;
    x_offset[i] = r < 0 ? -1 : (r * p.x_stride + place.x_column) * 2;
  }
  __syncthreads();

  // Rows of this lane. Behind the last one its neighbours' bytes are read and not used.
  const uint8_t* row[MTiles][2];
  const uint8_t* scale_row[MTiles][2];
#pragma unroll
  for (int m = 0; m < MTiles; ++m) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int64_t n = min(place.n_first + (warp_n * MTiles + m) * 16 + 8 * h + g, place.n_end - 1);
      const int64_t stride = Type == DType::bf16      ? p.weight_stride * 2
                             : Type == DType::f4_e2m1 ? p.weight_stride / 2
                                                      : p.weight_stride;
      row[m][h] = place.weight.values + n * stride;
      scale_row[m][h] = Type == DType::bf16 ? nullptr : place.weight.scales + n / p.scale_rows * p.scale_stride;
    }
  }

  const int64_t begin = segment * parts.segment_columns;
  const int64_t columns = Split ? min(parts.segment_columns, p.k - begin) : p.k;
  const int chunks = int(columns / kChunk), per_segment = int(parts.segment_columns / kChunk);

  const auto load_x = [&](int chunk) {
    if (chunk < chunks) {
      uint8_t* to = x_tile + (chunk % kStages) * kX * kRowBytes;
      for (int i = threadIdx.x; i < kX * 8; i += kThreads) {
        const int line = i / 8, piece = i % 8;
        const int64_t offset = x_offset[line];
        const bool valid = offset >= 0;
        const uint8_t* from = p.x + (valid ? offset + (begin + int64_t(chunk) * kChunk) * 2 + piece * 16 : 0);
        copy_async<16>(to + line * kRowBytes + piece * 16, from, valid);
      }
    }
    commit_copies();  // an empty group keeps the count
  };

  Raw<Type> ahead[kAhead][MTiles][2];
  const auto load_weights = [&](int slot, int chunk) {
    if (chunk >= chunks) return;
    const int64_t column = begin + int64_t(chunk) * kChunk + 16 * t;
#pragma unroll
    for (int m = 0; m < MTiles; ++m) {
#pragma unroll
      for (int h = 0; h < 2; ++h) load_raw<Type>(ahead[slot][m][h], row[m][h], scale_row[m][h], column);
    }
  };

  float sum[MTiles][NTiles][4] = {};
  float total[Split ? 1 : MTiles][Split ? 1 : NTiles][4];

#pragma unroll
  for (int s = 0; s < kStages - 1; ++s) load_x(s);
#pragma unroll
  for (int d = 0; d < kAhead; ++d) load_weights(d, d);

  for (int first = 0; first < chunks; first += kAhead) {
#pragma unroll
    for (int d = 0; d < kAhead; ++d) {
      const int chunk = first + d;
      if (chunk >= chunks) break;
      wait_copies<kStages - 2>();
      __syncthreads();
      load_x(chunk + kStages - 1);  // into the stage that everybody has left
      uint32_t w[MTiles][2][8];
#pragma unroll
      for (int m = 0; m < MTiles; ++m) {
#pragma unroll
        for (int h = 0; h < 2; ++h) decode_raw<Type>(ahead[d][m][h], w[m][h]);
      }
      load_weights(d, chunk + kAhead);
      const uint8_t* tile =
          x_tile + (chunk % kStages) * kX * kRowBytes + (warp_x * 8 * NTiles + g) * kRowBytes + 32 * t;
      // Several products side by side: one and the next of the same sum would wait for each other.
      constexpr int kSide = NTiles < 4 ? NTiles : 4;
#pragma unroll
      for (int begin_n = 0; begin_n < NTiles; begin_n += kSide) {
        uint32_t x[kSide][8];
#pragma unroll
        for (int n = 0; n < kSide; ++n) {
          const uint4* at = reinterpret_cast<const uint4*>(tile + (begin_n + n) * 8 * kRowBytes);
          const uint4 low = at[0], high = at[1];
          x[n][0] = low.x, x[n][1] = low.y, x[n][2] = low.z, x[n][3] = low.w;
          x[n][4] = high.x, x[n][5] = high.y, x[n][6] = high.z, x[n][7] = high.w;
        }
#pragma unroll
        for (int s = 0; s < 4; ++s) {
#pragma unroll
          for (int n = 0; n < kSide; ++n) {
#pragma unroll
            for (int m = 0; m < MTiles; ++m) {
              const uint32_t a[4] = {w[m][0][2 * s], w[m][1][2 * s], w[m][0][2 * s + 1], w[m][1][2 * s + 1]};
              multiply_add(sum[m][begin_n + n], a, x[n][2 * s], x[n][2 * s + 1]);
            }
          }
        }
      }
      if constexpr (!Split) {
        if ((chunk + 1) % per_segment == 0 || chunk + 1 == chunks) {
          end_segment(sum, total, chunk < per_segment);
        }
      }
    }
  }

  finish_tile<MTiles, NTiles, WarpsN, WarpsX, Split>(p, parts, place, group, segment, [&](int m, int n, int i) {
    if constexpr (Split) {
      return sum[m][n][i];
    } else {
      return total[m][n][i];
    }
  });
}

// The blocks of a launch, and the split form's memory.
struct TileGrid {
  dim3 blocks;
  Parts parts;
};
inline TileGrid tile_grid(Call& call, const Product& p, int tile_n, int tile_x, bool split) {
  const int64_t n_tiles = (p.n / p.groups + tile_n - 1) / tile_n;
  const int64_t x_tiles = most_row_tiles(p, tile_x);
  TileGrid out;
  out.parts.segment_columns = segment_columns(p.k);
  out.parts.segments = segments(p.k);
  if (split && out.parts.segments > 1) {
    check(n_tiles * x_tiles * p.groups <= DeviceQueue::kCounters, "a split product has at most 65,536 tiles");
    out.parts.sums = call.workspace<float>(out.parts.segments * p.rows * p.n);
    out.parts.arrived = call.counters();
  }
  out.blocks = dim3(grid(n_tiles), unsigned(x_tiles), unsigned(p.groups * (split ? out.parts.segments : 1)));
  return out;
}

template <DType Type, int MTiles, int NTiles, int WarpsN, int WarpsX, bool Split>
void launch_tile(Call& call, const Product& p) {
  constexpr int kN = 16 * MTiles * WarpsN, kX = 8 * NTiles * WarpsX, kBytes = kStages * kX * kRowBytes;
  const TileGrid tiles = tile_grid(call, p, kN, kX, Split);
  const auto kernel = tensor_kernel<Type, MTiles, NTiles, WarpsN, WarpsX, Split>;
  if (kBytes > 48 * 1024) {
    expect(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes), "a product");
  }
  kernel<<<tiles.blocks, 32 * WarpsN * WarpsX, kBytes, call.stream()>>>(p, tiles.parts);
}

template <DType Type>
void launch_tensor_product(Call& call, const Product& p) {
  const bool grouped = p.begin != nullptr;
  const ProductTile tile = product_tile(grouped ? (p.rows + p.expert_count - 1) / p.expert_count : p.rows,
                                        p.n / p.groups, grouped ? p.expert_count : p.groups);
  if (!tile.split) return launch_tile<Type, 2, 8, 4, 2, false>(call, p);
  switch (tile.n_tiles) {
    case 1: return launch_tile<Type, 1, 1, 4, 1, true>(call, p);
    case 2: return launch_tile<Type, 1, 2, 4, 1, true>(call, p);
    case 4: return launch_tile<Type, 1, 4, 4, 1, true>(call, p);
    default: return launch_tile<Type, 1, 8, 4, 1, true>(call, p);
  }
}

}  // namespace fathom::cuda
