// fathom/model/mhc/streams.h
// Hyper-connections: C residual streams. Each sub-layer reads them through the mix that the sub-layer before computed,
// and spreads its result over them by its own. Source: spec/model.md 4.
#pragma once
#include "fathom/model/step.h"
#include "fathom/model/weights.h"

namespace fathom {

/// The trunk: streams [rows, C * H], and the mix that collapses them for the next sub-layer. Lives as long as the call.
struct Streams {
  AnyViewMut x;
  View<float, 2> pre;   // [rows, C]
  View<float, 2> next;  // [rows, C] the mix of the site that is being computed; it becomes `pre` when the site is done
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

/// Puts the sub-layer's result y into the streams, and makes the site's own `pre` the next one.
void spread(Step& step, AnyView y, const SiteMixes& mixes, Streams& streams);

}  // namespace fathom
