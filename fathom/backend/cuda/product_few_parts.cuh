// fathom/backend/cuda/product_few_parts.cuh
// Parts of the kernel for few rows (product_few.cuh): its plan and its shared memory, x in the order in which lanes
// want it, and the stores.
#pragma once
#include "fathom/backend/cuda/product_codes.cuh"

namespace fathom::cuda {

constexpr int kFewRows = 16;    // weight rows of a tile
constexpr int kFewPieces = 8;   // of 16 bytes: a row and stage
constexpr int kScaleSteps = 8;  // steps of 128 columns whose scales come together: 32 bytes of a row
constexpr int kScalePitch = 4 * kScaleSteps + 4;
constexpr int kMostShared = 227 * 1024;

struct FewPlan {
  int tiles;  // of one weight, or of one group of it
  int ways;   // warps that share a tile: 1, or the number of segments
  int segment_steps;
  int x_capacity;         // rows of x in shared memory
  int most_shared_tiles;  // of a block, when ways > 1
  int scale_shift;        // of a weight row's number
};

/// Eight E2M1 codes as widen_e2m1 gives them, in eleven instructions.
__device__ inline void widen_e2m1_by_bytes(uint32_t codes, uint32_t (&pairs)[4]) {
  // A byte is the upper half of an f16: sign, five bits of exponent, two of mantissa.
  const uint32_t even = ((codes << 4) & 0x80808080u) | ((codes << 1) & 0x0e0e0e0eu);
  const uint32_t odd = (codes & 0x80808080u) | ((codes >> 3) & 0x0e0e0e0eu);
  pairs[0] = __byte_perm(even, 0, 0x2404);
  pairs[1] = __byte_perm(odd, 0, 0x2404);
  pairs[2] = even & 0xff00ff00u;
  pairs[3] = odd & 0xff00ff00u;
}
__device__ inline float4 load_shared_4(uint32_t at) {
  float4 v;
  asm volatile("ld.shared.v4.f32 {%0,%1,%2,%3}, [%4];" : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w) : "r"(at));
  return v;
}
__device__ inline uint32_t load_shared(uint32_t at) {
  uint32_t v;
  asm volatile("ld.shared.u32 %0, [%1];" : "=r"(v) : "r"(at));
  return v;
}
/// The compiler keeps what it cannot compute again.
__device__ inline void keep(uint32_t& v) { asm volatile("" : "+r"(v)); }

/// Where things lie in a block's shared memory; bytes.
template <int NTiles, int Warps, int Stages, bool Wide>
struct FewShared {
  static constexpr int kStage = kFewRows * 16 * kFewPieces, kScales = kFewRows * kScalePitch;
  static constexpr int kPart = 128 * NTiles * 4;
  static constexpr int kPipes = Warps * Stages * kStage, kX = kPipes + Warps * Stages * kScales;
  static __host__ __device__ int x_row(int64_t k) { return int(k) * (Wide ? 2 : 1) + (Wide ? 64 : 32); }
  static __host__ __device__ int x_scales(int64_t k, int rows) { return kX + rows * x_row(k); }
  static __host__ __device__ int parts(int64_t k, int rows) {
    return x_scales(k, rows) + int(k / kStep) * NTiles * 128;
  }
  static __host__ __device__ int experts(int64_t k, const FewPlan& plan) {
    return parts(k, plan.x_capacity) + plan.most_shared_tiles * (plan.ways * kPart + 16);
  }
  static __host__ int bytes(int64_t k, const FewPlan& plan, int experts_count) {
    return experts(k, plan) + experts_count * int(sizeof(WeightPointers)) + (experts_count + 1) * 8;
  }
};

/// Rows [first, first + rows) of the result's x in shared memory, in the order in which lanes want them: codes of FP4's
/// groups exchanged in pairs, widened to f16 where `Wide`; scales as floats.
template <DType Type, int MostRows, int Threads, bool Wide>
__device__ __forceinline__ void place_rows(const Product& p, int k, int first, int rows, int x_column, int row_bytes,
                                           uint8_t* memory, float* scales) {
  constexpr int kXGroup = Wide ? 64 : 32;  // bytes of 32 columns
  const int pieces = k / 16, k_steps = k / kStep;
  for (int i = threadIdx.x; i < rows * pieces; i += Threads) {
    const int r = i / pieces, at = i % pieces;
    const int64_t a = first + r, row = p.x_row != nullptr ? p.x_row[a] : a;
    const uint4 codes = *reinterpret_cast<const uint4*>(p.x + row * p.x_stride + x_column + at * 16);
    uint32_t two[2][2];  // lane, word: the columns of one lane and product lie side by side
    if constexpr (Type == DType::f4_e2m1) {
      two[0][0] = __byte_perm(codes.x, codes.y, 0x5140), two[0][1] = __byte_perm(codes.x, codes.y, 0x7362);
      two[1][0] = __byte_perm(codes.z, codes.w, 0x5140), two[1][1] = __byte_perm(codes.z, codes.w, 0x7362);
    } else {
      two[0][0] = codes.x, two[0][1] = codes.y, two[1][0] = codes.z, two[1][1] = codes.w;
    }
    uint8_t* to = memory + r * row_bytes + at / 2 * kXGroup;
    if constexpr (Wide) {
      uint32_t wide[2][4];
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        widen_e4m3(two[h][0], wide[h][0], wide[h][1]);
        widen_e4m3(two[h][1], wide[h][2], wide[h][3]);
      }
      if constexpr (Type == DType::f4_e2m1) {
#pragma unroll
        for (int h = 0; h < 2; ++h) {
          *reinterpret_cast<uint4*>(to + (at % 2 * 2 + h) * 16) =
              make_uint4(wide[h][0], wide[h][1], wide[h][2], wide[h][3]);
        }
      } else {
#pragma unroll
        for (int h = 0; h < 4; ++h) {
          *reinterpret_cast<uint2*>(to + h * 16 + at % 2 * 8) =
              make_uint2(wide[h / 2][h % 2 * 2], wide[h / 2][h % 2 * 2 + 1]);
        }
      }
    } else {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        if constexpr (Type == DType::f4_e2m1) {
          *reinterpret_cast<uint2*>(to + (at % 2 * 2 + h) * 8) = make_uint2(two[h][0], two[h][1]);
        } else {
          *reinterpret_cast<uint32_t*>(to + 2 * h * 8 + at % 2 * 4) = two[h][0];
          *reinterpret_cast<uint32_t*>(to + (2 * h + 1) * 8 + at % 2 * 4) = two[h][1];
        }
      }
    }
  }
  for (int i = threadIdx.x; i < rows * k_steps; i += Threads) {
    const int r = i / k_steps, step = i % k_steps;
    const int64_t a = first + r, row = p.x_row != nullptr ? p.x_row[a] : a;
    const uint32_t four =
        *reinterpret_cast<const uint32_t*>(p.x_scales + row * p.x_scale_stride + x_column / 32 + step * kGroups);
    constexpr float kLacking = Type == DType::f4_e2m1 ? 0x1p14f : 1.0f;  // of widened weights
    *reinterpret_cast<float4*>(scales + (step * MostRows + r) * 4) =
        make_float4(scale_of(four, 0) * kLacking, scale_of(four, 1) * kLacking, scale_of(four, 2) * kLacking,
                    scale_of(four, 3) * kLacking);
  }
}

/// The sums of a tile of weight rows from n_first on and of `rows` rows of the result from `first` on.
template <int NTiles>
__device__ __forceinline__ void store_tile(const Product& p, int first, int rows, int n_first, int n_end,
                                           const float (&total)[NTiles][4]) {
  const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
#pragma unroll
  for (int n = 0; n < NTiles; ++n) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int r = 8 * n + 2 * t + i % 2, at = n_first + g + 8 * (i / 2);
      if (r >= rows || at >= n_end) continue;
      const int64_t place = (first + r) * p.out_stride + at;
      if (p.out_type == DType::bf16) {
        reinterpret_cast<Bf16*>(p.out)[place] = __float2bfloat16_rn(total[n][i]);
      } else {
        reinterpret_cast<float*>(p.out)[place] = total[n][i];
      }
    }
  }
}

}  // namespace fathom::cuda
