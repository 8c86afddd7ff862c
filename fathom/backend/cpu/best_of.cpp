// The choice of the best.
//   AVX2     values become integers that sort as (falling value, rising index), so the worst of the chosen is found
//            without sorting, and one more pass in rising order writes those that are not worse
//   AVX-512  one pass over the values, 16 at a time: what is above the bar goes into a list, in rising order. When the
//            list is full, the bar rises to its count-th best, which is found bit by bit, and the list keeps the best.
//            Of a million values in random order about 4,000 are above the bar when their turn comes, so the pass costs
//            little more than reading them.
#include "fathom/backend/cpu/best_of.h"

#include <immintrin.h>

#include "fathom/backend/cpu/lanes.h"
#include "fathom/backend/cpu/scratch.h"

namespace fathom::cpu {
namespace {

// Smaller is better. -inf and NaN are the worst there is.
constexpr uint64_t kNever = ~uint64_t(0);
[[gnu::always_inline]] inline uint64_t rank_of(float value, int64_t index) {
  const uint32_t bits = std::bit_cast<uint32_t>(value + 0.0f);  // -0 becomes +0
  const uint32_t rising = bits & 0x80000000u ? ~bits : bits | 0x80000000u;
  return value > -INFINITY ? uint64_t(~rising) << 32 | uint64_t(uint32_t(index)) : kNever;
}

// Larger is better; 0: never.
[[gnu::target("avx512f,avx512bw,avx512vl,bmi2"), gnu::always_inline]] inline __m512i rising_bits(__m512 value) {
  const __m512i bits = _mm512_castps_si512(_mm512_add_ps(value, _mm512_setzero_ps()));
  const __m512i flip = _mm512_or_si512(_mm512_srai_epi32(bits, 31), _mm512_set1_epi32(int(0x80000000)));
  return _mm512_maskz_xor_epi32(_mm512_cmp_ps_mask(value, _mm512_set1_ps(-INFINITY), _CMP_GT_OQ), bits, flip);
}

// A list of candidates in rising order of their indices, with room for a vector more than `capacity`.
struct List {
  uint32_t* bits;
  int32_t* index;
  int64_t size = 0;
};

[[gnu::target("avx512f,avx512bw,avx512vl,bmi2,popcnt")]] int64_t count_not_below(const List& list, uint32_t bar) {
  const __m512i bars = _mm512_set1_epi32(int(bar));
  int64_t count = 0;
  for (int64_t i = 0; i < list.size; i += 16) {  // behind the end there are zeros, which are below any bar
    count += __builtin_popcount(_mm512_cmpge_epu32_mask(_mm512_loadu_si512(list.bits + i), bars));
  }
  return count;
}

// Leaves the `count` best in the list; returns a bar that those left out are not above.
[[gnu::target("avx512f,avx512bw,avx512vl,bmi2,popcnt")]] uint32_t keep_best(List& list, int64_t count) {
  if (list.size <= count) return 0;
  _mm512_storeu_si512(list.bits + list.size, _mm512_setzero_si512());
  __m512i all = _mm512_set1_epi32(-1), any = _mm512_setzero_si512();
  for (int64_t i = 0; i < list.size; i += 16) {
    const __mmask16 present = __mmask16(list.size - i >= 16 ? 0xffff : (1 << (list.size - i)) - 1);
    const __m512i bits = _mm512_loadu_si512(list.bits + i);
    all = _mm512_mask_and_epi32(all, present, all, bits);
    any = _mm512_or_si512(any, bits);
  }
  // The largest bar that enough of them reach; what all have in common is known.
  const uint32_t common = uint32_t(_mm512_reduce_and_epi32(all)),
                 mixed = uint32_t(_mm512_reduce_or_epi32(any)) ^ common;
  uint32_t bar = common;
  int64_t reach = list.size;
  for (uint32_t bit = mixed == 0 ? 0 : 0x80000000u >> __builtin_clz(mixed); bit != 0 && reach > count; bit /= 2) {
    const uint32_t higher = (bar & ~(bit - 1)) | bit;
    const int64_t enough = count_not_below(list, higher);
    if (enough < count) continue;
    bar = higher;
    reach = enough;
  }
  // All above the bar, and of those at it the first ones.
  const __m512i bars = _mm512_set1_epi32(int(bar));
  int64_t equal_left = count - (bar == ~0u ? 0 : count_not_below(list, bar + 1));
  int64_t kept = 0;
  for (int64_t i = 0; i < list.size; i += 16) {
    const __m512i bits = _mm512_loadu_si512(list.bits + i), index = _mm512_loadu_si512(list.index + i);
    uint32_t equal = _mm512_cmpeq_epi32_mask(bits, bars);
    const int equals = __builtin_popcount(equal);
    if (equals > equal_left) equal = _pdep_u32((1u << equal_left) - 1, equal);
    equal_left -= std::min<int64_t>(equals, equal_left);
    const __mmask16 stay = __mmask16(_mm512_cmpgt_epu32_mask(bits, bars) | equal);
    _mm512_storeu_si512(list.bits + kept, _mm512_maskz_compress_epi32(stay, bits));
    _mm512_storeu_si512(list.index + kept, _mm512_maskz_compress_epi32(stay, index));
    kept += __builtin_popcount(stay);
  }
  list.size = kept;
  return bar;
}

void write(const int32_t* index, int64_t chosen, int64_t count, const int32_t* names, int32_t* out) {
  for (int64_t i = 0; i < chosen; ++i) out[i] = names ? names[index[i]] : index[i];
  std::fill(out + chosen, out + count, -1);
}

}  // namespace

int32_t best_of_avx2(const float* values, int64_t n, int64_t count, const int32_t* names, int32_t* out) {
  static thread_local Scratch scratch;
  constexpr int64_t kFew = 64;  // so many are counted against each other faster than they are parted
  uint64_t* const ranks = scratch.get<uint64_t>(2 * n);
  uint64_t worst = kNever - 1;
  for (int64_t i = 0; i < n; ++i) ranks[i] = rank_of(values[i], i);
  if (n > count && n <= kFew) {
    for (int64_t i = 0; i < n; ++i) {
      int64_t better = 0;
      for (int64_t j = 0; j < n; ++j) better += ranks[j] < ranks[i];
      worst = better == count - 1 ? std::min(worst, ranks[i]) : worst;
    }
  } else if (n > count) {
    uint64_t* const parted = std::copy(ranks, ranks + n, ranks + n) - n;
    std::nth_element(parted, parted + count - 1, parted + n);
    worst = std::min(worst, parted[count - 1]);
  }
  int64_t written = 0;
  for (int64_t i = 0; i < n && written < count; ++i) {
    out[written] = int32_t(names ? names[i] : i);
    written += ranks[i] <= worst;  // else the next one takes its place
  }
  std::fill(out + written, out + count, -1);
  return int32_t(written);
}

[[gnu::target("avx512f,avx512bw,avx512vl,bmi2,popcnt")]] int32_t best_of_avx512(const float* values, int64_t n,
                                                                                int64_t count, const int32_t* names,
                                                                                int32_t* out) {
  static thread_local Scratch scratch;
  if (count <= 0) return 0;
  // More room makes fewer searches, each longer; what is small stays in the first-level cache.
  const int64_t capacity = std::min(n, std::max<int64_t>(2048, 4 * count));
  List list{scratch.get<uint32_t>(2 * (capacity + 32)), nullptr};
  list.index = reinterpret_cast<int32_t*>(list.bits + capacity + 32);
  __m512i index = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15),
          bars = _mm512_setzero_si512();
  for (int64_t i = 0; i < n; i += 16) {
    const __mmask16 present = __mmask16(n - i >= 16 ? 0xffff : (1 << (n - i)) - 1);
    const __m512i bits = rising_bits(_mm512_maskz_loadu_ps(present, values + i));
    const __mmask16 above = _mm512_mask_cmpgt_epu32_mask(present, bits, bars);
    if (above != 0) {
      _mm512_storeu_si512(list.bits + list.size, _mm512_maskz_compress_epi32(above, bits));
      _mm512_storeu_si512(list.index + list.size, _mm512_maskz_compress_epi32(above, index));
      list.size += __builtin_popcount(above);
      if (list.size > capacity) bars = _mm512_set1_epi32(int(keep_best(list, count)));
    }
    index = _mm512_add_epi32(index, _mm512_set1_epi32(16));
  }
  keep_best(list, count);
  write(list.index, list.size, count, names, out);
  return int32_t(list.size);
}

void best_of_blocks_avx2(const float* values, int64_t n, int64_t block, float* out) {
  for (int64_t first = 0; first < n; first += block) {
    float best = -INFINITY;
    for (int64_t i = first; i < std::min(first + block, n); ++i) best = std::max(best, values[i]);
    *out++ = best;
  }
}

// Blocks of eight, two at a time.
[[gnu::target("avx512f,avx512bw,avx512vl,bmi2")]] void best_of_blocks_avx512(const float* values, int64_t n,
                                                                             int64_t block, float* out) {
  int64_t i = 0;
  for (; block == 8 && i + 16 <= n; i += 16) {
    // The maximum of an instruction is its second operand when one is NaN.
    __m512 best = _mm512_max_ps(_mm512_loadu_ps(values + i), _mm512_set1_ps(-INFINITY));
    best = _mm512_max_ps(best, _mm512_shuffle_f32x4(best, best, 0xb1));
    best = _mm512_max_ps(best, _mm512_permute_ps(best, 0x4e));
    best = _mm512_max_ps(best, _mm512_permute_ps(best, 0xb1));
    *out++ = _mm512_cvtss_f32(best);
    *out++ = _mm_cvtss_f32(_mm512_extractf32x4_ps(best, 2));
  }
  best_of_blocks_avx2(values + i, n - i, block, out);
}

}  // namespace fathom::cpu
