// fathom/model/mhc/streams.h
// Hyper-connections: C residual streams. Each sub-layer reads them through the mix that the sub-layer before computed,
// and spreads its result over them by its own. Source: spec/model.md 4.
#pragma once
#include "fathom/model/step.h"
#include "fathom/model/weights.h"

namespace fathom {

/// What a sub-layer reads: the streams seen through `pre`, normed, as they are and as they enter FP8 and FP4 weights.
struct SiteInput {
  AnyView u;       // [rows, H] A
  Matrix rounded;  // of u
};

/// The trunk: streams [rows, C * H], and the mix that collapses them for the next sub-layer. Lives as long as the call.
struct Streams {
  AnyViewMut x;
  View<float, 2> pre;   // [rows, C]
  View<float, 2> next;  // [rows, C] the mix of the site that is being computed; it becomes `pre` when the site is done
  AnyViewMut u;         // memory of a sub-layer's input, and of its codes
  Q8Rows codes;
  bool ready = false;  // u and codes are the next sub-layer's input
};

Streams make_streams(Step& step, int64_t rows);

/// Embeddings copied into all streams; the first mix reads stream 0 only.
Streams open_streams(Step& step, AnyView table, View<const int32_t, 1> ids);

/// One site: its mixing weights, computed from the streams before it.
struct SiteMixes {
  View<float, 2> post, comb;  // [rows, C], [rows, C * C]; the site's pre is written to streams.next
};
SiteMixes site_mixes(Step& step, const MixWeights& weights, const Streams& streams);

/// [rows, H]: the streams seen through `pre`.
AnyViewMut collapse(Step& step, const Streams& streams);

/// The next sub-layer's input: what the spread before has made of it, or made now. Valid until the next spread.
SiteInput site_input(Step& step, Streams& streams, AnyView norm);

/// A sub-layer's result [rows, H]: y, or with `routed` the sum that a Combine makes of the three.
struct SiteResult {
  AnyView y;
  AnyView routed = {};
  View<const int32_t, 2> place = {};
};

/// Puts the sub-layer's result into the streams, and makes the site's own `pre` the next one. `next_norm`: of the
/// sub-layer behind, whose input is then made in passing; empty: something else changes the streams before it.
void spread(Step& step, const SiteResult& result, const SiteMixes& mixes, Streams& streams, AnyView next_norm);

}  // namespace fathom
