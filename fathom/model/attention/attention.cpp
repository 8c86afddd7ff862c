#include "fathom/model/attention/attention.h"

#include <cmath>

namespace fathom {

AnyViewMut attention(Step& step, const AttentionContext& context, const BlockWeights& w, int layer,
                     const LayerPlan& plan, const AttentionRows& in, Shared& shared) {
  const ModelConfig& c = step.config;
  const std::span<const float> frequencies = plan.ratio > 0 ? context.compressed : context.plain;

  const Matrix u = rounded_input(step, in.u);
  const Queries queries = project_queries(step, w, u, in.rows, frequencies);
  const bool same_rows = in.window_u.data == in.u.data;
  const auto fresh = window_entries(step, w, same_rows ? u : rounded_input(step, in.window_u), in.window_rows.positions,
                                    frequencies, context.map.format.window);

  if (plan.kv_source == layer) store_global(step, context, w, layer, plan, in.global_u, in.global_rows);
  if (plan.index_source == layer)
    select_entries(step, context, w, layer, plan, in.u, queries.low_rank, in.rows, shared);

  const RingRegion ring = context.cache.ring(size_t(context.map.rings[size_t(layer)]), context.slots);
  LatentAttention op;
  op.rows = in.rows;
  op.queries = queries.heads;
  op.heads = int(c.num_attention_heads);
  op.fresh_rows = in.window_rows;
  op.fresh = fresh;
  op.window_format = context.map.format.window;
  op.ring = ring;
  op.window_begin = in.window_begin;
  op.window_end = in.window_end;
  op.entry_format = context.map.format.latent;
  if (plan.ratio > 0) {
    op.latents = context.cache.paged(size_t(context.map.latents[size_t(shared.selection.kv_source)]), context.blocks);
    op.entries = shared.selection.entries;
    op.count = shared.selection.count;
  }
  op.sink = w.sink;
  op.scale = float(1 / std::sqrt(double(c.head_dim)));
  const AnyViewMut out = step.activations(in.rows.rows(), c.num_attention_heads * c.head_dim);
  op.out = out;
  step.ops.latent_attention(step.queue, op);
  // Only now: the ring's old rows were still being read.
  step.ops.store_ring(step.queue, {in.window_rows, fresh, ring});
  return project_out(step, w, out, in.rows.positions, frequencies);
}

}  // namespace fathom
