// Latent attention for many heads: 512 channels, keys Q8 or Q4K as the caches keep them, bf16 queries. Two blocks share
// a row and up to 64 heads: its keys go in tiles of 64, the first half of the tiles to the first block. A block has
// three warpgroups:
//
//   one      decodes: a tile's bytes into registers while the tile before is in use, then as bf16 into one of two
//            places in shared memory, exactly (a Q4K value has six significant bits), at 2^-8 of its value (kKeyScale)
//   two      multiply. Scores of a tile = queries . keys^T are the work of one of them in turn, which also makes the
//            weights; then both add weights . keys to their 256 channels: 128 float registers a thread. While one turns
//            scores into weights, the products of the other go on.
//
// The best score of a head runs along, and what is there shrinks when the best rose by more than 2^6: weights are
// rounded to bf16, which has the same precision up to there. At the end each block gives half of its sums to the other,
// which adds the two in one order: a row's result depends on its own keys alone.
//
// Keys and how they are decoded: attention_keys.cuh. Bytes of a row: 128 * 528 + 512 * 288 = 215 KB of keys.
// Operations: 2 * 2 * 64 * 640 * 512 = 84 million: 390 a byte, so the floor is that of bf16 arithmetic.
#include "fathom/backend/cuda/attention_keys.cuh"
#include "fathom/backend/cuda/block_pair.cuh"

namespace fathom::cuda {
namespace {

using namespace attention_keys;

// ------------------------------------------------------------------------------------------------ products
// 2^x, off by two units in the last place at most.
__device__ inline float power_of_two(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// The queries in the order of the keys' channels; heads that do not exist as zeros.
__device__ void place_queries(Shared& shared, const Attention& op, int64_t r, int first_head, int thread) {
  const Bf16* queries =
      reinterpret_cast<const Bf16*>(op.queries) + r * op.query_stride + int64_t(first_head) * kChannels;
  constexpr int kAtOnce = 8;
  for (int begin = thread; begin < kHeads * 64; begin += 256 * kAtOnce) {
    uint4 eight[kAtOnce];
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      const int head = (begin + 256 * i) / 64, piece = (begin + 256 * i) % 64;
      eight[i] = make_uint4(0, 0, 0, 0);
      if (first_head + head < op.heads) {
        eight[i] = __ldg(reinterpret_cast<const uint4*>(queries + int64_t(head) * kChannels + 8 * piece));
      }
    }
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      const int head = (begin + 256 * i) / 64, piece = (begin + 256 * i) % 64;
      const uint4 v = eight[i];
      *reinterpret_cast<uint4*>(shared.queries + piece / 8 * kColumnBytes + swizzled(head, piece % 8)) =
          make_uint4(__byte_perm(v.x, v.z, 0x5410), __byte_perm(v.x, v.z, 0x7632), __byte_perm(v.y, v.w, 0x5410),
                     __byte_perm(v.y, v.w, 0x7632));
    }
  }
  publish_to_products();
  meet(kMultipliers, 256);
}

// A thread of the multiplying warpgroups: of the sums it has rows `row` and `row + 8`, of each eight channels two.
struct Multiplier {
  Shared& shared;
  const int group;       // which of the two
  const int warp, lane;  // of the warpgroup
  const float scale;     // from products to powers of two
  float out[128];
  float score[32];
  float sum[2], shrink[2];

  __device__ Multiplier(Shared& block, int number, float to_power)
      : shared(block), group(number), warp(threadIdx.x / 32 % 4), lane(threadIdx.x % 32), scale(to_power) {
#pragma unroll
    for (int i = 0; i < 128; ++i) out[i] = 0;
    sum[0] = sum[1] = 0;
  }
  __device__ int row() const { return 16 * warp + lane / 4; }

  __device__ __forceinline__ void begin_scores(int tile) {
    const int side = tile & 1;
    wait_phase(shared.full[side], uint32_t(tile / 2) & 1);
    const uint64_t a = describe_tile(shared_address(shared.queries)),
                   b = describe_tile(shared_address(shared.keys[side]));
    begin_products();
#pragma unroll
    for (int k = 0; k < kChannels / 16; ++k) {
      const uint64_t further = uint64_t(k / 4 * (kColumnBytes / 16) + k % 4 * 2);
      multiply_rows(score, a + further, b + further, k > 0);
    }
    commit_products();
  }

  // Scores to weights, their sum, and what they do to the sums before.
  __device__ __forceinline__ void weigh(int tile, int keys) {
    const int side = tile & 1;
    hold(score);
    if (keys < kKeys) {
#pragma unroll
      for (int i = 0; i < 32; ++i) {
        if (i / 4 * 8 + lane % 4 * 2 + i % 2 >= keys) score[i] = -INFINITY;
      }
    }
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int head = row() + 8 * h;
      const float before = tile == 0 ? kNoScore : shared.best[side ^ 1][head];
      float most = -INFINITY;
#pragma unroll
      for (int n = 0; n < 8; ++n) most = fmaxf(most, fmaxf(score[4 * n + 2 * h], score[4 * n + 2 * h + 1]));
      most = fmaxf(most, __shfl_xor_sync(~0u, most, 1));
      most = fmaxf(most, __shfl_xor_sync(~0u, most, 2)) * scale;
      const float best = most > before + kSlack ? most : before;
      shrink[h] = power_of_two(before - best);
      if (lane % 4 == 0) {
        shared.best[side][head] = best;
        shared.shrink[side][head] = shrink[h];
      }
      float part = 0;
#pragma unroll
      for (int n = 0; n < 8; ++n) {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          float& s = score[4 * n + 2 * h + i];
          s = power_of_two(fmaf(s, scale, kWeightLog2 - best));
          part += s;
        }
      }
      sum[h] = fmaf(sum[h], shrink[h], part);
    }
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
      store_matrices(shared.weights[side] + swizzled(at_row, 2 * j + lane / 16), pairs[0], pairs[1], pairs[2],
                     pairs[3]);
    }
    publish_to_products();
    arrive(shared.weighed[side]);
  }

  // out = out * shrink + weights . keys, under way at the return. `own`: this warpgroup weighed the tile.
  __device__ __forceinline__ void begin_output(int tile, bool own) {
    const int side = tile & 1;
    wait_phase(shared.weighed[side], uint32_t(tile / 2) & 1);
    if (!own) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        shrink[h] = shared.shrink[side][row() + 8 * h];
        sum[h] *= shrink[h];
      }
    }
    if (__any_sync(~0u, shrink[0] != 1 || shrink[1] != 1)) {
#pragma unroll
      for (int n = 0; n < 32; ++n) {
        out[4 * n] *= shrink[0], out[4 * n + 1] *= shrink[0];
        out[4 * n + 2] *= shrink[1], out[4 * n + 3] *= shrink[1];
      }
    }
    const uint64_t a = describe_tile(shared_address(shared.weights[side])),
                   b = describe_transposed_tiles(shared_address(shared.keys[side] + 4 * group * kColumnBytes));
    hold(out);
    begin_products();
#pragma unroll
    for (int k = 0; k < kKeys / 16; ++k) multiply_columns(out, a + 2 * k, b + 128 * k, true);
    commit_products();
  }
  __device__ __forceinline__ void end_output(int tile) {
    wait_products<0>();
    hold(out);
    if (lane == 0) arrive(shared.empty[tile & 1]);
  }

  // Tiles 0, 2, 4 ... are weighed by group 0, the others by group 1; each begins its scores before it waits for the
  // other's weights.
  __device__ __forceinline__ void multiply_part(const Part& part) {
    int tile = group;
    if (tile >= part.count) arrive_in_cluster();
    if (group == 0 && part.count > 0) {
      begin_scores(0);
      wait_products<0>();
      if (part.count <= 2) arrive_in_cluster();  // these were the last scores of this warpgroup
      weigh(0, part.keys(0));
      begin_output(0, true);
      end_output(0);
      tile = 2;
    }
    for (; tile < part.count; tile += 2) {
      begin_scores(tile);
      begin_output(tile - 1, false);
      wait_products<1>();
      if (tile + 2 >= part.count) arrive_in_cluster();
      weigh(tile, part.keys(tile));
      end_output(tile - 1);
      begin_output(tile, true);
      end_output(tile);
    }
    if (tile == part.count && tile > 0) {
      begin_output(tile - 1, false);
      end_output(tile - 1);
    }
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      sum[h] += __shfl_xor_sync(~0u, sum[h], 1);
      sum[h] += __shfl_xor_sync(~0u, sum[h], 2);
      if (lane % 4 == 0) shared.sum[group][row() + 8 * h] = sum[h];
    }
  }

  // The sums of channels that the other block ends, in the place of its queries.
  template <int Rank>
  __device__ __forceinline__ void give(const Part& part, int thread) {
    const uint32_t barrier = address_in_block(&shared.given, Rank ^ 1);
    if (thread < kHeads) {
      const float best = part.count > 0 ? shared.best[(part.count - 1) & 1][thread] : kNoScore;
      store_in_block(address_in_block(&shared.other_best[thread], Rank ^ 1), best, barrier);
      store_in_block(address_in_block(&shared.other_sum[thread], Rank ^ 1),
                     shared.sum[0][thread] + shared.sum[1][thread], barrier);
    }
    const uint32_t to = address_in_block(shared.queries + 16 * thread, Rank ^ 1);
#pragma unroll
    for (int j = 0; j < 16; ++j) {
      const float* from = out + 64 * (Rank ^ 1) + 4 * j;
      store_in_block(to + uint32_t(256 * 16 * j), make_float4(from[0], from[1], from[2], from[3]), barrier);
    }
  }

  template <int Rank>
  __device__ __forceinline__ void end(const Attention& op, const Part& part, int64_t r, int first_head, int thread) {
    float own[2], other[2];  // factors of the two blocks' sums
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int head = row() + 8 * h;
      const float sink = first_head + head < op.heads ? op.sink[first_head + head] * kLog2E : 0;
      const float own_best = part.count > 0 ? shared.best[(part.count - 1) & 1][head] : kNoScore;
      const float other_best = shared.other_best[head], best = fmaxf(sink, fmaxf(own_best, other_best));
      own[h] = power_of_two(own_best - best);
      other[h] = power_of_two(other_best - best);
      // Commutative: the same in both blocks.
      const float weights = __fadd_rn(__fmul_rn(shared.sum[0][head] + shared.sum[1][head], own[h]),
                                      __fmul_rn(shared.other_sum[head], other[h]));
      const float inverse = __fdividef(1, weights * kKeyScale + power_of_two(sink - best));
      own[h] *= inverse, other[h] *= inverse;
    }
    const float4* given = reinterpret_cast<const float4*>(shared.queries) + thread;
    Bf16* to = reinterpret_cast<Bf16*>(op.out) + r * op.out_stride + int64_t(first_head + row()) * kChannels +
               256 * group + 128 * Rank + 8 * (lane % 4);
    const bool odd = lane % 2 != 0, upper = lane % 4 >= 2;
#pragma unroll
    for (int m = 0; m < 4; ++m) {
      uint32_t words[2][4];  // of each row and eight channels: channels t and t + 4
#pragma unroll
      for (int n = 0; n < 4; ++n) {
        const float* mine = out + 64 * Rank + 16 * m + 4 * n;
        const float4 theirs = given[256 * (4 * m + n)];
        const __nv_bfloat162 low = __floats2bfloat162_rn(fmaf(theirs.x, other[0], mine[0] * own[0]),
                                                         fmaf(theirs.y, other[0], mine[1] * own[0])),
                             high = __floats2bfloat162_rn(fmaf(theirs.z, other[1], mine[2] * own[1]),
                                                          fmaf(theirs.w, other[1], mine[3] * own[1]));
        words[0][n] = *reinterpret_cast<const uint32_t*>(&low);
        words[1][n] = *reinterpret_cast<const uint32_t*>(&high);
      }
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        // Four lanes have a word each of four eights: they exchange them so that each has an eight.
        uint32_t(&w)[4] = words[h];
#pragma unroll
        for (int n = 0; n < 4; n += 2) {
          const uint32_t got = __shfl_xor_sync(~0u, odd ? w[n] : w[n + 1], 1);
          w[n] = odd ? got : w[n];
          w[n + 1] = odd ? w[n + 1] : got;
        }
#pragma unroll
        for (int n = 0; n < 2; ++n) {
          const uint32_t got = __shfl_xor_sync(~0u, upper ? w[n] : w[n + 2], 2);
          w[n] = upper ? got : w[n];
          w[n + 2] = upper ? w[n + 2] : got;
        }
        if (first_head + row() + 8 * h < op.heads) {
          *reinterpret_cast<uint4*>(to + 8 * h * kChannels + 32 * m) =
              make_uint4(__byte_perm(w[0], w[1], 0x5410), __byte_perm(w[2], w[3], 0x5410),
                         __byte_perm(w[0], w[1], 0x7632), __byte_perm(w[2], w[3], 0x7632));
        }
      }
    }
  }
};

__global__ void __cluster_dims__(2, 1, 1) __launch_bounds__(kThreads, 1)
    attention_warpgroup_kernel(const __grid_constant__ Attention op) {
  extern __shared__ uint8_t memory[];
  Shared& shared = *reinterpret_cast<Shared*>(memory + (-shared_address(memory) & 1023));
  const int64_t r = blockIdx.x / 2;
  const int rank = int(rank_in_cluster()), first_head = int(blockIdx.y) * kHeads;
  if (threadIdx.x == 0) {
#pragma unroll
    for (int side = 0; side < 2; ++side) {
      init_barrier(shared.full[side], 128);
      init_barrier(shared.empty[side], 8);
      init_barrier(shared.weighed[side], 128);
    }
    init_barrier(shared.given, 1);
    publish_barriers();
    expect_bytes(shared.given, kGivenBytes);
  }
  __syncthreads();
  const Part part(op, r, rank);
  if (threadIdx.x < 128) {
    give_registers<kDecoderRegisters>();
    decode_part(shared, op, part, r);
    arrive_in_cluster();
    wait_for_cluster();
  } else {
    take_registers<kProductRegisters>();
    const int thread = int(threadIdx.x) - 128;
    place_queries(shared, op, r, first_head, thread);
    Multiplier m(shared, thread / 128, op.scale * kLog2E / kKeyScale);
    m.multiply_part(part);
    meet(kMultipliers, 256);
    wait_for_cluster();  // the other block has made its last scores
    if (rank == 0) {
      m.give<0>(part, thread);
    } else {
      m.give<1>(part, thread);
    }
    wait_phase(shared.given, 0);
    if (rank == 0) {
      m.end<0>(op, part, r, first_head, thread);
    } else {
      m.end<1>(op, part, r, first_head, thread);
    }
  }
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
  const dim3 blocks(grid(2 * op.rows), unsigned((op.heads + kHeads - 1) / kHeads));
  attention_warpgroup_kernel<<<blocks, kThreads, kBytes, call.stream()>>>(op);
}

}  // namespace fathom::cuda
