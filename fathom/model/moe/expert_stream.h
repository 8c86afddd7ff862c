// fathom/model/moe/expert_stream.h
// Routed experts that do not all fit in memory: each expert's three matrices are one piece of a PieceStream over the
// checkpoint's files (18,800,640 bytes for Flash).
#pragma once
#include <memory>
#include <vector>

#include "fathom/base/result.h"
#include "fathom/checkpoint/checkpoint.h"
#include "fathom/checkpoint/piece_stream.h"
#include "fathom/model/weights.h"

namespace fathom {

/// The bytes of every routed expert, by block, then expert; an expert of files in memory has no range. Sets first_piece
/// of every block.
std::vector<std::vector<MappedRange>> expert_pieces(const Checkpoint& checkpoint, Weights& weights);

/// Whether so many rows, each of which chooses `per_token`, probably use nine experts of ten whatever the gate says.
bool takes_nearly_all(int64_t rows, int per_token, int64_t experts);

/// Of the weights that are not streamed, those that steps read whole: not tables of which they read rows.
int64_t always_read_bytes(const ModelConfig& config);

/// A stream over expert_pieces(). The checkpoint must outlive it. A limit of 0: half of the memory that is available,
/// less what is always read.
/// Errors: usage when the checkpoint does not lie in files; out_of_memory when the limit does not hold two experts: one
/// that is read and one that comes.
Result<std::unique_ptr<PieceStream>> open_expert_stream(const Checkpoint& checkpoint, const ModelConfig& config,
                                                        StreamOptions options, Weights& weights);

}  // namespace fathom
