// fathom/model/block.h
// One block of the network: attention site, expert site, and the streams around them. Backbone layers and draft stages
// differ only in where their attention looks. Source: spec/model.md 4.2.
#pragma once
#include "fathom/model/mhc/streams.h"
#include "fathom/model/moe/experts.h"

namespace fathom {

/// Second half of a block: streams with the attention result in them -> streams with the experts' result in them.
/// `next_norm` as for spread().
inline void expert_site(Step& step, const BlockWeights& w, Streams& streams, View<const uint8_t, 1> image,
                        int per_token, AnyView next_norm) {
  const SiteMixes mixes = site_mixes(step, w.ffn_mix, streams);
  const SiteInput in = site_input(step, streams, w.ffn_norm);
  spread(step, experts(step, w, in, image, per_token), mixes, streams, next_norm);
}

}  // namespace fathom
