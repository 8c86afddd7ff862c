// fathom/model/moe/experts.h
// The feed-forward half of a block: a gate chooses a few of many experts for each row, one shared expert runs for all.
// Source: spec/model.md 8.
#pragma once
#include "fathom/model/step.h"
#include "fathom/model/weights.h"

namespace fathom {

/// u [rows, H] after ffn_norm -> [rows, H]. `image` [rows] picks the gate's image bias; empty: text only.
AnyViewMut experts(Step& step, const BlockWeights& weights, AnyView u, View<const uint8_t, 1> image, int per_token);

}  // namespace fathom
