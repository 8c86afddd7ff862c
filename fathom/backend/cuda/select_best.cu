// The choice of the best scores of a row, exact, ties to the lower index; in rising order of indices.
//   direct     up to 16,384 scores: one block has a row in registers and finds the K-th best by three levels of radix.
// More are shared among several blocks:
//   histogram  counts the scores by bins (kBins), and makes a candidate source's blocks worth their best entry, counted
//              as well: where the kernel that made the scores has not done so (index_scores.cu).
//   collect    each block finds in the counts the bin that holds the K-th best and passes on what lies in it or above:
//              some hundreds of candidates, a few thousand at most.
//   choose     a block finds the exact K-th among them by more levels of 9 bits, one mostly, and writes the chosen in
//              order. It leaves the counts at zero.
// A row whose bin holds too many (scores nearly all alike), or of which more than 2,048 are wanted, is chosen by one
// block in passes over all its scores.
// Bytes: a row's scores once more, and 16 KB of counts.
#include <algorithm>

#include "fathom/backend/cuda/block_scan.cuh"
#include "fathom/backend/cuda/select.cuh"
#include "fathom/backend/cuda/select_radix.cuh"

namespace fathom::cuda {
namespace {

using namespace radix;

constexpr int kMostCandidates = int(kTallyCandidates);  // that a block chooses from
static_assert(kBins == kTallyBins && sizeof(Found) == kTallyFound && DeviceQueue::kCounters == kMostTallyCounters);
constexpr int kStaged = 2048;                       // candidates of a block, passed on together
constexpr int kWindow = 1 << 18;                    // indices whose marks a block holds at once
constexpr int kBatch = 8;                           // loads of a thread under way
constexpr int kSharedBytes = kWindow / 8;           // bins, then the window or what is sorted
constexpr int kBuckets = 2048, kMostSorted = 2048;  // of indices, by their upper bits
constexpr int kNear = 2048;                         // candidates that a block holds
constexpr int kHeld = 2;                            // times four scores of a thread under way

__global__ void clear_kernel(uint4* numbers, int64_t count) {
  let_kernel_behind_start();
  wait_for_kernel_ahead();
  const int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i < count) numbers[i] = make_uint4(0, 0, 0, 0);
}

__global__ void __launch_bounds__(kThreads)
    histogram_kernel(const __grid_constant__ Selection s, const __grid_constant__ Tallies tallies, int chunk) {
  extern __shared__ unsigned counts[];  // [kinds][kBins]
  let_kernel_behind_start();
  wait_for_kernel_ahead();
  const int64_t r = s.first_row + blockIdx.y;
  if (blockIdx.x == 0 && threadIdx.x < 2 && (threadIdx.x == 0 || s.source)) {
    tallies.found[threadIdx.x * tallies.rows + blockIdx.y].candidates = 0;
  }
  if (s.takes_all(r)) return;
  const int n = int(s.choices(r)), first = int(blockIdx.x) * chunk, kinds = s.source ? 2 : 1;
  if (first >= n) return;
  const int end = min(first + chunk, n), span = s.source ? s.block_size : 8;
  for (int i = threadIdx.x; i < kinds * kBins; i += kThreads) counts[i] = 0;
  __syncthreads();
  const float* scores = s.scores + blockIdx.y * s.capacity;
  const auto tally = [&](unsigned* to, float v) {
    if (v > -INFINITY) atomicAdd(&to[bin_of(v)], 1u);
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
  for (int i = threadIdx.x; i < kinds * kBins / 2; i += kThreads) {
    const unsigned lower = counts[2 * i], upper = counts[2 * i + 1];
    if ((lower | upper) != 0) tallies.count(i / (kBins / 2), blockIdx.y, i % (kBins / 2), lower, upper);
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

// What is chosen of ranks (rank_of): those whose bits but the lower `left` are at least `prefix`.
struct Limit {
  uint64_t prefix = 0;
  int left = 0;
  __device__ bool lets(uint64_t rank) const { return rank >> left >= prefix; }
};
// Of the ranks that `pass` visits, `wanted` of those with the bits of `limit`; there are more.
template <class Pass>
__device__ Limit find_limit(const Pass& pass, Limit limit, int wanted, int* bins) {
  constexpr int kBits = 9;
  for (;;) {
    const int bits = min(kBits, limit.left), left = limit.left - bits;
    const Reached at = reach_level<kBits>(bins, wanted, [&](const auto& add) {
      pass([&](uint64_t rank) {
        if (rank >> limit.left == limit.prefix) add(uint32_t(rank >> left) & ((1u << bits) - 1));
      });
    });
    limit = {limit.prefix << bits | uint64_t(at.bin), left};
    wanted -= at.above;
    if (wanted == at.count || left == 0) return limit;
  }
}

// Writes the indices of the ranks that `pass` visits and the limit lets through, up to kMostSorted, in rising order: by
// their upper bits, then by how many of those beside them are lower. Returns how many.
template <class Pass>
__device__ int write_sorted(const Selection& s, const Choice& c, const Pass& pass, Limit limit, int* memory) {
  __shared__ int lanes[kWarps];
  int* const ends = memory;               // [kBuckets]
  int* const sorted = memory + kBuckets;  // [kMostSorted]
  const int shift = max(0, 21 - __clz(c.n - 1));
  static_assert(kBuckets == 1 << 11 && kBuckets % kThreads == 0);
  constexpr int kEach = kBuckets / kThreads;
  const auto chosen = [&](const auto& visit) {
    pass([&](uint64_t rank) {
      if (limit.lets(rank)) visit(int(~uint32_t(rank)));
    });
  };
  for (int i = threadIdx.x; i < kBuckets; i += kThreads) ends[i] = 0;
  __syncthreads();
  chosen([&](int index) { atomicAdd(&ends[index >> shift], 1); });
  __syncthreads();
  int count[kEach], own = 0, total = 0;
#pragma unroll
  for (int i = 0; i < kEach; ++i) own += count[i] = ends[threadIdx.x * kEach + i];
  int before = before_in_block(own, lanes, total);
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    ends[threadIdx.x * kEach + i] = before;  // of the buckets before, until its own have come
    before += count[i];
  }
  __syncthreads();
  chosen([&](int index) { sorted[atomicAdd(&ends[index >> shift], 1)] = index; });
  __syncthreads();
#pragma unroll 1
  for (int i = threadIdx.x; i < total; i += kThreads) {
    const int index = sorted[i], bucket = index >> shift, end = ends[bucket];
    int at = bucket > 0 ? ends[bucket - 1] : 0;
#pragma unroll 1
    for (int j = at; j < end; ++j) at += sorted[j] < index;
    c.to[at] = name_of(s, c, index);
  }
  return total;
}

// The choice among the candidates of a row, of up to kMostSorted.
__device__ int choose_among(const Selection& s, const Choice& c, const uint64_t* candidates, const Found& found,
                            int* memory) {
  const int count = found.above + found.count;
  const auto pass = [&](const auto& visit) {
#pragma unroll 1
    for (int i = threadIdx.x; i < count; i += kThreads) visit(candidates[i]);
  };
  Limit limit;
  if (count > c.wanted) {
    const Known known = known_of(found.bin);
    limit = find_limit(pass, {known.prefix, 64 - known.bits}, c.wanted - found.above, memory);
  }
  return write_sorted(s, c, pass, limit, memory);
}

// What a choice has to know of its row. False: the row takes everything, which has been written.
__device__ bool begin_choice(const Selection& s, int64_t r, bool of_blocks, const Rows<int32_t>& to, Choice& c) {
  c.row = r;
  c.of_blocks = of_blocks;
  c.n = of_blocks ? int(uint32_t(s.visible(r) + s.block_size - 1) / uint32_t(s.block_size)) : int(s.choices(r));
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
  let_kernel_behind_start();
  wait_for_kernel_ahead();
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
  if (valid > c.wanted) least = find_threshold(pass, c.wanted, reinterpret_cast<int*>(memory));
  end_choice(c, write_chosen(s, c, pass, least, memory), counts);
}

__global__ void __launch_bounds__(kThreads, 4)
    collect_kernel(const __grid_constant__ Selection s, const __grid_constant__ Tallies tallies, int chunk) {
  __shared__ uint64_t staged[kStaged];
  __shared__ int staged_count, place;
  let_kernel_behind_start();
  if (threadIdx.x == 0) staged_count = 0;
  wait_for_kernel_ahead();
  const bool of_blocks = blockIdx.z == 1;
  const int64_t slot = blockIdx.z * tallies.rows + blockIdx.y;
  const uint4* bins = reinterpret_cast<const uint4*>(tallies.bins + slot * kBins);
  // Eight counts of a thread, from above.
  static_assert(kBins == 8 * kThreads);
  const uint4 upper = bins[kBins / 4 - 1 - int(threadIdx.x) * 2], lower = bins[kBins / 4 - 2 - int(threadIdx.x) * 2];
  Choice c;
  if (!begin_choice(s, s.first_row + blockIdx.y, of_blocks, {}, c)) return;
  const int first = int(blockIdx.x) * chunk, end = min(first + chunk, c.n);
  if (blockIdx.x > 0 && first >= c.n) return;
  const float* values =
      of_blocks ? tallies.worth + blockIdx.y * tallies.worth_capacity : s.scores + blockIdx.y * s.capacity;
  float4 held[kHeld];
  const auto load = [&](int begin) {
#pragma unroll
    for (int i = 0; i < kHeld; ++i) {
      const int at = begin + 4 * kThreads * i;
      if (at < end) held[i] = *reinterpret_cast<const float4*>(values + at);
    }
  };
  load(first + int(threadIdx.x) * 4);
  const Reached at = reach<kBins>(c.wanted, [&](int b) {
    const int i = kBins - 1 - int(threadIdx.x) * 8 - b;  // 0 to 7
    const uint4 v = i < 4 ? upper : lower;
    return int(i % 4 == 0 ? v.w : i % 4 == 1 ? v.z : i % 4 == 2 ? v.y : v.x);
  });
  Found& found = tallies.found[slot];
  if (blockIdx.x == 0 && threadIdx.x == 0) found.bin = at.bin, found.above = at.above, found.count = at.count;
  if (at.above + at.count > kMostCandidates || c.wanted > kMostSorted) return;
  const float least = least_of(at.bin);

  uint64_t* const candidates = tallies.candidates + slot * kMostCandidates;
  const auto pass_on = [&](float v, int index) {
    if (!(v >= least) || index >= end) return;
    const int to = atomicAdd(&staged_count, 1);
    const uint64_t candidate = rank_of(score_key(v), uint32_t(index));
    if (to < kStaged) {
      staged[to] = candidate;
    } else {
      candidates[atomicAdd(&found.candidates, 1u)] = candidate;
    }
  };
  for (int begin = first + int(threadIdx.x) * 4; begin < end; begin += 4 * kThreads * kHeld) {
#pragma unroll
    for (int i = 0; i < kHeld; ++i) {
      const float4 v = held[i];
      const int index = begin + 4 * kThreads * i;
      if (index >= end || !(fmaxf(fmaxf(v.x, v.y), fmaxf(v.z, v.w)) >= least)) continue;
      pass_on(v.x, index), pass_on(v.y, index + 1), pass_on(v.z, index + 2), pass_on(v.w, index + 3);
    }
    load(begin + 4 * kThreads * kHeld);
  }
  __syncthreads();
  const int here = min(staged_count, kStaged);
  if (threadIdx.x == 0 && here > 0) place = int(atomicAdd(&found.candidates, unsigned(here)));
  __syncthreads();
  for (int i = threadIdx.x; i < here; i += kThreads) candidates[place + i] = staged[i];
}

__global__ void __launch_bounds__(kThreads, 2)
    choose_kernel(const __grid_constant__ Selection s, const __grid_constant__ Tallies tallies, Rows<int32_t> entries,
                  int32_t* count, Rows<int32_t> blocks, int32_t* block_count) {
  extern __shared__ __align__(16) uint32_t memory[];  // kSharedBytes
  let_kernel_behind_start();
  wait_for_kernel_ahead();
  const bool of_blocks = blockIdx.y == 1;
  int32_t* const count_to = of_blocks ? block_count : count;
  const int64_t slot = blockIdx.y * tallies.rows + blockIdx.x;
  const Found found = tallies.found[slot];
  Choice c;
  if (!begin_choice(s, s.first_row + blockIdx.x, of_blocks, of_blocks ? blocks : entries, c)) {
    return take_all(s, c, count_to);
  }
  c.values = of_blocks ? tallies.worth + blockIdx.x * tallies.worth_capacity : s.scores + blockIdx.x * s.capacity;
  for (int i = threadIdx.x; i < kBins / 4; i += kThreads) {
    reinterpret_cast<uint4*>(tallies.bins + slot * kBins)[i] = make_uint4(0, 0, 0, 0);
  }
  int* const numbers = reinterpret_cast<int*>(memory);
  const int passed_on = found.above + found.count;
  const uint64_t* candidates = tallies.candidates + slot * kMostCandidates;
  if (passed_on > kMostCandidates || c.wanted > kMostSorted) {
    return end_choice(c, choose_slowly(s, c, numbers), count_to);
  }
  uint64_t* const near = reinterpret_cast<uint64_t*>(numbers + kBuckets + kMostSorted);
  static_assert(4 * (kBuckets + kMostSorted) + 8 * kNear <= kSharedBytes);
  if (passed_on <= kNear) {  // each thread reads what it wrote
#pragma unroll 1
    for (int i = threadIdx.x; i < passed_on; i += kThreads) near[i] = candidates[i];
    candidates = near;
  }
  end_choice(c, choose_among(s, c, candidates, found, numbers), count_to);
}

}  // namespace

Tallies tallies_of(Call& call, const Selection& s, int64_t rows) {
  Tallies tallies{};
  const int64_t kinds = s.source ? 2 : 1, numbers = kinds * rows * kBins;
  tallies.rows = rows;
  if (s.source) {
    tallies.worth_capacity = worth_capacity({.rows = rows, .entries = s.capacity, .source_block = s.block_size});
    tallies.worth = call.workspace<float>(rows * tallies.worth_capacity);
  }
  tallies.found = call.workspace<Found>(kinds * rows);
  tallies.candidates = call.workspace<uint64_t>(kinds * rows * kMostCandidates);
  if (numbers <= kMostTallyCounters) {
    tallies.bins = call.counters();  // few: they are left as they are wanted
    return tallies;
  }
  tallies.bins = call.workspace<unsigned>(numbers);
  const int64_t count = numbers / 4;
  launch_early(call, clear_kernel, grid((count + kThreads - 1) / kThreads), kThreads, 0,
               reinterpret_cast<uint4*>(tallies.bins), count);
  return tallies;
}

void choose_best(Call& call, const Selection& s, const Tallies& tallies, int64_t rows, bool looks, bool counted,
                 const View<int32_t, 2>& entries, int32_t* count, const View<int32_t, 2>& blocks,
                 int32_t* block_count) {
  const int64_t kinds = s.source ? 2 : 1, span = s.source ? s.block_size : 8;
  const Rows<int32_t> to_entries{entries.data, entries.stride[0]}, to_blocks{blocks.data, blocks.stride[0]};
  if (tallies.bins == nullptr) {
    launch_early(call, direct_kernel, dim3(grid(rows), unsigned(kinds)), kThreads, kSharedBytes, s, to_entries, count,
                 to_blocks, block_count);
    return;
  }
  // Chunks of whole spans and of four: enough blocks for the GPU, not more than their counts are worth.
  const int64_t unit = span % 4 == 0 ? span : span * 4;
  int64_t chunk = 2048;
  while (chunk < 16384 && rows * s.capacity > chunk * 528) chunk *= 2;
  chunk = std::max<int64_t>(1, chunk / unit) * unit;
  const unsigned pieces = grid((s.capacity + chunk - 1) / chunk);
  if (!counted) {
    launch_early(call, histogram_kernel, dim3(pieces, unsigned(rows)), kThreads, kinds * kBins * 4, s, tallies,
                 int(chunk));
  }
  launch_early(call, collect_kernel, dim3(pieces, unsigned(rows), unsigned(kinds)), kThreads, 0, s, tallies,
               int(chunk));
  launch_early(call, choose_kernel, dim3(grid(rows), unsigned(kinds)), kThreads, kSharedBytes, s, tallies, to_entries,
               count, to_blocks, block_count);
}

}  // namespace fathom::cuda
