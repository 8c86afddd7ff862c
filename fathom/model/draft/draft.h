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

/// One draft block a sequence through all stages: its logits before the Markov term, and the rows that they come from.
Drafts draft_logits(Step& step, const AttentionContext& context, const Weights& weights, const DraftBatch& batch);

/// One position of every block of `drafts`: its logits with the term of the token before it, and its confidence's
/// score.
///   previous  [sequences] the newest token for position 0, then the draft before
///   logits    [sequences, vocabulary] out
///   score     [sequences, 1] f32 out: confidence_of()
void add_markov(Step& step, const Weights& weights, const Drafts& drafts, int position, View<const int32_t, 1> previous,
                View<float, 2> logits, AnyViewMut score);

}  // namespace fathom
