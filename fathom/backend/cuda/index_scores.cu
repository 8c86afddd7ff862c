// Scores of Q4I entries of 128 channels for rows of a sequence, which read the same entries: asynchronous products
// (wgmma) of 64 entries, decoded into registers, and the queries of up to eight rows with up to 32 heads each. Exact
// operands and the order of every sum are those of the kernel that takes a row by itself (select_rows.cu): a row's
// score has the same bits whatever rows are beside it.
//
// A block has two warpgroups; each takes every second tile of 64 entries, which come by the copy engine in runs that
// lie side by side, kStages tiles under way. Queries lie decoded in shared memory for all of the block's entries.
//
// Bytes: 68 an entry for each group of rows (from the cache after the first), four for each score. Eight rows take
// 1,024 cycles of a multiprocessor's tensor cores for 64 entries; beside them a warp has about 250 instructions that
// decode its 16 entries and 60 for each row.
#include <bit>

#include "fathom/backend/cuda/index_keys.cuh"
#include "fathom/backend/cuda/select.cuh"
#include "fathom/backend/cuda/warpgroup.cuh"

namespace fathom::cuda {
namespace {

constexpr int kHeads = 32, kChannels = 128, kKeyBytes = 68, kCodeBytes = 64;
constexpr int kTile = 64, kTileBytes = kTile * kKeyBytes, kStages = 4;
constexpr int kGroups = 2, kThreads = 128 * kGroups;
constexpr int kLeastRun = 8;                     // entries that lie side by side
constexpr int kLeastKeys = 2 * kGroups * kTile;  // of a block
constexpr int kFewestBlocks = 32;
constexpr int kRowBytes = 128;

template <int Rows>
struct Shared {
  uint8_t queries[2][Rows * kHeads * kRowBytes];  // of 64 columns each, swizzled
  uint8_t stages[kGroups][kStages][kTileBytes];
  float weights[Rows][kHeads];
  int limits[Rows];  // entries that a row chooses from
  uint64_t full[kGroups][kStages];
};
template <int Rows>
constexpr int kSharedBytes = int(sizeof(Shared<Rows>)) + 1024;

struct Launch {
  int64_t rows;  // of this piece
  int sequences;
  int keys_of_block;  // a multiple of kTile
  int run_shift;      // entries of a copy, as a power of two
  int page_shift;     // entries of a page so, negative: no power of two
};

// Rows that one block takes: `count` from the piece's row `first` on. None: there are fewer groups.
struct Group {
  int first, count;
};
// Group blockIdx.y of the piece's rows, Rows of one sequence or what is left of it. A whole warp.
template <int Rows>
__device__ Group group_of(const Selection& s, const Launch& l) {
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
  for (int i = threadIdx.x; i < Rows * kHeads * 16; i += kThreads) {
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

template <int Rows>
__global__ void __launch_bounds__(kThreads, 1)
    index_scores_kernel(const __grid_constant__ Selection s, const __grid_constant__ Launch l) {
  extern __shared__ uint8_t raw[];
  const Group group = group_of<Rows>(s, l);
  if (group.count == 0) return;
  const int64_t last = s.first_row + group.first + group.count - 1;  // sees the most
  const int first = int(blockIdx.x) * l.keys_of_block, limit = int(s.choices(last));
  if (first >= limit || s.takes_all(last)) return;
  auto& shared = *reinterpret_cast<Shared<Rows>*>(raw + (1024 - shared_address(raw) % 1024) % 1024);
  const int wg = threadIdx.x / 128, warp = threadIdx.x / 32 % 4, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  const int end = min(first + l.keys_of_block, limit), tiles = (end - first + kTile - 1) / kTile;

  if (threadIdx.x == 0) {
    for (auto& stages : shared.full) {
      for (uint64_t& barrier : stages) init_barrier(barrier, 1);
    }
    publish_barriers();
  }
  for (int row = threadIdx.x; row < Rows; row += kThreads) {
    shared.limits[row] = row < group.count ? int(min(int64_t(end), s.choices(s.first_row + group.first + row))) : 0;
  }
  write_queries<Rows>(s, group, shared);
  publish_to_products();
  __syncthreads();

  // Each lane copies one run; behind the last one that is copied again.
  const int run = 1 << l.run_shift, per_page = s.keys.entries_per_block;
  const int32_t* const pages = s.keys.blocks.data + s.sequence[last] * s.keys.blocks.stride[0];
  const auto fetch = [&](int number) {
    const int tile = number * kGroups + wg, stage = number % kStages;
    if (warp != 0 || tile >= tiles) return;
    if (lane == 0) expect_bytes(shared.full[wg][stage], kTileBytes);
    __syncwarp();
    if (lane >= kTile >> l.run_shift) return;
    const int entry = int(s.entry_of(last, min(first + tile * kTile + lane * run, (end - 1) / run * run)));
    const int page = l.page_shift >= 0 ? entry >> l.page_shift : entry / per_page;
    const uint8_t* from =
        s.keys.base + int64_t(pages[page]) * s.keys.block_stride + (entry - page * per_page) * kKeyBytes;
    copy_bulk(shared_address(shared.stages[wg][stage] + lane * run * kKeyBytes), from, run * kKeyBytes,
              shared.full[wg][stage]);
  };
  for (int number = 0; number < kStages; ++number) fetch(number);

  const uint64_t right[2] = {describe_tile(shared_address(shared.queries[0])),
                             describe_tile(shared_address(shared.queries[1]))};
#pragma unroll 1
  for (int number = 0; number * kGroups + wg < tiles; ++number) {
    const int stage = number % kStages;
    wait_phase(shared.full[wg][stage], uint32_t(number / kStages % 2));
    uint32_t codes[2][4], scale[2];  // of entries g and g + 8
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const uint8_t* key = shared.stages[wg][stage] + (16 * warp + g + 8 * half) * kKeyBytes;
#pragma unroll
      for (int w = 0; w < 4; ++w) codes[half][w] = *reinterpret_cast<const uint32_t*>(key + 16 * t + 4 * w);
      scale[half] = key[kCodeBytes + t];
    }
    meet(1 + wg, 128);
    fetch(number + kStages);

    uint32_t left[8][4];
    const bool two = __any_sync(~0u, max(scale[0], scale[1]) > kLargestSingle);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const KeyFactors factors = key_factors(scale[half]);
#pragma unroll
      for (int w = 0; w < 4; ++w) {
        uint32_t pairs[4];
        widen_key(codes[half][w], pairs);
#pragma unroll
        for (int k = 0; k < 4; ++k) {
          uint32_t& to = left[2 * w + k / 2][half + k % 2 * 2];
          to = times(pairs[k], factors.first);
          if (two) to = times(to, factors.second);
        }
      }
    }
    float dots[Rows * kHeads / 2];
    begin_products();
#pragma unroll
    for (int step = 0; step < 8; ++step) {
      multiply_group<Rows * kHeads>(dots, left[step], right[step / 4] + uint64_t(step % 4 * 2), step > 0);
    }
    commit_products();
    wait_products<0>();
    hold(dots);

    float score[2 * Rows];  // of entries g and g + 8 by each row: this lane's heads
#pragma unroll
    for (int row = 0; row < Rows; ++row) {
      float low[2] = {}, high[2] = {};  // by heads of even and of odd numbers
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const float2 weight = *reinterpret_cast<const float2*>(&shared.weights[row][8 * j + 2 * t]);
        const float* dot = dots + 4 * (4 * row + j);
        low[0] = fmaf(weight.x, above_zero(dot[0]), low[0]);
        low[1] = fmaf(weight.y, above_zero(dot[1]), low[1]);
        high[0] = fmaf(weight.x, above_zero(dot[2]), high[0]);
        high[1] = fmaf(weight.y, above_zero(dot[3]), high[1]);
      }
      score[2 * row] = low[0] + low[1], score[2 * row + 1] = high[0] + high[1];
    }
    // Over the four lanes of an entry: each step gives half of the numbers away.
    int at = 0;
#pragma unroll
    for (int bit = 0; bit < 2; ++bit) {
      const bool upper = t >> bit & 1;
      const int half = Rows >> bit;
#pragma unroll
      for (int i = 0; i < half; ++i) {
        float first_half = score[i], second_half = score[i + half];
        asm("" : "+f"(first_half), "+f"(second_half));  // chosen by values, not by addresses in local memory
        score[i] =
            (upper ? second_half : first_half) + __shfl_xor_sync(~0u, upper ? first_half : second_half, 1 << bit);
      }
      if (upper) at += half;
    }
    const int key = first + (number * kGroups + wg) * kTile + 16 * warp + g;
#pragma unroll
    for (int i = 0; i < Rows / 2; ++i) {
      const int row = (at + i) / 2, high = (at + i) % 2, entry = key + 8 * high;
      if (entry < shared.limits[row]) {
        s.scores[(group.first + row) * s.capacity + entry] = score[i];
      }
    }
  }
}

template <int Rows>
void launch(Call& call, const Selection& s, Launch l, int64_t most) {
  constexpr int kBytes = kSharedBytes<Rows>, kBlocks = int(kProcessors);
  static const cudaError_t allowed =
      cudaFuncSetAttribute(index_scores_kernel<Rows>, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes);
  expect(allowed, "select_rows");
  // All blocks at once, or many entries a block.
  l.keys_of_block = kLeastKeys;
  while (l.keys_of_block < 8192 && (l.rows + Rows - 1) / Rows * most > int64_t(l.keys_of_block) * kBlocks) {
    l.keys_of_block *= 2;
  }
  // Groups at most: each sequence may have one that is not full.
  const dim3 blocks(grid((most + l.keys_of_block - 1) / l.keys_of_block),
                    unsigned(std::min<int64_t>(l.rows, l.rows / Rows + l.sequences)));
  index_scores_kernel<Rows><<<blocks, kThreads, kBytes, call.stream()>>>(s, l);
}

}  // namespace

bool launch_index_scores(Call& call, const Selection& s, int64_t rows, int64_t most, int64_t sequences) {
  const auto by_sixteen = [](uint64_t v) { return v % 16 == 0; };
  const int per_page = s.keys.entries_per_block;
  // Where a row has candidates of its own, it shares nothing.
  const int64_t shared_by = s.restricted ? 1 : rows / std::max<int64_t>(1, sequences);
  if (shared_by < 2 || s.format != RowFormat::q4i || s.channels != kChannels || s.heads > kHeads ||
      s.entry_bytes != kKeyBytes || s.keys.entry_bytes != kKeyBytes || per_page % kLeastRun != 0 ||
      !by_sixteen(reinterpret_cast<uintptr_t>(s.keys.base)) || !by_sixteen(uint64_t(s.keys.block_stride)) ||
      reinterpret_cast<uintptr_t>(s.queries) % 4 != 0 || s.query_stride % 4 != 0) {
    return false;
  }
  Launch l{};
  l.rows = rows;
  l.sequences = int(sequences);
  l.page_shift = std::has_single_bit(unsigned(per_page)) ? std::countr_zero(unsigned(per_page)) : -1;
  l.run_shift = std::min(std::countr_zero(unsigned(per_page)), std::countr_zero(unsigned(kTile)));
  // Eight rows together cost least, but few blocks leave most of the device idle.
  const auto enough = [&](int64_t together) { return rows / together * most / kLeastKeys >= kFewestBlocks; };
  if (shared_by >= 5 && enough(8)) {
    launch<8>(call, s, l, most);
  } else if (shared_by >= 3 && enough(4)) {
    launch<4>(call, s, l, most);
  } else if (enough(2)) {
    launch<2>(call, s, l, most);
  } else {
    return false;
  }
  return true;
}

}  // namespace fathom::cuda
