// Products with plain multiply-adds, each output one sum over K in rising order, in double as the definition has it (an
// H200 has half as many of those units as of float). For what the tensor cores cannot take: f32 on either side (the
// golden modes), odd sizes, unaligned tensors. And Q8 rows widened to bf16.
#include <algorithm>

#include "fathom/backend/cuda/device.cuh"
#include "fathom/backend/cuda/launch.h"
#include "fathom/backend/cuda/product.h"
#include "fathom/backend/cuda/widen.h"

namespace fathom::cuda {
namespace {

constexpr int kTile = 32, kDepth = 32;  // a block has 32 x 32 outputs, 16 x 16 threads with 2 x 2 each

__device__ float element(DType type, const uint8_t* row, const uint8_t* scales, int64_t c) {
  switch (type) {
    case DType::bf16: return __uint_as_float(uint32_t(reinterpret_cast<const uint16_t*>(row)[c]) << 16);
    case DType::f8_e4m3: return e4m3(row[c]) * e8m0(scales[c / 32]);
    case DType::f4_e2m1: return e2m1(uint8_t(row[c / 2] >> (c % 2 * 4))) * e8m0(scales[c / 32]);
    default: return reinterpret_cast<const float*>(row)[c];
  }
}

__device__ int64_t row_bytes_of(DType type, int64_t stride) {
  return type == DType::f32       ? stride * 4
         : type == DType::bf16    ? stride * 2
         : type == DType::f4_e2m1 ? stride / 2
                                  : stride;
}

// blockIdx: weight tile, row tile, then group or expert.
__global__ void __launch_bounds__(256) float_kernel(const __grid_constant__ Product p) {
  __shared__ float xs[kDepth][kTile + 1], ws[kDepth][kTile + 1];
  int64_t first = 0, end = p.rows, n_first = 0, n_end = p.n, x_column = 0;
  WeightPointers weight = p.weight;
  if (p.begin != nullptr) {
    weight = p.experts[blockIdx.z];
    first = p.begin[blockIdx.z];
    end = p.begin[blockIdx.z + 1];
  } else {
    const int64_t per_group = p.n / p.groups;
    n_first = blockIdx.z * per_group;
    n_end = n_first + per_group;
    x_column = blockIdx.z * p.k;
  }
  n_first += int64_t(blockIdx.x) * kTile;
  const int tx = threadIdx.x % 16, ty = threadIdx.x / 16;
  for (int64_t a_first = first + int64_t(blockIdx.y) * kTile; a_first < end; a_first += int64_t(gridDim.y) * kTile) {
    double sum[2][2] = {};
    for (int64_t k = 0; k < p.k; k += kDepth) {
      __syncthreads();
      for (int i = threadIdx.x; i < kTile * kDepth; i += 256) {
        const int line = i / kDepth, c = i % kDepth;
        const int64_t a = a_first + line, n = n_first + line;
        float xv = 0, wv = 0;
        if (a < end && k + c < p.k) {
          const int64_t r = p.x_row != nullptr ? p.x_row[a] : a;
          xv = element(p.x_type, p.x + r * row_bytes_of(p.x_type, p.x_stride), p.x_scales + r * p.x_scale_stride,
                       x_column + k + c);
        }
        if (n < n_end && k + c < p.k) {
          wv = element(p.weight_type, weight.values + n * row_bytes_of(p.weight_type, p.weight_stride),
                       weight.scales + n / p.scale_rows * p.scale_stride, k + c);
        }
        xs[c][line] = xv;
        ws[c][line] = wv;
      }
      __syncthreads();
      for (int c = 0; c < kDepth; ++c) {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
#pragma unroll
          for (int j = 0; j < 2; ++j) sum[i][j] += double(xs[c][ty + 16 * i]) * double(ws[c][tx + 16 * j]);
        }
      }
    }
    for (int i = 0; i < 2; ++i) {
      for (int j = 0; j < 2; ++j) {
        const int64_t a = a_first + ty + 16 * i, n = n_first + tx + 16 * j;
        if (a >= end || n >= n_end) continue;
        if (p.out_type == DType::bf16) {
          reinterpret_cast<Bf16*>(p.out)[a * p.out_stride + n] = __double2bfloat16(sum[i][j]);
        } else {
          reinterpret_cast<float*>(p.out)[a * p.out_stride + n] = float(sum[i][j]);
        }
      }
    }
  }
}

// A thread has eight codes of one scale.
__global__ void widen_kernel(Q8Rows in, Bf16* out) {
  const int64_t octets = in.columns / 8, n = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
  if (n >= in.rows * octets) return;
  const int64_t r = n / octets, o = n % octets;
  const uint8_t* codes = in.codes + r * in.code_stride + 8 * o;
  const float scale = e8m0(in.scales[r * in.scale_stride + o / 4]);
  uint64_t raw = 0;
  if (reinterpret_cast<uintptr_t>(codes) % 8 == 0) {
    raw = *reinterpret_cast<const uint64_t*>(codes);
  } else {
    for (int k = 0; k < 8; ++k) raw |= uint64_t(codes[k]) << (8 * k);
  }
  float v[8];
#pragma unroll
  for (int k = 0; k < 8; ++k) v[k] = e4m3(uint8_t(raw >> (8 * k))) * scale;
  store_some(out + r * in.columns, o, v);
}

}  // namespace

void launch_float_product(Call& call, const Product& p) {
  const int64_t per_group = p.n / p.groups;
  // An expert's rows are known to the device only: each of its blocks walks on until they end.
  const int64_t row_tiles = (p.rows + kTile - 1) / kTile;
  const int64_t pieces = p.begin != nullptr ? std::min<int64_t>(row_tiles, 8) : std::min<int64_t>(row_tiles, 65535);
  const dim3 blocks(grid((per_group + kTile - 1) / kTile), unsigned(pieces),
                    unsigned(p.begin != nullptr ? p.expert_count : p.groups));
  float_kernel<<<blocks, 256, 0, call.stream()>>>(p);
}

void widen_q8(cudaStream_t stream, const Q8Rows& in, uint16_t* out) {
  const int64_t octets = in.rows * (in.columns / 8);
  widen_kernel<<<grid((octets + 255) / 256), 256, 0, stream>>>(in, reinterpret_cast<Bf16*>(out));
}

}  // namespace fathom::cuda
