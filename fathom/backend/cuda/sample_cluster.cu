// Sampling where a row fits a cluster, by exactly the steps of law.h: compiled without fused multiply-adds
// (CMakeLists.txt). A cluster of blocks a row, 16,384 tokens in the shared memory of each (sample_team.cuh): logits are
// read once.
//   best      by the largest key; greedy rows end here
//   sum       of all weights, in the law's order; then again of the kept
//   prefix    of top-k and top-p: counts and masses by distance from the best in 1,024 bins, then the tokens of one bin
//             one by one (or, where it has more than 512, their keys bit by bit)
//   law       stays where the logits were, and is stored only if it is wanted
//   draw      search in the running sum of the law, or the race
// Exponentials in double are what costs: a token has one for the sum; others only those that may have a mass.
#include <algorithm>

#include "fathom/backend/cuda/block_scan.cuh"
#include "fathom/backend/cuda/device.cuh"
#include "fathom/backend/cuda/sample_cluster.h"
#include "fathom/backend/cuda/sample_team.cuh"
#include "fathom/backend/draw.h"
#include "fathom/backend/law.h"
#include "fathom/backend/race.h"

namespace fathom::cuda {
namespace {

// Larger logits have larger keys; the zeros are equal. No NaN.
__device__ uint32_t key_of(float logit) {
  const uint32_t bits = __float_as_uint(logit + 0.0f);
  return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}
__device__ float logit_of(uint32_t key) { return __uint_as_float(key & 0x80000000u ? key ^ 0x80000000u : ~key); }
__device__ float no_nan(float logit) { return logit != logit ? -INFINITY : logit; }

// One row as all threads see it.
struct Row {
  const float* logits;
  float best;
  double temperature, best_scaled;  // best / temperature
  float per_temperature;            // about 1 / temperature
  float min_p;
  // What is kept: keys above `key`, and those equal to it up to id `last_tie`. All: key 0.
  uint32_t key = 0;
  int last_tie = INT32_MAX;

  __device__ double scaled(float logit) const {
    return temperature == 1 ? double(logit) : double(logit) / temperature;  // x / 1 is x
  }
  __device__ double weight(float logit) const { return law_weight(scaled(logit) - best_scaled); }
  // About the same, by an exponential in float whose exponent may be as small as a double's.
  __device__ double rough_weight(float logit) const {
    const float x = fmaxf((logit - best) * per_temperature * 1.44269504f, -1009.886f);  // of base 2; e^-700
    const float whole = floorf(x);
    float part;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(part) : "f"(x - whole));
    return __longlong_as_double(__double_as_longlong(double(part)) + (int64_t(int(whole)) << 52));
  }
  __device__ bool keeps(float logit, int id) const {
    const uint32_t k = key_of(logit);
    return k > key || (k == key && id <= last_tie);
  }
  __device__ double kept_weight(float logit, int id) const {
    if (!keeps(logit, id)) return 0;  // most of a vocabulary, without an exponential
    const double w = weight(logit);
    return w >= double(min_p) ? w : 0;
  }
  // A logit below has floor(weight / sum * 2^31) = 0: e^-21.6 is less than 2^-31 by a tenth.
  __device__ float least_with_mass(double sum) const { return float(temperature * (best_scaled + log(sum) - 21.6)); }
};

__device__ uint64_t max_in_block(uint64_t v, uint64_t* lanes) {
  for (int step = 16; step > 0; step /= 2) {
    const uint64_t other = __shfl_xor_sync(~0u, v, step);
    v = other > v ? other : v;
  }
  __syncthreads();
  if (threadIdx.x % 32 == 0) lanes[threadIdx.x / 32] = v;
  __syncthreads();
  for (int w = 0; w < kTeamWarps; ++w) v = lanes[w] > v ? lanes[w] : v;
  return v;
}

// The sum of all weights.
template <int Held>
__device__ double sum_of_all(Team<Held>& team, RunTable& table, int n, const Row& row) {
  const auto logit = [&](int j) { return team.memory.logits[j][threadIdx.x]; };
  return exact_sum(
      team, table, n,
      [&](int j) {
        const float v = logit(j);
        return v != v ? 0.0 : row.rough_weight(v);
      },
      [&](int j, uint32_t field) {
        const float v = logit(j);
        const double x = row.scaled(v) - row.best_scaled;
        // Less than half a unit in the last place changes nothing.
        const double skipped = (int(field) - 1023 - 54) * 0.6931471805599453;
        if (v != v || (field != 0 && skipped > -699 && x < skipped)) return 0.0;
        return law_weight(x);
      },
      [&](int id) { return row.weight(no_nan(row.logits[id])); });
}

// The sum of the kept weights.
template <int Held>
__device__ double sum_of_kept(Team<Held>& team, RunTable& table, int n, const Row& row) {
  const auto logit = [&](int j) { return team.memory.logits[j][threadIdx.x]; };
  return exact_sum(
      team, table, n,
      [&](int j) {
        const float v = logit(j);
        if (v != v || !row.keeps(v, team.id_of(j))) return 0.0;
        const double w = row.rough_weight(v);
        return w >= 0.5 * double(row.min_p) ? w : 0.0;
      },
      [&](int j, uint32_t) {
        const float v = logit(j);
        return v != v ? 0.0 : row.kept_weight(v, team.id_of(j));
      },
      [&](int id) { return row.kept_weight(no_nan(row.logits[id]), id); });
}

// Sets row.key and row.last_tie to the shortest prefix, by falling logit, that reaches top_k tokens or the mass of
// top_p.
template <int Held>
__device__ void keep_top(Team<Held>& team, Row& row, const RowSampling& settings, double total) {
  TeamMemory<Held>& memory = team.memory;
  const uint64_t wanted = uint64_t(floor(double(settings.top_p) * kCertain)) + 1;
  const float with_mass = row.least_with_mass(total);
  const auto mass_of = [&](float logit) -> uint64_t {
    return logit >= with_mass ? uint64_t(floor(row.weight(logit) / total * kCertain)) : 0;
  };
  const auto reached = [&](uint64_t tokens, uint64_t of_mass) {
    return of_mass >= wanted || (settings.top_k > 0 && tokens >= uint64_t(settings.top_k));
  };
  // Nothing that may have a mass is further than 22 below the best; a larger logit never has a larger bin.
  const float bins_per_logit = float(kBins - 1) / 22 * row.per_temperature;
  const auto bin_of = [&](float logit) { return int(fminf(float(kBins - 1), (row.best - logit) * bins_per_logit)); };
  // Tokens without a mass matter only where all others are fewer than top_k.
  float least = with_mass;
  int bin, in_bin;
  uint64_t count_above, mass_above;
  for (;;) {
    for (int b = threadIdx.x; b < kBins; b += kTeamThreads) memory.count[b] = memory.low[b] = memory.high[b] = 0;
    if (threadIdx.x == 0) memory.listed_count = 0;
    __syncthreads();
#pragma unroll 2
    for (int j = 0; j < Held; ++j) {
      const float v = memory.logits[j][threadIdx.x];
      if (!(v >= least)) continue;
      const int b = bin_of(v);
      atomicAdd(&memory.count[b], 1u);
      const uint32_t mass = uint32_t(mass_of(v));
      if ((mass & 0xffff) != 0) atomicAdd(&memory.low[b], mass & 0xffff);
      if (mass >> 16 != 0) atomicAdd(&memory.high[b], mass >> 16);
    }
    team.cluster.sync();
    if (team.rank == 0) {
      constexpr int kOwn = kBins / kTeamThreads;
      const int first = int(threadIdx.x) * kOwn;
      uint64_t counts[kOwn] = {}, masses[kOwn] = {}, count = 0, mass = 0, all_count = 0, all_mass = 0;
      for (int block = 0; block < team.blocks; ++block) {
        const auto at = [&](uint32_t* of) { return team.cluster.map_shared_rank(of + first, block); };
        const uint32_t *c = at(memory.count), *low = at(memory.low), *high = at(memory.high);
#pragma unroll
        for (int k = 0; k < kOwn; ++k) {
          counts[k] += c[k];
          masses[k] += low[k] + (uint64_t(high[k]) << 16);
        }
      }
#pragma unroll
      for (int k = 0; k < kOwn; ++k) count += counts[k], mass += masses[k];
      uint64_t c = before_in_block(count, memory.lanes, all_count), m = before_in_block(mass, memory.lanes, all_mass);
      if (threadIdx.x == 0 && !reached(all_count, all_mass)) team.answer(0, uint64_t(kBins));
#pragma unroll
      for (int k = 0; k < kOwn; ++k) {
        if (!reached(c, m) && reached(c + counts[k], m + masses[k])) {
          team.answer(0, uint64_t(first + k));
          team.answer(1, c);
          team.answer(2, m);
          team.answer(3, counts[k]);
        }
        c += counts[k], m += masses[k];
      }
    }
    team.cluster.sync();
    bin = int(memory.answer[0]);
    count_above = memory.answer[1], mass_above = memory.answer[2];
    in_bin = int(memory.answer[3]);
    if (bin < kBins) break;
    if (settings.top_k <= 0 || least == -INFINITY) return;  // all are kept
    least = -INFINITY;
  }
  const auto in_this_bin = [&](float v) { return v >= least && bin_of(v) == bin; };
  if (in_bin <= kListed) {
    for (int j = 0; j < Held; ++j) {
      const float v = memory.logits[j][threadIdx.x];
      if (!in_this_bin(v)) continue;
      const int at = atomicAdd(team.cluster.map_shared_rank(&memory.listed_count, 0), 1);
      *team.cluster.map_shared_rank(&memory.listed[at], 0) = {key_of(v), uint32_t(team.id_of(j)), uint32_t(mass_of(v))};
    }
    team.cluster.sync();
    if (team.rank == 0 && int(threadIdx.x) < in_bin) {
      const Candidate own = memory.listed[threadIdx.x];
      uint64_t c = count_above, m = mass_above;
      for (int k = 0; k < in_bin; ++k) {
        const Candidate other = memory.listed[k];
        const bool ahead = other.key > own.key || (other.key == own.key && other.id < own.id);
        c += ahead;
        m += ahead ? other.mass : 0;
      }
      if (!reached(c, m) && reached(c + 1, m + own.mass)) {  // the last that is kept
        team.answer(0, own.key);
        team.answer(1, own.id);
      }
    }
    team.cluster.sync();
    row.key = uint32_t(memory.answer[0]);
    row.last_tie = int(memory.answer[1]);
    return;
  }
  // The largest key whose prefix suffices.
  const auto above = [&](uint32_t key, uint64_t& c, uint64_t& m) {  // tokens with at least this key, all bins
    uint64_t own_c = 0, own_m = 0;
    for (int j = 0; j < Held; ++j) {
      const float v = memory.logits[j][threadIdx.x];
      if (!in_this_bin(v) || key_of(v) < key) continue;
      ++own_c;
      own_m += mass_of(v);
    }
    uint64_t of_block = 0;
    before_in_block(own_c, memory.lanes, of_block);
    if (threadIdx.x == 0) memory.own[0] = of_block;
    before_in_block(own_m, memory.lanes, of_block);
    if (threadIdx.x == 0) memory.own[1] = of_block;
    const auto* given = team.exchange();
    c = count_above, m = mass_above;
    for (int b = 0; b < team.blocks; ++b) c += given[b][0], m += given[b][1];
  };
  uint32_t key = 0;
  uint64_t c, m;
  for (int bit = 31; bit >= 0; --bit) {
    above(key | 1u << bit, c, m);
    if (reached(c, m)) key |= 1u << bit;
  }
  above(key + 1, c, m);
  // Equal logits have equal masses, so it is known how many of the ties are needed.
  const uint64_t each = mass_of(logit_of(key));
  uint64_t ties = settings.top_k > 0 ? uint64_t(settings.top_k) - c : UINT64_MAX;
  if (each > 0) ties = min(ties, (wanted - m + each - 1) / each);
  row.key = key;
  row.last_tie = find_token(
      team,
      [&](int j) {
        const float v = memory.logits[j][threadIdx.x];
        return uint32_t(v == v && key_of(v) == key);
      },
      [&](uint64_t) { return ties - 1; });
}

template <int Held>
__device__ int race(Team<Held>& team, const RowSampling& settings) {
  double best = INFINITY;
  int winner = INT32_MAX;
  const auto meet = [&](double time, int id) {
    if (time < best || (time == best && id < winner)) best = time, winner = id;
  };
  for (int j = 0; j < Held; ++j) {
    const uint32_t law = team.memory.law[j][threadIdx.x];
    if (law == 0) continue;
    const int id = team.id_of(j);
    meet(exponential_time(race_bits(settings.seed, settings.position, uint32_t(id))) / double(law), id);
  }
  for (int step = 16; step > 0; step /= 2) {
    const double time = __shfl_xor_sync(~0u, best, step);
    meet(time, __shfl_xor_sync(~0u, winner, step));
  }
  __syncthreads();
  if (threadIdx.x % 32 == 0) {
    team.memory.totals[threadIdx.x / 32][0] = best;
    team.memory.lanes[threadIdx.x / 32] = uint64_t(winner);
  }
  __syncthreads();
  if (threadIdx.x == 0) {
    for (int w = 0; w < kTeamWarps; ++w) meet(team.memory.totals[w][0], int(team.memory.lanes[w]));
    team.memory.own[0] = bits_of_double(best);
    team.memory.own[1] = uint64_t(winner);
  }
  const auto* given = team.exchange();
  for (int b = 0; b < team.blocks; ++b) meet(as_double(given[b][0]), int(given[b][1]));
  return winner == INT32_MAX ? 0 : winner;
}

template <int Held>
__global__ void __launch_bounds__(kTeamThreads, Held <= 32 ? 2 : 1)
    sample_kernel(const __grid_constant__ ClusterSample all, RunTable* tables) {
  extern __shared__ __align__(16) uint8_t raw[];
  TeamMemory<Held>& memory = *reinterpret_cast<TeamMemory<Held>*>(raw);
  Team<Held> team{memory};
  const int64_t r = blockIdx.x / team.blocks;
  const int n = int(all.vocabulary);
  const RowSampling settings = all.settings[r];
  const Rows<uint32_t>& laws = all.laws;
  int32_t* ids = all.ids;
  Row row{};
  row.logits = all.logits.row(all.source == nullptr ? r : all.source[r]);
  row.min_p = settings.min_p;
  row.last_tie = INT32_MAX;
  uint64_t first = 0;  // the largest key, then the lowest id
#pragma unroll 8
  for (int j = 0; j < Held; ++j) {
    const int id = team.id_of(j);
    const float v = id < n ? no_nan(row.logits[id]) : NAN;
    memory.logits[j][threadIdx.x] = v;
    const uint64_t one = id < n ? uint64_t(key_of(v)) << 32 | ~uint32_t(id) : 0;
    first = one > first ? one : first;
  }
  first = max_in_block(first, memory.lanes);
  if (threadIdx.x == 0) memory.own[0] = first;
  team.cluster.sync();  // all blocks are there
  const auto* given = team.exchange();
  for (int b = 0; b < team.blocks; ++b) first = given[b][0] > first ? given[b][0] : first;
  const int best_id = int(~uint32_t(first));
  row.best = row.logits[best_id];  // as it is: a row of nothing but NaN has none
  if (settings.temperature < kGreedyBelow || !(fabsf(row.best) < INFINITY)) {
    if (laws.data != nullptr) {
      for (int j = 0; j < Held; ++j) {
        const int id = team.id_of(j);
        if (id < n) laws.row(r)[id] = id == best_id ? uint32_t(kCertain) : 0;
      }
    }
    if (ids != nullptr && team.rank == 0 && threadIdx.x == 0) ids[r] = best_id;  // the only token of its law
    return;
  }
  row.temperature = double(settings.temperature);
  row.per_temperature = 1 / settings.temperature;
  row.best_scaled = row.scaled(row.best);
  RunTable& table = tables[r];
  const double total = sum_of_all(team, table, n, row);
  const bool whole = settings.top_k <= 0 && !(settings.top_p < 1);
  if (!whole) keep_top(team, row, settings, total);
  // The same sum where nothing is dropped.
  const double kept = whole && !(settings.min_p > 0) ? total : sum_of_kept(team, table, n, row);
  const float with_mass = row.least_with_mass(kept);
#pragma unroll 2
  for (int j = 0; j < Held; ++j) {
    const int id = team.id_of(j);
    const float v = memory.logits[j][threadIdx.x];
    const uint32_t law = v >= with_mass ? uint32_t(floor(row.kept_weight(v, id) / kept * kCertain)) : 0;
    memory.law[j][threadIdx.x] = law;
    if (laws.data != nullptr && id < n) laws.row(r)[id] = law;
  }
  if (ids == nullptr) return;
  const int id =
      settings.role == kCoupled
          ? race(team, settings)
          : find_token(
                team, [&](int j) { return memory.law[j][threadIdx.x]; },
                [&](uint64_t sum) { return uniform_below(sum, settings.seed, settings.position, settings.role); });
  if (team.rank == 0 && threadIdx.x == 0) ids[r] = id;
}

/// Some rows of them: those whose tables are there at once, many more than clusters run at a time.
ClusterSample part_of(const ClusterSample& all, int64_t first) {
  ClusterSample part = all;
  part.rows = std::min(all.rows - first, kRowsSampledAtOnce);
  part.settings += first;
  if (part.source != nullptr) {
    part.source += first;
  } else {
    part.logits.data = part.logits.row(first);
  }
  if (part.ids != nullptr) part.ids += first;
  if (part.laws.data != nullptr) part.laws.data = part.laws.row(first);
  return part;
}

template <int Held>
void launch(Call& call, const ClusterSample& all) {
  constexpr int64_t kOfBlock = int64_t(kTeamThreads) * Held;
  const int64_t blocks = (all.vocabulary + kOfBlock - 1) / kOfBlock;
  const auto kernel = sample_kernel<Held>;
  expect(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, int(sizeof(TeamMemory<Held>))),
         "sample");
  cudaLaunchAttribute together;
  together.id = cudaLaunchAttributeClusterDimension;
  together.val.clusterDim = {unsigned(blocks), 1, 1};
  cudaLaunchConfig_t launch{};
  launch.blockDim = dim3(kTeamThreads);
  launch.dynamicSmemBytes = sizeof(TeamMemory<Held>);
  launch.stream = call.stream();
  launch.attrs = &together;
  launch.numAttrs = 1;
  RunTable* tables = call.workspace<RunTable>(std::min(all.rows, kRowsSampledAtOnce));
  for (int64_t first = 0; first < all.rows; first += kRowsSampledAtOnce) {
    const ClusterSample part = part_of(all, first);
    launch.gridDim = dim3(grid(part.rows * blocks));
    expect(cudaLaunchKernelEx(&launch, kernel, part, tables), "sample");
  }
}

}  // namespace

bool sample_by_clusters(Call& call, const ClusterSample& all) {
  constexpr int64_t kFew = int64_t(kMostBlocks) * kTeamThreads * 32;  // tokens
  static_assert(kMostClusterTokens == 2 * kFew);
  if (all.vocabulary > kMostClusterTokens) return false;
  const auto run = all.vocabulary <= kFew ? launch<32> : launch<64>;
  run(call, all);
  return true;
}

}  // namespace fathom::cuda
