// Products of bf16 pairs (AVX512-BF16) for few rows: a decoded weight is used at once and never written. Weight rows
// are read as they lie, 16 columns of one or two of them to a vector.
#include <concepts>

#include "fathom/backend/cpu/avx512_panel.h"
#include "fathom/backend/cpu/code_lanes.h"
#include "fathom/backend/cpu/product_avx512_bf16.h"
#include "fathom/backend/cpu/scratch.h"

namespace fathom::cpu {
namespace {

constexpr int kOutputs = 8;      // at a time
constexpr int64_t kLong = 1024;  // columns; shorter rows are those of small matrices, which lie in a cache
// Bytes between a weight and those that are called for while it is read: a microsecond of memory's rate, and what a
// cache of the third level takes to answer.
constexpr int64_t kAhead = 20 << 10, kAheadInCache = 4 << 10;

/// x times the scales of the panel's blocks, in `out`; false if a number of x is too large or too small for that.
[[gnu::target("avx512f,avx512bw")]] bool scale_row(const uint8_t* x, const uint8_t* scales, int64_t columns,
                                                   uint16_t* out) {
  const __m512i lowest = _mm512_set1_epi16((127 - kModerate) << 7), bits = _mm512_set1_epi16(0x7fff);
  const __m512i range = _mm512_set1_epi16((2 * kModerate + 1) << 7);
  __mmask32 beyond = 0;
  for (int64_t b = 0; b < columns / kBlock; ++b) {
    const __m512i codes = _mm512_loadu_si512(x + b * kBlock * 2);
    const __mmask32 numbers = _mm512_test_epi16_mask(codes, bits);
    const __m512i above = _mm512_sub_epi16(_mm512_and_si512(codes, bits), lowest);
    beyond |= _mm512_mask_cmpge_epu16_mask(numbers, above, range);
    const __m512i power = _mm512_set1_epi16(short((scales[b] - 127) * 128));
    _mm512_store_si512(out + b * kBlock, _mm512_mask_add_epi16(codes, numbers, codes, power));
  }
  return beyond == 0;
}

/// Eight rows of bytes that lie equally far apart, as addresses that a load can form by itself.
struct EightRows {
  const uint8_t *even, *odd;  // rows 0 and 1
  int64_t step, step3;        // from a row to the next, and to the third

  EightRows() = default;
  EightRows(const uint8_t* first, int64_t stride) : even(first), odd(first + stride), step(stride), step3(3 * stride) {}
  [[gnu::always_inline]] inline const uint8_t* row(int i) const {
    switch (i) {
      case 0: return even;
      case 1: return odd;
      case 2: return even + 2 * step;
      case 3: return even + step3;
      case 4: return even + 4 * step;
      case 5: return odd + 4 * step;
      case 6: return even + 2 * step3;
      default: return odd + 2 * step3;
    }
  }
  [[gnu::always_inline]] inline void advance(int64_t bytes) {
    even += bytes;
    odd += bytes;
  }
};

template <int V, int R>
[[gnu::target("avx512f,avx512bw,avx512bf16"), gnu::always_inline]] inline void add_products(const uint8_t* const* x,
                                                                                            int64_t column, int i,
                                                                                            __m512i weight,
                                                                                            __m512 (*sum)[V]) {
#pragma GCC unroll 6
  for (int r = 0; r < R; ++r) {
    const __m256i half = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(x[r] + column * 2));
    sum[r][i] = _mm512_dpbf16_ps(sum[r][i], __m512bh(_mm512_broadcast_i64x4(half)), __m512bh(weight));
  }
}

/// Calls for the next weights as fast as the present ones are read: `bytes` more of the eight rows that follow. Past
/// the end of memory it does nothing.
[[gnu::always_inline]] inline void prefetch(const uint8_t*& next, int bytes) {
  for (int i = 0; i < bytes; i += 64) _mm_prefetch(next + i, _MM_HINT_T1);
  next += bytes;
}

/// Calls for the first weights of a panel, unless this thread comes from the panel before, which has done so.
void begin_panel(const Panel& panel, int64_t ahead) {
  static thread_local const uint8_t* called_for = nullptr;  // the end of it
  const uint8_t* first = panel.row(0);
  const int64_t bytes = panel.count * panel.row_bytes;
  const uint8_t* const now = first + ahead;  // as the panel before leaves it; this one, if it comes again, bytes more
  const bool known = called_for == now || called_for == now + bytes;
  called_for = now + bytes;
  if (!known) prefetch(first, int(std::min(ahead, bytes)));
}

/// Has the processor look up where the pages of what comes lie, many at once. Pages of 4 KiB in a virtual machine take
/// longer to find than their bytes take to read, and a prefetch waits for that: one page after the other cost a third
/// of a product of one row (MXFP4, 2304 x 5120: 430 us on one thread, with this 306). Of the bytes from `from` on:
/// those 16 pages each whose first lies among them.
[[gnu::always_inline]] inline void find_pages(const uint8_t* from, int64_t bytes) {
  constexpr uintptr_t kPage = 4096, kTogether = 16 * kPage;
  const auto begin = reinterpret_cast<uintptr_t>(from);
  const uintptr_t first = (begin + kTogether - 1) / kTogether * kTogether;
  const uintptr_t last = (begin + uintptr_t(bytes) + kTogether - 1) / kTogether * kTogether;
  for (const uint8_t* page = from + (first - begin); page < from + (last - begin); page += kPage) {
    _mm_prefetch(page, _MM_HINT_T1);
  }
}

/// What a pass over some columns of eight outputs reads.
struct Pass {
  EightRows weight;         // at the first column
  const uint8_t* next;      // to be called for
  EightRows scales;         // of E2M1, likewise
  const uint8_t* const* x;  // rows
  int64_t begin, columns;   // of x
};

/// The products of the vectors [from, from + V): vector i holds outputs i and i + 4.
template <int V, int R>
[[gnu::target("avx512f,avx512bw,avx512vbmi,avx512bf16"), gnu::always_inline]] inline void multiply_columns(
    const E4m3Lanes& lanes, Pass pass, int from, __m512 (*sum)[V]) {
  for (int64_t k = pass.begin; k < pass.begin + pass.columns; k += kBlock, pass.weight.advance(32)) {
    if (from == 0) prefetch(pass.next, 8 * 32);
#pragma GCC unroll 4
    for (int i = 0; i < V; ++i) {
      __m512i first, second;
      lanes.decode(pass.weight.row(from + i), pass.weight.row(from + i + 4), first, second);
      add_products<V, R>(pass.x, k, i, first, sum);
      add_products<V, R>(pass.x, k + kStep, i, second, sum);
    }
  }
}
template <int V, int R>
[[gnu::target("avx512f,avx512bw,avx512vl,avx512bf16"), gnu::always_inline]] inline void multiply_columns(
    const Bf16Lanes&, Pass pass, int from, __m512 (*sum)[V]) {
  for (int64_t k = 0; k < pass.columns; k += kStep, pass.weight.advance(32)) {
    const __mmask16 lanes = __mmask16(pass.columns - k >= kStep ? 0xffff : (1 << (pass.columns - k)) - 1);
    if (from == 0) prefetch(pass.next, 8 * 32);
#pragma GCC unroll 4
    for (int i = 0; i < V; ++i) {
      const __m512i pairs = Bf16Lanes::decode(pass.weight.row(from + i), pass.weight.row(from + i + 4), lanes);
      add_products<V, R>(pass.x, pass.begin + k, i, pairs, sum);
    }
  }
}

/// The sums of a pass over columns of a multiple of kBlock, or bf16. At a time: as many vectors as registers hold R of.
template <class Lanes, int R>
[[gnu::target("avx512f,avx512bw,avx512vl,avx512vbmi,avx512bf16"), gnu::always_inline]] inline void multiply_pass(
    const Lanes& lanes, const Pass& pass, __m512 (*sum)[4]) {
  constexpr int kVectors = R <= 3 ? 4 : 2;
#pragma GCC unroll 2
  for (int from = 0; from < 4; from += kVectors) {
    __m512 part[R][kVectors];
    for (int r = 0; r < R; ++r) {
      for (int i = 0; i < kVectors; ++i) part[r][i] = _mm512_setzero_ps();
    }
    multiply_columns<kVectors, R>(lanes, pass, from, part);
    for (int r = 0; r < R; ++r) {
      for (int i = 0; i < kVectors; ++i) sum[r][from + i] = part[r][i];
    }
  }
}

/// The products of the outputs [from, from + N), one to a vector.
template <int N, int R>
[[gnu::target("avx512f,avx512bw,avx512vl,avx512bf16"), gnu::always_inline]] inline void multiply_columns(
    const E2m1Lanes& lanes, Pass pass, int from, __m256 (*sum)[N]) {
  for (int64_t k = pass.begin; k < pass.begin + pass.columns; k += kBlock, pass.weight.advance(16)) {
    if (from == 0) prefetch(pass.next, 8 * 16);
#pragma GCC unroll 2
    for (int step = 0; step < 2; ++step) {
      __m256bh x[R];
#pragma GCC unroll 6
      for (int r = 0; r < R; ++r) {
        const uint8_t* at = pass.x[r] + (k + step * kStep) * 2;
        x[r] = __m256bh(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(at)));
      }
#pragma GCC unroll 8
      for (int i = 0; i < N; ++i) {
        const __m256bh weight = __m256bh(lanes.decode(pass.weight.row(from + i), *pass.scales.row(from + i), step));
#pragma GCC unroll 6
        for (int r = 0; r < R; ++r) sum[r][i] = _mm256_dpbf16_ps(sum[r][i], x[r], weight);
      }
    }
    pass.scales.advance(1);
  }
}
template <class Lanes, int R>
requires std::same_as<Lanes, E2m1Lanes>
[[gnu::target("avx512f,avx512bw,avx512dq,avx512vl,avx512bf16"), gnu::always_inline]] inline void multiply_pass(
    const Lanes& lanes, const Pass& pass, __m512 (*sum)[4]) {
  constexpr int kN = R <= 2 ? 8 : 4;
  __m256 all[R][kOutputs];
#pragma GCC unroll 2
  for (int from = 0; from < kOutputs; from += kN) {
    __m256 part[R][kN];
    for (int r = 0; r < R; ++r) {
      for (int i = 0; i < kN; ++i) part[r][i] = _mm256_setzero_ps();
    }
    multiply_columns<kN, R>(lanes, pass, from, part);
    for (int r = 0; r < R; ++r) {
      for (int i = 0; i < kN; ++i) all[r][from + i] = part[r][i];
    }
  }
  for (int r = 0; r < R; ++r) {
    for (int i = 0; i < 4; ++i) {
      sum[r][i] = _mm512_insertf32x8(_mm512_castps256_ps512(all[r][i]), all[r][i + 4], 1);
    }
  }
}

/// The sums of eight outputs from the lanes of four vectors.
[[gnu::target("avx512f,avx512dq,avx512vl"), gnu::always_inline]] inline __m256 add_lanes(const __m512* v) {
  const __m512d low0 = _mm512_castps_pd(_mm512_unpacklo_ps(v[0], v[1])),
                high0 = _mm512_castps_pd(_mm512_unpackhi_ps(v[0], v[1]));
  const __m512d low1 = _mm512_castps_pd(_mm512_unpacklo_ps(v[2], v[3])),
                high1 = _mm512_castps_pd(_mm512_unpackhi_ps(v[2], v[3]));
  __m512 sum =
      _mm512_add_ps(_mm512_castpd_ps(_mm512_unpacklo_pd(low0, low1)), _mm512_castpd_ps(_mm512_unpackhi_pd(low0, low1)));
  sum = _mm512_add_ps(sum, _mm512_castpd_ps(_mm512_unpacklo_pd(high0, high1)));
  sum = _mm512_add_ps(sum, _mm512_castpd_ps(_mm512_unpackhi_pd(high0, high1)));
  const __m256 first = _mm512_castps512_ps256(sum), second = _mm512_extractf32x8_ps(sum, 1);
  return _mm256_add_ps(_mm256_permute2f128_ps(first, second, 0x20), _mm256_permute2f128_ps(first, second, 0x31));
}

template <class Lanes, int R>
[[gnu::target("avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,avx512bf16")]] void multiply_rows(
    const Panel& panel, const uint8_t* const* rows, int64_t columns, const Tile& tile) {
  constexpr bool kScaled = std::same_as<Lanes, E2m1Lanes>;
  alignas(64) float sums[R][kPanel];
  const Lanes lanes{};
  const uint8_t* x[R];
  for (int r = 0; r < R; ++r) x[r] = rows[r];
  Pass pass;
  pass.x = x;
  const int64_t group = kOutputs * panel.row_bytes, enough = columns < kLong ? kAheadInCache : kAhead;
  const int64_t ahead = (enough + group - 1) / group * group;
  begin_panel(panel, ahead);
  find_pages(panel.row(0) + kPanel * panel.row_bytes + ahead, kPanel * panel.row_bytes);
  if (kScaled) find_pages(panel.scale_row(0) + kPanel * panel.scale_bytes, kPanel * panel.scale_bytes);
  for (int first = 0; first < panel.count; first += kOutputs) {
    const uint8_t* weight = panel.row(first);
    for (pass.begin = 0; pass.begin < columns; pass.begin += kBf16Chunk) {
      pass.columns = std::min(kBf16Chunk, columns - pass.begin);
      const int64_t bytes = pass.begin * bits_of(panel.dtype) / 8;
      pass.weight = EightRows(weight + bytes, panel.row_bytes);
      pass.next = weight + ahead + kOutputs * bytes;
      if (kScaled) {
        pass.scales = EightRows(panel.scale_row(first) + pass.begin / kBlock, panel.scale_bytes);
        // The next panel's scales are read first of all, by `takes`.
        const uint8_t* next = panel.scale_row(first) + kPanel * panel.scale_bytes + pass.begin / kBlock * 8;
        prefetch(next, int(pass.columns / kBlock * 8));
      }
      __m512 sum[R][4];
      multiply_pass<Lanes, R>(lanes, pass, sum);
      for (int r = 0; r < R; ++r) {
        float* to = sums[r] + first;
        const __m256 added = add_lanes(sum[r]);
        _mm256_store_ps(to, pass.begin == 0 ? added : _mm256_add_ps(_mm256_load_ps(to), added));
      }
    }
  }
  for (int r = 0; r < R; ++r) {
    store_outputs(_mm512_load_ps(sums[r]), _mm512_load_ps(sums[r] + 16), panel.count, tile.out_dtype,
                  tile.out + r * tile.out_bytes);
  }
}

/// In passes of about equally many rows; after the first, the panel comes from a near cache.
template <class Lanes>
void multiply(const Panel& panel, const uint8_t* const* x, int64_t columns, Tile tile) {
  constexpr int64_t kMost = std::same_as<Lanes, E2m1Lanes> ? 5 : 6;  // of a pass, by registers
  int64_t passes = (tile.rows + kMost - 1) / kMost;
  for (int64_t left = tile.rows; left > 0; --passes) {
    const int64_t rows = (left + passes - 1) / passes;
    switch (rows) {
      case 1: multiply_rows<Lanes, 1>(panel, x, columns, tile); break;
      case 2: multiply_rows<Lanes, 2>(panel, x, columns, tile); break;
      case 3: multiply_rows<Lanes, 3>(panel, x, columns, tile); break;
      case 4: multiply_rows<Lanes, 4>(panel, x, columns, tile); break;
      case 5: multiply_rows<Lanes, 5>(panel, x, columns, tile); break;
      default: multiply_rows<Lanes, kMost>(panel, x, columns, tile); break;
    }
    left -= rows;
    x += rows;
    tile.out += rows * tile.out_bytes;
  }
}

}  // namespace

bool multiply_few_bf16(const Panel& panel, const Tile& tile, int64_t columns) {
  // Above the rows of a pass, turned panels are faster if rows are short or in a cache anyway.
  constexpr int64_t kOnePass = 6;
  static thread_local Scratch scratch;
  if (tile.rows > kOnePass && columns < kLong) return false;
  if (panel.count % kOutputs != 0 || (panel.dtype == DType::f4_e2m1 && panel.scale_rows != 1)) return false;
  const uint8_t* x[kFewRowsOfBf16];
  for (int64_t r = 0; r < tile.rows; ++r) x[r] = tile.row(r);
  if (panel.dtype == DType::bf16) {
    multiply<Bf16Lanes>(panel, x, columns, tile);
  } else if (panel.dtype == DType::f4_e2m1) {
    multiply<E2m1Lanes>(panel, x, columns, tile);
  } else {
    uint16_t* scaled = scratch.get<uint16_t>(kFewRowsOfBf16 * columns);
    for (int64_t r = 0; r < tile.rows; ++r, scaled += columns) {
      if (!scale_row(x[r], panel.scales(0), columns, scaled)) return false;
      x[r] = reinterpret_cast<const uint8_t*>(scaled);
    }
    multiply<E4m3Lanes>(panel, x, columns, tile);
  }
  return true;
}

}  // namespace fathom::cpu
