// fathom/backend/cuda/product_few_parts.cuh
// Parts of the kernel for few rows (product_few.cuh): its plan and its shared memory, x in the order in which lanes
// want it, the products of 128 columns in both forms, and the stores.
#pragma once
#include <type_traits>

#include "fathom/backend/cuda/decode_codes.cuh"
#include "fathom/backend/cuda/product_tensor.cuh"

namespace fathom::cuda {

constexpr int kStep = 128, kGroups = kStep / 32;
constexpr int kFewRows = 16;   // weight rows of a tile
constexpr int kFewPieces = 8;  // of 16 bytes: a row and stage
constexpr int kMostShared = 227 * 1024;

/// How 32 columns are multiplied and added: all of a part in one chain of bf16, or their codes by themselves as f16, x
/// in shared memory as codes or as f16.
enum class FewForm { chain, codes, halves };

struct FewPlan {
  int tiles;  // of one weight, or of one group of it
  int ways;   // warps that share a tile: 1, or the number of parts of K
  static constexpr int kMostParts = 8;
  int begin[kMostParts + 1];  // the steps at which parts begin, and where the last one ends
  int x_capacity;             // rows of x in shared memory
  int most_shared_tiles;      // of a block, when ways > 1
  int scale_shift;            // of a weight row's number
};

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
/// Number j of four scale bytes, as a float (2^-127 is taken as 0).
__device__ inline float scale_of(uint32_t four, int j) { return __uint_as_float((four >> (8 * j) & 0xff) << 23); }

/// Eight E2M1 codes as four pairs (i, i + 4) of f16, too small by 2^14, in eleven instructions.
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
__device__ inline uint4 load_shared_words(uint32_t at) {
  uint4 v;
  asm volatile("ld.shared.v4.u32 {%0,%1,%2,%3}, [%4];" : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "r"(at));
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
template <int NTiles, int Warps, int Stages, FewForm Form>
struct FewShared {
  static constexpr bool kChain = Form == FewForm::chain;
  static constexpr int kXGroup = Form == FewForm::codes ? 32 : 64;  // of 32 columns of x
  // Steps of 128 columns whose scales come together, 4 bytes each of a row; from one row to the next.
  static constexpr int kScaleSteps = kChain ? 4 : 8, kScalePitch = 4 * kScaleSteps + 4;
  static constexpr int kStage = kFewRows * 16 * kFewPieces, kScales = kFewRows * kScalePitch;
  static constexpr int kPart = 128 * NTiles * 4;
  static constexpr int kPipes = Warps * Stages * kStage, kX = kPipes + Warps * Stages * kScales;
  static __host__ __device__ int x_row(int64_t k) { return int(k / 32) * kXGroup + kXGroup; }
  static __host__ __device__ int x_scales(int64_t k, int rows) { return kX + rows * x_row(k); }
  static __host__ __device__ int parts(int64_t k, int rows) {
    return x_scales(k, rows) + (kChain ? 0 : int(k / kStep) * NTiles * 128);
  }
  static __host__ __device__ int experts(int64_t k, const FewPlan& plan) {
    return parts(k, plan.x_capacity) + plan.most_shared_tiles * (plan.ways * kPart + 16);
  }
  static __host__ int bytes(int64_t k, const FewPlan& plan, int experts_count) {
    return experts(k, plan) + experts_count * int(sizeof(WeightPointers)) + (experts_count + 1) * 8;
  }
};

/// The rows of a chain: bf16, lane t of four has what it multiplies with 32 columns of weights (decode_codes.cuh) in 16
/// bytes. Loads are made before the first is used.
template <DType Type, int Threads>
__device__ __forceinline__ void place_wide_rows(const Product& p, int k, int first, int rows, int x_column,
                                                int row_bytes, uint8_t* memory) {
  constexpr int kEach = 4;
  constexpr bool kFp4 = Type == DType::f4_e2m1;
  const int octets = k / 8, all = rows * octets;
  const bool wide = p.x_type == DType::bf16;
  for (int begin = threadIdx.x; begin < all; begin += kEach * Threads) {
    uint4 words[kEach];
    uint32_t scale[kEach];
#pragma unroll
    for (int e = 0; e < kEach; ++e) {
      const int i = min(begin + e * Threads, all - 1), r = i / octets, group = i % octets / 4, t = i % 4;
      const int64_t a = first + r, row = p.x_row != nullptr ? p.x_row[a] : a;
      const int64_t column = row * p.x_stride + x_column + group * 32;
      if (wide) {
        const uint8_t* from = p.x + (column + (kFp4 ? 8 : 4) * t) * 2;
        const uint2 low = *reinterpret_cast<const uint2*>(from),
                    high = *reinterpret_cast<const uint2*>(from + (kFp4 ? 8 : 32));
        words[e] = make_uint4(low.x, low.y, high.x, high.y);
      } else {
        const uint8_t* from = p.x + column + (kFp4 ? 8 : 4) * t;
        words[e].x = *reinterpret_cast<const uint32_t*>(from);
        words[e].y = *reinterpret_cast<const uint32_t*>(from + (kFp4 ? 4 : 16));
        scale[e] = p.x_scales[row * p.x_scale_stride + x_column / 32 + group];
      }
    }
#pragma unroll
    for (int e = 0; e < kEach; ++e) {
      const int i = begin + e * Threads;
      if (i >= all) break;
      uint32_t pairs[4];
      if (wide) {
        order_words<Type>(words[e], pairs);
      } else {
        widen_words<Type>(make_uint2(words[e].x, words[e].y), scale[e], pairs);
      }
      *reinterpret_cast<uint4*>(memory + i / octets * row_bytes + i % octets * 16) =
          make_uint4(pairs[0], pairs[1], pairs[2], pairs[3]);
    }
  }
}

/// Rows [first, first + rows) of the result's x in shared memory, in the order in which lanes want them: as above, or
/// codes of FP4's groups exchanged in pairs, widened to f16 in the form `halves`; scales as floats.
template <DType Type, int MostRows, int Threads, FewForm Form>
__device__ __forceinline__ void place_rows(const Product& p, int k, int first, int rows, int x_column, int row_bytes,
                                           uint8_t* memory, float* scales) {
  if constexpr (Form == FewForm::chain)
    return place_wide_rows<Type, Threads>(p, k, first, rows, x_column, row_bytes, memory);
  constexpr bool kWide = Form == FewForm::halves;
  constexpr int kXGroup = kWide ? 64 : 32;  // bytes of 32 columns
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
    if constexpr (kWide) {
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

/// Adds 128 columns to the sums of 16 weight rows and 8 * NTiles rows of x, in the chain. raw: codes as ldmatrix hands
/// them over; own: four scales each of rows g and g + 8; x_at: where this lane's x lies.
template <DType Type, int NTiles>
__device__ __forceinline__ void add_in_chain(const uint32_t (&raw)[kWords<Type> / 2][4], const uint32_t (&own)[2],
                                             const uint32_t (&x_at)[NTiles], float (&sum)[NTiles][4]) {
  const auto add = [&](auto large) {  // apart: no branch between products
#pragma unroll
    for (int j = 0; j < kGroups; ++j) {
      uint32_t words[kWords<Type>], a[2][4];  // of 64 columns
#pragma unroll
      for (int i = 0; i < kWords<Type>; ++i) words[i] = raw[j / 2 * (kWords<Type> / 4) + i / 4][i % 4];
      decode<Type>(words, j / 2, j % 2, own, large.value, a);
#pragma unroll
      for (int n = 0; n < NTiles; ++n) {
        const uint4 x = load_shared_words(x_at[n] + j * 64);
        multiply_add(sum[n], a[0], x.x, x.y);
        multiply_add(sum[n], a[1], x.z, x.w);
      }
    }
  };
  if (__any_sync(~0u, ((own[0] | own[1]) & 0x80808080u) != 0)) {
    add(std::true_type());
  } else {
    add(std::false_type());
  }
}

/// The same of codes, with the scales on the float sums of each 32 columns. x_scales_at: of x's rows 2 t and 2 t + 1.
template <DType Type, int NTiles, FewForm Form>
__device__ __forceinline__ void add_codes(const uint32_t (&raw)[kWords<Type> / 2][4], const uint32_t (&own)[2],
                                          const uint32_t (&x_at)[NTiles], uint32_t x_scales_at,
                                          float (&sum)[NTiles][4]) {
  float4 xs[NTiles][2];
#pragma unroll
  for (int n = 0; n < NTiles; ++n) {
    xs[n][0] = load_shared_4(x_scales_at + 8 * n * 16);
    xs[n][1] = load_shared_4(x_scales_at + (8 * n + 1) * 16);
  }
#pragma unroll
  for (int j = 0; j < kGroups; ++j) {
    uint32_t a[2][4];
    if constexpr (Type == DType::f8_e4m3) {
      widen_e4m3(raw[j][0], a[0][0], a[0][2]);
      widen_e4m3(raw[j][1], a[0][1], a[0][3]);
      widen_e4m3(raw[j][2], a[1][0], a[1][2]);
      widen_e4m3(raw[j][3], a[1][1], a[1][3]);
    } else {
      uint32_t low[4], high[4];
      widen_e2m1_by_bytes(raw[j / 2][j % 2 * 2], low);
      widen_e2m1_by_bytes(raw[j / 2][j % 2 * 2 + 1], high);
      a[0][0] = low[0], a[0][1] = high[0], a[0][2] = low[1], a[0][3] = high[1];
      a[1][0] = low[2], a[1][1] = high[2], a[1][2] = low[3], a[1][3] = high[3];
    }
    const float scale[2] = {scale_of(own[0], j), scale_of(own[1], j)};
#pragma unroll
    for (int n = 0; n < NTiles; ++n) {
      uint4 x;
      if constexpr (Form == FewForm::halves) {
        x = load_shared_words(x_at[n] + j * 64);
      } else {
        uint2 codes;
        asm volatile("ld.shared.v2.u32 {%0,%1}, [%2];" : "=r"(codes.x), "=r"(codes.y) : "r"(x_at[n] + j * 32));
        widen_e4m3(codes.x, x.x, x.y);
        widen_e4m3(codes.y, x.z, x.w);
      }
      float part[4];
      multiply_half(part, a[0], x.x, x.y);
      multiply_add_half(part, a[1], x.z, x.w);
      const float even = reinterpret_cast<const float*>(&xs[n][0])[j],
                  odd = reinterpret_cast<const float*>(&xs[n][1])[j];
      sum[n][0] = fmaf(part[0] * scale[0], even, sum[n][0]);
      sum[n][1] = fmaf(part[1] * scale[0], odd, sum[n][1]);
      sum[n][2] = fmaf(part[2] * scale[1], even, sum[n][2]);
      sum[n][3] = fmaf(part[3] * scale[1], odd, sum[n][3]);
    }
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
