// fathom/model/draft/draft.h
// DSpark: three small stages that propose the next tokens from what entered the last backbone layers, a Markov term
// that ties each proposal to the one before, and a confidence for each. Source: spec/model.md 11.
#pragma once
#include "fathom/model/attention/attention.h"
#include "fathom/model/step.h"
#include "fathom/model/weights.h"

namespace fathom {

/// Writes the window rows of every stage for the backbone rows of this call. `features` [rows, targets * H]. Only the
/// last ring-full of rows of each sequence is computed.
void extend_draft_windows(Step& step, const AttentionContext& context, const Weights& weights, AnyView features,
                          const RowSet& rows);

/// One draft block a sequence through all stages: [sequences * block, H], collapsed and un-normed.
AnyViewMut draft_hidden(Step& step, const AttentionContext& context, const Weights& weights, const DraftBatch& batch);

}  // namespace fathom
