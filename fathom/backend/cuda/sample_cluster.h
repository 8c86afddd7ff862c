// fathom/backend/cuda/sample_cluster.h
// Sampling by a cluster of blocks a row, which hold all of it. Arguments lie where kernels reach them.
#pragma once
#include "fathom/backend/cuda/launch.h"
#include "fathom/backend/ops.h"

namespace fathom::cuda {

/// Sample (ops.h) without lists.
struct ClusterSample {
  int64_t rows;
  Rows<const float> logits;
  int64_t vocabulary;
  const RowSampling* settings;  // [rows]
  const int32_t* source;        // [rows] rows of logits; null: their own numbers
  int32_t* ids;                 // [rows]; null: not wanted
  Rows<uint32_t> laws;          // data null: not wanted
};

/// False, and nothing was launched, for vocabularies of more than 262,144 tokens.
bool sample_by_clusters(Call& call, const ClusterSample& all);

}  // namespace fathom::cuda
