// fathom/backend/cuda/workspace_moves.h
// Recordings hold addresses of a queue's workspace (call.h), so they end when it moves.
#pragma once
#include <cstdint>

namespace fathom::cuda {

/// How often any queue's workspace has grown or moved.
int64_t workspace_moves();

}  // namespace fathom::cuda
