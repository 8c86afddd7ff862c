// Scores of cached entries, and the choice of the best. Three kernels:
//   score     a block has one row and 256 (float: 32) entries; scores go to a workspace. Q4I with widths of a warp's
//             fragments runs on the tensor cores: keys go from their pages into registers, 16 (8) bytes a lane, and are
//             decoded there to bf16, exactly; the queries lie decoded in shared memory. Bytes: 68 an entry and row of
//             a sequence (from the cache after the first row); operations: 2 * heads * channels an entry.
//   worth     the best score of each block of entries (candidate source only).
//   choose    one block a row: the K-th largest key by radix, 11 + 11 + 10 bits, then one pass that writes in rising
//             order; ties go to the lower entry. Reads a row's scores four times.
#include <algorithm>

#include "fathom/backend/cuda/block_scan.cuh"
#include "fathom/backend/cuda/device.cuh"
#include "fathom/backend/cuda/kernels.h"
#include "fathom/backend/cuda/launch.h"
#include "fathom/backend/cuda/tensor_core.cuh"

namespace fathom::cuda {
namespace {

// What the kernels know of the operation. Pointers are the device's.
struct Selection {
  const int64_t* positions;
  const int32_t* sequence;
  const uint8_t* queries;
  int64_t query_stride;
  const uint8_t* head_weights;
  bool bf16_weights;
  int64_t weight_stride;
  float weight_scale;
  int heads, channels, entry_bytes;
  RowFormat format;
  PagedRegion keys;
  int ratio, top_k;
  int block_size, top_blocks;
  bool source, restricted, traced;
  const int32_t* blocks;  // [rows, top_blocks] of a restricted choice
  int64_t block_stride;
  const int32_t* block_count;
  float* scores;  // workspace [rows here, capacity]
  int64_t capacity, first_row;

  __device__ int64_t visible(int64_t r) const { return (positions[r] + 1) / ratio; }
  // How many entries row r chooses from; number i of them is entry_of(r, i), in rising order.
  __device__ int64_t choices(int64_t r) const {
    const int64_t all = visible(r);
    if (!restricted) return all;
    const int64_t count = block_count[r];
    if (count == 0) return 0;
    const int64_t last = int64_t(blocks[r * block_stride + count - 1]) * block_size;
    return (count - 1) * block_size + max(int64_t(0), min(int64_t(block_size), all - last));
  }
  __device__ int64_t entry_of(int64_t r, int64_t i) const {
    if (!restricted) return i;
    return int64_t(blocks[r * block_stride + i / block_size]) * block_size + i % block_size;
  }
  // Who takes everything need not look at it.
  __device__ bool takes_all(int64_t r) const {
    const bool all_blocks = !source || visible(r) <= int64_t(top_blocks) * block_size;
    return choices(r) <= top_k && all_blocks && !traced;
  }
  __device__ const uint8_t* key(int64_t r, int64_t entry) const {
    const int64_t block = keys.blocks.data[sequence[r] * keys.blocks.stride[0] + entry / keys.entries_per_block];
    return keys.base + block * keys.block_stride + entry % keys.entries_per_block * keys.entry_bytes;
  }
  __device__ float weight(int64_t r, int h) const {
    const float w = bf16_weights ? __bfloat162float(reinterpret_cast<const Bf16*>(head_weights)[r * weight_stride + h])
                                 : reinterpret_cast<const float*>(head_weights)[r * weight_stride + h];
    return w * weight_scale;
  }
};

// ---------------------------------------------------------------------------------------------- scores in float
constexpr int kFloatWarps = 8, kFloatKeys = 32;

// A lane has a head: its dot is one sum over the channels.
__global__ void score_float_kernel(const __grid_constant__ Selection s) {
  extern __shared__ float memory[];
  const int64_t r = s.first_row + blockIdx.y, first = int64_t(blockIdx.x) * kFloatKeys;
  const int64_t choices = s.choices(r);
  if (first >= choices || s.takes_all(r)) return;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, padded = (s.heads + 31) / 32 * 32;
  float* queries = memory;                            // [channels][padded]
  float* weights = queries + s.channels * padded;     // [padded]
  float* key = weights + padded + warp * s.channels;  // [channels]
  for (int i = threadIdx.x; i < padded * s.channels; i += blockDim.x) {
    const int h = i / s.channels, c = i % s.channels;
    queries[c * padded + h] =
        h < s.heads ? decode(s.format, s.queries + r * s.query_stride + h * s.entry_bytes, s.channels, c) : 0.0f;
  }
  for (int h = threadIdx.x; h < padded; h += blockDim.x) weights[h] = h < s.heads ? s.weight(r, h) : 0.0f;
  __syncthreads();
  for (int64_t i = first + warp; i < min(first + kFloatKeys, choices); i += kFloatWarps) {
    const uint8_t* bytes = s.key(r, s.entry_of(r, i));
    for (int c = lane; c < s.channels; c += 32) key[c] = decode(s.format, bytes, s.channels, c);
    __syncwarp();
    float score = 0;
    for (int h = lane; h < padded; h += 32) {
      float dot = 0;
      for (int c = 0; c < s.channels; ++c) dot = fmaf(queries[c * padded + h], key[c], dot);
      // A NaN stays NaN: fmaxf would hide it.
      score += weights[h] * (dot < 0 ? 0.0f : dot);
    }
    score = warp_sum(score);
    if (lane == 0) s.scores[blockIdx.y * s.capacity + i] = score;
    __syncwarp();
  }
}

// ---------------------------------------------------------------------------------------------- scores of Q4I
constexpr int kWarps = 4, kKeysOfBlock = 256;

template <int Channels, int MTiles>
__global__ void __launch_bounds__(32 * kWarps) score_tensor_kernel(const __grid_constant__ Selection s) {
  constexpr int kSteps = Channels / 16, kWords = Channels / 32;  // k-steps; 32-bit words of codes a lane
  __shared__ uint4 queries[MTiles][kSteps][32];                  // fragments, as the lanes want them
  __shared__ float weights[16 * MTiles];
  const int64_t r = s.first_row + blockIdx.y, first = int64_t(blockIdx.x) * kKeysOfBlock;
  const int64_t choices = s.choices(r);
  if (first >= choices || s.takes_all(r)) return;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  for (int i = threadIdx.x; i < MTiles * kSteps * 32; i += 32 * kWarps) {
    const int m = i / (kSteps * 32), step = i / 32 % kSteps, at = i % 32;
    const int head = 16 * m + at / 4, channel = Channels / 4 * (at % 4) + 4 * step;
    uint32_t words[4];
#pragma unroll
    for (int w = 0; w < 4; ++w) {
      const int h = head + 8 * (w % 2), c = channel + 2 * (w / 2);
      float a = 0, b = 0;
      if (h < s.heads) {
        const uint8_t* row = s.queries + r * s.query_stride + h * s.entry_bytes;
        a = decode(RowFormat::q4i, row, Channels, c);
        b = decode(RowFormat::q4i, row, Channels, c + 1);
      }
      const __nv_bfloat162 pair = __floats2bfloat162_rn(a, b);
      words[w] = *reinterpret_cast<const uint32_t*>(&pair);
    }
    queries[m][step][at] = make_uint4(words[0], words[1], words[2], words[3]);
  }
  for (int h = threadIdx.x; h < 16 * MTiles; h += 32 * kWarps) weights[h] = h < s.heads ? s.weight(r, h) : 0.0f;
  __syncthreads();

  constexpr int kTiles = 2;  // of eight keys, side by side
  for (int64_t begin = first + warp * 8 * kTiles; begin < min(first + kKeysOfBlock, choices);
       begin += kWarps * 8 * kTiles) {
    uint32_t codes[kTiles][kWords], scale[kTiles];
#pragma unroll
    for (int n = 0; n < kTiles; ++n) {
      const int64_t i = min(begin + 8 * n + g, choices - 1);
      const uint8_t* key = s.key(r, s.entry_of(r, i));
#pragma unroll
      for (int w = 0; w < kWords; ++w) codes[n][w] = reinterpret_cast<const uint32_t*>(key)[t * kWords + w];
      scale[n] = key[Channels / 2 + t * (Channels / 4) / 32];
    }
    uint32_t pairs[kTiles][4 * kWords];
#pragma unroll
    for (int n = 0; n < kTiles; ++n) {
      const Factors factors = factors_of(scale[n], 126);
#pragma unroll
      for (int w = 0; w < kWords; ++w) {
        uint32_t four[4];
        spread_e2m1(codes[n][w], four);
#pragma unroll
        for (int k = 0; k < 4; ++k) pairs[n][4 * w + k] = times(four[k], factors.first);
      }
      if (__any_sync(~0u, factors.two)) {
#pragma unroll
        for (int k = 0; k < 4 * kWords; ++k) pairs[n][k] = times(pairs[n][k], factors.second);
      }
    }
    float dot[kTiles][MTiles][4] = {};
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
#pragma unroll
      for (int m = 0; m < MTiles; ++m) {
        const uint4 q = queries[m][step][lane];
        const uint32_t a[4] = {q.x, q.y, q.z, q.w};
#pragma unroll
        for (int n = 0; n < kTiles; ++n) multiply_add(dot[n][m], a, pairs[n][2 * step], pairs[n][2 * step + 1]);
      }
    }
#pragma unroll
    for (int n = 0; n < kTiles; ++n) {
      float even = 0, odd = 0;  // keys 2 t and 2 t + 1
#pragma unroll
      for (int m = 0; m < MTiles; ++m) {
        even += weights[16 * m + g] * fmaxf(dot[n][m][0], 0.0f);
        even += weights[16 * m + g + 8] * fmaxf(dot[n][m][2], 0.0f);
        odd += weights[16 * m + g] * fmaxf(dot[n][m][1], 0.0f);
        odd += weights[16 * m + g + 8] * fmaxf(dot[n][m][3], 0.0f);
      }
#pragma unroll
      for (int step = 4; step < 32; step *= 2) {
        even += __shfl_xor_sync(~0u, even, step);
        odd += __shfl_xor_sync(~0u, odd, step);
      }
      const int64_t i = begin + 8 * n + 2 * t;
      float* out = s.scores + blockIdx.y * s.capacity;
      if (g == 0 && i < choices) out[i] = even;
      if (g == 0 && i + 1 < choices) out[i + 1] = odd;
    }
  }
}

// ---------------------------------------------------------------------------------------------- blocks
__global__ void worth_kernel(const __grid_constant__ Selection s, float* worth, int64_t worth_capacity) {
  const int64_t r = s.first_row + blockIdx.y, visible = s.visible(r);
  const int64_t b = int64_t(blockIdx.x) * blockDim.x + threadIdx.x, count = (visible + s.block_size - 1) / s.block_size;
  if (b >= count || s.takes_all(r)) return;
  float best = b + 1 == count ? INFINITY : -INFINITY;  // the newest block stays
  for (int64_t e = b * s.block_size; e < min((b + 1) * s.block_size, visible); ++e) {
    best = fmaxf(best, s.scores[blockIdx.y * s.capacity + e]);
  }
  worth[blockIdx.y * worth_capacity + b] = best;
}

// ---------------------------------------------------------------------------------------------- the best
constexpr int kChooseThreads = 1024, kChooseWarps = kChooseThreads / 32, kBins = 2048, kItems = 8;
constexpr int kBatch = 8;  // loads of a thread under way

// Larger numbers have larger keys; 0: never chosen (-inf and NaN).
__device__ uint32_t key_of(float v) {
  if (!(v > -INFINITY)) return 0;
  const uint32_t bits = __float_as_uint(v + 0.0f);
  return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}

// The key at which `wanted` of the n values are reached from above, and how many of the values with that key are taken.
// Fewer values than wanted: key 1 and none, which takes all that may be chosen.
__device__ void find_threshold(const float* values, int64_t n, int wanted, uint32_t& key, int& ties) {
  __shared__ int bins[kBins];
  __shared__ int lanes[kChooseWarps];
  __shared__ int found_bin, found_left;
  uint32_t prefix = 0;
  int left = wanted;
  constexpr int kShift[3] = {21, 10, 0}, kBits[3] = {11, 11, 10};
#pragma unroll
  for (int level = 0; level < 3; ++level) {
    __syncthreads();
    for (int b = threadIdx.x; b < kBins; b += kChooseThreads) bins[b] = 0;
    if (threadIdx.x == 0) found_bin = -1;
    __syncthreads();
    for (int64_t first = threadIdx.x; first < n; first += kBatch * kChooseThreads) {
      uint32_t keys[kBatch];
#pragma unroll
      for (int b = 0; b < kBatch; ++b) {
        const int64_t i = first + b * kChooseThreads;
        keys[b] = i < n ? key_of(values[i]) : 0;
      }
#pragma unroll
      for (int b = 0; b < kBatch; ++b) {
        const uint32_t k = keys[b];
        if (k == 0 || (level > 0 && k >> (kShift[level] + kBits[level]) != prefix)) continue;
        atomicAdd(&bins[k >> kShift[level] & ((1u << kBits[level]) - 1)], 1);
      }
    }
    __syncthreads();
    // Thread 0 has the highest bins.
    constexpr int kOwn = kBins / kChooseThreads;
    const int high = kBins - 1 - int(threadIdx.x) * kOwn;
    int own = 0, total = 0;
    for (int b = 0; b < kOwn; ++b) own += bins[high - b];
    int above = before_in_block(own, lanes, total);
    if (above < left && left <= above + own) {
      for (int b = 0; b < kOwn; ++b) {
        if (left <= above + bins[high - b]) {
          found_bin = high - b;
          found_left = left - above;
          break;
        }
        above += bins[high - b];
      }
    }
    __syncthreads();
    if (found_bin < 0) {  // the first level only: there are fewer
      key = 1;
      ties = 0;
      return;
    }
    prefix = prefix << kBits[level] | uint32_t(found_bin);
    left = found_left;
  }
  key = prefix;
  ties = left;
}

// Entries, or blocks when `of_blocks`: then `values` is their worth.
__global__ void __launch_bounds__(kChooseThreads)
    choose_kernel(const __grid_constant__ Selection s, bool of_blocks, const float* values, int64_t value_capacity,
                  Rows<int32_t> out, int32_t* count) {
  __shared__ int lanes[kChooseWarps];
  const int64_t r = s.first_row + blockIdx.x;
  const int64_t n = of_blocks ? (s.visible(r) + s.block_size - 1) / s.block_size : s.choices(r);
  const int wanted = of_blocks ? s.top_blocks : s.top_k;
  int32_t* to = out.row(r);
  const auto name = [&](int64_t i) { return int32_t(of_blocks ? i : s.entry_of(r, i)); };
  const float* own = values + blockIdx.x * value_capacity;
  int taken = 0;
  if (s.takes_all(r)) {
    taken = int(min(n, int64_t(wanted)));
    for (int i = threadIdx.x; i < taken; i += kChooseThreads) to[i] = name(i);
  } else {
    uint32_t threshold = 1;
    int ties = 0, ties_seen = 0;
    find_threshold(own, n, wanted, threshold, ties);
    // Key 1 is no number's: everything above it is taken.
    for (int64_t first = 0; first < n && taken < wanted; first += kChooseThreads * kItems) {
      uint32_t keys[kItems];
      int equal = 0, total = 0;
#pragma unroll
      for (int k = 0; k < kItems; ++k) {
        const int64_t i = first + threadIdx.x * kItems + k;
        keys[k] = i < n ? key_of(own[i]) : 0;
        equal += keys[k] == threshold;
      }
      int tie = ties_seen + before_in_block(equal, lanes, total);
      ties_seen += total;
      int chosen = 0;
#pragma unroll
      for (int k = 0; k < kItems; ++k) {
        const bool take = keys[k] > threshold || (keys[k] == threshold && tie++ < ties);
        if (!take) keys[k] = 0;
        chosen += take;
      }
      int at = taken + before_in_block(chosen, lanes, total);
      taken += total;
#pragma unroll
      for (int k = 0; k < kItems; ++k) {
        if (keys[k] != 0) to[at++] = name(first + threadIdx.x * kItems + k);
      }
    }
  }
  for (int i = taken + int(threadIdx.x); i < wanted; i += kChooseThreads) to[i] = -1;
  if (threadIdx.x == 0) count[r] = taken;
}

__global__ void trace_kernel(const __grid_constant__ Selection s, Rows<float> out, int64_t columns) {
  const int64_t r = s.first_row + blockIdx.x, choices = s.choices(r);
  for (int64_t e = threadIdx.x; e < columns; e += blockDim.x) out.row(r)[e] = -1e30f;
  __syncthreads();
  for (int64_t i = threadIdx.x; i < choices; i += blockDim.x) {
    out.row(r)[s.entry_of(r, i)] = s.scores[blockIdx.x * s.capacity + i];
  }
}

template <int Channels>
void launch_tensor_scores(Call& call, const Selection& s, dim3 blocks) {
  switch ((s.heads + 15) / 16) {
    case 1: score_tensor_kernel<Channels, 1><<<blocks, 32 * kWarps, 0, call.stream()>>>(s); return;
    case 2: score_tensor_kernel<Channels, 2><<<blocks, 32 * kWarps, 0, call.stream()>>>(s); return;
    case 3: score_tensor_kernel<Channels, 3><<<blocks, 32 * kWarps, 0, call.stream()>>>(s); return;
    default: score_tensor_kernel<Channels, 4><<<blocks, 32 * kWarps, 0, call.stream()>>>(s);
  }
}

void launch_scores(Call& call, const Selection& s, int64_t rows, int64_t most) {
  const bool words =
      (reinterpret_cast<uintptr_t>(s.keys.base) | uintptr_t(s.keys.block_stride) | uintptr_t(s.keys.entry_bytes)) % 4 ==
      0;
  if (s.format == RowFormat::q4i && words && s.heads <= 64 && (s.channels == 64 || s.channels == 128)) {
    const dim3 blocks(grid((most + kKeysOfBlock - 1) / kKeysOfBlock), unsigned(rows));
    return s.channels == 64 ? launch_tensor_scores<64>(call, s, blocks) : launch_tensor_scores<128>(call, s, blocks);
  }
  const int padded = (s.heads + 31) / 32 * 32;
  const int bytes = int(sizeof(float)) * (s.channels * padded + padded + kFloatWarps * s.channels);
  check(bytes <= 200 * 1024, "the index queries of a row fit a block");
  expect(cudaFuncSetAttribute(score_float_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, 200 * 1024),
         "select_rows");
  const dim3 blocks(grid((most + kFloatKeys - 1) / kFloatKeys), unsigned(rows));
  score_float_kernel<<<blocks, 32 * kFloatWarps, bytes, call.stream()>>>(s);
}

}  // namespace

void select_rows(Queue& queue, const SelectRows& op) {
  const int64_t rows = op.rows.rows();
  if (rows == 0) return;
  Call call(queue, "select_rows");
  const RowSet row_set = call.in(op.rows);
  const auto queries = call.in(op.queries);
  const AnyView weights = call.in(op.head_weights);
  const auto entries = call.out(op.entries);
  const auto count = call.out(op.count);
  const bool two_levels = op.block_size > 0;
  const auto blocks = two_levels ? call.out(op.blocks) : View<int32_t, 2>();
  const auto block_count = two_levels ? call.out(op.block_count) : View<int32_t, 1>();
  const auto scores = call.out(op.scores);
  Selection s{};
  s.positions = row_set.positions.data;
  s.sequence = row_set.sequence.data;
  s.queries = queries.data;
  s.query_stride = queries.stride[0];
  s.head_weights = weights.data;
  s.bf16_weights = weights.dtype == DType::bf16;
  s.weight_stride = weights.row_stride;
  s.weight_scale = op.weight_scale;
  s.heads = op.heads;
  s.channels = op.channels;
  s.entry_bytes = int(row_bytes(op.format, op.channels));
  s.format = op.format;
  s.keys = call.region(op.keys, false);
  s.ratio = op.ratio;
  s.top_k = op.top_k;
  s.block_size = op.block_size;
  s.top_blocks = op.top_blocks;
  s.source = op.candidate_source;
  s.restricted = two_levels && !op.candidate_source;
  s.traced = !op.scores.empty();
  s.blocks = blocks.data;
  s.block_stride = blocks.stride[0];
  s.block_count = block_count.data;

  // The tables bound what a row may see; positions may lie where the processor cannot read them.
  const int64_t all = op.keys.blocks.shape[1] * op.keys.entries_per_block;
  const int64_t most = s.restricted ? std::min(all, int64_t(op.top_blocks) * op.block_size) : all;
  const int64_t most_blocks = s.source ? (all + op.block_size - 1) / op.block_size : 0;
  s.capacity = most;
  // Scores of some rows at a time: 256 MiB.
  const int64_t together = std::clamp<int64_t>((int64_t(1) << 26) / std::max<int64_t>(1, most), 1, 32768);
  const int64_t piece = std::min(rows, together);
  s.scores = call.workspace<float>(piece * most);
  float* worth = call.workspace<float>(piece * most_blocks);
  const bool looks = most > op.top_k || s.traced || (s.source && all > int64_t(op.top_blocks) * op.block_size);
  for (s.first_row = 0; s.first_row < rows; s.first_row += piece) {
    const int64_t here = std::min(piece, rows - s.first_row);
    if (looks && most > 0) launch_scores(call, s, here, most);
    if (s.source) {
      if (looks && most_blocks > 0) {
        worth_kernel<<<dim3(grid((most_blocks + 127) / 128), unsigned(here)), 128, 0, call.stream()>>>(s, worth,
                                                                                                       most_blocks);
      }
      choose_kernel<<<grid(here), kChooseThreads, 0, call.stream()>>>(s, true, worth, most_blocks, rows_of(blocks),
                                                                      block_count.data);
    }
    choose_kernel<<<grid(here), kChooseThreads, 0, call.stream()>>>(s, false, s.scores, s.capacity, rows_of(entries),
                                                                    count.data);
    if (s.traced) {
      trace_kernel<<<grid(here), 256, 0, call.stream()>>>(s, rows_of(scores), op.scores.shape[1]);
    }
  }
}

}  // namespace fathom::cuda
