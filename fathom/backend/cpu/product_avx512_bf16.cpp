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

/// Any 32 columns of a row, exactly but for what is no normal bf16.
[[gnu::target("avx512f,avx512bw,avx512vl")]] void decode_x_block(const Matrix& x, const uint8_t* values,
                                                                 const uint8_t* scales, int64_t column, int64_t left,
                                                                 uint16_t* out) {
  for (int i = 0; i < kBlock; i += 16) {
    const __m512 value = x_lanes(x, values, scales, column + i, left - i);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(out + i), bf16_of(value));
  }
}

/// 32 E4M3 codes times 2^(scale - 127), 10 <= scale <= 246: every result is a normal bf16, so its exponent can be
/// moved.
[[gnu::target("avx512f,avx512bw,avx512vbmi"), gnu::always_inline]] inline __m512i scaled_e4m3(__m256i codes,
                                                                                              int scale) {
  const __m512i low_bytes = _mm512_cvtepu8_epi16(codes), high_bytes = _mm512_slli_epi16(low_bytes, 8);
  // The bytes between are code 0, whose bytes are 0.
  const __m512i low = _mm512_permutex2var_epi8(_mm512_load_si512(kTables.e4m3_low.data()), low_bytes,
                                               _mm512_load_si512(kTables.e4m3_low.data() + 64));
  const __m512i high = _mm512_permutex2var_epi8(_mm512_load_si512(kTables.e4m3_high.data()), high_bytes,
                                                _mm512_load_si512(kTables.e4m3_high.data() + 64));
  const __m512i magnitude = _mm512_or_si512(low, high);
  const __mmask32 zero = _mm512_testn_epi16_mask(magnitude, magnitude);
  const __mmask32 finite = _mm512_cmplt_epi16_mask(magnitude, _mm512_set1_epi16(0x7f80));
  const __m512i moved =
      _mm512_mask_add_epi16(magnitude, finite & ~zero, magnitude, _mm512_set1_epi16(short((scale - 127) * 128)));
  return _mm512_ternarylogic_epi32(moved, high_bytes, _mm512_set1_epi16(short(0x8000)), 0xf8);
}

[[gnu::target("avx512f,avx512bw,avx512vl,avx512vbmi")]] void decode_x(const Matrix& x, int64_t row, int64_t begin,
                                                                      int64_t count, void* out) {
  const uint8_t* values = x.values.row(row);
  const uint8_t* scales = x.scales.data ? x.scales.row(row / x.scale_rows) : nullptr;
  uint16_t* codes = static_cast<uint16_t*>(out);
  for (int64_t k = 0; k < count; k += kBlock) {
    const int scale = scales ? scales[(begin + k) / kBlock] : 0;
    if (scale < 10 || scale > 246) {
      decode_x_block(x, values, scales, begin + k, count - k, codes + k);
    } else {
      const __m256i block = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(values + begin + k));
      _mm512_storeu_si512(codes + k, scaled_e4m3(block, scale));
    }
  }
}

/// For each byte of a result, the first of the eight bits of its quadword that it takes: nibble 2p of each dword into
/// the low word, nibble 2p + 1 into the high word.
[[gnu::target("avx512f"), gnu::always_inline]] inline __m512i nibble_pair(int p) {
  const long long low = 8 * p, high = 8 * p + 4;
  return _mm512_set1_epi64(low | high << 16 | (low + 32) << 32 | (high + 32) << 48);
}

/// What decodes a dword of codes of 16 outputs into pairs.
template <DType D>
struct Decoder;

template <>
struct Decoder<DType::bf16> {
  static constexpr int kPairs = 1;  // in a dword
  static constexpr bool kWordsApart = false;
  [[gnu::target("avx512f"), gnu::always_inline]] Decoder() {}
  [[gnu::target("avx512f,avx512bw,avx512vbmi"), gnu::always_inline]] void operator()(__m512i v, __m512i* pairs) const {
    pairs[0] = v;
  }
};

template <>
struct Decoder<DType::f8_e4m3> {
  static constexpr int kPairs = 2;
  static constexpr bool kWordsApart = true;
  __m512i low0, low1, high0, high1, sign;
  [[gnu::target("avx512f,avx512bw,avx512vbmi"), gnu::always_inline]] Decoder() {
    low0 = _mm512_load_si512(kTables.e4m3_low.data());
    low1 = _mm512_load_si512(kTables.e4m3_low.data() + 64);
    high0 = _mm512_load_si512(kTables.e4m3_high.data());
    high1 = _mm512_load_si512(kTables.e4m3_high.data() + 64);
    sign = _mm512_set1_epi8(char(0x80));
  }
  [[gnu::target("avx512f,avx512bw,avx512vbmi"), gnu::always_inline]] void operator()(__m512i v, __m512i* pairs) const {
    const __m512i low = _mm512_permutex2var_epi8(low0, v, low1);  // reads seven bits: not the sign
    const __m512i magnitude = _mm512_permutex2var_epi8(high0, v, high1);
    const __m512i high = _mm512_ternarylogic_epi32(magnitude, v, sign, 0xf8);  // magnitude | (code & sign)
    pairs[0] = _mm512_unpacklo_epi8(low, high);
    pairs[1] = _mm512_unpackhi_epi8(low, high);
  }
};

template <>
struct Decoder<DType::f4_e2m1> {
  static constexpr int kPairs = 4;
  static constexpr bool kWordsApart = false;
  __m512i table, nibbles[4];
  [[gnu::target("avx512f,avx512bw,avx512vbmi"), gnu::always_inline]] Decoder() {
    table = _mm512_load_si512(kTables.e2m1.data());
    for (int p = 0; p < 4; ++p) nibbles[p] = nibble_pair(p);
  }
  [[gnu::target("avx512f,avx512bw,avx512vbmi"), gnu::always_inline]] void operator()(__m512i v, __m512i* pairs) const {
    for (int p = 0; p < 4; ++p) {
      pairs[p] = _mm512_permutexvar_epi16(_mm512_multishift_epi64_epi8(nibbles[p], v), table);
    }
  }
};

/// 16 outputs of a panel; `out` is the decoded panel at them, in dwords of one pair.
template <DType D>
[[gnu::target("avx512f,avx512bw,avx512vbmi")]] void decode_outputs(const Panel& panel, int first, int64_t begin,
                                                                   int64_t count, uint32_t* out) {
  constexpr int kPairs = Decoder<D>::kPairs;
  constexpr int64_t kPerLoad = kPairs * 32;  // columns
  const Decoder<D> decode;
  // The next panel, if rows are short; else the next chunk. Past the end of memory a prefetch does nothing.
  const int64_t ahead = panel.row_bytes <= 1024 ? kPanel * panel.row_bytes : kChunk * 64 / kPerLoad;
  const uint8_t* w[16];
  for (int i = 0; i < 16; ++i) w[i] = panel.row(first + i) + begin * 64 / kPerLoad;
  for (int64_t k = 0; k < count; k += kPerLoad) {
    __m512i v[16];
    const int64_t bytes = std::min<int64_t>((count - k) * 64 / kPerLoad, 64);
    const __mmask64 mask = bytes == 64 ? ~__mmask64(0) : (__mmask64(1) << bytes) - 1;
    for (int i = 0; i < 16; ++i) {
      v[i] = _mm512_maskz_loadu_epi8(mask, w[i] + k * 64 / kPerLoad);
      _mm_prefetch(w[i] + k * 64 / kPerLoad + ahead, _MM_HINT_T1);
    }
    transpose_dwords<Decoder<D>::kWordsApart>(v);
    const int dwords = D == DType::bf16 ? 16 : int(bytes / 4);  // a block of bf16 is a whole load, zeros past `count`
    for (int j = 0; j < dwords; ++j) {
      __m512i pairs[kPairs];
      decode(v[j], pairs);
      for (int p = 0; p < kPairs; ++p) _mm512_store_si512(out + (k / 2 + j * kPairs + p) * kPanel, pairs[p]);
    }
  }
}

void decode_panel(const Panel& panel, int64_t begin, int64_t count, void* out, float* scales) {
  const int64_t blocks = (count + kBlock - 1) / kBlock;
  for (int first = 0; first < panel.count; first += 16) {
    decode_scales_avx512(ScaleRows(panel, first), begin, blocks, scales + first);
    uint32_t* pairs = static_cast<uint32_t*>(out) + first;
    switch (panel.dtype) {
      case DType::bf16: decode_outputs<DType::bf16>(panel, first, begin, count, pairs); break;
      case DType::f8_e4m3: decode_outputs<DType::f8_e4m3>(panel, first, begin, count, pairs); break;
      default: decode_outputs<DType::f4_e2m1>(panel, first, begin, count, pairs); break;
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
    if (G == 2 && tile.out != nullptr) {
      const __m512bh codes = _mm512_cvtne2ps_pbh(sum[r][G - 1], sum[r][0]);
      _mm512_storeu_si512(tile.out + (row + r) * tile.out_bytes, __m512i(codes));
      continue;
    }
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

[[gnu::target("avx512f,avx512bw,avx512bf16")]] void store(const float* sums, int64_t rows, int count, DType dtype,
                                                          uint8_t* out, int64_t out_bytes) {
  if (dtype == DType::f32) return store_sums_avx512(sums, rows, count, dtype, out, out_bytes);
  const __mmask32 lanes = __mmask32((uint64_t(1) << count) - 1);
  for (int64_t r = 0; r < rows; ++r, sums += kPanel, out += out_bytes) {
    const __m512bh codes = _mm512_cvtne2ps_pbh(_mm512_load_ps(sums + 16), _mm512_load_ps(sums));
    if (count == kPanel) {
      _mm512_storeu_si512(out, __m512i(codes));
    } else {
      _mm512_mask_storeu_epi16(out, lanes, __m512i(codes));
    }
  }
}

// ---------------------------------------------------------------------------------------------------- few rows
// One or two rows: a decoded weight is used at once and never written. The sums are those of the tiles above, in the
// same order. From three rows on, writing the panel once is faster (Zen 4, 1,024 weights: decoding 140 cycles, then 35
// a row).
constexpr int kFewRows = 2;

/// Blocks whose sums grow side by side: a dot product takes six cycles and the next of its chain waits for it.
constexpr int together(int rows, int blocks) { return rows == 1 ? blocks : rows == 2 && blocks % 2 == 0 ? 2 : 1; }

/// Blocks 0 .. B - 1 of v, the dwords of 16 weight rows; x points to the columns of dword 0.
template <DType D, int R, int B>
[[gnu::target("avx512f,avx512bw,avx512vbmi,avx512bf16"), gnu::always_inline]] inline void multiply_dwords(
    const __m512i* v, const Decoder<D>& decode, const uint8_t* const* x, int64_t column, const float* scales,
    __m512* sum) {
  constexpr int kPairs = Decoder<D>::kPairs, kDwords = kBlock / 2 / kPairs;  // of a dword, of a block
  constexpr int kTogether = together(R, B);
  for (int first = 0; first < B; first += kTogether) {
    __m512 block[kTogether][R];
    for (int b = 0; b < kTogether; ++b) {
      for (int r = 0; r < R; ++r) block[b][r] = _mm512_setzero_ps();
    }
#pragma GCC unroll 16
    for (int d = 0; d < kDwords; ++d) {
      for (int b = 0; b < kTogether; ++b) {
        __m512i pairs[kPairs];
        decode(v[(first + b) * kDwords + d], pairs);
        for (int p = 0; p < kPairs; ++p) {
          const int64_t at = column + (first + b) * kBlock + (d * kPairs + p) * 2;
          for (int r = 0; r < R; ++r) {
            int pair;
            std::memcpy(&pair, x[r] + at * 2, 4);
            block[b][r] = _mm512_dpbf16_ps(block[b][r], __m512bh(_mm512_set1_epi32(pair)), __m512bh(pairs[p]));
          }
        }
      }
    }
    for (int b = 0; b < kTogether; ++b) {
      const __m512 scale = _mm512_load_ps(scales + (first + b) * kPanel);
      for (int r = 0; r < R; ++r) sum[r] = _mm512_fmadd_ps(block[b][r], scale, sum[r]);
    }
  }
}

template <DType D, int R>
[[gnu::target("avx512f,avx512bw,avx512vbmi,avx512bf16")]] void multiply_few_rows(const Panel& panel,
                                                                                 const uint8_t* const* rows,
                                                                                 int64_t columns, float* sums) {
  constexpr bool kApart = Decoder<D>::kWordsApart;
  constexpr int64_t kPerLoad = Decoder<D>::kPairs * 32;  // columns
  constexpr int kLoads = D == DType::bf16 ? 2 : 1;       // at a time: at least two blocks, for the same reason
  constexpr int kBlocks = kLoads * int(kPerLoad / kBlock);
  const Decoder<D> decode;
  const uint8_t* x[R];
  for (int r = 0; r < R; ++r) x[r] = rows[r];
  alignas(64) float scales[kChunk / kBlock * kPanel];
  for (int first = 0; first < panel.count; first += 16) {
    const ScaleRows scale_rows(panel, first);
    const uint8_t* w[16];
    for (int i = 0; i < 16; ++i) w[i] = panel.row(first + i);
    __m512 sum[R];
    for (int r = 0; r < R; ++r) sum[r] = _mm512_setzero_ps();
    for (int64_t begin = 0; begin < columns; begin += kChunk) {
      const int64_t end = std::min(begin + kChunk, columns);
      decode_scales_avx512(scale_rows, begin, (end - begin + kBlock - 1) / kBlock, scales);
      const float* scale = scales;
      int64_t k = begin;
      for (; k + kLoads * kPerLoad <= end; k += kLoads * kPerLoad, scale += kBlocks * kPanel) {
        __m512i v[16 * kLoads];
        for (int load = 0; load < kLoads; ++load) {
          const int64_t at = (k + load * kPerLoad) * 64 / kPerLoad;
          for (int i = 0; i < 16; ++i) v[load * 16 + i] = _mm512_loadu_si512(w[i] + at);
          transpose_dwords<kApart>(v + load * 16);
        }
        multiply_dwords<D, R, kBlocks>(v, decode, x, k, scale, sum);
      }
      while (k < end) {
        __m512i v[16];
        const int64_t bytes = std::min<int64_t>((end - k) * 64 / kPerLoad, 64);
        const __mmask64 mask = bytes == 64 ? ~__mmask64(0) : (__mmask64(1) << bytes) - 1;
        for (int i = 0; i < 16; ++i) v[i] = _mm512_maskz_loadu_epi8(mask, w[i] + k * 64 / kPerLoad);
        transpose_dwords<kApart>(v);
        const int64_t blocks = D == DType::bf16 ? 1 : (end - k + kBlock - 1) / kBlock;
        if (blocks == 1) multiply_dwords<D, R, 1>(v, decode, x, k, scale, sum);
        if (D == DType::f4_e2m1 && blocks == 2)
          multiply_dwords<D, R, std::min(kBlocks, 2)>(v, decode, x, k, scale, sum);
        if (D == DType::f4_e2m1 && blocks == 3)
          multiply_dwords<D, R, std::min(kBlocks, 3)>(v, decode, x, k, scale, sum);
        k += blocks * kBlock;
        scale += blocks * kPanel;
      }
    }
    for (int r = 0; r < R; ++r) _mm512_store_ps(sums + r * kPanel + first, sum[r]);
  }
}

template <DType D>
void multiply_few(const Panel& panel, const uint8_t* const* x, int rows, int64_t columns, float* sums) {
  if (rows == 1) return multiply_few_rows<D, 1>(panel, x, columns, sums);
  multiply_few_rows<D, 2>(panel, x, columns, sums);
}

void multiply_panel(const Panel& panel, const uint8_t* const* x, int rows, int64_t columns, float* sums) {
  switch (panel.dtype) {
    case DType::bf16: return multiply_few<DType::bf16>(panel, x, rows, columns, sums);
    case DType::f8_e4m3: return multiply_few<DType::f8_e4m3>(panel, x, rows, columns, sums);
    default: return multiply_few<DType::f4_e2m1>(panel, x, rows, columns, sums);
  }
}

}  // namespace

const ProductKernels kProductAvx512Bf16 = {DType::bf16, decode_x,       decode_panel, multiply,
                                           store,       multiply_panel, kFewRows,     true};

}  // namespace fathom::cpu
