// fathom/backend/cuda/product_codes.cuh
// Q8 rows times FP8 or FP4 weights on the tensor cores: the codes themselves are multiplied, as f16, which is exact,
// and the scales of 32 columns are applied to the float sum of those 32. So a weight costs half an instruction (FP8:
// one conversion a pair) or two (FP4: shifts and masks, too small by 2^14), and no multiplication by a scale.
//
// Weights come by cp.async, 128 columns a step, and leave shared memory through ldmatrix: sixteen bytes of a row are
// one group of FP4 or half a group of FP8, and ldmatrix hands lane t of four its bytes 4 t ... 4 t + 3. x is arranged
// once a call (arrange_q8) so that the same lane finds the matching columns in sixteen bytes.
//
// Sums, segments, the split form, bytes and operations: product_tensor.cuh. Needs K in whole steps of 128.
#pragma once
#include "fathom/backend/cuda/product_tensor.cuh"

namespace fathom::cuda {

constexpr int kStep = 128, kGroups = kStep / 32;
constexpr int kXBytes = 2 * kStep + 64;  // of a row of x in shared memory: 16-byte loads without bank conflicts

template <DType Type>
constexpr int kWeightBytes = (Type == DType::f8_e4m3 ? kStep : kStep / 2) + 16;  // ldmatrix without bank conflicts

/// d = a . b and d += a . b of f16, float sums.
__device__ inline void multiply_half(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%10,%10,%10,%10};"
      : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1), "f"(0.0f));
}
__device__ inline void multiply_add_half(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
/// Four E4M3 codes as two pairs of f16.
__device__ inline void widen_e4m3(uint32_t codes, uint32_t& low, uint32_t& high) {
  asm("{.reg .b16 a, b; mov.b32 {a, b}, %2; cvt.rn.f16x2.e4m3x2 %0, a; cvt.rn.f16x2.e4m3x2 %1, b;}"
      : "=r"(low), "=r"(high)
      : "r"(codes));
}
/// Eight E2M1 codes as four pairs (i, i + 4) of f16, too small by 2^14.
__device__ inline void widen_e2m1(uint32_t codes, uint32_t (&pairs)[4]) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const uint32_t top = codes << (12 - 4 * i);  // the two codes at the top of the halves
    pairs[i] = (top & 0x80008000u) | ((top >> 3) & 0x0e000e00u);
  }
}
/// Number j of four scale bytes, as a float (2^-127 is taken as 0).
__device__ inline float scale_of(uint32_t four, int j) { return __uint_as_float((four >> (8 * j) & 0xff) << 23); }

template <DType Type, int MTiles, int NTiles, int WarpsN, int WarpsX, int Stages, bool Split>
__global__ void __launch_bounds__(32 * WarpsN * WarpsX)
    codes_kernel(const __grid_constant__ Product p, const __grid_constant__ Parts parts) {
  constexpr int kThreads = 32 * WarpsN * WarpsX, kN = 16 * MTiles * WarpsN, kX = 8 * NTiles * WarpsX;
  constexpr int kRow = kWeightBytes<Type>, kPieces = (kRow - 16) / 16;  // 16-byte pieces of a weight row and step
  constexpr int kStageBytes = kN * kRow + kX * kXBytes + 4 * (kN + kX);
  extern __shared__ __align__(16) uint8_t codes_tile[];
  __shared__ int64_t x_place[kX];  // row of x, -1: none

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
    x_place[i] = a >= place.end ? -1 : p.x_row != nullptr ? p.x_row[a] : a;
  }
  __syncthreads();

  const int64_t begin = segment * parts.segment_columns;
  const int64_t columns = Split ? min(parts.segment_columns, p.k - begin) : p.k;
  const int steps = int(columns / kStep), per_segment = int(parts.segment_columns / kStep);

  // Each thread copies the same pieces of every step: their addresses move on by a step.
  constexpr int kWeightPieces = (kN * kPieces + kThreads - 1) / kThreads,
                kXPieces = (kX * 16 + kThreads - 1) / kThreads;
  constexpr int kScalePieces = (kN + kX + kThreads - 1) / kThreads;
  const uint8_t* weight_from[kWeightPieces];
  const uint8_t* x_from[kXPieces];
  const uint8_t* scale_from[kScalePieces];
  bool x_valid[kXPieces], scale_valid[kScalePieces];
  const int64_t row_stride = Type == DType::f4_e2m1 ? p.weight_stride / 2 : p.weight_stride;
#pragma unroll
  for (int j = 0; j < kWeightPieces; ++j) {
    const int i = threadIdx.x + j * kThreads;
    const int64_t n = min(place.n_first + i / kPieces, place.n_end - 1);  // behind the last row: read, not used
    weight_from[j] = place.weight.values + n * row_stride + begin / (Type == DType::f4_e2m1 ? 2 : 1) + i % kPieces * 16;
  }
#pragma unroll
  for (int j = 0; j < kXPieces; ++j) {
    const int i = threadIdx.x + j * kThreads;
    const int64_t r = i < kX * 16 ? x_place[i / 16] : -1;
    x_valid[j] = r >= 0;
    x_from[j] = p.x + (x_valid[j] ? (r * p.x_stride + place.x_column + begin) * 2 + i % 16 * 16 : 0);
  }
#pragma unroll
  for (int j = 0; j < kScalePieces; ++j) {
    const int i = threadIdx.x + j * kThreads;
    if (i < kN) {
      const int64_t n = min(place.n_first + i, place.n_end - 1);
      scale_valid[j] = true;
      scale_from[j] = place.weight.scales + n / p.scale_rows * p.scale_stride + begin / 32;
    } else {
      const int64_t r = i < kN + kX ? x_place[i - kN] : -1;
      scale_valid[j] = r >= 0;
      scale_from[j] = p.x_scales + (r >= 0 ? r * p.x_scale_stride + (place.x_column + begin) / 32 : 0);
    }
  }
  const auto fetch = [&](int step) {
    if (step < steps) {
      uint8_t* stage = codes_tile + step % Stages * kStageBytes;
#pragma unroll
      for (int j = 0; j < kWeightPieces; ++j) {
        const int i = threadIdx.x + j * kThreads;
        if (kN * kPieces % kThreads == 0 || i < kN * kPieces) {
          copy_async<16>(stage + i / kPieces * kRow + i % kPieces * 16, weight_from[j], true);
        }
        weight_from[j] += kRow - 16;
      }
      uint8_t* x_stage = stage + kN * kRow;
#pragma unroll
      for (int j = 0; j < kXPieces; ++j) {
        const int i = threadIdx.x + j * kThreads;
        if (kX * 16 % kThreads == 0 || i < kX * 16) {
          copy_async<16>(x_stage + i / 16 * kXBytes + i % 16 * 16, x_from[j], x_valid[j]);
        }
        if (x_valid[j]) x_from[j] += 2 * kStep;
      }
      uint8_t* scale_stage = x_stage + kX * kXBytes;
#pragma unroll
      for (int j = 0; j < kScalePieces; ++j) {
        const int i = threadIdx.x + j * kThreads;
        if (i < kN + kX) copy_async<4>(scale_stage + 4 * i, scale_from[j], scale_valid[j]);
        if (scale_valid[j]) scale_from[j] += kGroups;
      }
    }
    commit_copies();
  };

  float sum[MTiles][NTiles][4] = {};
  float total[Split ? 1 : MTiles][Split ? 1 : NTiles][4];
#pragma unroll
  for (int s = 0; s < Stages - 1; ++s) fetch(s);
#pragma unroll 1
  for (int step = 0; step < steps; ++step) {
    wait_copies<Stages - 2>();
    __syncthreads();
    fetch(step + Stages - 1);
    const uint8_t* stage = codes_tile + step % Stages * kStageBytes;
    const uint8_t* x_stage = stage + kN * kRow + (warp_x * 8 * NTiles + g) * kXBytes + 16 * t;
    const uint32_t* weight_scales = reinterpret_cast<const uint32_t*>(stage + kN * kRow + kX * kXBytes);
    const uint32_t* x_scales = weight_scales + kN + warp_x * 8 * NTiles + 2 * t;
    uint32_t own_scales[MTiles][2];
#pragma unroll
    for (int m = 0; m < MTiles; ++m) {
#pragma unroll
      for (int h = 0; h < 2; ++h) own_scales[m][h] = weight_scales[(warp_n * MTiles + m) * 16 + 8 * h + g];
    }
#pragma unroll
    for (int j = 0; j < kGroups; ++j) {
      uint32_t a[MTiles][2][4];  // of two products of 16 columns
#pragma unroll
      for (int m = 0; m < MTiles; ++m) {
        const uint8_t* rows = stage + (warp_n * MTiles + m) * 16 * kRow;
        if constexpr (Type == DType::f8_e4m3) {
          uint32_t raw[4];  // rows g and g + 8 of columns 0 to 15, then of 16 to 31
          load_matrices(raw, rows + (lane % 16) * kRow + 32 * j + lane / 16 * 16);
          widen_e4m3(raw[0], a[m][0][0], a[m][0][2]);
          widen_e4m3(raw[1], a[m][0][1], a[m][0][3]);
          widen_e4m3(raw[2], a[m][1][0], a[m][1][2]);
          widen_e4m3(raw[3], a[m][1][1], a[m][1][3]);
        } else {
          uint32_t raw[2];
          const uint8_t* at = rows + (lane % 16) * kRow + 16 * j;
          asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0,%1}, [%2];"
                       : "=r"(raw[0]), "=r"(raw[1])
                       : "r"(shared_address(at)));
          uint32_t low[4], high[4];
          widen_e2m1(raw[0], low);
          widen_e2m1(raw[1], high);
          a[m][0][0] = low[0], a[m][0][1] = high[0], a[m][0][2] = low[1], a[m][0][3] = high[1];
          a[m][1][0] = low[2], a[m][1][1] = high[2], a[m][1][2] = low[3], a[m][1][3] = high[3];
        }
      }
      float weight_scale[MTiles][2];
#pragma unroll
      for (int m = 0; m < MTiles; ++m) {
#pragma unroll
        for (int h = 0; h < 2; ++h) {
          weight_scale[m][h] = scale_of(own_scales[m][h], j) * (Type == DType::f4_e2m1 ? 0x1p14f : 1.0f);
        }
      }
      // Several products side by side: the second of a pair waits for the first.
      constexpr int kSide = NTiles < 4 ? NTiles : 4;
#pragma unroll
      for (int first = 0; first < NTiles; first += kSide) {
        uint4 x[kSide];
        float part[kSide][MTiles][4];
#pragma unroll
        for (int n = 0; n < kSide; ++n) {
          x[n] = *reinterpret_cast<const uint4*>(x_stage + (first + n) * 8 * kXBytes + 64 * j);
        }
#pragma unroll
        for (int n = 0; n < kSide; ++n) {
#pragma unroll
          for (int m = 0; m < MTiles; ++m) multiply_half(part[n][m], a[m][0], x[n].x, x[n].y);
        }
#pragma unroll
        for (int n = 0; n < kSide; ++n) {
#pragma unroll
          for (int m = 0; m < MTiles; ++m) multiply_add_half(part[n][m], a[m][1], x[n].z, x[n].w);
        }
#pragma unroll
        for (int n = 0; n < kSide; ++n) {
          const uint2 both = *reinterpret_cast<const uint2*>(x_scales + 8 * (first + n));
          const float even = scale_of(both.x, j), odd = scale_of(both.y, j);
#pragma unroll
          for (int m = 0; m < MTiles; ++m) {
            float(&to)[4] = sum[m][first + n];
            to[0] = fmaf(part[n][m][0] * weight_scale[m][0], even, to[0]);
            to[1] = fmaf(part[n][m][1] * weight_scale[m][0], odd, to[1]);
            to[2] = fmaf(part[n][m][2] * weight_scale[m][1], even, to[2]);
            to[3] = fmaf(part[n][m][3] * weight_scale[m][1], odd, to[3]);
          }
        }
      }
    }
    if constexpr (!Split) {
      if ((step + 1) % per_segment == 0 || step + 1 == steps) {
        end_segment(sum, total, step < per_segment);
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

template <DType Type, int MTiles, int NTiles, int WarpsN, int WarpsX, int Stages, bool Split>
void launch_codes_tile(Call& call, const Product& p) {
  constexpr int kN = 16 * MTiles * WarpsN, kX = 8 * NTiles * WarpsX;
  constexpr int kBytes = Stages * (kN * kWeightBytes<Type> + kX * kXBytes + 4 * (kN + kX));
  const TileGrid tiles = tile_grid(call, p, kN, kX, Split);
  const auto kernel = codes_kernel<Type, MTiles, NTiles, WarpsN, WarpsX, Stages, Split>;
  if (kBytes > 48 * 1024) {
    expect(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes), "a product");
  }
  kernel<<<tiles.blocks, 32 * WarpsN * WarpsX, kBytes, call.stream()>>>(p, tiles.parts);
}

template <DType Type>
void launch_codes_product(Call& call, const Product& p) {
  const bool grouped = p.begin != nullptr;
  const ProductTile tile = product_tile(grouped ? (p.rows + p.expert_count - 1) / p.expert_count : p.rows,
                                        p.n / p.groups, grouped ? p.expert_count : p.groups);
  if (!tile.split) return launch_codes_tile<Type, 2, 8, 4, 2, 3, false>(call, p);
  switch (tile.n_tiles) {
    case 1: return launch_codes_tile<Type, 1, 1, 4, 1, 5, true>(call, p);
    case 2: return launch_codes_tile<Type, 1, 2, 4, 1, 4, true>(call, p);
    case 4: return launch_codes_tile<Type, 1, 4, 4, 1, 4, true>(call, p);
    default: return launch_codes_tile<Type, 1, 8, 4, 1, 3, true>(call, p);
  }
}

}  // namespace fathom::cuda
