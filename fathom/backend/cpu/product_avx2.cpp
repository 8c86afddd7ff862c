// fathom/backend/cpu/product_avx2.cpp
// Float products for AVX2 and FMA.
#include <immintrin.h>

#include <cstring>

#include "fathom/backend/cpu/product.h"
#include "fathom/tensor/number_formats.h"

namespace fathom::cpu {
namespace {

constexpr int kRows = 4;  // rows of a register tile: 4 x 2 vectors of a block's sum; the whole sums stay in memory

/// Eight E4M3 codes, one a lane in its low byte, as floats.
[[gnu::target("avx2,fma"), gnu::always_inline]] inline __m256 e4m3_lanes(__m256i code) {
  // The magnitude's exponent and mantissa, moved to their place in a float, are 2^-120 of the value, subnormals too.
  const __m256i magnitude = _mm256_and_si256(code, _mm256_set1_epi32(0x7f));
  const __m256 tiny = _mm256_castsi256_ps(_mm256_slli_epi32(magnitude, 20));
  const __m256 value = _mm256_mul_ps(tiny, _mm256_set1_ps(0x1p120f));
  const __m256i nan = _mm256_cmpeq_epi32(magnitude, _mm256_set1_epi32(0x7f));
  const __m256i quiet = _mm256_blendv_epi8(_mm256_castps_si256(value), _mm256_set1_epi32(0x7fc00000), nan);
  const __m256i sign = _mm256_slli_epi32(_mm256_and_si256(code, _mm256_set1_epi32(0x80)), 24);
  return _mm256_castsi256_ps(_mm256_or_si256(quiet, sign));
}

/// Eight E2M1 codes, one a lane in its low four bits.
[[gnu::target("avx2,fma"), gnu::always_inline]] inline __m256 e2m1_lanes(__m256i code, __m256 magnitudes) {
  const __m256 value = _mm256_permutevar8x32_ps(magnitudes, code);  // reads three bits
  const __m256i sign = _mm256_slli_epi32(_mm256_and_si256(code, _mm256_set1_epi32(8)), 28);
  return _mm256_castsi256_ps(_mm256_or_si256(_mm256_castps_si256(value), sign));
}

/// v[j] becomes dword j of rows 0..7, row n in lane n.
[[gnu::target("avx2"), gnu::always_inline]] inline void transpose_dwords(__m256i v[8]) {
  __m256i t[8];
  for (int i = 0; i < 8; i += 2) {
    t[i] = _mm256_unpacklo_epi32(v[i], v[i + 1]);
    t[i + 1] = _mm256_unpackhi_epi32(v[i], v[i + 1]);
  }
  for (int q = 0; q < 8; q += 4) {
    v[q] = _mm256_unpacklo_epi64(t[q], t[q + 2]);
    v[q + 1] = _mm256_unpackhi_epi64(t[q], t[q + 2]);
    v[q + 2] = _mm256_unpacklo_epi64(t[q + 1], t[q + 3]);
    v[q + 3] = _mm256_unpackhi_epi64(t[q + 1], t[q + 3]);
  }
  for (int d = 0; d < 4; ++d) {
    t[d] = _mm256_permute2x128_si256(v[d], v[4 + d], 0x20);
    t[4 + d] = _mm256_permute2x128_si256(v[d], v[4 + d], 0x31);
  }
  for (int d = 0; d < 8; ++d) v[d] = t[d];
}

/// 32 bytes of a row; past `bytes` zeros, and nothing there is read.
[[gnu::target("avx2"), gnu::always_inline]] inline __m256i load_bytes(const uint8_t* from, int64_t bytes) {
  if (bytes >= 32) return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
  alignas(32) uint8_t part[32] = {};
  if (bytes > 0) std::memcpy(part, from, size_t(bytes));
  return _mm256_load_si256(reinterpret_cast<const __m256i*>(part));
}

/// Eight outputs: v[j] holds dword j of their rows; `out` is the panel at these outputs and the columns of dword 0.
[[gnu::target("avx2,fma")]] void decode_dwords(DType dtype, const __m256i* v, int dwords, float* out) {
  const __m256 magnitudes = _mm256_loadu_ps(kE2m1);
  for (int j = 0; j < dwords; ++j) {
    switch (dtype) {
      case DType::f32: _mm256_store_ps(out + j * kPanel, _mm256_castsi256_ps(v[j])); break;
      case DType::bf16:
        _mm256_store_ps(out + j * 2 * kPanel, _mm256_castsi256_ps(_mm256_slli_epi32(v[j], 16)));
        _mm256_store_ps(out + (j * 2 + 1) * kPanel,
                        _mm256_castsi256_ps(_mm256_and_si256(v[j], _mm256_set1_epi32(int(0xffff0000u)))));
        break;
      case DType::f8_e4m3:
        for (int i = 0; i < 4; ++i) {
          const __m256i code = _mm256_srl_epi32(v[j], _mm_cvtsi32_si128(8 * i));
          _mm256_store_ps(out + (j * 4 + i) * kPanel, e4m3_lanes(code));
        }
        break;
      default:
        for (int i = 0; i < 8; ++i) {
          const __m256i code = _mm256_srl_epi32(v[j], _mm_cvtsi32_si128(4 * i));
          _mm256_store_ps(out + (j * 8 + i) * kPanel, e2m1_lanes(code, magnitudes));
        }
    }
  }
}

[[gnu::target("avx2,fma")]] void decode_x(const Matrix& x, int64_t row, int64_t begin, int64_t count, DType,
                                          void* out) {
  const uint8_t* values = x.values.row(row);
  const int64_t bytes = bits_of(x.dtype()) / 8;
  for (int64_t k = 0; k < count || k % kBlock != 0; k += 8) {
    const __m256i raw = load_bytes(values + (begin + k) * bytes, std::min<int64_t>(32, (count - k) * bytes));
    const __m128i low = _mm256_castsi256_si128(raw);
    __m256 value = _mm256_castsi256_ps(raw);
    if (x.dtype() == DType::bf16) value = _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(low), 16));
    if (x.dtype() == DType::f8_e4m3) {
      const float scale = e8m0_to_float(x.scales.row(row / x.scale_rows)[(begin + k) / kBlock]);
      value = _mm256_mul_ps(e4m3_lanes(_mm256_cvtepu8_epi32(low)), _mm256_set1_ps(scale));
    }
    _mm256_storeu_ps(static_cast<float*>(out) + k, value);
  }
}

[[gnu::target("avx2,fma")]] void decode_panel(const Panel& panel, int64_t begin, int64_t count, Tile& tile) {
  float* const values = static_cast<float*>(tile.panel);
  float* const scales = tile.scales;
  const DType dtype = panel.dtype;
  const int64_t blocks = (count + kBlock - 1) / kBlock;
  for (int i = 0; i < kPanel; ++i) {
    const uint8_t* codes = panel.scaled() ? panel.scales(i) + begin / kBlock : nullptr;
    for (int64_t b = 0; b < blocks; ++b) scales[b * kPanel + i] = codes ? e8m0_to_float(codes[b]) : 1;
  }
  const int bits = bits_of(dtype), per_load = 256 / bits;
  for (int first = 0; first < panel.count; first += 8) {
    for (int64_t k = 0; k < blocks * kBlock; k += per_load) {
      __m256i v[8];
      for (int i = 0; i < 8; ++i) {
        v[i] = load_bytes(panel.row(first + i) + (begin + k) * bits / 8, (count - k) * bits / 8);
      }
      transpose_dwords(v);
      const int64_t columns = std::min<int64_t>(per_load, blocks * kBlock - k);
      decode_dwords(dtype, v, int(columns * bits / 32), values + k * kPanel + first);
    }
  }
}

template <int R>
[[gnu::target("avx2,fma")]] void multiply_tile(const Tile& tile, int64_t row, int first) {
  const float* x[R];
  float* sums = tile.sums + row * kPanel + first;
  for (int r = 0; r < R; ++r) {
    x[r] = reinterpret_cast<const float*>(tile.row(row + r));
    for (int i = 0; i < 16 && tile.first; ++i) sums[r * kPanel + i] = 0;
  }
  const float* w = static_cast<const float*>(tile.panel) + first;
  for (int64_t b = 0; b < tile.blocks; ++b) {
    __m256 block[R][2];
    for (int r = 0; r < R; ++r) block[r][0] = block[r][1] = _mm256_setzero_ps();
    for (int k = 0; k < kBlock; ++k, w += kPanel) {
      const __m256 w0 = _mm256_load_ps(w), w1 = _mm256_load_ps(w + 8);
      for (int r = 0; r < R; ++r) {
        const __m256 value = _mm256_broadcast_ss(x[r] + b * kBlock + k);
        block[r][0] = _mm256_fmadd_ps(value, w0, block[r][0]);
        block[r][1] = _mm256_fmadd_ps(value, w1, block[r][1]);
      }
    }
    for (int r = 0; r < R; ++r) {
      for (int h = 0; h < 2; ++h) {
        float* sum = sums + r * kPanel + h * 8;
        const __m256 scale = _mm256_load_ps(tile.scales + b * kPanel + first + h * 8);
        _mm256_store_ps(sum, _mm256_fmadd_ps(block[r][h], scale, _mm256_load_ps(sum)));
      }
    }
  }
}

void multiply(const Tile& tile) {
  for (int first = 0; first < tile.count; first += 16) {
    int64_t r = 0;
    for (; r + kRows <= tile.rows; r += kRows) multiply_tile<kRows>(tile, r, first);
    switch (tile.rows - r) {
      case 1: multiply_tile<1>(tile, r, first); break;
      case 2: multiply_tile<2>(tile, r, first); break;
      case 3: multiply_tile<3>(tile, r, first); break;
    }
  }
  if (tile.out) store_sums(tile.sums, tile.rows, tile.count, tile.out_dtype, tile.out, tile.out_bytes);
}

}  // namespace

const ProductKernels kProductAvx2 = {DType::f32, 256, decode_x, decode_panel, multiply};

}  // namespace fathom::cpu
