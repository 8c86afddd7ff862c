// fathom/backend/cuda/stream_mixes.h
// The product of the stream mixes on the tensor cores. Arguments lie where kernels reach them.
#pragma once
#include "fathom/backend/cuda/call.h"
#include "fathom/backend/cuda/workspace_sizes.h"

namespace fathom::cuda {

inline constexpr int64_t kMostMixOutputs = 24;

/// Whether that kernel can run it: bf16 rows on addresses of 16 bytes, columns in steps of 64, at most 24 outputs.
/// Pure.
bool fits_mix_tensor(const AnyView& streams, const AnyView& fn);

/// partial[s, r, o] = streams[r] . fn[o] over the columns of segment s; partial[s, r, outputs]: its sum of squares.
/// A row's bits do not depend on the others.
void launch_mix_tensor(const Call& call, const AnyView& streams, const AnyView& fn, float* partial);

}  // namespace fathom::cuda
