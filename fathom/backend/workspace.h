// fathom/backend/workspace.h
// Memory that operations of a device take beside their operands, before one of them runs: pure functions of sizes, for
// whoever plans what fits. Operations of a queue follow each other, so a queue of the cuda backend keeps one piece, of
// the most that a single one took, and kLeastWorkspace from the first on. While it grows the piece before may be there
// too, where an operation has begun to use it.
#pragma once
#include <cstdint>

#include "fathom/backend/ops.h"

namespace fathom {

inline constexpr int64_t kLeastWorkspace = int64_t(16) << 20;  // bytes

/// What a weight is stored in, as far as kernels choose by it: FP8 or FP4 codes with scales, or bf16.
enum class WeightKind : uint8_t { codes, bf16 };

/// A product of Q8 or bf16 rows.
struct ProductShape {
  int64_t rows = 0;         // of x
  int64_t assignments = 0;  // of a grouped one: rows of the result; 0: it has one weight
  int64_t experts = 0;      // of a grouped one
  int64_t n = 0;            // rows of a weight
  int64_t columns = 0;      // of x
  int64_t groups = 1;       // of one weight
  WeightKind weights = WeightKind::codes;
};
/// The logits of a gate.
struct GateShape {
  int64_t rows = 0, experts = 0;
  int64_t columns = 0;  // of x
  bool tensor = true;   // x and weight are bf16
};
/// Scores of entries and the choice among them.
struct SelectShape {
  int64_t rows = 0;
  int64_t entries = 0;       // that a row chooses from at most
  int64_t source_block = 0;  // entries of a block of a candidate source; 0: it is none
};
/// The mixes of residual streams.
struct MixShape {
  int64_t rows = 0, streams = 0;
  int64_t columns = 0;  // of all streams
};
/// Draws from rows of logits.
struct SampleShape {
  int64_t rows = 0, vocabulary = 0;
  bool laws = false, lists = false;  // are kept
};

/// From kManyRows rows on a product or a gate takes no more than the same one with kPaddedRows more; of a grouped
/// product so many assignments more for each expert. Fewer have kernels of their own.
inline constexpr int64_t kManyRows = 4096, kPaddedRows = 32;

/// Bytes on the cuda backend. Batch-invariant queues have other kernels (backend.h).
int64_t device_workspace_bytes(const ProductShape& product, bool batch_invariant);
int64_t device_workspace_bytes(const GateShape& gate, bool batch_invariant);
int64_t device_workspace_bytes(const SelectShape& select);
int64_t device_workspace_bytes(const MixShape& mixes);
int64_t device_workspace_bytes(const SampleShape& sample);

/// The same of an operation whose operands all lie where the device reaches them, on addresses that allocations have.
/// Sizes are read, not what the arrays hold.
int64_t device_workspace_bytes(const Linear& op, bool batch_invariant);
int64_t device_workspace_bytes(const GroupedLinear& op, bool batch_invariant);
int64_t device_workspace_bytes(const Gate& op, bool batch_invariant);
int64_t device_workspace_bytes(const SelectRows& op, bool batch_invariant);
int64_t device_workspace_bytes(const StreamMixes& op, bool batch_invariant);
int64_t device_workspace_bytes(const Sample& op, bool batch_invariant);
/// All others take none.
template <class Op>
int64_t device_workspace_bytes(const Op&, bool) {
  return 0;
}

}  // namespace fathom
