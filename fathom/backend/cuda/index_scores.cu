// The kernel of index_scores.cuh for the device, and its launch.
#include <bit>
#include <limits>

#include "fathom/backend/cuda/multiply_group.cuh"
#include "fathom/backend/cuda/select.cuh"
#include "fathom/backend/cuda/warpgroup.cuh"

namespace fathom::cuda {
namespace {
/// What the launch gives a block.
extern __shared__ __align__(1024) uint8_t index_memory[];

/// Both are in registers here.
__device__ __forceinline__ void hold_pair(float& a, float& b) { asm("" : "+f"(a), "+f"(b)); }

/// How often that was done before; what the warp has read before is read before others write there.
__device__ inline unsigned count_reader(unsigned& times) {
  unsigned before;
  asm volatile("atom.acq_rel.cta.shared::cta.add.u32 %0, [%1], 1;"
               : "=r"(before)
               : "r"(shared_address(&times))
               : "memory");
  return before;
}
}  // namespace
}  // namespace fathom::cuda

// The names that it needs come before it.
#include "fathom/backend/cuda/index_scores.cuh"

namespace fathom::cuda {
namespace {

template <int Rows>
void launch(Call& call, const Selection& s, const Tallies& tallies, Launch l, int64_t most) {
  constexpr int kBlocksAtOnce = int(kProcessors) * kBlocks<Rows>, kMostShared = 227 * 1024;
  static const cudaError_t allowed =
      cudaFuncSetAttribute(index_scores_kernel<Rows>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                           std::min(kMostShared, kSharedBytes<Rows> + 4 * Rows * kBins));
  expect(allowed, "select_rows");
  const int kinds = tallies.bins == nullptr ? 0
                    : s.source              ? 2
                                            : 1,
            bytes = kSharedBytes<Rows> + 2 * kinds * Rows * kBins;
  check(bytes <= kMostShared, "the queries of a group of rows and their counts fit a block");
  // All blocks at once, or many entries a block; of one row, which take less time, some times as many.
  l.keys_of_block = std::max(kTile * kGroups<Rows>, Rows == 1 ? 2 * kLeastKeys : kLeastKeys);
  const int64_t blocks_wanted = Rows == 1 ? 4 * kBlocksAtOnce : kBlocksAtOnce;
  while (l.keys_of_block < kMostKeys && (l.rows + Rows - 1) / Rows * most > l.keys_of_block * blocks_wanted) {
    l.keys_of_block *= 2;
  }
  // Groups at most: each sequence may have one that is not full.
  const dim3 blocks(grid((most + l.keys_of_block - 1) / l.keys_of_block),
                    unsigned(std::min<int64_t>(l.rows, l.rows / Rows + l.sequences)));
  launch_early(call, index_scores_kernel<Rows>, blocks, kThreads<Rows>, bytes, s, tallies, l);
}

}  // namespace

Scored launch_index_scores(Call& call, const Selection& s, const Tallies& given, int64_t rows, int64_t most,
                           int64_t sequences) {
  const auto by_sixteen = [](uint64_t v) { return v % 16 == 0; };
  const int per_page = s.keys.entries_per_block;
  // A row that has candidates of its own reads them in pieces.
  if (s.restricted || s.format != RowFormat::q4i || s.channels != kChannels || s.heads > kHeads ||
      s.capacity > std::numeric_limits<int>::max() / 8 || s.entry_bytes != kKeyBytes ||
      s.keys.entry_bytes != kKeyBytes || per_page < kLeastRun || !std::has_single_bit(unsigned(per_page)) ||
      s.keys.block_stride > std::numeric_limits<int>::max() || !by_sixteen(reinterpret_cast<uintptr_t>(s.keys.base)) ||
      !by_sixteen(uint64_t(s.keys.block_stride)) || reinterpret_cast<uintptr_t>(s.queries) % 4 != 0 ||
      s.query_stride % 4 != 0) {
    return {};
  }
  Launch l{};
  l.rows = rows;
  l.sequences = int(sequences);
  l.page_shift = std::countr_zero(unsigned(per_page));
  l.run_shift = std::min(l.page_shift, std::countr_zero(unsigned(kTile)));
  l.page_bytes = int(s.keys.block_stride);
  Tallies tallies = given;
  if (s.source && s.block_size != kSpan) tallies.bins = nullptr;
  // Eight rows together cost least, but few blocks leave most of the device idle; and their counts must fit.
  const int64_t shared_by = rows / std::max<int64_t>(1, sequences);
  const auto enough = [&](int64_t together) { return rows / together * most / kLeastKeys >= kFewestBlocks; };
  if (shared_by >= 5 && enough(8) && !(s.source && tallies.bins != nullptr)) {
    launch<8>(call, s, tallies, l, most);
  } else if (shared_by >= 3 && enough(4)) {
    launch<4>(call, s, tallies, l, most);
  } else if (shared_by >= 2 && enough(2)) {
    launch<2>(call, s, tallies, l, most);
  } else {
    launch<1>(call, s, tallies, l, most);
  }
  return {true, tallies.bins != nullptr};
}

}  // namespace fathom::cuda
