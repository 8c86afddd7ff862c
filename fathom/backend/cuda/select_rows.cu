// Scores of cached entries. Two kernels, index_scores.cu for Q4I entries where the device has asynchronous products,
// and select_best.cu for the choice.
//   float    a block has one row and 32 entries: any format.
//   tensor   Q4I of 128 channels: a warp has 32 entries at a time, which come through shared memory by cp.async, three
//            times 32 under way. Keys are decoded in registers to bf16, exactly; the queries lie decoded in shared
//            memory, as fragments. Bytes: 68 an entry and row of a sequence (from the cache after the first row), and
//            four for its score; operations: 2 * heads * channels an entry. About 150 instructions for eight entries
//            of 32 heads: they are the floor together with the bytes.
#include <algorithm>
#include <bit>

#include "fathom/backend/cuda/index_keys.cuh"
#include "fathom/backend/cuda/select.cuh"
#include "fathom/backend/cuda/tensor_core.cuh"

namespace fathom::cuda {
namespace {

// ---------------------------------------------------------------------------------------------- scores in float
constexpr int kFloatWarps = 8, kFloatKeys = 32;

// A lane has a head: its dot is one sum over the channels.
__global__ void score_float_kernel(const __grid_constant__ Selection s) {
  extern __shared__ float memory[];
  let_kernel_behind_start();
  wait_for_kernel_ahead();
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
constexpr int kWarps = 8, kChannels = 128, kKeyBytes = 68, kRun = 8, kRuns = 4;  // entries that lie side by side
constexpr int kRunBytes = kRun * kKeyBytes, kBatchBytes = kRuns * kRunBytes, kAhead = 3;
constexpr int kSteps = kChannels / 16;

/// Eight channels of an encoded query from 8 * `eighth` on, as pairs (i, i + 4) of bf16.
__device__ inline void widen_query(const uint8_t* query, int eighth, uint32_t (&pairs)[4]) {
  uint32_t codes = 0;
#pragma unroll
  for (int i = 0; i < 4; ++i) codes |= uint32_t(query[4 * eighth + i]) << 8 * i;  // may lie anywhere
  const KeyFactors factors = key_factors(query[kChannels / 2 + eighth / 4]);
  widen_key(codes, pairs);
#pragma unroll
  for (int i = 0; i < 4; ++i) pairs[i] = times(times(pairs[i], factors.first), factors.second);
}

// A block has one row and `keys_of_block` entries from blockIdx.x * keys_of_block on. In each 32 channels, which have
// one scale, lane t of four has eight columns at a time: step 2 w + h of the products meets the channels
// 32 t + 8 w + 2 h + (0, 4, 1, 5).
template <int MTiles>
__global__ void __launch_bounds__(32 * kWarps, MTiles <= 2 ? 3 : 2)
    score_tensor_kernel(const __grid_constant__ Selection s, int keys_of_block, int page_shift) {
  extern __shared__ __align__(16) uint8_t batches[];  // [kWarps][kAhead][kBatchBytes]
  __shared__ uint4 queries[MTiles][kSteps][32];       // fragments, as the lanes want them
  __shared__ float weights[16 * MTiles];
  let_kernel_behind_start();
  wait_for_kernel_ahead();
  const int64_t r = s.first_row + blockIdx.y, first = int64_t(blockIdx.x) * keys_of_block;
  const int64_t choices = s.choices(r);
  if (first >= choices || s.takes_all(r)) return;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  const int end = int(min(first + keys_of_block, choices));
  uint8_t* const own = batches + warp * kAhead * kBatchBytes;

  const int per_page = s.keys.entries_per_block;  // 2^page_shift, or any number when that is negative
  const int32_t* const pages = s.keys.blocks.data + s.sequence[r] * s.keys.blocks.stride[0];
  int next = int(first) + warp * 32;
  const auto fetch = [&](int stage) {
    if (next < end) {
      // Eight lanes copy a run; behind the last one it is copied again.
      const int entry = int(s.entry_of(r, min(next + lane / 8 * kRun, (end - 1) / kRun * kRun)));
      const int page = page_shift >= 0 ? entry >> page_shift : entry / per_page;
      const uint8_t* from = s.keys.base + int64_t(pages[page]) * s.keys.block_stride +
                            (entry - page * per_page) * kKeyBytes + lane % 8 * 8;
      uint8_t* to = own + stage * kBatchBytes + lane / 8 * kRunBytes + lane % 8 * 8;
#pragma unroll
      for (int j = 0; j < (kRunBytes + 63) / 64; ++j) {
        if (64 * j + 64 <= kRunBytes || lane % 8 * 8 < kRunBytes - 64 * j)
          copy_async<8>(to + 64 * j, from + 64 * j, true);
      }
    }
    next += kWarps * 32;
    commit_copies();
  };
#pragma unroll
  for (int i = 0; i < kAhead - 1; ++i) fetch(i);

  for (int i = threadIdx.x; i < MTiles * 4 * 32; i += 32 * kWarps) {
    const int m = i / 128, w = i / 32 % 4, at = i % 32;
    uint32_t of_head[2][4] = {};
#pragma unroll
    for (int k = 0; k < 2; ++k) {
      const int h = 16 * m + at / 4 + 8 * k;
      if (h < s.heads) widen_query(s.queries + r * s.query_stride + h * s.entry_bytes, at % 4 * 4 + w, of_head[k]);
    }
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      queries[m][2 * w + h][at] =
          make_uint4(of_head[0][2 * h], of_head[1][2 * h], of_head[0][2 * h + 1], of_head[1][2 * h + 1]);
    }
  }
  for (int h = threadIdx.x; h < 16 * MTiles; h += 32 * kWarps) weights[h] = h < s.heads ? s.weight(r, h) : 0.0f;
  __syncthreads();

  float* const out = s.scores + blockIdx.y * s.capacity;
  int stage = 0;
#pragma unroll 1
  for (int begin = int(first) + warp * 32; begin < end; begin += kWarps * 32) {
    wait_copies<kAhead - 2>();
    __syncwarp();
    fetch(stage == 0 ? kAhead - 1 : stage - 1);
    const uint8_t* keys = own + stage * kBatchBytes + g * kKeyBytes;
    stage = stage + 1 == kAhead ? 0 : stage + 1;
    // What brings widened codes to value * 2^(code - 127) is 2^(code - 1): nearly always a bf16.
    uint32_t scale[kRuns], factor[kRuns], largest = 0;
#pragma unroll
    for (int n = 0; n < kRuns; ++n) {
      scale[n] = keys[n * kRunBytes + kChannels / 2 + t];
      factor[n] = (scale[n] + 126) * 0x00800080u;  // power_pair, in one multiplication
      largest = max(largest, scale[n]);
    }
    const bool two = __any_sync(~0u, largest > kLargestSingle);
    if (two) {
#pragma unroll
      for (int n = 0; n < kRuns; ++n) factor[n] = key_factors(scale[n]).first;
    }
    float dot[kRuns][MTiles][4] = {};
#pragma unroll
    for (int w = 0; w < 4; ++w) {
      uint32_t pairs[kRuns][4];
#pragma unroll
      for (int n = 0; n < kRuns; ++n) {
        widen_key(*reinterpret_cast<const uint32_t*>(keys + n * kRunBytes + 16 * t + 4 * w), pairs[n]);
#pragma unroll
        for (int i = 0; i < 4; ++i) pairs[n][i] = times(pairs[n][i], factor[n]);
      }
      if (two) {
#pragma unroll
        for (int n = 0; n < kRuns; ++n) {
#pragma unroll
          for (int i = 0; i < 4; ++i) pairs[n][i] = times(pairs[n][i], key_factors(scale[n]).second);
        }
      }
#pragma unroll
      for (int h = 0; h < 2; ++h) {
#pragma unroll
        for (int m = 0; m < MTiles; ++m) {
          const uint4 q = queries[m][2 * w + h][lane];
          const uint32_t a[4] = {q.x, q.y, q.z, q.w};
#pragma unroll
          for (int n = 0; n < kRuns; ++n) multiply_add(dot[n][m], a, pairs[n][2 * h], pairs[n][2 * h + 1]);
        }
      }
    }
    float score[2 * kRuns];  // of keys 2 t and 2 t + 1 of each run: this lane's heads
#pragma unroll
    for (int n = 0; n < kRuns; ++n) {
      float even = 0, odd = 0;
#pragma unroll
      for (int m = 0; m < MTiles; ++m) {
        const float low = weights[16 * m + g], high = weights[16 * m + g + 8];
        even = fmaf(low, above_zero(dot[n][m][0]), even);
        even = fmaf(high, above_zero(dot[n][m][2]), even);
        odd = fmaf(low, above_zero(dot[n][m][1]), odd);
        odd = fmaf(high, above_zero(dot[n][m][3]), odd);
      }
      score[2 * n] = even, score[2 * n + 1] = odd;
    }
    // Over the eight lanes of a key: each step gives half of the numbers away, so that one is left.
#pragma unroll
    for (int bit = 0; bit < 3; ++bit) {
      const bool upper = g >> bit & 1;
      const int left = kRuns >> bit;
#pragma unroll
      for (int i = 0; i < left; ++i) {
        const float given = upper ? score[i] : score[i + left], kept = upper ? score[i + left] : score[i];
        score[i] = kept + __shfl_xor_sync(~0u, given, 4 << bit);
      }
    }
    // Bits 0 and 1 of g chose the run, bit 2 the key of the pair.
    const int i = begin + 8 * (2 * (g & 1) + (g >> 1 & 1)) + 2 * t + (g >> 2);
    if (i < end) out[i] = score[0];
  }
  wait_copies<0>();
}

__global__ void trace_kernel(const __grid_constant__ Selection s, Rows<float> out, int64_t columns) {
  const int64_t r = s.first_row + blockIdx.x, choices = s.choices(r);
  for (int64_t e = threadIdx.x; e < columns; e += blockDim.x) out.row(r)[e] = -1e30f;
  __syncthreads();
  for (int64_t i = threadIdx.x; i < choices; i += blockDim.x) {
    out.row(r)[s.entry_of(r, i)] = s.scores[blockIdx.x * s.capacity + i];
  }
}

template <int MTiles>
void launch_tensor_scores(Call& call, const Selection& s, int64_t rows, int64_t most) {
  constexpr int kBytes = kWarps * kAhead * kBatchBytes;
  int64_t keys = 512;  // of a block: more where there are blocks enough
  while (keys < 8192 && rows * most > keys * 1056) keys *= 2;
  static const cudaError_t allowed =
      cudaFuncSetAttribute(score_tensor_kernel<MTiles>, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes);
  expect(allowed, "select_rows");
  const unsigned per_page = unsigned(s.keys.entries_per_block);
  const int page_shift = std::has_single_bit(per_page) ? std::countr_zero(per_page) : -1;
  const dim3 blocks(grid((most + keys - 1) / keys), unsigned(rows));
  launch_early(call, score_tensor_kernel<MTiles>, blocks, 32 * kWarps, kBytes, s, int(keys), page_shift);
}

// Whether the scores were counted too.
bool launch_scores(Call& call, const Selection& s, const Tallies& tallies, int64_t rows, int64_t most,
                   int64_t sequences) {
  if (call.instructions() == InstructionSet::sm_90a) {
    const Scored scored = launch_index_scores(call, s, tallies, rows, most, sequences);
    if (scored.launched) return scored.counted;
  }
  const auto by_eight = [](uint64_t v) { return v % 8 == 0; };
  const bool runs = by_eight(reinterpret_cast<uintptr_t>(s.keys.base)) && by_eight(uint64_t(s.keys.block_stride)) &&
                    s.keys.entry_bytes == kKeyBytes && s.keys.entries_per_block % kRun == 0 &&
                    (!s.restricted || s.block_size % kRun == 0);
  if (s.format == RowFormat::q4i && runs && s.heads <= 64 && s.channels == kChannels) {
    switch ((s.heads + 15) / 16) {
      case 1: launch_tensor_scores<1>(call, s, rows, most); break;
      case 2: launch_tensor_scores<2>(call, s, rows, most); break;
      default: launch_tensor_scores<4>(call, s, rows, most); break;
    }
    return false;
  }
  const int padded = (s.heads + 31) / 32 * 32;
  const int bytes = int(sizeof(float)) * (s.channels * padded + padded + kFloatWarps * s.channels);
  check(bytes <= 200 * 1024, "the index queries of a row fit a block");
  expect(cudaFuncSetAttribute(score_float_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, 200 * 1024),
         "select_rows");
  const dim3 blocks(grid((most + kFloatKeys - 1) / kFloatKeys), unsigned(rows));
  launch_early(call, score_float_kernel, blocks, 32 * kFloatWarps, bytes, s);
  return false;
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
  s.begin = row_set.begin.data;
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
  s.capacity = score_capacity(most);
  const int64_t piece = rows_together(rows, most);
  call.reserve(workspace_bytes(
      SelectShape{.rows = rows, .entries = most, .source_block = op.candidate_source ? op.block_size : 0}));
  s.scores = call.workspace<float>(piece * s.capacity);
  const bool looks = most > op.top_k || s.traced || (s.source && all > int64_t(op.top_blocks) * op.block_size);
  const Tallies tallies = looks && s.capacity > kMostDirect ? tallies_of(call, s, piece) : Tallies{};
  for (s.first_row = 0; s.first_row < rows; s.first_row += piece) {
    const int64_t here = std::min(piece, rows - s.first_row);
    const bool counted = looks && most > 0 && launch_scores(call, s, tallies, here, most, op.rows.begin.shape[0] - 1);
    choose_best(call, s, tallies, here, looks, counted, entries, count.data, blocks, block_count.data);
    if (s.traced) {
      trace_kernel<<<grid(here), 256, 0, call.stream()>>>(s, rows_of(scores), op.scores.shape[1]);
    }
  }
}

}  // namespace fathom::cuda
