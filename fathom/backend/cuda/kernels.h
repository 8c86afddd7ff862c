// fathom/backend/cuda/kernels.h
// The operations of ops.h as this backend runs them. Each is ordered in the queue's stream and returns before it ends,
// unless a view lies in ordinary host memory (call.h). Definitions: reference/.
#pragma once
#include "fathom/backend/backend.h"

namespace fathom::cuda {

void embed(Queue&, const Embed&);
void gather_rows(Queue&, const GatherRows&);
void add_rows(Queue&, const AddRows&);
void quantize_rows(Queue&, const QuantizeRows&);
void linear(Queue&, const Linear&);
void grouped_linear(Queue&, const GroupedLinear&);
void rms_norm(Queue&, const RmsNorm&);
void rope(Queue&, const Rope&);
void encode_rows(Queue&, const EncodeRows&);
void store_ring(Queue&, const StoreRing&);
void store_paged(Queue&, const StorePaged&);
void compress(Queue&, const Compress&);
void select_rows(Queue&, const SelectRows&);
void latent_attention(Queue&, const LatentAttention&);
void gate(Queue&, const Gate&);
void group_by_expert(Queue&, const GroupByExpert&);
void swiglu(Queue&, const SwiGlu&);
void combine(Queue&, const Combine&);
void engram_hash(Queue&, const NgramHash&);
void engram_gather(Queue&, const EngramGather&);
void engram_mix(Queue&, const EngramMix&);
void stream_mixes(Queue&, const StreamMixes&);
void stream_collapse(Queue&, const StreamCollapse&);
void stream_spread(Queue&, const StreamSpread&);
void stream_mean(Queue&, const StreamMean&);
void sample(Queue&, const Sample&);
void accept(Queue&, const Accept&);

}  // namespace fathom::cuda
