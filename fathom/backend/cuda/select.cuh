// fathom/backend/cuda/select.cuh
// What the kernels of select_rows share: the operation as they see it (selection.cuh), the order of scores as integers
// (select_bins.cuh), and the choice of the best (select_best.cu) from scores that another kernel has written
// (select_rows.cu, index_scores.cu).
#pragma once
#include "fathom/backend/cuda/device.cuh"
#include "fathom/backend/cuda/kernels.h"
#include "fathom/backend/cuda/launch.h"
#include "fathom/backend/cuda/selection.cuh"
#include "fathom/backend/cuda/workspace_sizes.h"

namespace fathom::cuda {

/// For up to `rows` rows at a time.
Tallies tallies_of(Call& call, const Selection& s, int64_t rows);

/// Scores of `rows` rows from s.first_row on, of `sequences` sequences, over `most` entries at most, by the kernels
/// with asynchronous products; what is known of them goes to `tallies`. Neither: it does not fit, and nothing was
/// launched. index_scores.cu
struct Scored {
  bool launched = false, counted = false;
};
Scored launch_index_scores(Call& call, const Selection& s, const Tallies& tallies, int64_t rows, int64_t most,
                           int64_t sequences);

/// The best entries (and blocks, of a candidate source) of `rows` rows from s.first_row on. `looks`: whether some row
/// may have to look at its scores; `counted`: whether the kernel that made them has counted them.
void choose_best(Call& call, const Selection& s, const Tallies& tallies, int64_t rows, bool looks, bool counted,
                 const View<int32_t, 2>& entries, int32_t* count, const View<int32_t, 2>& blocks, int32_t* block_count);

}  // namespace fathom::cuda
