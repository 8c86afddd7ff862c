// Global entries: model.md 6 and 7.2. Entry j of a ratio-r cache stands for tokens r*j .. r*j + r - 1 and is made by
// the last of them.
#include "fathom/model/attention/attention.h"

namespace fathom {
namespace {

// The groups that this step completes and that are to be stored. In a repeatable step every row makes one; those that
// are not complete go to the dummy sequence.
struct Groups {
  View<int32_t, 1> row;  // row that completes the group
  View<int32_t, 1> sequence;
  View<int64_t, 1> entry;
  View<int64_t, 1> position;  // of the group's first token: where its rotation is taken
};

Groups completed_groups(Step& step, const RowSet& rows, int ratio, View<const int64_t, 1> store_from) {
  const int64_t n = rows.rows();
  Groups g{step.host.vector<int32_t>(n), step.host.vector<int32_t>(n), step.host.vector<int64_t>(n),
           step.host.vector<int64_t>(n)};
  int64_t count = 0;
  for (int32_t r = 0; r < n; ++r) {
    const int64_t position = rows.positions[r], sequence = rows.sequence[r];
    const bool stored = (position + 1) % ratio == 0 && position >= store_from[sequence];
    if (!stored && !step.repeatable) continue;
    g.row[count] = r;
    g.sequence[count] = stored ? int32_t(sequence) : step.dummy_sequence;
    g.entry[count] = stored ? position / ratio : 0;
    g.position[count] = position / ratio * ratio;
    ++count;
  }
  g.row.shape = g.sequence.shape = g.entry.shape = g.position.shape = {count};
  return g;
}

// Ratio 2: value and gate projections in float, kept for the rest of the group; the latent is their softmax pool.
AnyViewMut pooled_latents(Step& step, const AttentionContext& context, const BlockWeights& w, int layer, int ratio,
                          AnyView u, const RowSet& rows, const Groups& groups) {
  const int64_t d = step.config.head_dim;
  const AnyViewMut raw = step.scratch.rows(DType::f32, u.rows, 2 * d);
  step.ops.linear(step.queue, {Matrix(u), w.compressor->wkv, raw.columns(0, d), 1});
  step.ops.linear(step.queue, {Matrix(u), w.compressor->wgate, raw.columns(d, d), 1, true});
  const RingRegion state = context.cache.ring(size_t(context.map.states[size_t(layer)]), context.slots);
  const AnyViewMut pooled = step.activations(groups.row.shape[0], d);
  Compress op;
  op.rows = rows;
  op.projected = raw.as<float>();
  op.state = state;
  op.group_row = groups.row;
  op.ratio = ratio;
  op.out = pooled;
  step.ops.compress(step.queue, op);
  step.ops.store_ring(step.queue, {rows, View<const uint8_t, 2>(raw.data, {u.rows, 2 * d * 4}), state});
  return pooled;
}

// Turned to the groups' places, behind `norm` if there is one.
void store(Step& step, const AttentionContext& context, int spec, RowFormat format, AnyView values, const Norm& norm,
           const Groups& groups) {
  const auto entries = step.scratch.table<uint8_t>(values.rows, row_bytes(format, values.cols));
  step.ops.encode_rows(step.queue, {values, 1, format, entries, norm, {groups.position, context.compressed, false}});
  step.ops.store_paged(step.queue,
                       {entries, groups.sequence, groups.entry, context.cache.paged(size_t(spec), context.blocks)});
}

}  // namespace

void store_global(Step& step, const AttentionContext& context, const BlockWeights& w, int layer, const LayerPlan& plan,
                  AnyView u, const RowSet& rows) {
  const DType a = step.numerics.activations;
  const Groups groups = completed_groups(step, rows, plan.ratio, context.store_from);
  AnyView values;
  if (plan.ratio > 1) {
    values = pooled_latents(step, context, w, layer, plan.ratio, u, rows, groups);
  } else {
    AnyView x = u;
    if (groups.row.shape[0] != rows.rows()) {  // replay rows are not stored again
      const AnyViewMut some = step.scratch.rows(u.dtype, groups.row.shape[0], u.cols);
      step.ops.gather_rows(step.queue, {u, groups.row, some});
      x = some;
    }
    values = linear(step, Matrix(x), w.compressor->wkv, a);
  }
  if (values.rows == 0) return;
  const AnyViewMut latent = rms_norm(step, values, w.compressor->norm);
  // The index key comes from the latent before its rotation and rounding.
  const AnyViewMut key = linear(step, Matrix(latent), w.indexer->wk, a);
  store(step, context, context.map.keys[size_t(layer)], context.map.format.key, key,
        {w.indexer->k_norm, float(step.config.rms_norm_eps)}, groups);
  store(step, context, context.map.latents[size_t(layer)], context.map.format.latent, latent, {}, groups);
}

}  // namespace fathom
