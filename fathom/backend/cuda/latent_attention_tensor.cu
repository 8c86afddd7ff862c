// Latent attention on the tensor cores: 512 channels, keys Q8 or Q4K as the caches keep them, bf16 queries. A block has
// one row and up to 64 heads, eight warps. Keys come 64 at a time: their bytes by cp.async while the tile before is
// computed, then decoded to bf16 in shared memory, exactly (a Q4K value has six significant bits). The tile is key and
// value: scores = queries . keys^T, then output += weights . keys, with the same 66 KB.
//
//   scores   two groups of warps have 32 heads each, four have 16 keys each; fragments through ldmatrix
//   softmax  runs along: a new best scales what is there; the weights are rounded to bf16, their sum is not
//   output   a warp has 64 channels for all heads: 128 float registers a lane
//
// A row's keys follow each other as listed, window first, in tiles that do not depend on other rows.
// Bytes of a row: 128 * 528 + 512 * 288 = 215 KB. Operations: 2 * 2 * 64 * 640 * 512 = 84 million: 390 a byte, so the
// floor is that of bf16 arithmetic.
#include "fathom/backend/cuda/attention.cuh"
#include "fathom/backend/cuda/tensor_core.cuh"

namespace fathom::cuda {
namespace {

constexpr int kChannels = 512, kKeys = 64, kThreads = 256;
constexpr int kStride = kChannels + 8;  // of a row in shared memory, elements: ldmatrix without bank conflicts
constexpr int kWeightStride = kKeys + 8;
constexpr int kRawStride = 528;  // bytes of the longest entry

template <int MTiles>
struct Shared {
  Bf16 queries[16 * MTiles][kStride];
  Bf16 keys[kKeys][kStride];
  uint8_t raw[kKeys][kRawStride];
  Bf16 weights[16 * MTiles][kWeightStride];
  float best[2][16 * MTiles];  // before and after a tile
  float shrink[16 * MTiles];
  float part_best[4][16 * MTiles];  // of each group of 16 keys
  float part_sum[4][16 * MTiles];
  float total[16 * MTiles];
};

// Where a thread's key of a tile lies: four threads have the same. Looked up a tile ahead, because the way there leads
// through two tables.
struct Source {
  const uint8_t* from = nullptr;
  int bytes = 0;  // 0: no such key
};
__device__ Source locate(const Attention& op, int64_t r, int64_t sequence, int64_t window, int64_t count,
                         int64_t first) {
  const int64_t i = first + threadIdx.x / 4;
  if (i >= count) return {};
  const bool in_window = i < window;
  const RowFormat format = in_window ? op.window_format : op.entry_format;
  return {in_window ? op.window_entry(r, sequence, i) : op.latent_entry(r, sequence, i - window),
          format == RowFormat::q8 ? 528 : 288};
}

// The bytes of one tile's keys; zeros where there is none.
template <int MTiles>
__device__ void fetch(Shared<MTiles>& shared, const Attention& op, const Source& source, bool wide) {
  const int part = threadIdx.x % 4;
  uint8_t* to = shared.raw[threadIdx.x / 4];
  const bool valid = source.bytes > 0;
  const uint8_t* from = valid ? source.from : op.queries;
  const int bytes = valid ? source.bytes : kRawStride;
  const int64_t step = valid ? 1 : 0;
  if (wide) {
    for (int at = 16 * part; at < bytes; at += 64) copy_async<16>(to + at, from + step * at, valid);
  } else {
    for (int at = 8 * part; at < bytes; at += 32) copy_async<8>(to + at, from + step * at, valid);
  }
  commit_copies();
}

// Codes to bf16, sixteen channels at a time.
template <int MTiles>
__device__ void decode_tile(Shared<MTiles>& shared, const Attention& op, int64_t window, int64_t first) {
  for (int unit = threadIdx.x; unit < kKeys * kChannels / 16; unit += kThreads) {
    const int key = unit / (kChannels / 16), u = unit % (kChannels / 16);
    const RowFormat format = first + key < window ? op.window_format : op.entry_format;
    const uint8_t* raw = shared.raw[key];
    uint32_t pairs[8];
    if (format == RowFormat::q8) {
      const uint4 codes = *reinterpret_cast<const uint4*>(raw + 16 * u);
      spread_e4m3(codes.x, pairs[0], pairs[1]);
      spread_e4m3(codes.y, pairs[2], pairs[3]);
      spread_e4m3(codes.z, pairs[4], pairs[5]);
      spread_e4m3(codes.w, pairs[6], pairs[7]);
      const Factors factors = factors_of(raw[kChannels + u / 2], 120);
#pragma unroll
      for (int i = 0; i < 8; ++i) pairs[i] = times(pairs[i], factors.first);
      if (factors.two) {
#pragma unroll
        for (int i = 0; i < 8; ++i) pairs[i] = times(pairs[i], factors.second);
      }
    } else {
      const uint2 codes = *reinterpret_cast<const uint2*>(raw + 8 * u);
      uint32_t four[4];
      spread_e2m1(codes.x, four);
#pragma unroll
      for (int i = 0; i < 4; ++i) pairs[i] = four[i];
      spread_e2m1(codes.y, four);
#pragma unroll
      for (int i = 0; i < 4; ++i) pairs[4 + i] = four[i];
      const uint32_t scale = __float_as_uint(e4m3(raw[kChannels / 2 + u])) >> 16;  // four bits: exact in bf16
      // In two steps: 2^126 times a scale may be too large for a bf16.
#pragma unroll
      for (int i = 0; i < 8; ++i) pairs[i] = times(times(pairs[i], power_pair(253)), scale | scale << 16);
    }
    uint4* to = reinterpret_cast<uint4*>(&shared.keys[key][16 * u]);
    to[0] = make_uint4(pairs[0], pairs[1], pairs[2], pairs[3]);
    to[1] = make_uint4(pairs[4], pairs[5], pairs[6], pairs[7]);
  }
}

template <int MTiles>
__global__ void __launch_bounds__(kThreads, 1)
    attention_tensor_kernel(const __grid_constant__ Attention op, bool wide) {
  constexpr int kHeads = 16 * MTiles;
  constexpr int kGroups = MTiles == 4 ? 2 : 1, kOwn = MTiles / kGroups;  // groups of warps over heads; tiles of a warp
  extern __shared__ __align__(16) uint8_t memory[];
  Shared<MTiles>& shared = *reinterpret_cast<Shared<MTiles>*>(memory);
  const int64_t r = blockIdx.x;
  const int first_head = int(blockIdx.y) * kHeads;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  const int64_t sequence = op.sequence[r];
  const int64_t window = op.window_of(r), count = window + op.entries_of(r);
  constexpr float kLog2E = 1.4426950408889634f;
  const float scale = op.scale * kLog2E;

  fetch(shared, op, locate(op, r, sequence, window, count, 0), wide);
  Source ahead = locate(op, r, sequence, window, count, kKeys);
  const Bf16* queries = reinterpret_cast<const Bf16*>(op.queries) + r * op.query_stride;
  for (int i = threadIdx.x; i < kHeads * kChannels / 8; i += kThreads) {
    const int h = i / (kChannels / 8), c = i % (kChannels / 8) * 8;
    uint4 eight = make_uint4(0, 0, 0, 0);
    if (first_head + h < op.heads) {
      eight = *reinterpret_cast<const uint4*>(queries + int64_t(first_head + h) * kChannels + c);
    }
    *reinterpret_cast<uint4*>(&shared.queries[h][c]) = eight;
  }
  float total = 1;  // of head threadIdx.x: the sink's share
  if (threadIdx.x < kHeads) {
    const int h = first_head + int(threadIdx.x);
    shared.best[0][threadIdx.x] = h < op.heads ? op.sink[h] * kLog2E : 0.0f;
  }

  float out[MTiles][8][4] = {};
  int side = 0;
  for (int64_t first = 0; first < count; first += kKeys, side ^= 1) {
    wait_copies<0>();
    __syncthreads();  // raw is complete; the last tile's keys and weights have been read
    decode_tile(shared, op, window, first);
    __syncthreads();
    if (first + kKeys < count) fetch(shared, op, ahead, wide);
    ahead = locate(op, r, sequence, window, count, first + 2 * kKeys);

    // Scores.
    float score[kOwn][2][4] = {};
    const int key_group = warp / kGroups, head_tile = warp % kGroups * kOwn;
    const bool scores = key_group < 4;
    if (scores) {
#pragma unroll 4
      for (int k = 0; k < kChannels; k += 16) {
        uint32_t keys[4];
        load_matrices(keys, &shared.keys[16 * key_group + lane / 16 * 8 + lane % 8][k + lane / 8 % 2 * 8]);
#pragma unroll
        for (int m = 0; m < kOwn; ++m) {
          uint32_t a[4];
          load_matrices(a, &shared.queries[16 * (head_tile + m) + lane % 16][k + lane / 16 * 8]);
          multiply_add(score[m][0], a, keys[0], keys[1]);
          multiply_add(score[m][1], a, keys[2], keys[3]);
        }
      }
#pragma unroll
      for (int m = 0; m < kOwn; ++m) {
#pragma unroll
        for (int h = 0; h < 2; ++h) {
          float best = -INFINITY;
#pragma unroll
          for (int n = 0; n < 2; ++n) {
#pragma unroll
            for (int i = 0; i < 2; ++i) {
              float& s = score[m][n][2 * h + i];
              s = first + 16 * key_group + 8 * n + 2 * t + i < count ? s * scale : -INFINITY;
              best = fmaxf(best, s);
            }
          }
          best = fmaxf(best, __shfl_xor_sync(~0u, best, 1));
          best = fmaxf(best, __shfl_xor_sync(~0u, best, 2));
          if (t == 0) shared.part_best[key_group][16 * (head_tile + m) + 8 * h + g] = best;
        }
      }
    }
    __syncthreads();
    const auto new_best = [&](int h) {
      float best = shared.best[side][h];
#pragma unroll
      for (int part = 0; part < 4; ++part) best = fmaxf(best, shared.part_best[part][h]);
      return best;
    };
    if (scores) {
#pragma unroll
      for (int m = 0; m < kOwn; ++m) {
#pragma unroll
        for (int h = 0; h < 2; ++h) {
          const int head = 16 * (head_tile + m) + 8 * h + g;
          const float best = new_best(head);
          float sum = 0;
#pragma unroll
          for (int n = 0; n < 2; ++n) {
            const float a = exp2f(score[m][n][2 * h] - best), b = exp2f(score[m][n][2 * h + 1] - best);
            sum += a + b;
            *reinterpret_cast<__nv_bfloat162*>(&shared.weights[head][16 * key_group + 8 * n + 2 * t]) =
                __floats2bfloat162_rn(a, b);
          }
          sum += __shfl_xor_sync(~0u, sum, 1);
          sum += __shfl_xor_sync(~0u, sum, 2);
          if (t == 0) shared.part_sum[key_group][head] = sum;
        }
      }
    }
    if (threadIdx.x < kHeads) {
      const float best = new_best(int(threadIdx.x));
      shared.shrink[threadIdx.x] = exp2f(shared.best[side][threadIdx.x] - best);
      shared.best[side ^ 1][threadIdx.x] = best;
    }
    __syncthreads();
    if (threadIdx.x < kHeads) {
      total *= shared.shrink[threadIdx.x];
#pragma unroll
      for (int part = 0; part < 4; ++part) total += shared.part_sum[part][threadIdx.x];
    }

    // Output.
#pragma unroll
    for (int m = 0; m < MTiles; ++m) {
      const float low = shared.shrink[16 * m + g], high = shared.shrink[16 * m + 8 + g];
#pragma unroll
      for (int n = 0; n < 8; ++n) {
        out[m][n][0] *= low, out[m][n][1] *= low, out[m][n][2] *= high, out[m][n][3] *= high;
      }
    }
#pragma unroll
    for (int k = 0; k < kKeys; k += 16) {
      uint32_t a[MTiles][4];
#pragma unroll
      for (int m = 0; m < MTiles; ++m) {
        load_matrices(a[m], &shared.weights[16 * m + lane % 16][k + lane / 16 * 8]);
      }
#pragma unroll
      for (int n = 0; n < 8; n += 2) {
        uint32_t v[4];
        load_matrices_transposed(v, &shared.keys[k + lane % 16][64 * warp + 8 * n + lane / 16 * 8]);
#pragma unroll
        for (int m = 0; m < MTiles; ++m) {
          multiply_add(out[m][n], a[m], v[0], v[1]);
          multiply_add(out[m][n + 1], a[m], v[2], v[3]);
        }
      }
    }
  }
  wait_copies<0>();
  if (threadIdx.x < kHeads) shared.total[threadIdx.x] = total;
  __syncthreads();
#pragma unroll
  for (int m = 0; m < MTiles; ++m) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int head = 16 * m + 8 * h + g;
      if (first_head + head >= op.heads) continue;
      const float inverse = 1 / shared.total[head];
      Bf16* to =
          reinterpret_cast<Bf16*>(op.out) + r * op.out_stride + int64_t(first_head + head) * kChannels + 64 * warp;
#pragma unroll
      for (int n = 0; n < 8; ++n) {
        *reinterpret_cast<__nv_bfloat162*>(to + 8 * n + 2 * t) =
            __floats2bfloat162_rn(out[m][n][2 * h] * inverse, out[m][n][2 * h + 1] * inverse);
      }
    }
  }
}

template <int MTiles>
void launch(Call& call, const Attention& op) {
  constexpr int kBytes = int(sizeof(Shared<MTiles>));
  expect(cudaFuncSetAttribute(attention_tensor_kernel<MTiles>, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes),
         "latent_attention");
  const dim3 blocks(grid(op.rows), unsigned((op.heads + 16 * MTiles - 1) / (16 * MTiles)));
  attention_tensor_kernel<MTiles><<<blocks, kThreads, kBytes, call.stream()>>>(op, alignment(op) == 16);
}

}  // namespace

int64_t alignment(const Attention& op) {
  uintptr_t together = reinterpret_cast<uintptr_t>(op.fresh) | uintptr_t(op.fresh_stride) |
                       reinterpret_cast<uintptr_t>(op.ring.base) | uintptr_t(op.ring.slot_stride) |
                       uintptr_t(op.ring.entry_bytes) | 16;
  if (op.entries != nullptr) {
    together |= reinterpret_cast<uintptr_t>(op.latents.base) | uintptr_t(op.latents.block_stride) |
                uintptr_t(op.latents.entry_bytes);
  }
  return int64_t(together & (~together + 1));
}

bool fits_attention_tensor_cores(const Attention& op) {
  const auto kept = [](RowFormat format) { return format == RowFormat::q8 || format == RowFormat::q4k; };
  return op.channels == kChannels && kept(op.window_format) && (op.entries == nullptr || kept(op.entry_format)) &&
         alignment(op) >= 8 && reinterpret_cast<uintptr_t>(op.queries) % 16 == 0 && op.query_stride % 8 == 0 &&
         reinterpret_cast<uintptr_t>(op.out) % 4 == 0 && op.out_stride % 2 == 0;
}

void launch_attention_tensor(Call& call, const Attention& op) {
  return op.heads <= 16 ? launch<1>(call, op) : launch<4>(call, op);
}

}  // namespace fathom::cuda
