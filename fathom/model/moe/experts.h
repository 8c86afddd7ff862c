// fathom/model/moe/experts.h
// The feed-forward half of a block: a gate chooses a few of many experts for each row, one shared expert runs for all.
// Source: spec/model.md 8.
#pragma once
#include "fathom/model/mhc/streams.h"
#include "fathom/model/step.h"
#include "fathom/model/weights.h"

namespace fathom {

/// Rows after ffn_norm -> what their experts make of them, not yet summed. `image` [rows] picks the gate's image bias;
/// empty: text only.
SiteResult experts(Step& step, const BlockWeights& weights, const SiteInput& in, View<const uint8_t, 1> image,
                   int per_token);

}  // namespace fathom
