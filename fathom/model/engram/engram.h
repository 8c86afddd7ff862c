// fathom/model/engram/engram.h
// A memory that is looked up by the last tokens: hash n-grams to table rows, gather them, and add what they say to
// every stream as far as the stream agrees with its key. Source: spec/model.md 9.
#pragma once
#include "fathom/model/batch.h"
#include "fathom/model/engram/engram_hash.h"
#include "fathom/model/step.h"
#include "fathom/model/weights.h"

namespace fathom {

/// Adds one layer's memory to the streams of all rows of the batch, in place.
void engram(Step& step, const EngramWeights& weights, const EngramHash& hash, std::span<const int32_t> token_map,
            const Batch& batch, AnyViewMut streams, int layer);

}  // namespace fathom
