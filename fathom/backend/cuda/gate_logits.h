// fathom/backend/cuda/gate_logits.h
// The gate's product: few outputs (an expert each), so K is cut over blocks.
#pragma once
#include "fathom/backend/cuda/call.h"

namespace fathom::cuda {

/// Logits in parts: expert e of row r has the sum of parts[p, r, e] over p in rising order.
struct GateLogits {
  const float* parts = nullptr;
  int64_t count = 1;
};

/// x [rows, H] . weight[experts, H]^T. bf16 on both sides: fixed segments of H, each a chain of the tensor core, added
/// in rising order, so a row's bits do not depend on the others; but in a queue that is not batch-invariant many rows
/// go the way of other products. Anything else goes that way too.
GateLogits gate_logits(Call& call, const AnyView& x, const AnyView& weight);

}  // namespace fathom::cuda
