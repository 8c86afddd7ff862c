#include "fathom/model/attention/attention.h"

#include <algorithm>
#include <cmath>

namespace fathom {
namespace {

// The ring as it is before the captured position: the rows up to there go in first, alone. Rings lie in a snapshot in
// the order of their layers, and the encoder's are the first ones.
void capture_windows(Step& step, const AttentionContext& context, int layer, const RowSet& rows,
                     View<const uint8_t, 2> fresh, const RingRegion& ring) {
  const size_t spec = size_t(context.map.rings[size_t(layer)]);
  const int window = int(step.config.sliding_window);
  const int64_t bytes = context.cache.window_bytes({&spec, 1}, window);
  for (const WindowCapture& capture : context.captures) {
    const int32_t begin = rows.begin[capture.sequence], end = rows.begin[capture.sequence + 1];
    const auto before = int32_t(std::clamp<int64_t>(capture.position - rows.positions[begin], 0, end - begin));
    const int32_t first = begin + std::max(0, before - window), count = begin + before - first;
    auto offsets = step.host.vector<int32_t>(rows.begin.shape[0]);
    for (int64_t s = 0; s < offsets.shape[0]; ++s) offsets[s] = s <= capture.sequence ? 0 : count;
    const RowSet part{View<const int64_t, 1>(rows.positions.data + first, {count}),
                      View<const int32_t, 1>(rows.sequence.data + first, {count}), offsets};
    step.ops.store_ring(
        step.queue, {part, View<const uint8_t, 2>(fresh.data + first * fresh.shape[1], {count, fresh.shape[1]}), ring});
    context.cache.save_windows({&spec, 1}, window, context.slots[capture.sequence], capture.position,
                               capture.out.subspan(size_t(layer * bytes), size_t(bytes)));
  }
}

}  // namespace

AnyViewMut attention(Step& step, const AttentionContext& context, const BlockWeights& w, int layer,
                     const LayerPlan& plan, const AttentionRows& in, Shared& shared) {
  const ModelConfig& c = step.config;
  const std::span<const float> frequencies = plan.ratio > 0 ? context.compressed : context.plain;

  const bool same_rows = in.window_u.data == in.u.data;
  const AnyViewMut keys = window_rows(step, w, same_rows ? in.rounded : rounded_input(step, in.window_u));
  const Queries queries = project_queries(step, w, in.rounded, in.rows, frequencies, same_rows);
  const auto fresh = window_entries(step, w, keys, in.window_rows.positions, frequencies, context.map.format.window);

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
  if (!context.captures.empty() && !plan.decoder) {
    capture_windows(step, context, layer, in.window_rows, fresh, ring);
  }
  step.ops.store_ring(step.queue, {in.window_rows, fresh, ring});
  return project_out(step, w, out, in.rows.positions, frequencies);
}

}  // namespace fathom
