// fathom/backend/cuda/workspace_moves.h
// Recordings hold addresses of memory of this backend: of a queue's workspace (call.h), of tables of experts
// (expert_table.h). They end when one of these moves.
#pragma once
#include <cstdint>

namespace fathom::cuda {

/// How often any of it has grown or moved.
int64_t workspace_moves();
/// It has moved.
void end_recordings();

}  // namespace fathom::cuda
