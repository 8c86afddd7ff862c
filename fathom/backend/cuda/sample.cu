// From logits to a token, by exactly the steps of law.h: compiled without fused multiply-adds (CMakeLists.txt). Here
// rows that are too long for sample_cluster.cu, and laws as lists: one block a row. Weights are computed again in each
// pass, which costs less than a megabyte a row of memory for them:
//   best (1 pass), sum of all weights (1), the top-k/top-p prefix by radix of the logits (3, and 1 for its last tie),
//   sum of the kept (1), the law (1), the draw (2 over the law).
// The sums run in eight sequential lanes, as the law is defined: the first warp adds a chunk while the others compute
// the next one.
#include "fathom/backend/cuda/block_scan.cuh"
#include "fathom/backend/cuda/device.cuh"
#include "fathom/backend/cuda/kernels.h"
#include "fathom/backend/cuda/launch.h"
#include "fathom/backend/cuda/sample_cluster.h"
#include "fathom/backend/draw.h"
#include "fathom/backend/law.h"
#include "fathom/backend/race.h"

namespace fathom::cuda {
namespace {

constexpr int kThreads = 512, kWarps = kThreads / 32, kMakers = kThreads - 32, kChunk = 4 * kMakers;
constexpr int kBins = 2048;
static_assert(kChunk % 8 == 0);

struct Memory {
  union {
    double weights[2][kChunk];
    struct {
      int count[kBins];
      unsigned long long mass[kBins];
    };
  };
  bool some[2];  // of the chunk's weights is more than zero
  uint64_t lanes[kWarps];
  uint64_t wide;
  int64_t found;
  double sum;
  uint32_t key;
  uint64_t mass_above;
  int count_above, bin;
};

// Larger logits have larger keys; the zeros are equal, NaN is -inf.
__device__ uint32_t key_of(float logit) {
  const uint32_t bits = __float_as_uint(logit != logit ? -INFINITY : logit + 0.0f);
  return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}
__device__ float logit_of(uint32_t key) { return __uint_as_float(key & 0x80000000u ? key ^ 0x80000000u : ~key); }

// One row as all threads see it.
struct Row {
  const float* logits;
  int64_t n;
  double temperature, best_scaled;  // best / temperature
  float min_p;
  // What is kept: keys above `key`, and those equal to it up to id `last_tie`. All: key 0.
  uint32_t key = 0;
  int64_t last_tie = INT64_MAX;

  __device__ double scaled(float logit) const {
    return temperature == 1 ? double(logit) : double(logit) / temperature;  // x / 1 is x
  }
  __device__ double weight(int64_t i) const {
    const float logit = logits[i];
    return law_weight(scaled(logit != logit ? -INFINITY : logit) - best_scaled);
  }
  __device__ bool keeps(int64_t i) const {
    const uint32_t k = key_of(logits[i]);
    return k > key || (k == key && i <= last_tie);
  }
  __device__ double kept_weight(int64_t i) const {
    if (!keeps(i)) return 0;  // most of a vocabulary, without an exponential
    const double w = weight(i);
    return w >= double(min_p) ? w : 0;
  }
};

// The sum in eight lanes by id mod 8, in rising order; then lanes l and l + 4, l and l + 2, l and l + 1.
template <class Weight>
__device__ double lane_sum(Memory& memory, int64_t n, const Weight& weight) {
  const int64_t chunks = (n + kChunk - 1) / kChunk;
  double lane = 0;
  for (int64_t c = 0; c <= chunks; ++c) {
    __syncwarp();  // the first warp has looked at the flag of two chunks ago
    if (threadIdx.x == 0) memory.some[c % 2] = false;
    __syncthreads();
    if (threadIdx.x >= 32) {
      for (int k = int(threadIdx.x) - 32; k < kChunk; k += kMakers) {
        const int64_t i = c * kChunk + k;
        if (i >= n) continue;
        const double w = weight(i);
        memory.weights[c % 2][k] = w;
        if (w > 0) memory.some[c % 2] = true;
      }
    } else if (threadIdx.x < 8 && c > 0 && memory.some[(c - 1) % 2]) {  // adding zeros changes nothing
      const int64_t here = min(int64_t(kChunk), n - (c - 1) * kChunk);
      for (int k = int(threadIdx.x); k < here; k += 8) lane += memory.weights[(c - 1) % 2][k];
    }
  }
  if (threadIdx.x < 32) {
    lane += __shfl_down_sync(~0u, lane, 4);
    lane += __shfl_down_sync(~0u, lane, 2);
    lane += __shfl_down_sync(~0u, lane, 1);
    if (threadIdx.x == 0) memory.sum = lane;
  }
  __syncthreads();
  return memory.sum;
}

// The largest logit; ties to the lowest id.
__device__ int64_t best_of(Memory& memory, const float* logits, int64_t n) {
  uint64_t best = 0;
  for (int64_t i = threadIdx.x; i < n; i += kThreads) {
    const uint64_t one = uint64_t(key_of(logits[i])) << 32 | uint32_t(~uint32_t(i));
    best = one > best ? one : best;
  }
  for (int step = 16; step > 0; step /= 2) {
    const uint64_t other = __shfl_xor_sync(~0u, best, step);
    best = other > best ? other : best;
  }
  __syncthreads();
  if (threadIdx.x % 32 == 0) memory.lanes[threadIdx.x / 32] = best;
  __syncthreads();
  for (int w = 0; w < kWarps; ++w) best = memory.lanes[w] > best ? memory.lanes[w] : best;
  __syncthreads();
  return int64_t(uint32_t(~uint32_t(best)));
}

// Sets row.key and row.last_tie to the shortest prefix, by falling logit, that reaches top_k tokens or the mass of
// top_p.
__device__ void keep_top(Memory& memory, Row& row, const RowSampling& settings, double total) {
  const uint64_t wanted = uint64_t(floor(double(settings.top_p) * kCertain)) + 1;
  const auto mass_of = [&](int64_t i) { return uint64_t(floor(row.weight(i) / total * kCertain)); };
  constexpr int kShift[3] = {21, 10, 0}, kBits[3] = {11, 11, 10};
  uint32_t prefix = 0;
  uint64_t mass_above = 0;
  int count_above = 0;
#pragma unroll 1
  for (int level = 0; level < 3; ++level) {
    __syncthreads();
    for (int b = threadIdx.x; b < kBins; b += kThreads) memory.count[b] = 0, memory.mass[b] = 0;
    if (threadIdx.x == 0) memory.bin = -1;
    __syncthreads();
    for (int64_t i = threadIdx.x; i < row.n; i += kThreads) {
      const uint32_t key = key_of(row.logits[i]);
      if (level > 0 && key >> (kShift[level] + kBits[level]) != prefix) continue;
      const uint32_t bin = key >> kShift[level] & ((1u << kBits[level]) - 1);
      atomicAdd(&memory.count[bin], 1);
      const uint64_t mass = mass_of(i);
      if (mass > 0) atomicAdd(&memory.mass[bin], static_cast<unsigned long long>(mass));
    }
    __syncthreads();
    constexpr int kOwn = kBins / kThreads;
    const int high = kBins - 1 - int(threadIdx.x) * kOwn;  // thread 0 has the highest bins
    uint64_t count = 0, mass = 0, all = 0;
    for (int b = 0; b < kOwn; ++b) count += uint64_t(memory.count[high - b]), mass += memory.mass[high - b];
    uint64_t c = uint64_t(count_above) + before_in_block(count, memory.lanes, all);
    uint64_t m = mass_above + before_in_block(mass, memory.lanes, all);
    const auto reached = [&](uint64_t tokens, uint64_t of_mass) {
      return of_mass >= wanted || (settings.top_k > 0 && tokens >= uint64_t(settings.top_k));
    };
    if (!reached(c, m) && reached(c + count, m + mass)) {
      for (int b = 0; b < kOwn; ++b) {
        const uint64_t next_c = c + uint64_t(memory.count[high - b]), next_m = m + memory.mass[high - b];
        if (reached(next_c, next_m)) {
          memory.bin = high - b;
          memory.count_above = int(c);
          memory.mass_above = m;
          break;
        }
        c = next_c, m = next_m;
      }
    }
    __syncthreads();
    if (memory.bin < 0) return;  // the first level only: all are kept
    prefix = prefix << kBits[level] | uint32_t(memory.bin);
    count_above = memory.count_above;
    mass_above = memory.mass_above;
  }
  // Equal logits have equal masses, so it is known how many of the ties are needed.
  const double w = law_weight(row.scaled(logit_of(prefix)) - row.best_scaled);
  const uint64_t each = uint64_t(floor(w / total * kCertain));
  uint64_t ties = settings.top_k > 0 ? uint64_t(settings.top_k - count_above) : UINT64_MAX;
  if (each > 0) ties = min(ties, (wanted - mass_above + each - 1) / each);
  row.key = prefix;
  row.last_tie = find_in_sum(row.n, ties - 1, memory.lanes, &memory.found,
                             [&](int64_t i) { return uint64_t(key_of(row.logits[i]) == prefix); });
}

__device__ int64_t race(Memory& memory, const uint32_t* law, int64_t n, const RowSampling& settings) {
  double best = INFINITY;
  int64_t winner = INT64_MAX;
  const auto meet = [&](double time, int64_t id) {
    if (time < best || (time == best && id < winner)) best = time, winner = id;
  };
  for (int64_t i = threadIdx.x; i < n; i += kThreads) {
    if (law[i] == 0) continue;
    meet(exponential_time(race_bits(settings.seed, settings.position, uint32_t(i))) / double(law[i]), i);
  }
  for (int step = 16; step > 0; step /= 2) {
    const double time = __shfl_xor_sync(~0u, best, step);
    const int64_t id = __shfl_xor_sync(~0u, winner, step);
    meet(time, id);
  }
  __syncthreads();
  if (threadIdx.x % 32 == 0) {
    memory.weights[0][threadIdx.x / 32] = best;
    memory.lanes[threadIdx.x / 32] = uint64_t(winner);
  }
  __syncthreads();
  for (int w = 0; w < kWarps; ++w) meet(memory.weights[0][w], int64_t(memory.lanes[w]));
  __syncthreads();
  return winner == INT64_MAX ? 0 : winner;
}

__device__ int64_t draw(Memory& memory, const uint32_t* law, int64_t n, const RowSampling& settings) {
  if (settings.role == kCoupled) return race(memory, law, n, settings);
  uint64_t own = 0, total = 0;
  for (int64_t i = threadIdx.x; i < n; i += kThreads) own += law[i];
  before_in_block(own, memory.lanes, total);
  if (threadIdx.x == 0) memory.wide = uniform_below(total, settings.seed, settings.position, settings.role);
  __syncthreads();
  return find_in_sum(n, memory.wide, memory.lanes, &memory.found, [&](int64_t i) { return uint64_t(law[i]); });
}

// Writes the tokens of a law as a list and returns how many it has; the first `most` are stored.
__device__ int64_t list_law(Memory& memory, const uint32_t* law, int64_t n, TokenWeight* list, int64_t most) {
  int64_t before_chunk = 0;
  for (int64_t first = 0; first < n; first += kThreads) {
    const int64_t id = first + threadIdx.x;
    const uint32_t weight = id < n ? law[id] : 0;
    uint64_t total = 0;
    if (!__syncthreads_or(weight > 0)) continue;  // most of a vocabulary
    const int64_t place = before_chunk + int64_t(before_in_block(uint64_t(weight > 0), memory.lanes, total));
    if (weight > 0 && place < most) list[place] = {int32_t(id), weight};
    before_chunk += int64_t(total);
  }
  return before_chunk;
}

struct Drawn {
  const RowSampling* rows;
  const int32_t* source;  // null: rows are drawn from the logits of their own number
  int32_t* ids;
  Rows<uint32_t> laws;
  bool keeps_laws;  // else they are the kernel's own memory
  Rows<TokenWeight> lists;
  int64_t most;
  int32_t* list_counts;
};

__global__ void __launch_bounds__(kThreads)
    sample_kernel(Rows<const float> logits, int64_t n, const __grid_constant__ Drawn op) {
  __shared__ Memory memory;
  const int64_t r = blockIdx.x;
  const RowSampling settings = op.rows[r];
  int32_t* ids = op.ids;
  uint32_t* law = op.laws.row(r);
  Row row{};
  row.logits = logits.row(op.source == nullptr ? r : op.source[r]);
  row.n = n;
  row.min_p = settings.min_p;
  row.last_tie = INT64_MAX;
  const int64_t first = best_of(memory, row.logits, n);
  const float best = row.logits[first];
  if (settings.temperature < kGreedyBelow || !(fabsf(best) < INFINITY)) {
    for (int64_t i = threadIdx.x; op.keeps_laws && i < n; i += kThreads) law[i] = i == first ? uint32_t(kCertain) : 0;
    if (threadIdx.x != 0) return;
    if (ids != nullptr) ids[r] = int32_t(first);  // the only token of its law
    if (op.lists.data == nullptr) return;
    op.lists.row(r)[0] = {int32_t(first), uint32_t(kCertain)};
    op.list_counts[r] = 1;
    return;
  }
  row.temperature = double(settings.temperature);
  row.best_scaled = row.scaled(best);
  const double total = lane_sum(memory, n, [&](int64_t i) { return row.weight(i); });
  const bool all = settings.top_k <= 0 && !(settings.top_p < 1);
  if (!all) keep_top(memory, row, settings, total);
  // The same sum where nothing is dropped.
  const double kept =
      all && !(settings.min_p > 0) ? total : lane_sum(memory, n, [&](int64_t i) { return row.kept_weight(i); });
  for (int64_t i = threadIdx.x; i < n; i += kThreads) law[i] = uint32_t(floor(row.kept_weight(i) / kept * kCertain));
  __syncthreads();  // the block reads its own law
  if (op.lists.data != nullptr) {
    const int64_t count = list_law(memory, law, n, op.lists.row(r), op.most);
    if (threadIdx.x == 0) op.list_counts[r] = int32_t(count);
  }
  if (ids == nullptr) return;
  const int64_t id = draw(memory, law, n, settings);
  if (threadIdx.x == 0) ids[r] = int32_t(id);
}

}  // namespace

void sample(Queue& queue, const Sample& op) {
  const int64_t rows = op.count(), n = op.logits.shape[1];
  if (op.logits.empty() || rows == 0) return;
  Call call(queue, "sample");
  const auto logits = call.in(op.logits);
  Drawn drawn{};
  drawn.rows = call.in(op.rows);
  drawn.source = op.source.empty() ? nullptr : call.in(op.source).data;
  drawn.ids = op.ids.empty() ? nullptr : call.out(op.ids).data;
  drawn.keeps_laws = !op.laws.empty();
  if (drawn.keeps_laws) drawn.laws = rows_of(call.out(op.laws));
  const ClusterSample all{rows, rows_of(logits), n, drawn.rows, drawn.source, drawn.ids, drawn.laws};
  if (op.lists.empty() && sample_by_clusters(call, all)) return;
  if (!drawn.keeps_laws) drawn.laws = {call.workspace<uint32_t>(rows * n), n};
  if (!op.lists.empty()) {
    drawn.lists = rows_of(call.out(op.lists));
    drawn.most = op.lists.shape[1];
    drawn.list_counts = call.out(op.list_counts).data;
  }
  sample_kernel<<<grid(rows), kThreads, 0, call.stream()>>>(rows_of(logits), n, drawn);
}

}  // namespace fathom::cuda
