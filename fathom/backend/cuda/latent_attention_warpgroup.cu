// Latent attention for many heads: 512 channels, keys Q8 or Q4K as the caches keep them, bf16 queries. Two blocks share
// a row and up to 64 heads, and go on to their next row; each has half of the channels of the result. The row's keys
// come in tiles of 64, two tiles a step. A block has four warpgroups:
//
//   one      decodes: bytes into registers while those before are spread, as bf16 into shared memory, exactly (a Q4K
//            value has six significant bits), at 2^-8 of its value (kKeyScale)
//   one      looks up where the keys of the next steps lie
//   one      scores: queries, which stay in its registers, . keys^T of its block's tile of the step, the other block
//            those of the other tile; the two exchange their best scores and weights, while the next step's products
//            are under way
//   one      adds weights . keys of both tiles to its block's 256 channels: 128 float registers a thread
//
// The best score of a head runs along, and what is there shrinks when the best rose by more than 2^6: weights are
// rounded to bf16, which has the same precision up to there. Every sum goes through a row's tiles in
// one order, so its result depends on its own keys alone.
//
// Keys and how they are decoded: attention_keys.cuh. Bytes of a row: 128 * 528 + 512 * 288 = 215 KB of keys.
// Operations: 2 * 2 * 64 * 640 * 512 = 84 million: 390 a byte, so the floor is that of bf16 arithmetic: 10,240 cycles
// of a multiprocessor's tensor cores for each block of a row.
#include <algorithm>

#include "fathom/backend/cuda/attention_keys.cuh"
#include "fathom/backend/cuda/multiply_group.cuh"

namespace fathom::cuda {
namespace {

using namespace attention_keys;

constexpr int kThreads = 4 * 32 * kWarps;
// Registers of a thread: 512 for four warpgroups together, what the block begins with.
constexpr int kDecoderRegisters = 104, kListerRegisters = 24, kScorerRegisters = 224, kAdderRegisters = 160;
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
  const int rank, warp, lane;         // of the block's pair; of the warpgroup
  const float scale;                  // from products to powers of two
  uint32_t turn = 0, round = 0;       // of steps over all rows; of rows
  uint32_t begun = 0, phase = 0;      // of steps whose products were begun; of their places
  int place = 0, keys = 0, left = 0;  // of the last of them: keys, and steps of the row from it on
  uint32_t query[kChannels / 16][4];  // the channels that the block adds up come last
  float next[32], score[32];
  float best[2], sum[2];

  __device__ Scorer(Shared& block, int own, float to_power)
      : shared(block), rank(own), warp(threadIdx.x / 32 % 4), lane(threadIdx.x % 32), scale(to_power) {}
  __device__ int head() const { return 16 * warp + lane / 4; }
  // Score n of sixteen of head `head` or `head + 8`.
  __device__ float& of_head(int n, int h) { return score[4 * (n / 2) + 2 * h + n % 2]; }
  __device__ uint32_t there(const void* at) const { return address_in_block(at, uint32_t(rank ^ 1)); }

  // Heads that do not exist as zeros. Of 32 channels a thread has an eight of each head, until they are arranged.
  __device__ __forceinline__ void read_queries(const Attention& op, const Item& item) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int of_row = item.first_head + head() + 8 * h;
      const uint8_t* from = reinterpret_cast<const uint8_t*>(kZeros);
      if (of_row < op.heads) from = op.queries + (item.row * op.query_stride + of_row * kChannels) * int64_t(2);
      from += 16 * (lane % 4);
      const uint8_t* const half[2] = {from + kChannels * (rank ^ 1), from + kChannels * rank};
#pragma unroll
      for (int j = 0; j < kChannels / 32; ++j) {
        uint4 v;
        read_16(v, half[j / 8] + 64 * (j % 8));
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

  // The products of the next step, under way at the return: `rest` first, which is to be free soon.
  __device__ __forceinline__ void begin_scores() {
    const auto multiply = [&](const uint8_t* at, int first) {
      const uint64_t keys_of = describe_tile(shared_address(at));
      begin_products();
#pragma unroll
      for (int k = 0; k < 16; ++k) {
        multiply_group<64>(next, query[first + k], keys_of + uint64_t(k / 4 * (kColumnBytes / 16) + k % 4 * 2),
                           first + k > 0);
      }
      commit_products();
    };
    wait_phase(shared.full_rest, begun & 1);
    hold(next);
    multiply(shared.rest, 0);
    wait_phase(shared.full_own[place], phase);
    keys = shared.own_step[place].x, left = shared.own_step[place].y;
    multiply(shared.own[place], 16);
    ++begun;
    if (++place == kOwn) place = 0, phase ^= 1;
  }
  __device__ __forceinline__ void free_rest() {
    wait_products<1>();
    if (lane == 0) arrive(shared.scored_rest);
  }
  __device__ __forceinline__ void end_scores() {
    wait_products<0>();
    hold(next);
  }

  // The best scores of both tiles, and what the step does to the sums before.
  __device__ __forceinline__ void compare(int of_tile) {
    const int side = int(turn & 1);
    if (of_tile < kKeys) {
#pragma unroll
      for (int i = 0; i < 32; ++i) {
        if (i / 4 * 8 + lane % 4 * 2 + i % 2 >= of_tile) score[i] = -INFINITY;
      }
    }
    float most[2];
    if (warp == 0 && lane == 0) expect_bytes(shared.compared[side], kHeads * sizeof(float));
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
      const uint32_t to = there(&shared.most[side][head()]), barrier = there(&shared.compared[side]);
      store_in_block(to, most[0], barrier);
      store_in_block(to + uint32_t(8 * sizeof(float)), most[1], barrier);
    }
    wait_phase(shared.compared[side], turn / 2 & 1);
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      most[h] = fmaxf(most[h], shared.most[side][head() + 8 * h]);
      const float before = best[h];
      best[h] = most[h] > before + kSlack ? most[h] : before;
      sum[h] *= power_of_two(before - best[h]);
    }
  }
  // Scores to weights, and their sum.
  __device__ __forceinline__ void weigh() {
    float part[2][2] = {};
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
    uint32_t pairs[16];
#pragma unroll
    for (int i = 0; i < 16; ++i) {
      const __nv_bfloat162 pair = __floats2bfloat162_rn(score[2 * i], score[2 * i + 1]);
      pairs[i] = *reinterpret_cast<const uint32_t*>(&pair);
    }
    // No sum is negative, but the compiler has to make the weights to know it, and so does before it waits.
    if (turn > 0 && !(sum[0] + sum[1] < 0)) wait_phase(shared.weights_free, (turn - 1) & 1);
    uint8_t* weights = shared.weights[rank];
    // A lane names row lane % 8 of matrix lane / 8: rows 0 and 8, then the next eight keys.
    const int at_row = 16 * warp + lane / 8 % 2 * 8 + lane % 8;
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      store_matrices(weights + swizzled(at_row, 2 * j + lane / 16), pairs[4 * j], pairs[4 * j + 1], pairs[4 * j + 2],
                     pairs[4 * j + 3]);
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
    ++turn;
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

  // The rows of items `item`, `item + stride` ... The next step's products are under way, or the next row's queries,
  // while a step's weights are made.
  __device__ __forceinline__ void score_rows(const Attention& op, int item, int items, int stride) {
    read_queries(op, Item(op, item));
#pragma unroll 1
    for (; item < items; item += stride) {
      arrange_queries();
      sum[0] = sum[1] = 0;
      best[0] = best[1] = kNoScore;
      begin_scores();
      free_rest();
      end_scores();
      const int steps = __shfl_sync(~0u, left, 0);
      int of_tile = keys;
#pragma unroll 1
      for (int step = 1; step < steps; ++step) {
#pragma unroll
        for (int i = 0; i < 32; ++i) score[i] = next[i];
        begin_scores();
        compare(of_tile);
        free_rest();
        weigh();
        give_weights();
        end_scores();
        of_tile = keys;
      }
      if (item + stride < items) read_queries(op, Item(op, item + stride));
#pragma unroll
      for (int i = 0; i < 32; ++i) score[i] = next[i];
      compare(of_tile);
      weigh();
      give_weights();
      give_sums();
    }
  }
};

// A thread of the adding warpgroup: of the sums it has heads `head` and `head + 8`, of each eight channels two.
struct Adder {
  Shared& shared;
  const int rank, warp, lane;
  uint32_t turn = 0, round = 0, phase = 0;
  int place = 0;
  float out[2][64];  // of 128 channels each
  float best[2];

  __device__ Adder(Shared& block, int own)
      : shared(block), rank(own), warp(threadIdx.x / 32 % 4), lane(threadIdx.x % 32) {}
  __device__ int head() const { return 16 * warp + lane / 4; }

  // out = out * shrink + weights . keys. Returns how many steps the row had left before.
  __device__ __forceinline__ int add_step() {
    const int side = int(turn % kOthers);
    wait_phase(shared.full_own[place], phase);
    wait_phase(shared.full_other[side], turn / kOthers & 1);
    wait_phase(shared.weighed, turn & 1);
    const int left = shared.own_step[place].y;
    float shrink[2];
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const float now = shared.best[head() + 8 * h];
      shrink[h] = power_of_two(best[h] - now);
      best[h] = now;
    }
    if (__any_sync(~0u, shrink[0] != 1 || shrink[1] != 1)) {
#pragma unroll
      for (int n = 0; n < 32; ++n) {
        float* four = &out[n / 16][n % 16 * 4];
        four[0] *= shrink[0], four[1] *= shrink[0], four[2] *= shrink[1], four[3] *= shrink[1];
      }
    }
    const uint64_t own = describe_transposed_tiles(shared_address(shared.own[place])),
                   other = describe_transposed_tiles(shared_address(shared.other[side])),
                   own_weights = describe_tile(shared_address(shared.weights[rank])),
                   other_weights = describe_tile(shared_address(shared.weights[rank ^ 1]));
    hold(out[0]), hold(out[1]);
    begin_products();
#pragma unroll
    for (int k = 0; k < kKeys / 16; ++k) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        multiply_columns(out[half], own_weights + 2 * k, own + 128 * k + half * 2 * kColumnBytes / 16);
      }
    }
#pragma unroll
    for (int k = 0; k < kKeys / 16; ++k) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        multiply_columns(out[half], other_weights + 2 * k, other + 128 * k + half * 2 * kColumnBytes / 16);
      }
    }
    commit_products();
    wait_products<0>();
    hold(out[0]), hold(out[1]);
    arrive(shared.weights_free);
    if (lane == 0) {
      arrive_in_block(address_in_block(&shared.weights_free, uint32_t(rank ^ 1)));
      arrive(shared.added_own[place]);
      arrive(shared.added_other[side]);
    }
    ++turn;
    if (++place == kOwn) place = 0, phase ^= 1;
    return left;
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

  __device__ __forceinline__ void add_row(const Attention& op, const Item& item) {
#pragma unroll
    for (int i = 0; i < 128; ++i) out[i / 64][i % 64] = 0;
    best[0] = best[1] = kNoScore;
#pragma unroll 1
    while (add_step() > 1) {
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
  let_kernel_behind_start();
  if (threadIdx.x == 0) {
    for (int i = 0; i < kListed; ++i) {
      init_barrier(shared.listed[i], 32 * kWarps);
      init_barrier(shared.unlisted[i], 32 * kWarps);
    }
    for (int i = 0; i < kOwn; ++i) init_barrier(shared.full_own[i], kWarps), init_barrier(shared.added_own[i], kWarps);
    for (int i = 0; i < kOthers; ++i) {
      init_barrier(shared.full_other[i], kWarps);
      init_barrier(shared.added_other[i], kWarps);
    }
    init_barrier(shared.full_rest, kWarps);
    init_barrier(shared.scored_rest, kWarps);
    for (int i = 0; i < 2; ++i) init_barrier(shared.compared[i], 1), init_barrier(shared.summed[i], kHeads / 2);
    init_barrier(shared.weighed, kHeads / 2);
    init_barrier(shared.weights_free, 32 * kWarps + kWarps);
    publish_barriers();
  }
  __syncthreads();
  arrive_in_cluster();
  const int role = int(threadIdx.x) / (32 * kWarps);
  if (role == 0) {
    give_registers<kDecoderRegisters>();
    wait_for_cluster();
    wait_for_kernel_ahead();
    decode_rows(shared, op, rank);
  } else if (role == 1) {
    give_registers<kListerRegisters>();
    wait_for_cluster();
    wait_for_kernel_ahead();
    list_rows(shared, op, rank, pair, items, pairs);
  } else if (role == 2) {
    take_registers<kScorerRegisters>();
    wait_for_cluster();
    wait_for_kernel_ahead();
    Scorer scorer(shared, rank, op.scale * kLog2E / kKeyScale);
    scorer.score_rows(op, pair, items, pairs);
  } else {
    take_registers<kAdderRegisters>();
    wait_for_cluster();
    wait_for_kernel_ahead();
    Adder adder(shared, rank);
#pragma unroll 1
    for (int i = pair; i < items; i += pairs) adder.add_row(op, Item(op, i));
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
  launch_early(call, attention_warpgroup_kernel, grid(2 * pairs), kThreads, kBytes, op, int(items));
}

}  // namespace fathom::cuda
