// Which global entries a query reads: model.md 7.
#include <cmath>

#include "fathom/model/attention/attention.h"

namespace fathom {

void select_entries(Step& step, const AttentionContext& context, const BlockWeights& w, int layer,
                    const LayerPlan& plan, AnyView u, const Matrix& low_rank, const RowSet& rows, Shared& shared) {
  const ModelConfig& c = step.config;
  const DType a = step.numerics.activations;
  const int64_t n = rows.rows(), heads = c.index_n_heads, channels = c.index_head_dim;

  const AnyViewMut queries = linear(step, low_rank, w.indexer->wq_b, a);
  const RowFormat format = context.map.format.key;
  const auto codes = step.scratch.table<uint8_t>(n, heads * row_bytes(format, channels));
  step.ops.encode_rows(step.queue,
                       {queries, int(heads), format, codes, {}, {rows.positions, context.compressed, false}});

  const auto entries = step.kept.table<int32_t>(n, c.index_topk);  // layers behind this one read them
  const auto count = step.kept.vector<int32_t>(n);
  SelectRows op;
  op.rows = rows;
  op.queries = codes;
  op.head_weights = linear(step, Matrix(u), w.indexer->weights_proj, a);
  op.weight_scale = float(1 / std::sqrt(double(channels)) / std::sqrt(double(heads)));
  op.heads = int(heads);
  op.channels = int(channels);
  op.format = format;
  op.keys = context.cache.paged(size_t(context.map.keys[size_t(plan.kv_source)]), context.blocks);
  op.ratio = plan.ratio;
  op.top_k = int(c.index_topk);
  op.entries = entries;
  op.count = count;
  if (plan.candidate_source) {
    shared.candidates = {step.kept.table<int32_t>(n, c.candidate_topk_blocks), step.kept.vector<int32_t>(n)};
  }
  if (plan.candidate_source || plan.in_candidates) {
    op.block_size = int(c.candidate_block_size);
    op.top_blocks = int(c.candidate_topk_blocks);
    op.candidate_source = plan.candidate_source;
    op.blocks = shared.candidates.blocks;
    op.block_count = shared.candidates.count;
  }
  const bool traced = step.traced();
  if (traced) op.scores = step.scratch.table<float>(n, context.most_entries / plan.ratio);
  step.ops.select_rows(step.queue, op);
  shared.selection = {plan.kv_source, entries, count};

  if (traced) {
    step.record(layer, "index_score",
                AnyView(reinterpret_cast<const uint8_t*>(op.scores.data), DType::f32, n, op.scores.shape[1]));
    step.record(layer, "selected_entries",
                AnyView(reinterpret_cast<const uint8_t*>(entries.data), DType::i32, n, c.index_topk));
    step.record(layer, "selected_count", AnyView(reinterpret_cast<const uint8_t*>(count.data), DType::i32, n, 1));
  }
}

}  // namespace fathom
