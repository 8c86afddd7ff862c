// fathom/backend/cpu/product_avx512_bf16.cpp
// Products of bf16 pairs (AVX512-BF16), weights decoded by table look-ups in registers (AVX512-VBMI).
#include <array>

#include "fathom/backend/cpu/avx512_panel.h"

namespace fathom::cpu {
namespace {

constexpr int kRows = 6;  // rows of a register tile: 6 x 2 vectors of a block's sum and 6 x 2 of the whole sum

/// The bf16 codes of all non-negative E4M3 codes, as a table of low bytes and one of high bytes, and those of E2M1.
struct CodeTables {
  alignas(64) std::array<uint8_t, 128> e4m3_low{}, e4m3_high{};
  alignas(64) std::array<uint16_t, 32> e2m1{};  // twice the same 16: a look-up reads five bits, a code has four

  CodeTables() {
    for (size_t i = 0; i < 128; ++i) {
      const uint16_t code = float_to_bf16(e4m3_to_float(uint8_t(i)));
      e4m3_low[i] = uint8_t(code);
      e4m3_high[i] = uint8_t(code >> 8);
    }
    for (size_t i = 0; i < 32; ++i) e2m1[i] = float_to_bf16(kE2m1[i % 16]);
  }
};
const CodeTables kTables;

[[gnu::target("avx512f,avx512bw,avx512vl")]] void decode_x(const Matrix& x, int64_t row, int64_t begin, int64_t count,
                                                           void* out) {
  const uint8_t* values = x.values.row(row);
  const uint8_t* scales = x.scales.data ? x.scales.row(row / x.scale_rows) : nullptr;
  for (int64_t k = 0; k < count || k % kBlock != 0; k += 16) {
    const __m512 value = x_lanes(x, values, scales, begin + k, count - k);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(static_cast<uint16_t*>(out) + k), bf16_of(value));
  }
}

/// Loads `bytes` bytes from column byte `at` of 16 rows.
[[gnu::target("avx512f,avx512bw"), gnu::always_inline]] inline void load_rows(const Panel& panel, int first, int64_t at,
                                                                              int64_t bytes, __m512i v[16]) {
  const __mmask64 mask = bytes >= 64 ? ~__mmask64(0) : (__mmask64(1) << std::max<int64_t>(bytes, 0)) - 1;
  for (int i = 0; i < 16; ++i) v[i] = _mm512_maskz_loadu_epi8(mask, panel.row(first + i) + at);
}

// The three decoders below write 16 outputs; `out` is the panel at them, in dwords of one bf16 pair, `stride` 32 a
// pair.

[[gnu::target("avx512f,avx512bw")]] void decode_bf16(const Panel& panel, int first, int64_t begin, int64_t count,
                                                     uint32_t* out) {
  for (int64_t k = 0; k < count; k += 32) {
    __m512i v[16];
    load_rows(panel, first, (begin + k) * 2, (count - k) * 2, v);
    transpose_dwords<false>(v);
    for (int j = 0; j < 16; ++j) _mm512_store_si512(out + (k / 2 + j) * kPanel, v[j]);
  }
}

[[gnu::target("avx512f,avx512bw,avx512vbmi")]] void decode_e4m3(const Panel& panel, int first, int64_t begin,
                                                                int64_t count, uint32_t* out) {
  const __m512i low0 = _mm512_load_si512(kTables.e4m3_low.data());
  const __m512i low1 = _mm512_load_si512(kTables.e4m3_low.data() + 64);
  const __m512i high0 = _mm512_load_si512(kTables.e4m3_high.data());
  const __m512i high1 = _mm512_load_si512(kTables.e4m3_high.data() + 64);
  const __m512i sign = _mm512_set1_epi8(char(0x80));
  for (int64_t k = 0; k < count; k += 64) {
    __m512i v[16];
    load_rows(panel, first, begin + k, count - k, v);
    transpose_dwords<true>(v);
    const int dwords = int(std::min<int64_t>(64, count - k) / 4);
    for (int j = 0; j < dwords; ++j) {
      const __m512i low = _mm512_permutex2var_epi8(low0, v[j], low1);  // reads seven bits: not the sign
      const __m512i magnitude = _mm512_permutex2var_epi8(high0, v[j], high1);
      const __m512i high = _mm512_ternarylogic_epi32(magnitude, v[j], sign, 0xf8);  // magnitude | (code & sign)
      _mm512_store_si512(out + (k / 2 + j * 2) * kPanel, _mm512_unpacklo_epi8(low, high));
      _mm512_store_si512(out + (k / 2 + j * 2 + 1) * kPanel, _mm512_unpackhi_epi8(low, high));
    }
  }
}

/// For each byte of a result, the first of the eight bits of its quadword that it takes: nibble 2p of each dword into
/// the low word, nibble 2p + 1 into the high word.
[[gnu::target("avx512f"), gnu::always_inline]] inline __m512i nibble_pair(int p) {
  const long long low = 8 * p, high = 8 * p + 4;
  return _mm512_set1_epi64(low | high << 16 | (low + 32) << 32 | (high + 32) << 48);
}

[[gnu::target("avx512f,avx512bw,avx512vbmi")]] void decode_e2m1(const Panel& panel, int first, int64_t begin,
                                                                int64_t count, uint32_t* out) {
  const __m512i table = _mm512_load_si512(kTables.e2m1.data());
  const __m512i pair0 = nibble_pair(0), pair1 = nibble_pair(1), pair2 = nibble_pair(2), pair3 = nibble_pair(3);
  for (int64_t k = 0; k < count; k += 128) {
    __m512i v[16];
    load_rows(panel, first, (begin + k) / 2, (count - k) / 2, v);
    transpose_dwords<false>(v);
    const int dwords = int(std::min<int64_t>(128, count - k) / 8);
    for (int j = 0; j < dwords; ++j) {
      uint32_t* pairs = out + (k / 2 + j * 4) * kPanel;
      _mm512_store_si512(pairs, _mm512_permutexvar_epi16(_mm512_multishift_epi64_epi8(pair0, v[j]), table));
      _mm512_store_si512(pairs + kPanel, _mm512_permutexvar_epi16(_mm512_multishift_epi64_epi8(pair1, v[j]), table));
      _mm512_store_si512(pairs + 2 * kPanel,
                         _mm512_permutexvar_epi16(_mm512_multishift_epi64_epi8(pair2, v[j]), table));
      _mm512_store_si512(pairs + 3 * kPanel,
                         _mm512_permutexvar_epi16(_mm512_multishift_epi64_epi8(pair3, v[j]), table));
    }
  }
}

void decode_panel(const Panel& panel, int64_t begin, int64_t count, void* out, float* scales) {
  decode_scales_avx512(panel, begin, (count + kBlock - 1) / kBlock, scales);
  for (int first = 0; first < panel.count; first += 16) {
    uint32_t* pairs = static_cast<uint32_t*>(out) + first;
    switch (panel.weight->dtype()) {
      case DType::bf16: decode_bf16(panel, first, begin, count, pairs); break;
      case DType::f8_e4m3: decode_e4m3(panel, first, begin, count, pairs); break;
      default: decode_e2m1(panel, first, begin, count, pairs); break;
    }
  }
}

template <int R, int G>
[[gnu::target("avx512f,avx512bw,avx512bf16")]] void multiply_tile(const Tile& tile, int64_t row) {
  const uint8_t* x[R];
  __m512 sum[R][G];
  for (int r = 0; r < R; ++r) {
    x[r] = tile.row(row + r);
    for (int g = 0; g < G; ++g) {
      sum[r][g] = tile.first ? _mm512_setzero_ps() : _mm512_load_ps(tile.sums + (row + r) * kPanel + g * 16);
    }
  }
  const uint32_t* w = static_cast<const uint32_t*>(tile.panel);
  const float* scales = tile.scales;
  for (int64_t b = 0; b < tile.blocks; ++b, scales += kPanel) {
    __m512 block[R][G];
    for (int r = 0; r < R; ++r) {
      for (int g = 0; g < G; ++g) block[r][g] = _mm512_setzero_ps();
    }
    for (int p = 0; p < kBlock / 2; ++p, w += kPanel) {
      __m512bh weight[G];
      for (int g = 0; g < G; ++g) weight[g] = __m512bh(_mm512_load_si512(w + g * 16));
      for (int r = 0; r < R; ++r) {
        int pair;
        std::memcpy(&pair, x[r] + (b * kBlock + p * 2) * 2, 4);
        const __m512bh value = __m512bh(_mm512_set1_epi32(pair));
        for (int g = 0; g < G; ++g) block[r][g] = _mm512_dpbf16_ps(block[r][g], value, weight[g]);
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

void multiply(const Tile& tile) { tile.count > 16 ? multiply_groups<2>(tile) : multiply_groups<1>(tile); }

}  // namespace

const ProductKernels kProductAvx512Bf16 = {DType::bf16, decode_x, decode_panel, multiply, store_sums_avx512};

}  // namespace fathom::cpu
