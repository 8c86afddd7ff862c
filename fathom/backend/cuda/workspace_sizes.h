// fathom/backend/cuda/workspace_sizes.h
// What kernels that are not products take of a queue's workspace (call.h), and what decides it. Pure functions of
// sizes: the operations take just as much, and whoever plans memory asks before one of them runs (backend/workspace.h).
#pragma once
#include <cstdint>

#include "fathom/backend/workspace.h"

namespace fathom::cuda {

/// Bytes of an array in the workspace, which begins on a multiple of 256.
constexpr int64_t workspace_array(int64_t bytes) { return (bytes > 0 ? bytes + 255 : 256) / 256 * 256; }

/// How the gate's product is taken (gate_logits.cu).
struct GatePlan {
  bool own = false;    // by the gate's own kernel; false: as any other product
  bool split = false;  // that leaves parts of K, each with logits of its own; false: it adds them
  int64_t parts = 1;
};
inline constexpr int64_t kGateSegment = 320;  // columns that are summed from zero
/// `tensor`: the types are bf16 and tensor cores can read the operands as they lie.
GatePlan gate_plan(int64_t rows, int64_t columns, bool tensor, bool batch_invariant);
/// Parts of the logits, and those of another product its own workspace too.
int64_t workspace_bytes(const GateShape& gate, bool batch_invariant);

/// Columns of the streams that a block sums, on tensor cores; elsewhere kMixSegment (tiles.h), which is more.
inline constexpr int64_t kMixTensorSegment = 1024;
int64_t workspace_bytes(const MixShape& mix);

/// A choice among scores. Up to kMostDirect of them one block holds a row's; more have tallies.
inline constexpr int kMostDirect = 16384;
inline constexpr int64_t kTallyBins = 4096, kTallyCandidates = 8192;  // of a row: 4 and 8 bytes each
inline constexpr int64_t kTallyFound = 16;                            // bytes of a row
inline constexpr int64_t kMostTallyCounters = 1 << 16;  // so many bins in all are the queue's counters (call.h)
int64_t score_capacity(int64_t entries);
/// Rows whose scores are there together: 256 MiB of scores, and 160 KB a row for tallies.
int64_t rows_together(int64_t rows, int64_t entries);
/// Blocks' worth of a row of a candidate source, in steps of four.
int64_t worth_capacity(const SelectShape& select);
int64_t workspace_bytes(const SelectShape& select);

inline constexpr int64_t kRunTableBytes = 208 << 10;    // of a row (sample_team.cuh)
inline constexpr int64_t kRowsSampledAtOnce = 256;      // that have tables together
inline constexpr int64_t kMostClusterTokens = 262'144;  // of a vocabulary that a cluster of blocks holds
int64_t workspace_bytes(const SampleShape& sample);

}  // namespace fathom::cuda
