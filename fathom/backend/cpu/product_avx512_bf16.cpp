// Products of bf16 pairs (AVX512-BF16) for many rows: outputs side by side, 16 to a vector.
#include "fathom/backend/cpu/product_avx512_bf16.h"

#include "fathom/backend/cpu/avx512_panel.h"
#include "fathom/backend/cpu/code_lanes.h"

namespace fathom::cpu {
namespace {

constexpr int kRows = 6;  // rows of a register tile: 6 x 2 vectors of a lane's sum and 6 x 2 of a half's

// ------------------------------------------------------------------------------------------------------------- rows
/// Any 32 columns of a row, exactly but for what is no normal bf16.
[[gnu::target("avx512f,avx512bw,avx512vl")]] __m512i x_block(const Matrix& x, const uint8_t* values,
                                                             const uint8_t* scales, int64_t column, int64_t left) {
  if (x.dtype() == DType::bf16) {
    const __mmask32 lanes = left >= kBlock ? ~__mmask32(0) : (__mmask32(1) << left) - 1;
    return _mm512_maskz_loadu_epi16(lanes, values + column * 2);
  }
  const __m256i low = bf16_of(x_lanes(x, values, scales, column, left));
  const __m256i high = bf16_of(x_lanes(x, values, scales, column + 16, left - 16));
  return _mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1);
}

/// bf16 codes times 2^(power / 128): 0, infinities and NaN stay what they are.
[[gnu::target("avx512f,avx512bw"), gnu::always_inline]] inline __m512i times_power(__m512i codes, __m512i power) {
  const __m512i magnitude = _mm512_and_si512(codes, _mm512_set1_epi16(0x7fff));
  const __mmask32 numbers = _mm512_test_epi16_mask(magnitude, magnitude);
  const __mmask32 finite = _mm512_mask_cmplt_epi16_mask(numbers, magnitude, _mm512_set1_epi16(0x7f80));
  return _mm512_mask_add_epi16(codes, finite, codes, power);
}

[[gnu::target("avx512f,avx512bw,avx512vl,avx512vbmi")]] void decode_x(const Matrix& x, int64_t row, int64_t begin,
                                                                      int64_t count, DType weight, void* out) {
  const uint8_t* values = x.values.row(row);
  const uint8_t* scales = x.scales.data ? x.scales.row(row / x.scale_rows) : nullptr;
  uint16_t* codes = static_cast<uint16_t*>(out);
  const ColumnOrder order(weight);
  int64_t k = 0;
  if (scales) {
    const E4m3Lanes lanes;
    const uint8_t* at = scales + begin / kBlock;
    for (; k + 2 * kBlock <= count && is_moderate(at[0]) && is_moderate(at[1]); k += 2 * kBlock, at += 2) {
      __m512i first, second;
      lanes.decode(_mm512_loadu_si512(values + begin + k), first, second);
      const __m512i power = _mm512_mask_mov_epi16(_mm512_set1_epi16(short((at[1] - 127) * 128)), 0xffff,
                                                  _mm512_set1_epi16(short((at[0] - 127) * 128)));
      first = times_power(first, power);
      second = times_power(second, power);
      const __m512i next = _mm512_add_epi16(order.from_codes, _mm512_set1_epi16(16));
      _mm512_storeu_si512(codes + k, _mm512_permutex2var_epi16(first, order.from_codes, second));
      _mm512_storeu_si512(codes + k + kBlock, _mm512_permutex2var_epi16(first, next, second));
    }
  }
  for (; k < count; k += kBlock) {
    const __m512i block = x_block(x, values, scales, begin + k, count - k);
    _mm512_storeu_si512(codes + k, _mm512_permutexvar_epi16(order.from_natural, block));
  }
}

// ---------------------------------------------------------------------------------------------------------- weights
[[gnu::target("avx512f,avx512bw")]] bool all_moderate(const uint8_t* scales, int64_t count) {
  const __m512i lowest = _mm512_set1_epi8(char(127 - kModerate));
  __mmask64 beyond = 0;
  for (int64_t i = 0; i < count; i += 64) {
    const __mmask64 lanes = count - i >= 64 ? ~__mmask64(0) : (__mmask64(1) << (count - i)) - 1;
    const __m512i above = _mm512_sub_epi8(_mm512_maskz_loadu_epi8(lanes, scales + i), lowest);
    beyond |= _mm512_mask_cmpgt_epu8_mask(lanes, above, _mm512_set1_epi8(2 * kModerate));
  }
  return beyond == 0;
}

/// Moderate scales, and for E4M3 tiles that do not lie across panels.
bool takes(const Panel& panel, int64_t columns) {
  if (!panel.scaled()) return true;
  if (panel.dtype == DType::f8_e4m3 && !panel.one_scale_row()) return false;
  const int64_t blocks = (columns + kBlock - 1) / kBlock;
  const int rows = panel.scale_row_count();
  if (panel.scale_bytes == blocks) return all_moderate(panel.scale_row(0), rows * blocks);
  for (int i = 0; i < rows; ++i) {
    if (!all_moderate(panel.scale_row(i), blocks)) return false;
  }
  return true;
}

// A decoded panel is [lanes][steps][32 outputs], in dwords of a pair of columns: what one sum takes lies together.
constexpr int64_t kPairBytes = kPanel * 4;

/// Pair p of dword j of block `block`: two columns that come one after the other in code_lanes.h.
template <DType D>
[[gnu::always_inline]] inline uint8_t* place_of(const Tile& tile, int64_t block, int j, int p) {
  int at = j;
  if (D == DType::f8_e4m3) at = (j / 2 == 1 ? 2 : j / 2 == 2 ? 1 : j / 2) * 4 + j % 2 * 2 + p;
  if (D == DType::f4_e2m1) at = p * 4 + j;  // nibbles p of its two words
  return static_cast<uint8_t*>(tile.panel) + (at % kPairLanes * tile.steps + block * 2 + at / kPairLanes) * kPairBytes;
}

/// 2^(n - 127) in each lane to n - 127 where the exponent of each of its two bf16 lies.
[[gnu::target("avx512f"), gnu::always_inline]] inline __m512i power_of(const float* scales) {
  const __m512i power =
      _mm512_sub_epi32(_mm512_srli_epi32(_mm512_castps_si512(_mm512_load_ps(scales)), 23), _mm512_set1_epi32(127));
  const __m512i high = _mm512_slli_epi32(power, 23);
  return _mm512_or_si512(high, _mm512_srli_epi32(high, 16));
}

/// 16 outputs of a panel from `first` on.
template <DType D>
[[gnu::target("avx512f,avx512bw,avx512vbmi")]] void decode_outputs(const Panel& panel, int first, int64_t begin,
                                                                   int64_t count, const Tile& tile) {
  constexpr int kPairs = D == DType::bf16 ? 1 : D == DType::f8_e4m3 ? 2 : 4;  // in a dword
  constexpr int kDwords = kBlock / 2 / kPairs;                                // of a block
  constexpr int64_t kPerLoad = kPairs * 32;                                   // columns
  const int64_t ahead = kPanel * panel.row_bytes;  // the next panel; past the end of memory a prefetch does nothing
  const ScaleRows scale_rows(panel, first);
  alignas(64) float scales[4 * kPanel];
  const __m512i e2m1 = _mm512_load_si512(kCodeTables.e2m1[127].data()), bits = _mm512_set1_epi16(0x7fff);
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
    transpose_dwords<D == DType::f8_e4m3>(v);
    const int64_t blocks = (std::min(count - k, kPerLoad) + kBlock - 1) / kBlock;
    if (D == DType::f4_e2m1) decode_scales_avx512(scale_rows, begin + k, blocks, scales);
    for (int64_t b = 0; b < blocks; ++b) {
      const int64_t block = k / kBlock + b;
      const E4m3Lanes lanes(D == DType::f8_e4m3 ? scale_rows.row[0][begin / kBlock + block] : 127);
      const __m512i power = D == DType::f4_e2m1 ? power_of(scales + b * kPanel) : _mm512_setzero_si512();
#pragma GCC unroll 16
      for (int j = 0; j < kDwords; ++j) {
        __m512i pairs[4];
        const __m512i codes = v[b * kDwords + j];
        if (D == DType::bf16) pairs[0] = codes;
        if (D == DType::f8_e4m3) lanes.decode(codes, pairs[0], pairs[1]);
        for (int p = 0; D == DType::f4_e2m1 && p < 4; ++p) {
          const __m512i code = _mm512_permutexvar_epi16(_mm512_srli_epi16(codes, unsigned(4 * p)), e2m1);
          pairs[p] = _mm512_mask_add_epi16(code, _mm512_test_epi16_mask(code, bits), code, power);
        }
        for (int p = 0; p < kPairs; ++p) {
          _mm512_store_si512(place_of<D>(tile, block, j, p) + first * 4, pairs[p]);
        }
      }
    }
  }
}

void decode_panel(const Panel& panel, int64_t begin, int64_t count, Tile& tile) {
  tile.steps = (count + kBlock - 1) / kBlock * 2;
  for (int first = 0; first < panel.count; first += 16) {
    switch (panel.dtype) {
      case DType::bf16: decode_outputs<DType::bf16>(panel, first, begin, count, tile); break;
      case DType::f8_e4m3: decode_outputs<DType::f8_e4m3>(panel, first, begin, count, tile); break;
      default: decode_outputs<DType::f4_e2m1>(panel, first, begin, count, tile); break;
    }
  }
}

// --------------------------------------------------------------------------------------------------------- products
/// The sums of a lane; `w` goes on to the next one.
template <int R, int G>
[[gnu::target("avx512f,avx512bf16"), gnu::always_inline]] inline void multiply_lane(const uint8_t* const* x, int lane,
                                                                                    int64_t steps, const uint8_t*& w,
                                                                                    __m512 (*sum)[G]) {
  for (int r = 0; r < R; ++r) {
    for (int g = 0; g < G; ++g) sum[r][g] = _mm512_setzero_ps();
  }
  for (int64_t at = lane * 4; at < steps * kPairLanes * 4; at += kPairLanes * 4, w += kPairBytes) {
    __m512bh weight[G];
    for (int g = 0; g < G; ++g) weight[g] = __m512bh(_mm512_load_si512(w + g * 64));
    for (int r = 0; r < R; ++r) {
      int pair;
      std::memcpy(&pair, x[r] + at, 4);
      const __m512bh value = __m512bh(_mm512_set1_epi32(pair));
      for (int g = 0; g < G; ++g) sum[r][g] = _mm512_dpbf16_ps(sum[r][g], value, weight[g]);
    }
  }
}

/// The sums of lanes `first` .. `first` + 3, added in this order.
template <int R, int G>
[[gnu::target("avx512f,avx512bf16"), gnu::always_inline]] inline void multiply_half(const uint8_t* const* x, int first,
                                                                                    int64_t steps, const uint8_t*& w,
                                                                                    __m512 (*sum)[G]) {
  multiply_lane<R, G>(x, first, steps, w, sum);
#pragma GCC unroll 3
  for (int lane = first + 1; lane < first + kPairLanes / 2; ++lane) {
    __m512 next[R][G];
    multiply_lane<R, G>(x, lane, steps, w, next);
    for (int r = 0; r < R; ++r) {
      for (int g = 0; g < G; ++g) sum[r][g] = _mm512_add_ps(sum[r][g], next[r][g]);
    }
  }
}

/// R rows and 16 * G outputs.
template <int R, int G>
[[gnu::target("avx512f,avx512bw,avx512bf16")]] void multiply_tile(const Tile& tile, int64_t row) {
  alignas(64) float first_half[R][G][16];
  __m512 sum[R][G];
  const uint8_t* x[R];
  for (int r = 0; r < R; ++r) x[r] = tile.row(row + r);
  const uint8_t* w = static_cast<const uint8_t*>(tile.panel);
  multiply_half<R, G>(x, 0, tile.steps, w, sum);
  for (int r = 0; r < R; ++r) {
    for (int g = 0; g < G; ++g) _mm512_store_ps(first_half[r][g], sum[r][g]);
  }
  multiply_half<R, G>(x, kPairLanes / 2, tile.steps, w, sum);
  for (int r = 0; r < R; ++r) {
    float* to = tile.sums + (row + r) * kPanel;
    for (int g = 0; g < G; ++g) {
      sum[r][g] = _mm512_add_ps(_mm512_load_ps(first_half[r][g]), sum[r][g]);
      if (!tile.first) sum[r][g] = _mm512_add_ps(_mm512_load_ps(to + g * 16), sum[r][g]);
    }
    if (tile.out) {
      store_outputs(sum[r][0], sum[r][G - 1], tile.count, tile.out_dtype, tile.out + (row + r) * tile.out_bytes);
    } else {
      for (int g = 0; g < G; ++g) _mm512_store_ps(to + g * 16, sum[r][g]);
    }
  }
}

template <int G>
void multiply_groups(const Tile& tile) {
  int64_t tiles = (tile.rows + kRows - 1) / kRows;
  for (int64_t row = 0; row < tile.rows; --tiles) {  // of nearly equal heights
    const int64_t rows = (tile.rows - row + tiles - 1) / tiles;
    switch (rows) {
      case 1: multiply_tile<1, G>(tile, row); break;
      case 2: multiply_tile<2, G>(tile, row); break;
      case 3: multiply_tile<3, G>(tile, row); break;
      case 4: multiply_tile<4, G>(tile, row); break;
      case 5: multiply_tile<5, G>(tile, row); break;
      default: multiply_tile<6, G>(tile, row); break;
    }
    row += rows;
  }
}

void multiply(const Tile& tile) { tile.count > 16 ? multiply_groups<2>(tile) : multiply_groups<1>(tile); }

}  // namespace

const ProductKernels kProductAvx512Bf16 = {DType::bf16, kBf16Chunk,        decode_x,       decode_panel,
                                           multiply,    multiply_few_bf16, kFewRowsOfBf16, takes};

}  // namespace fathom::cpu
