// The choice of the best scores of a row, exact, ties to the lower index; in rising order of indices.
//   direct     up to 16,384 scores: one block has a row in registers and finds the K-th best by three levels of radix.
// More are shared among several blocks:
//   histogram  counts the upper 13 bits of the scores' keys (sign, exponent, four bits of mantissa), and makes a
//   candidate
//              source's blocks worth their best entry, counted as well.
//   collect    each block finds in the counts the bin that holds the K-th best and passes on what lies in it or above:
//              a few thousand candidates. The block of a row that ends last finds the exact K-th among them by two
//              more levels of 11 and 8 bits, marks the chosen in a bitmap and writes them in order.
// A row whose bin holds too many (scores nearly all alike) is chosen by one block in passes over all its scores.
// Bytes: a row's scores twice, and 32 KB of counts.
#include <algorithm>

#include "fathom/backend/cuda/block_scan.cuh"
#include "fathom/backend/cuda/select.cuh"
#include "fathom/backend/cuda/select_radix.cuh"

namespace fathom::cuda {
namespace {

using namespace radix;

constexpr int kBinShift = 19, kBins = 1 << (32 - kBinShift);  // of the counts over all scores
constexpr int kOwn = 16, kMostCandidates = kOwn * kThreads;   // that a block chooses from
static_assert(kBins == kTallyBins && kMostCandidates == kTallyCandidates);
constexpr int kStaged = 2048;              // candidates of a block, passed on together
constexpr int kWindow = 1 << 18;           // indices whose marks a block holds at once
constexpr int kBatch = 8;                  // loads of a thread under way
constexpr int kSharedBytes = kWindow / 8;  // staged candidates and bins, then the window

// A row's memory for one of the two choices.
struct Tallies {
  unsigned* bins;     // [kinds, rows, kBins]
  unsigned* counts;   // [kinds, rows, 2]: candidates, blocks that have ended
  uint2* candidates;  // [kinds, rows, kMostCandidates]: key, index
  float* worth;       // [rows, worth_capacity]
  int64_t worth_capacity;
  int64_t rows;
  int chunk;  // scores of a block
};

__global__ void __launch_bounds__(kThreads)
    histogram_kernel(const __grid_constant__ Selection s, const __grid_constant__ Tallies tallies) {
  extern __shared__ unsigned counts[];  // [kinds][kBins]
  const int64_t r = s.first_row + blockIdx.y;
  if (s.takes_all(r)) return;
  const int n = int(s.choices(r)), first = int(blockIdx.x) * tallies.chunk, kinds = s.source ? 2 : 1;
  if (first >= n) return;
  const int end = min(first + tallies.chunk, n), span = s.source ? s.block_size : 8;
  for (int i = threadIdx.x; i < kinds * kBins; i += kThreads) counts[i] = 0;
  __syncthreads();
  const float* scores = s.scores + blockIdx.y * s.capacity;
  const auto tally = [&](unsigned* to, float v) {
    const uint32_t key = score_key(v);
    if (key != 0) atomicAdd(&to[key >> kBinShift], 1u);
  };
  for (int item = first / span + int(threadIdx.x); item * span < end; item += kThreads) {
    float best = -INFINITY;
    const int last = min((item + 1) * span, end);
    if (span % 4 == 0) {
#pragma unroll 2
      for (int e = item * span; e < last; e += 4) {
        const float4 v = *reinterpret_cast<const float4*>(scores + e);
        const float four[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          if (e + i < last) {
            tally(counts, four[i]);
            best = fmaxf(best, four[i]);
          }
        }
      }
    } else {
      for (int e = item * span; e < last; ++e) {
        tally(counts, scores[e]);
        best = fmaxf(best, scores[e]);
      }
    }
    if (s.source) {
      if (item == (n - 1) / span) best = INFINITY;  // the newest block stays
      tallies.worth[blockIdx.y * tallies.worth_capacity + item] = best;
      tally(counts + kBins, best);
    }
  }
  __syncthreads();
  for (int i = threadIdx.x; i < kinds * kBins; i += kThreads) {
    if (counts[i] == 0) continue;
    atomicAdd(&tallies.bins[(i / kBins * tallies.rows + blockIdx.y) * kBins + i % kBins], counts[i]);
  }
}

// One row's choice, as the kernel knows it.
struct Choice {
  int64_t row;
  int n, wanted;
  bool of_blocks;
  const float* values;  // all of them, for collect
  int32_t* to;
};
__device__ inline int32_t name_of(const Selection& s, const Choice& c, int64_t i) {
  return int32_t(c.of_blocks ? i : s.entry_of(c.row, i));
}

// The choice by one block in four passes over all values. Returns how many.
__device__ int choose_slowly(const Selection& s, const Choice& c, int* bins) {
  __shared__ int lanes[kWarps];
  constexpr int kShift[3] = {21, 10, 0};
  const auto pass = [&](const auto& visit) {
    for (int first = threadIdx.x; first < c.n; first += kBatch * kThreads) {
      uint32_t keys[kBatch];
#pragma unroll
      for (int b = 0; b < kBatch; ++b) {
        const int i = first + b * kThreads;
        keys[b] = i < c.n ? score_key(c.values[i]) : 0;
      }
#pragma unroll
      for (int b = 0; b < kBatch; ++b) {
        if (keys[b] != 0) visit(keys[b]);
      }
    }
  };
  uint32_t threshold = 1;  // no number's: all that may be chosen is above
  int ties = 0, left = c.wanted;
  Reached at = reach_level<11>(bins, left, [&](const auto& add) { pass([&](uint32_t k) { add(k >> kShift[0]); }); });
  if (at.bin >= 0) {
    uint32_t prefix = uint32_t(at.bin);
    left -= at.above;
    at = reach_level<11>(bins, left, [&](const auto& add) {
      pass([&](uint32_t k) {
        if (k >> kShift[0] == prefix) add(k >> kShift[1]);
      });
    });
    prefix = prefix << 11 | uint32_t(at.bin);
    left -= at.above;
    at = reach_level<10>(bins, left, [&](const auto& add) {
      pass([&](uint32_t k) {
        if (k >> kShift[1] == prefix) add(k);
      });
    });
    threshold = prefix << 10 | uint32_t(at.bin);
    ties = left - at.above;
  }
  int taken = 0, ties_seen = 0;
  for (int first = 0; first < c.n && taken < c.wanted; first += kThreads * kBatch) {
    uint32_t keys[kBatch];
    int equal = 0, total = 0;
#pragma unroll
    for (int b = 0; b < kBatch; ++b) {
      const int i = first + int(threadIdx.x) * kBatch + b;
      keys[b] = i < c.n ? score_key(c.values[i]) : 0;
      equal += keys[b] == threshold;
    }
    int tie = ties_seen + before_in_block(equal, lanes, total);
    ties_seen += total;
    int chosen = 0;
#pragma unroll
    for (int b = 0; b < kBatch; ++b) {
      if (!(keys[b] > threshold || (keys[b] == threshold && tie++ < ties))) keys[b] = 0;
      chosen += keys[b] != 0;
    }
    int at_place = taken + before_in_block(chosen, lanes, total);
    taken += total;
#pragma unroll
    for (int b = 0; b < kBatch; ++b) {
      if (keys[b] != 0) c.to[at_place++] = name_of(s, c, first + int64_t(threadIdx.x) * kBatch + b);
    }
  }
  return taken;
}

// Writes the indices that `pass` visits and the threshold lets through, in rising order. Returns how many.
template <class Pass>
__device__ int write_chosen(const Selection& s, const Choice& c, const Pass& pass, Threshold least, uint32_t* marks) {
  __shared__ int lanes[kWarps];
  int taken = 0;
  for (int base = 0; base < c.n; base += kWindow) {
    const int words = (min(kWindow, c.n - base) + 31) / 32;
    __syncthreads();
    for (int i = threadIdx.x; i < words; i += kThreads) marks[i] = 0;
    __syncthreads();
    pass([&](uint32_t key, uint32_t index) {
      const int i = int(index) - base;
      if (i < 0 || i >= kWindow || key < least.key || (key == least.key && index > least.last_tie)) return;
      atomicOr(&marks[i / 32], 1u << i % 32);
    });
    __syncthreads();
    const int each = (words + kThreads - 1) / kThreads, begin = int(threadIdx.x) * each, end = min(begin + each, words);
    int own = 0, total = 0;
    for (int i = begin; i < end; ++i) own += __popc(marks[i]);
    int at = taken + before_in_block(own, lanes, total);
    taken += total;
    for (int i = begin; i < end; ++i) {
      for (uint32_t word = marks[i]; word != 0; word &= word - 1) {
        c.to[at++] = name_of(s, c, base + 32 * i + __ffs(int(word)) - 1);
      }
    }
  }
  return taken;
}

// The choice among the candidates of a row. `above`: how many of them lie above `bin`.
__device__ int choose_among(const Selection& s, const Choice& c, const uint2* candidates, int count, int bin, int above,
                            uint32_t* memory) {
  uint2 own[kOwn];
#pragma unroll
  for (int j = 0; j < kOwn; ++j) {
    const int i = j * kThreads + int(threadIdx.x);
    own[j] = i < count ? __ldcg(candidates + i) : make_uint2(0, 0);
  }
  const auto pass = [&](const auto& visit) {
#pragma unroll
    for (int j = 0; j < kOwn; ++j) {
      if (j * kThreads >= count) break;
      if (own[j].x != 0) visit(own[j].x, own[j].y);
    }
  };
  Threshold least;
  if (count > c.wanted) {
    least = find_threshold<13>(pass, uint32_t(bin), c.wanted - above, reinterpret_cast<int*>(memory));
  }
  return write_chosen(s, c, pass, least, memory);
}

// What a choice has to know of its row. False: the row takes everything, which has been written.
__device__ bool begin_choice(const Selection& s, int64_t r, bool of_blocks, const Rows<int32_t>& to, Choice& c) {
  c.row = r;
  c.of_blocks = of_blocks;
  c.n = int(of_blocks ? (s.visible(r) + s.block_size - 1) / s.block_size : s.choices(r));
  c.wanted = of_blocks ? s.top_blocks : s.top_k;
  c.to = to.row(r);
  return !s.takes_all(r);
}
__device__ void end_choice(const Choice& c, int taken, int32_t* count) {
  for (int i = taken + int(threadIdx.x); i < c.wanted; i += kThreads) c.to[i] = -1;
  if (threadIdx.x == 0) count[c.row] = taken;
}
__device__ void take_all(const Selection& s, const Choice& c, int32_t* count) {
  const int taken = min(c.n, c.wanted);
  for (int i = threadIdx.x; i < taken; i += kThreads) c.to[i] = name_of(s, c, i);
  end_choice(c, taken, count);
}

// A row of up to kMostDirect scores: one block has them all in registers.
__global__ void __launch_bounds__(kThreads) direct_kernel(const __grid_constant__ Selection s, Rows<int32_t> entries,
                                                          int32_t* count, Rows<int32_t> blocks, int32_t* block_count) {
  extern __shared__ __align__(16) uint32_t memory[];  // kSharedBytes
  const bool of_blocks = blockIdx.y == 1;
  int32_t* const counts = of_blocks ? block_count : count;
  Choice c;
  if (!begin_choice(s, s.first_row + blockIdx.x, of_blocks, of_blocks ? blocks : entries, c)) {
    return take_all(s, c, counts);
  }
  const float* scores = s.scores + blockIdx.x * s.capacity;
  const int choices = int(s.choices(c.row));
  uint32_t own[kMostDirect / kThreads];
#pragma unroll
  for (int j = 0; j < kMostDirect / kThreads; ++j) {
    const int i = j * kThreads + int(threadIdx.x);
    own[j] = 0;
    if (i >= c.n) continue;
    float value = 0;
    if (of_blocks) {  // worth its best entry; the newest block stays
      value = i == c.n - 1 ? INFINITY : -INFINITY;
      for (int e = i * s.block_size; e < min((i + 1) * s.block_size, choices); ++e) value = fmaxf(value, scores[e]);
    } else {
      value = scores[i];
    }
    own[j] = score_key(value);
  }
  const auto pass = [&](const auto& visit) {
#pragma unroll
    for (int j = 0; j < kMostDirect / kThreads; ++j) {
      if (j * kThreads >= c.n) break;
      if (own[j] != 0) visit(own[j], uint32_t(j * kThreads + int(threadIdx.x)));
    }
  };
  __shared__ int valid;
  if (threadIdx.x == 0) valid = 0;
  __syncthreads();
  int mine = 0;
  pass([&](uint32_t, uint32_t) { ++mine; });
  atomicAdd(&valid, mine);
  __syncthreads();
  Threshold least;
  if (valid > c.wanted) least = find_threshold<0>(pass, 0, c.wanted, reinterpret_cast<int*>(memory));
  end_choice(c, write_chosen(s, c, pass, least, memory), counts);
}

__global__ void __launch_bounds__(kThreads)
    collect_kernel(const __grid_constant__ Selection s, const __grid_constant__ Tallies tallies, Rows<int32_t> entries,
                   int32_t* count, Rows<int32_t> blocks, int32_t* block_count) {
  extern __shared__ __align__(16) uint32_t memory[];  // kSharedBytes
  __shared__ int staged_count, place;
  __shared__ bool last;
  const bool of_blocks = blockIdx.z == 1;
  int32_t* const count_to = of_blocks ? block_count : count;
  Choice c;
  if (!begin_choice(s, s.first_row + blockIdx.y, of_blocks, of_blocks ? blocks : entries, c)) {
    if (blockIdx.x == 0) take_all(s, c, count_to);
    return;
  }
  c.values = of_blocks ? tallies.worth + blockIdx.y * tallies.worth_capacity : s.scores + blockIdx.y * s.capacity;
  const int used = max(1, (c.n + tallies.chunk - 1) / tallies.chunk);
  if (int(blockIdx.x) >= used) return;
  const int64_t slot = blockIdx.z * tallies.rows + blockIdx.y;
  const uint4* bins = reinterpret_cast<const uint4*>(tallies.bins + slot * kBins);
  // Sixteen counts of a thread, from above.
  uint4 four[4];
#pragma unroll
  for (int q = 0; q < 4; ++q) four[q] = bins[kBins / 4 - 1 - int(threadIdx.x) * 4 - q];
  static_assert(kBins == 16 * kThreads);
  const Reached at = reach<kBins>(c.wanted, [&](int b) {
    const int i = kBins - 1 - int(threadIdx.x) * 16 - b;  // 0 to 15
    const uint4 v = i < 4 ? four[0] : i < 8 ? four[1] : i < 12 ? four[2] : four[3];
    return int(i % 4 == 0 ? v.w : i % 4 == 1 ? v.z : i % 4 == 2 ? v.y : v.x);
  });
  if (at.above + at.count > kMostCandidates) {
    if (blockIdx.x == 0) end_choice(c, choose_slowly(s, c, reinterpret_cast<int*>(memory)), count_to);
    return;
  }
  const uint32_t lowest = at.bin < 0 ? 1 : max(1u, uint32_t(at.bin) << kBinShift);

  uint2* const staged = reinterpret_cast<uint2*>(memory);
  uint2* const candidates = tallies.candidates + slot * kMostCandidates;
  unsigned* const counts = tallies.counts + slot * 2;
  if (threadIdx.x == 0) staged_count = 0;
  __syncthreads();
  const int first = int(blockIdx.x) * tallies.chunk, end = min(first + tallies.chunk, c.n);
  for (int begin = first + int(threadIdx.x) * 4; begin < end; begin += 4 * kThreads) {
    const float4 v = *reinterpret_cast<const float4*>(c.values + begin);
    const float values[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const uint32_t key = score_key(values[i]);
      if (begin + i >= end || key < lowest) continue;
      const int to = atomicAdd(&staged_count, 1);
      if (to < kStaged) {
        staged[to] = make_uint2(key, uint32_t(begin + i));
      } else {
        candidates[atomicAdd(&counts[0], 1u)] = make_uint2(key, uint32_t(begin + i));
      }
    }
  }
  __syncthreads();
  const int here = min(staged_count, kStaged);
  if (threadIdx.x == 0) place = int(atomicAdd(&counts[0], unsigned(here)));
  __syncthreads();
  for (int i = threadIdx.x; i < here; i += kThreads) candidates[place + i] = staged[i];
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) last = atomicAdd(&counts[1], 1u) == unsigned(used) - 1;
  __syncthreads();
  if (!last) return;
  __threadfence();
  end_choice(c, choose_among(s, c, candidates, at.above + at.count, at.bin, at.above, memory), count_to);
}

}  // namespace

void choose_best(Call& call, const Selection& s, int64_t rows, bool looks, const View<int32_t, 2>& entries,
                 int32_t* count, const View<int32_t, 2>& blocks, int32_t* block_count) {
  const int64_t kinds = s.source ? 2 : 1, span = s.source ? s.block_size : 8;
  const Rows<int32_t> to_entries{entries.data, entries.stride[0]}, to_blocks{blocks.data, blocks.stride[0]};
  if (!looks || s.capacity <= kMostDirect) {
    direct_kernel<<<dim3(grid(rows), unsigned(kinds)), kThreads, kSharedBytes, call.stream()>>>(s, to_entries, count,
                                                                                                to_blocks, block_count);
    return;
  }
  Tallies tallies{};
  tallies.rows = rows;
  // Chunks of whole spans and of four: enough blocks for the GPU, not more than their counts are worth.
  const int64_t unit = span % 4 == 0 ? span : span * 4;
  int64_t chunk = 2048;
  while (chunk < 16384 && rows * s.capacity > chunk * 528) chunk *= 2;
  chunk = std::max<int64_t>(1, chunk / unit) * unit;
  tallies.chunk = int(chunk);
  const dim3 blocks_of_rows(grid((s.capacity + chunk - 1) / chunk), unsigned(rows));
  tallies.worth_capacity =
      worth_capacity({.rows = rows, .entries = s.capacity, .source_block = s.source ? s.block_size : 0});
  tallies.worth = call.workspace<float>(rows * tallies.worth_capacity);
  const int64_t numbers = kinds * rows * (kBins + 2);
  tallies.bins = call.workspace<unsigned>(numbers);
  tallies.counts = tallies.bins + kinds * rows * kBins;
  tallies.candidates = call.workspace<uint2>(kinds * rows * kMostCandidates);
  expect(cudaMemsetAsync(tallies.bins, 0, size_t(numbers) * 4, call.stream()), "select_rows");
  static const cudaError_t allowed =
      cudaFuncSetAttribute(histogram_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, 2 * kBins * 4);
  expect(allowed, "select_rows");
  const int bytes = int(kinds) * kBins * 4;
  histogram_kernel<<<blocks_of_rows, kThreads, bytes, call.stream()>>>(s, tallies);
  collect_kernel<<<dim3(blocks_of_rows.x, blocks_of_rows.y, unsigned(kinds)), kThreads, kSharedBytes, call.stream()>>>(
      s, tallies, to_entries, count, to_blocks, block_count);
}

}  // namespace fathom::cuda
