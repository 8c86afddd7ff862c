// Rows of x as the products with many rows want them (product_many.cuh, product_pairs.cuh): bf16, gathered, tile by
// tile, each tile of 64 columns as it shall lie in shared memory, so that one bulk copy brings it. Q8 rows are widened:
// exact, a code has four significant bits and its scale is a power of two. Columns lie in the order in which a lane
// decodes the weight's codes (codes_of), for bf16 weights as they are.
//
// Bytes: the rows read once for each time that they are gathered, 2 * K written for each row of a tile.
#include "fathom/backend/cuda/launch.h"
#include "fathom/backend/cuda/product_few_parts.cuh"
#include "fathom/backend/cuda/product_tensor.cuh"
#include "fathom/backend/cuda/warpgroup.cuh"

namespace fathom::cuda {
namespace {

constexpr int kRows = 8, kThreads = 256;  // of a block; a thread has 16 bytes of a tile, eight columns of a row

__device__ inline uint32_t pair_of(float low, float high) {
  const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
  return *reinterpret_cast<const uint32_t*>(&pair);
}

// Codes of 32 columns as words 0 to 7; `piece` of four: where its pairs lie. A lane of four finds in two neighbours the
// columns whose codes it decodes together: of FP4 columns 8 lane + piece and + 4, of FP8 16 (piece / 2) + 4 lane +
// piece % 2 and + 2. Returns each in the upper byte of a half.
template <bool ForFp4>
__device__ inline uint32_t codes_of(const uint32_t (&words)[8], int piece, int lane) {
  if constexpr (ForFp4) {
    return __byte_perm(words[2 * lane], words[2 * lane + 1], uint32_t(piece << 4 | (4 + piece) << 12));
  } else {
    const uint32_t word = piece < 2 ? words[lane] : words[4 + lane];
    return __byte_perm(word, 0, uint32_t(piece % 2 << 4 | (2 + piece % 2) << 12));
  }
}

// The same columns of a bf16 row, whose 32 begin at `from`.
template <bool ForFp4>
__device__ inline uint4 columns_of(const uint8_t* from, int piece) {
  const auto* words = reinterpret_cast<const uint32_t*>(from);  // two columns each
  const uint32_t half = piece % 2 != 0 ? 0x7632u : 0x5410u;
  uint32_t pairs[4];
#pragma unroll
  for (int lane = 0; lane < 4; ++lane) {
    const int first = ForFp4 ? 4 * lane + piece / 2 : 8 * (piece / 2) + 2 * lane;
    pairs[lane] = __byte_perm(__ldg(words + first), __ldg(words + first + (ForFp4 ? 2 : 1)), half);
  }
  return make_uint4(pairs[0], pairs[1], pairs[2], pairs[3]);
}

// Where a row is in the arranged x: row tiles of an expert's rows behind each other, those of all experts too.
struct Arranged {
  uint8_t* to;         // its first 64 columns
  int64_t block_rows;  // of the tile of each 64 columns
};
// Row `row` of step number `step`, which begins at place.first.
__device__ inline Arranged arranged(uint8_t* out, const Place& place, int most_rows, int64_t step, int row,
                                    int blocks) {
  const int count = int(place.end - place.begin), of_tile = tile_rows(count, most_rows);
  const int own = int(place.first - place.begin), row_tile = own / of_tile;
  const int64_t first = step * kRowStep - own + row_tile * of_tile;
  return {out + first * blocks * 128 + (own - row_tile * of_tile + row) * 128,
          min(of_tile, padded_rows(count - row_tile * of_tile))};
}

// blockIdx: step of kRowStep rows, piece of kRows rows of it, piece of the columns.
template <DType Weight>
__global__ void __launch_bounds__(kThreads)
    arrange_kernel(const __grid_constant__ Product p, int most_rows, int64_t columns, bool aligned, uint8_t* out) {
  let_kernel_behind_start();
  wait_for_kernel_ahead();
  Place place;
  if (p.begin != nullptr) {
    if (!find_expert<kRowStep>(p, blockIdx.x, place)) return;
  } else {
    place.begin = 0;
    place.first = int64_t(blockIdx.x) * kRowStep;
    place.end = p.rows;
  }
  const int piece = threadIdx.x % 8, row = int(blockIdx.y) * kRows + threadIdx.x / 8 % kRows;
  const int64_t a = place.first + row;
  if (a >= place.end) return;  // the step's other rows are not looked at
  const int64_t r = p.x_row != nullptr ? p.x_row[a] : a;
  const int blocks = int(columns / 64);
  const Arranged own = arranged(out, place, most_rows, blockIdx.x, row, blocks);
  uint8_t* to = own.to + ((piece ^ (row & 7)) << 4);  // as swizzled(); tiles begin at multiples of eight rows
  constexpr int kBlocks = kThreads / (8 * kRows);
  for (int b = int(blockIdx.z) * kBlocks + threadIdx.x / (8 * kRows); b < blocks; b += gridDim.z * kBlocks) {
    uint4 made;
    if constexpr (Weight == DType::bf16) {
      made = __ldg(reinterpret_cast<const uint4*>(p.x + (r * p.x_stride + 64 * b + 8 * piece) * 2));
    } else if (p.x_type == DType::bf16) {
      made = columns_of<Weight == DType::f4_e2m1>(p.x + (r * p.x_stride + 64 * b + piece / 4 * 32) * 2, piece % 4);
    } else {
      const uint8_t* from = p.x + r * p.x_stride + 64 * b + piece / 4 * 32;
      uint32_t words[8];
      if (aligned) {
        const uint4 low = __ldg(reinterpret_cast<const uint4*>(from)),
                    high = __ldg(reinterpret_cast<const uint4*>(from) + 1);
        words[0] = low.x, words[1] = low.y, words[2] = low.z, words[3] = low.w;
        words[4] = high.x, words[5] = high.y, words[6] = high.z, words[7] = high.w;
      } else {
#pragma unroll
        for (int i = 0; i < 8; ++i) {
          words[i] = 0;
          for (int k = 0; k < 4; ++k) words[i] |= uint32_t(from[4 * i + k]) << (8 * k);
        }
      }
      const uint32_t scale = p.x_scales[r * p.x_scale_stride + 2 * b + piece / 4];
      const Factors factors = factors_of(scale, 120);
      uint32_t pairs[4], nan = 0;
#pragma unroll
      for (int lane = 0; lane < 4; ++lane) {
        const uint32_t codes = codes_of<Weight == DType::f4_e2m1>(words, piece % 4, lane);
        const uint32_t magnitude = (codes >> 4) & 0x07f007f0u;
        nan |= (magnitude + 0x00100010u) & 0x08000800u;  // 0x7f
        pairs[lane] = times(times((codes & 0x80008000u) | magnitude, factors.first), factors.second);
      }
      if (nan != 0 || scale == 255) {
        const float power = e8m0(uint8_t(scale));
#pragma unroll
        for (int lane = 0; lane < 4; ++lane) {
          const uint32_t codes = codes_of<Weight == DType::f4_e2m1>(words, piece % 4, lane);
          pairs[lane] = pair_of(e4m3(uint8_t(codes >> 8)) * power, e4m3(uint8_t(codes >> 24)) * power);
        }
      }
      made = make_uint4(pairs[0], pairs[1], pairs[2], pairs[3]);
    }
    *reinterpret_cast<uint4*>(to + int64_t(b) * (own.block_rows * 128)) = made;
  }
}

template <DType Weight>
void arrange(const Call& call, const Product& p, int most_rows, uint8_t* out) {
  const bool aligned = (reinterpret_cast<uintptr_t>(p.x) | uintptr_t(p.x_stride)) % 16 == 0;
  const int64_t steps = most_row_tiles(p, kRowStep), rows = steps * (kRowStep / kRows);
  // With few rows their columns are spread too, over a few blocks for each multiprocessor.
  const int64_t pieces = std::clamp<int64_t>(8 * kProcessors / rows, 1, 16);
  launch_early(call, arrange_kernel<Weight>, dim3(grid(steps), kRowStep / kRows, unsigned(pieces)), kThreads, 0, p,
               most_rows, p.k * p.groups, aligned, out);
}

}  // namespace

void arrange_tiles(const Call& call, const Product& p, int most_rows, uint8_t* out) {
  switch (p.weight_type) {
    case DType::bf16: return arrange<DType::bf16>(call, p, most_rows, out);
    case DType::f8_e4m3: return arrange<DType::f8_e4m3>(call, p, most_rows, out);
    default: return arrange<DType::f4_e2m1>(call, p, most_rows, out);
  }
}

}  // namespace fathom::cuda
