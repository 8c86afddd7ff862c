// fathom/backend/cuda/index_scores.cuh
// Scores of Q4I entries of 128 channels by asynchronous products (wgmma) of 64 entries, decoded into registers, and the
// queries of one row, or of up to eight that read the same entries, with up to 32 heads each. Exact operands and the
// order of every sum are the same for any number of rows and in the kernel that works without these products
// (select_rows.cu): a row's score has the same bits whatever rows are beside it.
//
// A block has two or four warpgroups; each takes every second or fourth tile of 128 entries, which come by the copy
// engine in runs that lie side by side, kStages tiles under way. Queries lie decoded in shared memory for all of the
// block's entries. Scores are counted in shared memory as they are made, and their counts added to those of their row
// at the end (kBins, select_bins.cuh), with what the blocks of a candidate source are worth.
//
// Bytes: 68 an entry for each group of rows (from the cache after the first), four for each score. Eight rows take
// 1,024 cycles of a multiprocessor's tensor cores for 64 entries, one row 128; beside them a warp has about 150
// instructions that decode its 16 entries and 70 for each row.
//
// No instruction: the device's come before it (index_scores.cu), or those of a model (index_scores_text.h).
#pragma once
#include "fathom/backend/cuda/index_keys.cuh"
#include "fathom/backend/cuda/selection.cuh"
#include "fathom/backend/cuda/shared_tiles.cuh"

namespace fathom::cuda {
namespace {

constexpr int kHeads = 32, kChannels = 128, kKeyBytes = 68, kCodeBytes = 64;
constexpr int kPart = 64, kTile = 2 * kPart, kTileBytes = kTile * kKeyBytes, kStages = 2;
constexpr int kLeastRun = 8;                       // entries that lie side by side
constexpr int kLeastKeys = 256, kMostKeys = 8192;  // of a block
constexpr int kFewestBlocks = 32;
constexpr int kRowBytes = 128;
constexpr int kSpan = 8;  // entries of a block of a candidate source

template <int Rows>
constexpr int kGroups = Rows > 2 ? 4 : 2;  // warpgroups of a block
template <int Rows>
constexpr int kThreads = 128 * kGroups<Rows>;
template <int Rows>
constexpr int kBlocks = Rows == 1   ? 3
                        : Rows == 2 ? 2
                                    : 1;  // of a multiprocessor
template <int Rows>
constexpr int kTogether = Rows < 4 ? Rows : 4;  // rows of a product
template <int Rows>
constexpr int kParts = Rows == 1 ? 2 : 1;  // parts of a tile whose scores are finished together

template <int Rows>
struct alignas(16) Shared {
  uint8_t queries[2][Rows * kHeads * kRowBytes];  // of 64 columns each, swizzled
  uint8_t stages[kGroups<Rows>][kStages][kTileBytes];
  float weights[Rows][kHeads];
  int limits[Rows];  // entries that a row has scores of, as far as this block goes
  int newest[Rows];  // its last block of entries
  uint64_t full[kGroups<Rows>][kStages];
  unsigned read[kGroups<Rows>][kStages];  // times that a warp has read all of the stage
};
// Behind it the counts, 16 bits each: [kinds][Rows][kBins].
static_assert(kMostKeys < 1 << 16);
template <int Rows>
constexpr int kSharedBytes = int(sizeof(Shared<Rows>));

struct Launch {
  int64_t rows;  // of this piece
  int sequences;
  int keys_of_block;  // a multiple of kTile
  int run_shift;      // entries of a copy, as a power of two
  int page_shift;     // entries of a page so
  int page_bytes;     // from a page to the next
};

// Rows that one block takes: `count` from the piece's row `first` on. None: there are fewer groups.
struct Group {
  int first, count;
};
// Group blockIdx.y of the piece's rows, Rows of one sequence or what is left of it. A whole warp.
template <int Rows>
__device__ Group group_of(const Selection& s, const Launch& l) {
  if (Rows == 1) return {int(blockIdx.y), 1};
  const int lane = threadIdx.x % 32, rows = int(l.rows);
  int wanted = int(blockIdx.y);
  for (int base = 0; base < l.sequences; base += 32) {
    const int sequence = min(base + lane, l.sequences - 1);
    const int begin = min(max(int(s.begin[sequence] - s.first_row), 0), rows),
              end = min(max(int(s.begin[sequence + 1] - s.first_row), 0), rows);
    const int own = base + lane < l.sequences ? (end - begin + Rows - 1) / Rows : 0;
    int sum = own;
#pragma unroll
    for (int step = 1; step < 32; step *= 2) {
      const int before = __shfl_up_sync(~0u, sum, step);
      if (lane >= step) sum += before;
    }
    const unsigned beyond = __ballot_sync(~0u, sum > wanted);
    if (beyond != 0) {
      const int from = __ffs(int(beyond)) - 1, before = __shfl_sync(~0u, sum - own, from);
      const int first = __shfl_sync(~0u, begin, from) + (wanted - before) * Rows;
      return {first, min(Rows, __shfl_sync(~0u, end, from) - first)};
    }
    wanted -= __shfl_sync(~0u, sum, 31);
  }
  return {0, 0};
}

// In each 32 channels, which have one scale, thread t of four has eight columns at a time: step 2 w + h of the products
// meets the channels 32 t + 8 w + 2 h + (0, 4, 1, 5). A thread writes eight channels of a head.
template <int Rows>
__device__ void write_queries(const Selection& s, const Group& group, Shared<Rows>& shared) {
  for (int i = threadIdx.x; i < Rows * kHeads * 16; i += kThreads<Rows>) {
    const int w = i % 4, t = i / 4 % 4, n = i / 16, row = n / kHeads, head = n % kHeads;
    const bool there = row < group.count && head < s.heads;
    const int64_t r = s.first_row + group.first + row;
    const uint8_t* from = s.queries + r * s.query_stride + head * kKeyBytes;
    const uint32_t scale = there ? from[kCodeBytes + t] : 0;
    uint32_t pairs[4];
    widen_key(there ? reinterpret_cast<const uint32_t*>(from)[4 * t + w] : 0, pairs);
    const KeyFactors factors = key_factors(scale);
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      const int step = 2 * w + k / 2;
      *reinterpret_cast<uint32_t*>(shared.queries[step / 4] + swizzled(n, step % 4 * 2 + k % 2) + 4 * t) =
          times(times(pairs[k], factors.first), factors.second);
    }
    if (w == 0 && t == 0) shared.weights[row][head] = there ? s.weight(r, head) : 0.0f;
  }
}

__device__ inline void count_score(unsigned* counts, float v) {
  if (!(v > -INFINITY)) return;  // never chosen
  const unsigned bin = unsigned(bin_of(v));
  atomicAdd(&counts[bin / 2], bin % 2 == 0 ? 1u : 1u << 16);
}

// The weighted sums of this lane's heads for entries g and g + 8: of each row two numbers.
template <int Rows>
__device__ __forceinline__ void sum_heads(const float (&dots)[Rows * kHeads / 2], const float* weights, float* score) {
#pragma unroll
  for (int row = 0; row < Rows; ++row) {
    float low[2] = {}, high[2] = {};  // by heads of even and of odd numbers
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const float2 weight = *reinterpret_cast<const float2*>(&weights[row * kHeads + 8 * j]);
      const float* dot = dots + 4 * (4 * row + j);
      low[0] = fmaf(weight.x, above_zero(dot[0]), low[0]);
      low[1] = fmaf(weight.y, above_zero(dot[1]), low[1]);
      high[0] = fmaf(weight.x, above_zero(dot[2]), high[0]);
      high[1] = fmaf(weight.y, above_zero(dot[3]), high[1]);
    }
    score[2 * row] = low[0] + low[1], score[2 * row + 1] = high[0] + high[1];
  }
}

template <int Rows>
__global__ void __launch_bounds__(kThreads<Rows>, kBlocks<Rows>)
    index_scores_kernel(const __grid_constant__ Selection s, const __grid_constant__ Tallies tallies,
                        const __grid_constant__ Launch l) {
  constexpr int kWarpgroups = kGroups<Rows>, kRows = kTogether<Rows>, kSums = kRows * kParts<Rows>;
  uint8_t* const raw = index_memory;
  auto& shared = *reinterpret_cast<Shared<Rows>*>(raw);
  unsigned* const counts = reinterpret_cast<unsigned*>(raw + sizeof(Shared<Rows>));
  const int kinds = tallies.bins == nullptr ? 0 : s.source ? 2 : 1;
  let_kernel_behind_start();
  if (threadIdx.x == 0) {
    if (shared_address(raw) % 1024 != 0) __trap();
    for (auto& stages : shared.full) {
      for (uint64_t& barrier : stages) init_barrier(barrier, 1);
    }
    for (auto& stages : shared.read) {
      for (unsigned& times : stages) times = 0;
    }
    publish_barriers();
  }
  for (int i = threadIdx.x; i < kinds * Rows * kBins / 8; i += kThreads<Rows>) {
    reinterpret_cast<uint4*>(counts)[i] = make_uint4(0, 0, 0, 0);
  }
  wait_for_kernel_ahead();
  const Group group = group_of<Rows>(s, l);
  if (blockIdx.x == 0) {
    for (int i = threadIdx.x; i < kinds * group.count; i += kThreads<Rows>) {
      tallies.found[i / group.count * tallies.rows + group.first + i % group.count].candidates = 0;
    }
  }
  if (group.count == 0) return;
  const int64_t last = s.first_row + group.first + group.count - 1;  // sees the most
  const int32_t* const pages = s.keys.blocks.data + s.sequence[last] * s.keys.blocks.stride[0];
  const int first = int(blockIdx.x) * l.keys_of_block, limit = int(s.choices(last));
  if (first >= limit || s.takes_all(last)) return;
  const int wg = threadIdx.x / 128, warp = threadIdx.x / 32 % 4, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  const int end = min(first + l.keys_of_block, limit), tiles = (end - first + kTile - 1) / kTile;

  // Each lane of one of a warpgroup's warps copies one run; behind the last one that is copied again.
  const int run = 1 << l.run_shift, last_run = (end - 1) & ~(run - 1);
  const bool copies = lane < kTile >> l.run_shift;
  const auto entry_at = [&](int number) {
    return min(first + (number * kWarpgroups + wg) * kTile + lane * run, last_run);
  };
  const auto fetch = [&](int number, int32_t page) {
    const int stage = number % kStages;
    if (number * kWarpgroups + wg >= tiles) return;
    if (lane == 0) expect_bytes(shared.full[wg][stage], kTileBytes);
    __syncwarp();
    if (!copies) return;
    const int within = entry_at(number) & ((1 << l.page_shift) - 1);
    const uint8_t* from = s.keys.base + int64_t(page) * l.page_bytes + within * kKeyBytes;
    copy_bulk(shared_address(shared.stages[wg][stage] + lane * run * kKeyBytes), from, run * kKeyBytes,
              shared.full[wg][stage]);
  };
  int32_t page = 0;  // of the next tile that is fetched: known a tile ahead
  {
    int32_t now[kStages];
#pragma unroll
    for (int number = 0; number < kStages; ++number) now[number] = copies ? pages[entry_at(number) >> l.page_shift] : 0;
    if (copies) page = pages[entry_at(kStages) >> l.page_shift];
    __syncthreads();  // barriers and counts are there
#pragma unroll
    for (int number = 0; number < kStages; ++number) {
      if (warp == 0) fetch(number, now[number]);
    }
  }
  for (int row = threadIdx.x; row < Rows; row += kThreads<Rows>) {
    const int64_t r = s.first_row + group.first + row;
    const int choices = row < group.count && !s.takes_all(r) ? int(s.choices(r)) : 0;
    shared.limits[row] = min(end, choices);
    shared.newest[row] = (choices - 1) / kSpan;
  }
  write_queries<Rows>(s, group, shared);
  publish_to_products();
  __syncthreads();

  const uint64_t right[2] = {describe_tile(shared_address(shared.queries[0])),
                             describe_tile(shared_address(shared.queries[1]))};
  float* const scores = s.scores + group.first * s.capacity;
  float* const worth = tallies.worth + group.first * tallies.worth_capacity;
  const int capacity = int(s.capacity), worth_of_row = int(tallies.worth_capacity);
  const float* const weights = &shared.weights[0][2 * t];

  // Products of what lies in `left` by kRows rows from row_of on, and the sums over this lane's heads.
  const auto score_rows = [&](const uint32_t(&left)[8][4], int row_of, float* score) {
    float dots[kRows * kHeads / 2];
    begin_products();
#pragma unroll
    for (int step = 0; step < 8; ++step) {
      const uint64_t rows_of = uint64_t(row_of * kHeads * kRowBytes / 16);
      multiply_group<kRows * kHeads>(dots, left[step], right[step / 4] + rows_of + uint64_t(step % 4 * 2), step > 0);
    }
    commit_products();
    wait_products<0>();
    hold(dots);
    sum_heads<kRows>(dots, weights + row_of * kHeads, score);
  };
  // From sums over this lane's heads to scores: over the four lanes of an entry, each step gives half of the numbers
  // away. `key` is this lane's first entry.
  const auto finish = [&](float(&score)[2 * kSums], int row_of, int key) {
    unsigned at = 0;
#pragma unroll
    for (int bit = 0; bit < 2; ++bit) {
      const bool upper = t >> bit & 1;
      const int half = kSums >> bit;
#pragma unroll
      for (int i = 0; i < half; ++i) {
        float first_half = score[i], second_half = score[i + half];
        hold_pair(first_half, second_half);  // chosen by values, not by addresses in local memory
        score[i] =
            (upper ? second_half : first_half) + __shfl_xor_sync(~0u, upper ? first_half : second_half, 1 << bit);
      }
      if (upper) at += unsigned(half);
    }
#pragma unroll
    for (int i = 0; i < kSums / 2; ++i) {
      const int sum = int((at + unsigned(i)) / 2), high = int((at + unsigned(i)) % 2);
      const int row = Rows == 1 ? 0 : row_of + sum, entry = key + 8 * high + (Rows == 1 ? kPart * sum : 0);
      const bool inside = entry < shared.limits[row];
      unsigned* const own = counts + row * (kBins / 2);
      if (inside) {
        scores[row * capacity + entry] = score[i];
        if (kinds > 0) count_score(own, score[i]);
      }
      if (kinds < 2) continue;
      float best = inside ? score[i] : -INFINITY;  // of eight entries: those of g
#pragma unroll
      for (int step = 4; step < 32; step *= 2) best = fmaxf(best, __shfl_xor_sync(~0u, best, step));
      if (inside && g == 0) {
        const int span = int(unsigned(entry) / kSpan);
        if (span == shared.newest[row]) best = INFINITY;  // stays
        worth[row * worth_of_row + span] = best;
        count_score(own + Rows * (kBins / 2), best);
      }
    }
  };

#pragma unroll 1
  for (int number = 0; number * kWarpgroups + wg < tiles; ++number) {
    const int stage = number % kStages, key = first + (number * kWarpgroups + wg) * kTile + 16 * warp + g;
    const uint8_t* const own = shared.stages[wg][stage] + (16 * warp + g) * kKeyBytes;
    wait_phase(shared.full[wg][stage], uint32_t(number / kStages % 2));
#pragma unroll 1
    for (int part_of = 0; part_of < 2; part_of += kParts<Rows>) {
      float score[2 * kSums];
#pragma unroll
      for (int of = 0; of < kParts<Rows>; ++of) {
        const int part = part_of + of;
        uint32_t codes[2][4], scale[2];  // of entries g and g + 8
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const uint8_t* entry = own + (part * kPart + 8 * half) * kKeyBytes;
#pragma unroll
          for (int w = 0; w < 4; ++w) codes[half][w] = *reinterpret_cast<const uint32_t*>(entry + 16 * t + 4 * w);
          scale[half] = entry[kCodeBytes + t];
        }
        uint32_t left[8][4];
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const uint32_t factor = key_factors(scale[half]).first;
#pragma unroll
          for (int w = 0; w < 4; ++w) {
            uint32_t pairs[4];
            widen_key(codes[half][w], pairs);
#pragma unroll
            for (int k = 0; k < 4; ++k) left[2 * w + k / 2][half + k % 2 * 2] = times(pairs[k], factor);
          }
        }
        if (__any_sync(~0u, max(scale[0], scale[1]) > kLargestSingle)) {
#pragma unroll
          for (int i = 0; i < 32; ++i) {
            uint32_t& to = left[i / 4][i % 4];
            to = times(to, key_factors(scale[i % 2]).second);
          }
        }
        // The warp that is the last to have read a tile fetches the one that takes its place.
        unsigned times = 0;
        if (part == 1) {
          __syncwarp();
          if (lane == 0) times = count_reader(shared.read[wg][stage]);
        }
        if constexpr (Rows == 1) {
          score_rows(left, 0, score + 2 * of);
        } else {
#pragma unroll 1
          for (int row_of = 0; row_of < Rows; row_of += kRows) {
            score_rows(left, row_of, score);
            finish(score, row_of, key + part * kPart);
          }
        }
        if (part == 1) {
          if (__shfl_sync(~0u, times, 0) % 4 == 3) fetch(number + kStages, page);
          if (copies) page = pages[entry_at(number + kStages + 1) >> l.page_shift];
          __syncwarp();
        }
      }
      if constexpr (Rows == 1) finish(score, 0, key);
    }
  }
  if (kinds == 0) return;
  __syncthreads();
  for (int i = threadIdx.x; i < kinds * Rows * kBins / 2; i += kThreads<Rows>) {
    const unsigned two = counts[i];
    const int pair = i % (kBins / 2), row = i / (kBins / 2) % Rows, kind = i / (kBins / 2) / Rows;
    if (two != 0) tallies.count(kind, group.first + row, pair, two & 0xffff, two >> 16);
  }
}

}  // namespace
}  // namespace fathom::cuda
