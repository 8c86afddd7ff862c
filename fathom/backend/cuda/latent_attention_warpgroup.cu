// Latent attention for many heads: 512 channels, keys Q8 or Q4K as the caches keep them, bf16 queries. Two blocks share
// a row and up to 64 heads, and go on to their next row; each has half of the channels of the result. The row's keys
// come in tiles of 64, two tiles a step. A block has four warpgroups:
//
//   two      decode: a half tile's bytes into registers while the one before is spread, as bf16 into shared memory,
//            exactly (a Q4K value has six significant bits), at 2^-8 of its value (kKeyScale)
//   one      scores: queries, which stay in its registers, . keys^T of its block's tile of the step, the other block
//            those of the other tile; the two exchange their best scores and weights
//   one      adds weights . keys of both tiles to its block's 256 channels: 128 float registers a thread; between
//            rows it looks up where the keys of the next lie
//
// The best score of a head runs along, and what is there shrinks when the best rose by more than 2^6: weights are
// rounded to bf16, which has the same precision up to there. Every sum goes from the first tile to the last, so a row's
// result depends on its own keys alone.
//
// Keys and how they are decoded: attention_keys.cuh. Bytes of a row: 128 * 528 + 512 * 288 = 215 KB of keys.
// Operations: 2 * 2 * 64 * 640 * 512 = 84 million: 390 a byte, so the floor is that of bf16 arithmetic: 10,240 cycles
// of a multiprocessor's tensor cores for each block of a row.
#include <algorithm>

#include "fathom/backend/cuda/attention_keys.cuh"

namespace fathom::cuda {
namespace {

using namespace attention_keys;

constexpr int kThreads = kDecoding + 256;
// Registers of a thread: 512 for four warpgroups together, what the block begins with.
constexpr int kDecoderRegisters = 72, kScorerRegisters = 208, kAdderRegisters = 160;
constexpr float kNoScore = -1e30f, kSlack = 6;
constexpr float kLog2E = 1.4426950408889634f;

// 2^x, off by two units in the last place at most.
__device__ inline float power_of_two(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// A thread of the scoring warpgroup: of queries and scores it has heads `head` and `head + 8`, of each eight keys two.
struct Scorer {
  Shared& shared;
  const int rank, warp, lane;    // of the block's pair; of the warpgroup
  const float scale;             // from products to powers of two
  uint32_t turn = 0, round = 0;  // of steps over all rows; of rows
  uint32_t query[kChannels / 16][4];
  float score[32];
  float best[2], sum[2];

  __device__ Scorer(Shared& block, int own, float to_power)
      : shared(block), rank(own), warp(threadIdx.x / 32 % 4), lane(threadIdx.x % 32), scale(to_power) {}
  __device__ int head() const { return 16 * warp + lane / 4; }
  __device__ uint32_t there(const void* at) const { return address_in_block(at, uint32_t(rank ^ 1)); }

  // Heads that do not exist as zeros. Of 32 channels a thread has an eight of each head, until they are arranged.
  __device__ __forceinline__ void read_queries(const Attention& op, const Item& item) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int of_row = item.first_head + head() + 8 * h;
      const uint8_t* from = reinterpret_cast<const uint8_t*>(kZeros);
      if (of_row < op.heads) from = op.queries + (item.row * op.query_stride + of_row * kChannels) * int64_t(2);
      from += 16 * (lane % 4);
#pragma unroll
      for (int j = 0; j < kChannels / 32; ++j) {
        uint4 v;
        read_16(v, from + 64 * j);
        uint32_t(&q)[4] = query[2 * j + h];
        q[0] = v.x, q[1] = v.y, q[2] = v.z, q[3] = v.w;
      }
    }
  }
  // Words to pairs of channels: 0 4, 1 5, 2 6, 3 7.
  __device__ __forceinline__ void arrange_queries() {
#pragma unroll
    for (int j = 0; j < kChannels / 32; ++j) {
      uint32_t pair[2][4];
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const uint32_t(&q)[4] = query[2 * j + h];
        pair[h][0] = __byte_perm(q[0], q[2], 0x5410), pair[h][1] = __byte_perm(q[0], q[2], 0x7632);
        pair[h][2] = __byte_perm(q[1], q[3], 0x5410), pair[h][3] = __byte_perm(q[1], q[3], 0x7632);
      }
#pragma unroll
      for (int i = 0; i < 8; ++i) query[2 * j + i / 4][i % 4] = pair[i % 2][i / 2];
    }
  }

  __device__ __forceinline__ void multiply() {
    const int side = int(turn & 1);
    wait_phase(shared.full_own[side], turn / 2 & 1);
    const uint64_t keys = describe_tile(shared_address(shared.own[side]));
    begin_products();
#pragma unroll
    for (int k = 0; k < kChannels / 16; ++k) {
      multiply_group<64>(score, query[k], keys + uint64_t(k / 4 * (kColumnBytes / 16) + k % 4 * 2), k > 0);
    }
    commit_products();
    wait_products<0>();
    hold(score);
  }

  // Scores to weights, their sum, and what the step does to the sums before.
  __device__ __forceinline__ void weigh(int keys) {
    const int side = int(turn & 1);
    if (keys < kKeys) {
#pragma unroll
      for (int i = 0; i < 32; ++i) {
        if (i / 4 * 8 + lane % 4 * 2 + i % 2 >= keys) score[i] = -INFINITY;
      }
    }
    float most[2];
    if (warp == 0 && lane == 0) expect_bytes(shared.scored[side], kHeads * sizeof(float));
    const auto of_head = [&](int n, int h) -> float& { return score[4 * (n / 2) + 2 * h + n % 2]; };
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      float part[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        part[i] = fmaxf(fmaxf(of_head(i, h), of_head(i + 4, h)), fmaxf(of_head(i + 8, h), of_head(i + 12, h)));
      }
      most[h] = fmaxf(fmaxf(part[0], part[1]), fmaxf(part[2], part[3]));
    }
#pragma unroll
    for (int distance = 1; distance <= 2; distance *= 2) {
      const float other[2] = {__shfl_xor_sync(~0u, most[0], distance), __shfl_xor_sync(~0u, most[1], distance)};
      most[0] = fmaxf(most[0], other[0]), most[1] = fmaxf(most[1], other[1]);
    }
    most[0] *= scale, most[1] *= scale;
    if (lane % 4 == 0) {
      const uint32_t to = there(&shared.most[side][head()]), barrier = there(&shared.scored[side]);
      store_in_block(to, most[0], barrier);
      store_in_block(to + uint32_t(8 * sizeof(float)), most[1], barrier);
    }
    wait_phase(shared.scored[side], turn / 2 & 1);
    float part[2][2] = {};
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      most[h] = fmaxf(most[h], shared.most[side][head() + 8 * h]);
      const float before = best[h];
      best[h] = most[h] > before + kSlack ? most[h] : before;
      sum[h] *= power_of_two(before - best[h]);
    }
    const float less[2] = {kWeightLog2 - best[0], kWeightLog2 - best[1]};
#pragma unroll
    for (int n = 0; n < 16; ++n) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        float& s = of_head(n, h);
        s = power_of_two(fmaf(s, scale, less[h]));
        part[h][n % 2] += s;
      }
    }
    sum[0] += part[0][0] + part[0][1], sum[1] += part[1][0] + part[1][1];
  }

  // The weights to both blocks.
  __device__ __forceinline__ void give_weights() {
    if (turn > 0) wait_phase(shared.weights_free, (turn - 1) & 1);
    uint8_t* weights = shared.weights[rank];
    // A lane names row lane % 8 of matrix lane / 8: rows 0 and 8, then the next eight keys.
    const int at_row = 16 * warp + lane / 8 % 2 * 8 + lane % 8;
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      uint32_t pairs[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const __nv_bfloat162 pair = __floats2bfloat162_rn(score[8 * j + 2 * i], score[8 * j + 2 * i + 1]);
        pairs[i] = *reinterpret_cast<const uint32_t*>(&pair);
      }
      store_matrices(weights + swizzled(at_row, 2 * j + lane / 16), pairs[0], pairs[1], pairs[2], pairs[3]);
    }
    if (lane % 4 == 0) shared.best[head()] = best[0], shared.best[head() + 8] = best[1];
    publish_to_products();
    __syncwarp();
    if (lane == 0) {
      constexpr uint32_t kBytes = kColumnBytes / 4;  // of 16 heads
      const uint8_t* part = weights + warp * kBytes;
      copy_to_block(there(part), part, kBytes, there(&shared.weighed));
    }
    arrive_expecting(shared.weighed, kColumnBytes);
  }

  // Of the threads that write values of heads; the other block sends so many bytes.
  __device__ __forceinline__ void arrive_expecting(uint64_t& barrier, uint32_t bytes) {
    if (warp == 0 && lane == 0) {
      expect_bytes(barrier, bytes);
    } else if (lane % 4 == 0) {
      arrive(barrier);
    }
  }

  // The sums of a row's weights to both blocks.
  __device__ __forceinline__ void give_sums() {
    const int side = int(round & 1);
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      sum[h] += __shfl_xor_sync(~0u, sum[h], 1);
      sum[h] += __shfl_xor_sync(~0u, sum[h], 2);
      float& at = shared.sum[side][rank][head() + 8 * h];
      if (lane % 4 == 0) {
        at = sum[h];
        store_in_block(there(&at), sum[h], there(&shared.summed[side]));
      }
    }
    arrive_expecting(shared.summed[side], kHeads * sizeof(float));
    ++round;
  }

  // The rows of items `item`, `item + stride` ... A row's queries are on their way while the weights of the last step
  // of the row before are made.
  __device__ __forceinline__ void score_rows(const Attention& op, int item, int items, int stride) {
    Keys keys(op, Item(op, item).row), next = keys;
    bool begun = false;
#pragma unroll 1
    for (int step = 0;;) {
      const bool last = !begun || step + 1 == keys.steps;
      if (begun) multiply();
      if (last && item < items) {
        const Item it(op, item);
        next = Keys(op, it.row);
        read_queries(op, it);
      }
      if (begun) {
        weigh(keys.of_tile(2 * step + rank));
        give_weights();
        ++turn, ++step;
      }
      if (!last) continue;
      if (begun) give_sums();
      if (item >= items) break;
      item += stride;
      keys = next;
      arrange_queries();
      sum[0] = sum[1] = 0;
      best[0] = best[1] = kNoScore;
      step = 0;
      begun = true;
    }
  }
};

// A thread of the adding warpgroup: of the sums it has heads `head` and `head + 8`, of each eight channels two.
struct Adder {
  Shared& shared;
  const int rank, warp, lane;
  uint32_t turn = 0, round = 0;
  float out[2][64];  // of 128 channels each
  float best[2];

  __device__ Adder(Shared& block, int own)
      : shared(block), rank(own), warp(threadIdx.x / 32 % 4), lane(threadIdx.x % 32) {}
  __device__ int head() const { return 16 * warp + lane / 4; }

  // out = out * shrink + weights . keys
  __device__ __forceinline__ void add_step() {
    const int side = int(turn & 1);
    wait_phase(shared.full_own[side], turn / 2 & 1);
    wait_phase(shared.full_other[side], turn / 2 & 1);
    wait_phase(shared.weighed, turn & 1);
    float shrink[2];
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const float next = shared.best[head() + 8 * h];
      shrink[h] = power_of_two(best[h] - next);
      best[h] = next;
    }
    if (__any_sync(~0u, shrink[0] != 1 || shrink[1] != 1)) {
#pragma unroll
      for (int n = 0; n < 32; ++n) {
        float* four = &out[n / 16][n % 16 * 4];
        four[0] *= shrink[0], four[1] *= shrink[0], four[2] *= shrink[1], four[3] *= shrink[1];
      }
    }
    const uint64_t own = describe_transposed_tiles(shared_address(shared.own[side] + rank * kHalfBytes)),
                   other = describe_transposed_tiles(shared_address(shared.other[side])),
                   weights = describe_tile(shared_address(shared.weights[0]));
    hold(out[0]), hold(out[1]);
    begin_products();
#pragma unroll
    for (int tile = 0; tile < 2; ++tile) {
      const uint64_t a = weights + tile * (kColumnBytes / 16), b = tile == rank ? own : other;
#pragma unroll
      for (int k = 0; k < kKeys / 16; ++k) {
        multiply_columns(out[0], a + 2 * k, b + 128 * k);
        multiply_columns(out[1], a + 2 * k, b + 128 * k + 2 * kColumnBytes / 16);
      }
    }
    commit_products();
    wait_products<0>();
    hold(out[0]), hold(out[1]);
    arrive(shared.weights_free);
    if (lane == 0) {
      arrive(shared.empty[side]);
      arrive_in_block(address_in_block(&shared.weights_free, uint32_t(rank ^ 1)));
    }
    ++turn;
  }

  // Divides by the sum of weights and the sink's, and stores.
  __device__ __forceinline__ void store_row(const Attention& op, const Item& item) {
    const int side = int(round & 1);
    wait_phase(shared.summed[side], round / 2 & 1);
    ++round;
    float factor[2];
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int at = head() + 8 * h;
      const float sink = item.first_head + at < op.heads ? __ldg(&op.sink[item.first_head + at]) * kLog2E : 0;
      const float most = fmaxf(sink, best[h]), own = power_of_two(best[h] - most);
      const float total = (shared.sum[side][0][at] + shared.sum[side][1][at]) * kKeyScale;
      factor[h] = __fdividef(own, fmaf(total, own, power_of_two(sink - most)));
    }
    Bf16* to = reinterpret_cast<Bf16*>(op.out) + item.row * op.out_stride +
               int64_t(item.first_head + head()) * kChannels + rank * (kChannels / 2) + 8 * (lane % 4);
#pragma unroll
    for (int m = 0; m < kChannels / 2 / 32; ++m) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        uint32_t w[4];  // of an eight: channels 0 4, 1 5, 2 6, 3 7
#pragma unroll
        for (int n = 0; n < 4; ++n) {
          const float* mine = &out[m / 4][16 * (m % 4) + 4 * n + 2 * h];
          const __nv_bfloat162 pair = __floats2bfloat162_rn(mine[0] * factor[h], mine[1] * factor[h]);
          w[n] = *reinterpret_cast<const uint32_t*>(&pair);
        }
        if (item.first_head + head() + 8 * h < op.heads) {
          *reinterpret_cast<uint4*>(to + 8 * h * kChannels + 32 * m) =
              make_uint4(__byte_perm(w[0], w[1], 0x5410), __byte_perm(w[2], w[3], 0x5410),
                         __byte_perm(w[0], w[1], 0x7632), __byte_perm(w[2], w[3], 0x7632));
        }
      }
    }
  }

  __device__ __forceinline__ void add_row(const Attention& op, const Item& item, Lister& lister) {
    const int steps = Keys(op, item.row).steps;
#pragma unroll
    for (int i = 0; i < 128; ++i) out[i / 64][i % 64] = 0;
    best[0] = best[1] = kNoScore;
    for (int step = 0; step < steps; ++step) {
      if (step > 0 && step % kListedSteps == 0) lister.list<1>();
      add_step();
    }
    store_row(op, item);
  }
};

__global__ void __cluster_dims__(2, 1, 1) __launch_bounds__(kThreads, 1)
    attention_warpgroup_kernel(const __grid_constant__ Attention op, int items) {
  extern __shared__ uint8_t memory[];
  Shared& shared = *reinterpret_cast<Shared*>(memory + (-shared_address(memory) & 1023));
  const int rank = int(rank_in_cluster());
  const int pair = int(blockIdx.x / 2), pairs = int(gridDim.x / 2);
  if (threadIdx.x == 0) {
#pragma unroll
    for (int side = 0; side < 2; ++side) {
      init_barrier(shared.listed[side], kListing);
      init_barrier(shared.unlisted[side], kDecoding);
      init_barrier(shared.full_own[side], kDecoding / 32);
      init_barrier(shared.full_other[side], kDecoding / 32);
      init_barrier(shared.empty[side], 4);
      init_barrier(shared.scored[side], 1);
      init_barrier(shared.summed[side], kHeads / 2);
    }
    init_barrier(shared.weighed, kHeads / 2);
    init_barrier(shared.weights_free, 128 + 4);
    publish_barriers();
  }
  __syncthreads();
  arrive_in_cluster();
  if (threadIdx.x < kDecoding) {
    give_registers<kDecoderRegisters>();
    wait_for_cluster();
    decode_rows(shared, op, rank);
  } else if (threadIdx.x < kDecoding + 128) {
    take_registers<kScorerRegisters>();
    wait_for_cluster();
    Scorer scorer(shared, rank, op.scale * kLog2E / kKeyScale);
    scorer.score_rows(op, pair, items, pairs);
  } else {
    take_registers<kAdderRegisters>();
    wait_for_cluster();
    Adder adder(shared, rank);
    Lister lister(shared, op, rank, pair, items, pairs);
    // The list after the one in use is made before it is needed: here, while there are no sums, but for long rows.
#pragma unroll 1
    for (int i = pair - pairs; i < items; i += pairs) {
      lister.list<kListed / kListing>();
      if (i >= pair) adder.add_row(op, Item(op, i), lister);
    }
  }
  arrive_in_cluster();
  wait_for_cluster();  // the other block may still write here
}

}  // namespace

bool fits_attention_warpgroups(const Attention& op) {
  return fits_attention_tensor_cores(op) && alignment(op) == 16 && op.heads > 16 && op.scale > 0 &&
         reinterpret_cast<uintptr_t>(op.out) % 16 == 0 && op.out_stride % 8 == 0;
}

void launch_attention_warpgroups(Call& call, const Attention& op) {
  constexpr int kBytes = int(sizeof(Shared)) + 1024;  // its start is aligned to 1,024
  static const cudaError_t allowed =
      cudaFuncSetAttribute(attention_warpgroup_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes);
  expect(allowed, "latent_attention");
  static const int multiprocessors = [] {
    int device = 0, count = 0;
    expect(cudaGetDevice(&device), "latent_attention");
    expect(cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device), "latent_attention");
    return count;
  }();
  const int64_t items = op.rows * ((op.heads + kHeads - 1) / kHeads);
  check(2 * items < (int64_t(1) << 31), "rows times groups of heads are below 2^30");
  const int64_t pairs = std::min<int64_t>(items, multiprocessors / 2);
  attention_warpgroup_kernel<<<grid(2 * pairs), kThreads, kBytes, call.stream()>>>(op, int(items));
}

}  // namespace fathom::cuda
