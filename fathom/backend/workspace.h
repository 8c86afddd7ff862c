// fathom/backend/workspace.h
// Memory that operations of a device take beside their operands, before one of them runs: pure functions of sizes, for
// whoever plans what fits. The cuda backend keeps one piece of the most that a single operation took.
#pragma once
#include <cstdint>

namespace fathom {

/// A product of Q8 rows with FP8 or FP4 weights.
struct ProductShape {
  int64_t rows = 0;         // of x
  int64_t assignments = 0;  // of a grouped one: rows of the result; 0: it has one weight
  int64_t experts = 0;      // of a grouped one
  int64_t n = 0;            // rows of a weight
  int64_t columns = 0;      // of x
  int64_t groups = 1;       // of one weight
};
/// On the cuda backend. Batch-invariant queues have other kernels (backend.h).
int64_t device_workspace_bytes(const ProductShape& product, bool batch_invariant);

}  // namespace fathom
