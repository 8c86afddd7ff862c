// fathom/backend/cuda/sample_team.cuh
// A cluster of up to eight blocks that has one row of logits in its shared memory, and what it does together: sums in
// the law's order, to the last bit (run_sum.h), and the search in a running sum.
//
// A stretch is 8 * Held neighbouring tokens; thread l of the eight that share it has those of the law's lane l (id mod
// 8 = l), one run of that lane. Blocks tell each other numbers by writing them into each other's memory.
#pragma once
#include <cooperative_groups.h>

#include <cmath>
#include <cstdint>

#include "fathom/backend/cuda/workspace_sizes.h"
#include "fathom/backend/run_sum.h"

namespace fathom::cuda {

constexpr int kLanes = 8;  // of the law's sums
constexpr int kTeamThreads = 512, kTeamWarps = kTeamThreads / 32, kMostBlocks = 8;
constexpr int kStretches = kTeamThreads / kLanes;  // of a block
constexpr int kMostStretches = kMostBlocks * kStretches;
constexpr int kBins = 1024, kListed = 512;

/// All runs of a row (CrossingRun), in device memory; fours: the steps of four that follow each other, joined.
struct RunTable {
  double2 steps[kLanes][kMostStretches], next_steps[kLanes][kMostStretches];  // even, odd
  double2 fours[kLanes][kMostStretches / 4];
  double numbers[kLanes][kMostStretches];
  uint2 fields[kLanes][kMostStretches];  // field, next_field
};
static_assert(sizeof(RunTable) == kRunTableBytes);

struct Candidate {
  uint32_t key, id, mass;
};

template <int Held>
struct TeamMemory {
  union {
    float logits[Held][kTeamThreads];  // NaN behind the last token
    uint32_t law[Held][kTeamThreads];
  };
  uint32_t count[kBins], low[kBins], high[kBins];  // mass: low + 2^16 high
  Candidate listed[kListed];
  int listed_count;
  uint32_t stretch[kLanes * Held];
  uint64_t given[2][kMostBlocks][kLanes];  // by each block, by turns
  uint64_t own[kLanes];                    // what this block gives
  uint64_t answer[4];                      // what one block found for all
  double totals[kTeamWarps][kLanes];
  uint64_t lanes[kTeamWarps];
};

template <int Held>
struct Team {
  TeamMemory<Held>& memory;
  cooperative_groups::cluster_group cluster = cooperative_groups::this_cluster();
  int rank = int(cluster.block_rank()), blocks = int(cluster.num_blocks());
  int turn = 0;

  __device__ int stretch() const { return rank * kStretches + int(threadIdx.x) / kLanes; }
  /// Of this thread's token j.
  __device__ int id_of(int j) const { return (stretch() * Held + j) * kLanes + int(threadIdx.x) % kLanes; }

  /// Gives every block memory.own of this one; returns what all gave, [block][number].
  __device__ const uint64_t (*exchange())[kLanes] {
    __syncthreads();
    turn ^= 1;
    const int to = int(threadIdx.x) / kLanes, n = int(threadIdx.x) % kLanes;
    if (to < blocks) *cluster.map_shared_rank(&memory.given[turn][rank][n], to) = memory.own[n];
    cluster.sync();
    return memory.given[turn];
  }
  /// Writes an answer of all blocks; they have it when the cluster has met. By one thread.
  __device__ void answer(int n, uint64_t value) {
    for (int b = 0; b < blocks; ++b) *cluster.map_shared_rank(&memory.answer[n], b) = value;
  }
};

__device__ inline double as_double(uint64_t bits) { return __longlong_as_double(int64_t(bits)); }
__device__ inline uint64_t bits_of_double(double v) { return uint64_t(__double_as_longlong(v)); }
__device__ inline RunStep load_step(const double2* at) {
  const double2 both = __ldcg(at);
  return {both.x, both.y};
}

/// `sum` and the four runs from `first` of a lane, run by run; by_number(run, sum) adds one that the table does not
/// give. By a whole warp.
template <class ByNumber>
__device__ double take_four(const RunTable& table, int l, int first, double sum, const ByNumber& by_number) {
  const int mine = first + int(threadIdx.x) % 4;
  const uint2 fields = __ldcg(&table.fields[l][mine]);
  const RunStep step = load_step(&table.steps[l][mine]), next = load_step(&table.next_steps[l][mine]);
  const double number = __ldcg(&table.numbers[l][mine]);
  const auto of = [](auto v, int k) { return __shfl_sync(~0u, v, k); };
  for (int k = 0; k < 4; ++k) {
    const CrossingRun run{of(fields.x, k),
                          {of(step.even, k), of(step.odd, k)},
                          of(number, k),
                          of(fields.y, k),
                          {of(next.even, k), of(next.odd, k)}};
    if (!take_run(sum, run)) sum = by_number(first + k, sum);
  }
  return sum;
}

/// The sum of the law over all tokens: in each lane in rising order, then lanes l and l + 4, l and l + 2, l and l + 1.
/// weight(j, field): of this thread's token j; 0 where it would not change a sum of that exponent field. rough(j):
/// about the same, and 0 where that is 0. again(id): any token's.
template <int Held, class Rough, class Weight, class Again>
__device__ double exact_sum(Team<Held>& team, RunTable& table, int n, const Rough& rough, const Weight& weight,
                            const Again& again) {
  TeamMemory<Held>& memory = team.memory;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, l = threadIdx.x % kLanes;
  // About the sum before this run: its exponent is the guess.
  double own = 0;
#pragma unroll 4
  for (int j = 0; j < Held; ++j) own += rough(j);
  double upto = own;  // over the four stretches of a warp
#pragma unroll
  for (int step = kLanes; step < 32; step *= 2) {
    const double other = __shfl_up_sync(~0u, upto, step);
    if (lane >= step) upto += other;
  }
  double before = __shfl_up_sync(~0u, upto, kLanes);
  if (lane < kLanes) before = 0;
  if (lane >= 32 - kLanes) memory.totals[warp][l] = upto;
  __syncthreads();
  double of_block = 0;
  for (int w = 0; w < kTeamWarps; ++w) {
    if (w == warp) before += of_block;
    of_block += memory.totals[w][l];
  }
  if (threadIdx.x < kLanes) memory.own[l] = bits_of_double(of_block);
  const auto* given = team.exchange();
  double of_earlier = 0;
  for (int b = 0; b < team.rank; ++b) of_earlier += as_double(given[b][l]);
  before += of_earlier;

  CrossingRun run{exponent_field(before), {0, 0}, 0, 0, {0, 0}};
  if (own != 0) {
    RunMaker maker(before, before + own);
#pragma unroll 2
    for (int j = 0; j < Held; ++j) {
      maker.add([&] { return rough(j); }, [&](uint32_t field) { return weight(j, field); });
    }
    run = maker.run();
  }
  const auto joined = [&](RunStep a, int distance) {
    const uint32_t other = __shfl_down_sync(~0u, run.field, distance);
    const RunStep b{__shfl_down_sync(~0u, a.even, distance), __shfl_down_sync(~0u, a.odd, distance)};
    return other == run.field ? join_steps(run.field, a, b) : no_step();
  };
  const RunStep whole = run.next_field == 0 ? run.step : no_step();
  const RunStep four = joined(joined(whole, kLanes), 2 * kLanes);
  const int stretch = team.stretch();
  table.steps[l][stretch] = make_double2(run.step.even, run.step.odd);
  table.fields[l][stretch] = make_uint2(run.field, run.next_field);
  if (run.next_field != 0) {
    table.next_steps[l][stretch] = make_double2(run.next_step.even, run.next_step.odd);
    table.numbers[l][stretch] = run.number;
  }
  if (lane < kLanes) table.fours[l][stretch / 4] = make_double2(four.even, four.odd);
  team.cluster.sync();

  if (team.rank == 0) {
    if (warp < kLanes) {  // lane `warp` of the law: the same sum in all threads of the warp
      double sum = 0;
      const int fours = ((n + kLanes * Held - 1) / (kLanes * Held) + 3) / 4;
      for (int first = 0; first < fours; first += 32) {
        RunStep mine = no_step();
        uint32_t its_field = 0;
        if (first + lane < fours) {
          mine = load_step(&table.fours[warp][first + lane]);
          its_field = __ldcg(&table.fields[warp][4 * (first + lane)].x);
        }
        const int here = min(32, fours - first);
        for (int k = 0; k < here; ++k) {
          const RunStep next{__shfl_sync(~0u, mine.even, k), __shfl_sync(~0u, mine.odd, k)};
          if (take_step(sum, __shfl_sync(~0u, its_field, k), next)) continue;
          sum = take_four(table, warp, 4 * (first + k), sum, [&](int r, double so_far) {
            for (int some = 0; some < Held; some += 32) {
              const int id = (r * Held + some + lane) * kLanes + warp;
              const double w = id < n ? again(id) : 0;
#pragma unroll 8
              for (int i = 0; i < 32; ++i) so_far += __shfl_sync(~0u, w, i);
            }
            return so_far;
          });
        }
      }
      if (lane == 0) memory.totals[0][warp] = sum;
    }
    __syncthreads();
    if (threadIdx.x == 0) {
      double* sums = memory.totals[0];
      for (int half = kLanes / 2; half > 0; half /= 2) {
        for (int i = 0; i < half; ++i) sums[i] += sums[i + half];
      }
      team.answer(0, bits_of_double(sums[0]));
    }
  }
  team.cluster.sync();
  return as_double(memory.answer[0]);
}

/// Sums of whole numbers over the tokens before this thread's stretch, and over all.
struct Place {
  uint64_t before, all;
};
/// of_stretch: the same in the eight threads of a stretch.
template <int Held>
__device__ Place place_of_stretch(Team<Held>& team, uint64_t of_stretch) {
  TeamMemory<Held>& memory = team.memory;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  uint64_t upto = of_stretch;
#pragma unroll
  for (int step = kLanes; step < 32; step *= 2) {
    const uint64_t other = __shfl_up_sync(~0u, upto, step);
    if (lane >= step) upto += other;
  }
  __syncthreads();  // what was there has been read
  if (lane == 31) memory.lanes[warp] = upto;
  __syncthreads();
  Place out{0, 0};
  uint64_t of_block = 0;
  for (int w = 0; w < kTeamWarps; ++w) {
    if (w == warp) out.before = of_block;
    of_block += memory.lanes[w];
  }
  out.before += upto - of_stretch;
  if (threadIdx.x == 0) memory.own[0] = of_block;
  const auto* given = team.exchange();
  for (int b = 0; b < team.blocks; ++b) {
    if (b < team.rank) out.before += given[b][0];
    out.all += given[b][0];
  }
  return out;
}

/// The token at which the running sum over all tokens, by rising id, exceeds left(sum over all). value(j): of this
/// thread's token j, below 2^32; the sum is more than `left`.
template <int Held, class Value, class Left>
__device__ int find_token(Team<Held>& team, const Value& value, const Left& left) {
  TeamMemory<Held>& memory = team.memory;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  uint64_t of_stretch = 0;
#pragma unroll 8
  for (int j = 0; j < Held; ++j) of_stretch += value(j);
#pragma unroll
  for (int step = 1; step < kLanes; step *= 2) of_stretch += __shfl_xor_sync(~0u, of_stretch, step);
  const auto [before, all] = place_of_stretch(team, of_stretch);
  const uint64_t wanted = left(all);
  const uint32_t here = __ballot_sync(~0u, before <= wanted && wanted < before + of_stretch);
  if (here != 0) {
    const int at = __ffs(int(here)) - 1;  // the first of the eight
    if (lane / kLanes == at / kLanes) {
      for (int j = 0; j < Held; ++j) memory.stretch[j * kLanes + lane % kLanes] = value(j);
    }
    const uint64_t rest = wanted - __shfl_sync(~0u, before, at);
    __syncwarp();
    constexpr int kEach = kLanes * Held / 32;
    uint64_t own = 0;
    for (int k = 0; k < kEach; ++k) own += memory.stretch[lane * kEach + k];
    uint64_t sum = own;
#pragma unroll
    for (int step = 1; step < 32; step *= 2) {
      const uint64_t other = __shfl_up_sync(~0u, sum, step);
      if (lane >= step) sum += other;
    }
    if (sum - own <= rest && rest < sum) {
      uint64_t remaining = rest - (sum - own);
      int k = lane * kEach;
      while (remaining >= memory.stretch[k]) remaining -= memory.stretch[k++];
      const int stretch = team.rank * kStretches + (warp * 32 + at) / kLanes;
      team.answer(0, uint64_t(stretch * kLanes * Held + k));
    }
  }
  team.cluster.sync();
  return int(memory.answer[0]);
}

}  // namespace fathom::cuda
