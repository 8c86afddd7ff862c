// fathom/backend/cpu/product_avx512.cpp
// Float products for AVX-512: golden runs with float activations, float weights, and processors without AVX512-BF16.
#include "fathom/backend/cpu/avx512_panel.h"

namespace fathom::cpu {
namespace {

constexpr int kRows = 6;  // rows of a register tile: 6 x 2 vectors of a block's sum and 6 x 2 of the whole sum

[[gnu::target("avx512f,avx512bw,avx512vl")]] void decode_x(const Matrix& x, int64_t row, int64_t begin, int64_t count,
                                                           DType, void* out) {
  const uint8_t* values = x.values.row(row);
  const uint8_t* scales = x.scales.data ? x.scales.row(row / x.scale_rows) : nullptr;
  for (int64_t k = 0; k < count || k % kBlock != 0; k += 16) {
    _mm512_storeu_ps(static_cast<float*>(out) + k, x_lanes(x, values, scales, begin + k, count - k));
  }
}

/// 16 outputs: v[j] holds dword j of their rows; `out` is the panel at these outputs and the columns of dword 0.
[[gnu::target("avx512f,avx512bw")]] void decode_f32_dwords(DType dtype, const __m512i* v, int dwords, float* out) {
  const __m512 e2m1 = _mm512_loadu_ps(kE2m1);
  for (int j = 0; j < dwords; ++j) {
    switch (dtype) {
      case DType::f32: _mm512_store_ps(out + j * kPanel, _mm512_castsi512_ps(v[j])); break;
      case DType::bf16:
        _mm512_store_ps(out + j * 2 * kPanel, _mm512_castsi512_ps(_mm512_slli_epi32(v[j], 16)));
        _mm512_store_ps(out + (j * 2 + 1) * kPanel,
                        _mm512_castsi512_ps(_mm512_and_si512(v[j], _mm512_set1_epi32(int(0xffff0000u)))));
        break;
      case DType::f8_e4m3:
        for (int i = 0; i < 4; ++i) {
          const __m512i code = _mm512_srl_epi32(v[j], _mm_cvtsi32_si128(8 * i));
          _mm512_store_ps(out + (j * 4 + i) * kPanel, e4m3_lanes(_mm512_and_si512(code, _mm512_set1_epi32(255))));
        }
        break;
      default:
        for (int i = 0; i < 8; ++i) {
          const __m512i code = _mm512_srl_epi32(v[j], _mm_cvtsi32_si128(4 * i));  // the permute reads four bits
          _mm512_store_ps(out + (j * 8 + i) * kPanel, _mm512_permutexvar_ps(code, e2m1));
        }
    }
  }
}

[[gnu::target("avx512f,avx512bw,avx512vl")]] void decode_panel(const Panel& panel, int64_t begin, int64_t count,
                                                               Tile& tile) {
  float* const values = static_cast<float*>(tile.panel);
  const DType dtype = panel.dtype;
  const int64_t blocks = (count + kBlock - 1) / kBlock;
  const int bits = bits_of(dtype), per_load = 512 / bits;
  for (int first = 0; first < panel.count; first += 16) {
    decode_scales_avx512(ScaleRows(panel, first), begin, blocks, tile.scales + first);
    for (int64_t k = 0; k < blocks * kBlock; k += per_load) {
      const int64_t bytes = std::clamp<int64_t>((count - k) * bits / 8, 0, 64);
      const __mmask64 mask = bytes >= 64 ? ~__mmask64(0) : (__mmask64(1) << bytes) - 1;
      __m512i v[16];
      for (int i = 0; i < 16; ++i) {
        v[i] = _mm512_maskz_loadu_epi8(mask, panel.row(first + i) + (begin + k) * bits / 8);
      }
      transpose_dwords<false>(v);
      const int64_t columns = std::min<int64_t>(per_load, blocks * kBlock - k);
      decode_f32_dwords(dtype, v, int(columns * bits / 32), values + k * kPanel + first);
    }
  }
}

template <int R, int G>
[[gnu::target("avx512f,avx512bw")]] void multiply_tile(const Tile& tile, int64_t row) {
  const float* x[R];
  __m512 sum[R][G];
  for (int r = 0; r < R; ++r) {
    x[r] = reinterpret_cast<const float*>(tile.row(row + r));
    for (int g = 0; g < G; ++g) {
      sum[r][g] = tile.first ? _mm512_setzero_ps() : _mm512_load_ps(tile.sums + (row + r) * kPanel + g * 16);
    }
  }
  const float* w = static_cast<const float*>(tile.panel);
  const float* scales = tile.scales;
  for (int64_t b = 0; b < tile.blocks; ++b, scales += kPanel) {
    __m512 block[R][G];
    for (int r = 0; r < R; ++r) {
      for (int g = 0; g < G; ++g) block[r][g] = _mm512_setzero_ps();
    }
    for (int k = 0; k < kBlock; ++k, w += kPanel) {
      for (int r = 0; r < R; ++r) {
        const __m512 value = _mm512_set1_ps(x[r][b * kBlock + k]);
        for (int g = 0; g < G; ++g) block[r][g] = _mm512_fmadd_ps(value, _mm512_load_ps(w + g * 16), block[r][g]);
      }
    }
    for (int r = 0; r < R; ++r) {
      for (int g = 0; g < G; ++g) sum[r][g] = _mm512_fmadd_ps(block[r][g], _mm512_load_ps(scales + g * 16), sum[r][g]);
    }
  }
  for (int r = 0; r < R; ++r) {
    for (int g = 0; g < G; ++g) _mm512_store_ps(tile.sums + (row + r) * kPanel + g * 16, sum[r][g]);
  }
}

template <int G>
void multiply_groups(const Tile& tile) {
  int64_t r = 0;
  for (; r + kRows <= tile.rows; r += kRows) multiply_tile<kRows, G>(tile, r);
  switch (tile.rows - r) {
    case 1: return multiply_tile<1, G>(tile, r);
    case 2: return multiply_tile<2, G>(tile, r);
    case 3: return multiply_tile<3, G>(tile, r);
    case 4: return multiply_tile<4, G>(tile, r);
    case 5: return multiply_tile<5, G>(tile, r);
  }
}

void multiply(const Tile& tile) {
  tile.count > 16 ? multiply_groups<2>(tile) : multiply_groups<1>(tile);
  if (tile.out) store_sums_avx512(tile.sums, tile.rows, tile.count, tile.out_dtype, tile.out, tile.out_bytes);
}

}  // namespace

const ProductKernels kProductAvx512 = {DType::f32, 256, decode_x, decode_panel, multiply};

}  // namespace fathom::cpu
