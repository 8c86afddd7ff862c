#include "fathom/model/draft/draft.h"

#include <cmath>

#include "fathom/model/block.h"

namespace fathom {

void extend_draft_windows(Step& step, const AttentionContext& context, const Weights& weights, AnyView features,
                          const RowSet& rows) {
  const ModelConfig& c = step.config;
  if (rows.rows() == 0) return;
  const int ring = *context.map.specs[size_t(context.map.rings.back())].window;
  const RowSubset last = rows_from(step, rows, [&](int64_t s) {
    const int32_t end = rows.begin[s + 1];
    return end > rows.begin[s] ? rows.positions[end - 1] - ring + 1 : 0;
  });
  const Matrix in = rounded_input(step, take(step, last, features));
  const Matrix x =
      normed_input(step, linear(step, in, weights.main_proj, step.numerics.activations), weights.main_norm);
  for (int stage = 0; stage < c.num_nextn_predict_layers; ++stage) {
    const size_t layer = size_t(c.num_hidden_layers + stage);
    const BlockWeights& w = weights.blocks[layer];
    const auto entries =
        window_entries(step, w, window_rows(step, w, x), last.rows.positions, context.plain, context.map.format.window);
    step.ops.store_ring(step.queue,
                        {last.rows, entries, context.cache.ring(size_t(context.map.rings[layer]), context.slots)});
  }
}

namespace {

// The rows of one draft block a sequence: the newest token, then noise, at positions P + 1 ...
struct BlockRows {
  RowSet rows;
  View<int32_t, 1> ids;
  View<int64_t, 1> window_begin, window_end;
};

BlockRows block_rows(Step& step, const DraftBatch& batch) {
  const ModelConfig& c = step.config;
  const int64_t sequences = batch.tokens.shape[0], block = c.dspark_block_size, n = sequences * block;
  auto positions = step.host.vector<int64_t>(n);
  auto sequence = step.host.vector<int32_t>(n);
  auto begin = step.host.vector<int32_t>(sequences + 1);
  BlockRows out{{positions, sequence, begin},
                step.host.vector<int32_t>(n),
                step.host.vector<int64_t>(n),
                step.host.vector<int64_t>(n)};
  begin[0] = 0;
  for (int64_t s = 0; s < sequences; ++s) {
    begin[s + 1] = int32_t((s + 1) * block);
    const int64_t last = batch.last[s];
    for (int64_t i = 0; i < block; ++i) {
      const int64_t r = s * block + i;
      positions[r] = last + 1 + i;
      sequence[r] = int32_t(s);
      out.ids[r] = i == 0 ? batch.tokens[s] : c.dspark_noise_token_id;
      // Every row of the block sees the same set: the window that ends at P, and the whole block.
      out.window_begin[r] = std::max({int64_t(0), last - c.sliding_window + 1, batch.replay[size_t(s)].decoder_cut});
      out.window_end[r] = last + 1 + block;
    }
  }
  return out;
}

AnyViewMut stage_attention(Step& step, const AttentionContext& context, const BlockWeights& w, size_t layer,
                           const Matrix& x, const BlockRows& block) {
  const ModelConfig& c = step.config;
  const AnyViewMut keys = window_rows(step, w, x);
  const Queries queries = project_queries(step, w, x, block.rows, context.plain, true);
  LatentAttention op;
  op.rows = op.fresh_rows = block.rows;
  op.queries = queries.heads;
  op.heads = int(c.num_attention_heads);
  op.fresh = window_entries(step, w, keys, block.rows.positions, context.plain, context.map.format.window);
  op.window_format = context.map.format.window;
  op.ring = context.cache.ring(size_t(context.map.rings[layer]), context.slots);
  op.window_begin = block.window_begin;
  op.window_end = block.window_end;
  op.sink = w.sink;
  op.scale = float(1 / std::sqrt(double(c.head_dim)));
  const AnyViewMut out = step.activations(x.rows(), c.num_attention_heads * c.head_dim);
  op.out = out;
  step.ops.latent_attention(step.queue, op);
  return project_out(step, w, out, block.rows.positions, context.plain);
}

// One draft block a sequence through all stages: [sequences * block, H], collapsed and un-normed.
AnyViewMut draft_hidden(Step& step, const AttentionContext& context, const Weights& weights, const DraftBatch& batch) {
  const ModelConfig& c = step.config;
  const BlockRows block = block_rows(step, batch);
  Streams streams = open_streams(step, weights.embed, block.ids);
  for (int stage = 0; stage < c.num_nextn_predict_layers; ++stage) {
    const size_t layer = size_t(c.num_hidden_layers + stage);
    const BlockWeights& w = weights.blocks[layer];
    const SiteMixes mixes = site_mixes(step, w.attn_mix, streams);
    const SiteInput in = site_input(step, streams, w.attn_norm);
    spread(step, {stage_attention(step, context, w, layer, in.rounded, block)}, mixes, streams, w.ffn_norm);
    const bool last = stage + 1 == c.num_nextn_predict_layers;
    expert_site(step, w, streams, {}, c.dspark_num_experts_per_tok,
                last ? AnyView() : weights.blocks[layer + 1].attn_norm);
  }
  const AnyViewMut out = step.kept.rows(step.numerics.activations, streams.x.rows, c.hidden_size);
  step.ops.stream_collapse(step.queue, {streams.x, streams.pre, out});
  return out;
}

}  // namespace

Drafts draft_logits(Step& step, const AttentionContext& context, const Weights& weights, const DraftBatch& batch) {
  const AnyViewMut hidden = draft_hidden(step, context, weights, batch);
  const AnyViewMut logits = step.kept.rows(DType::f32, hidden.rows, step.config.vocab_size);
  step.ops.linear(step.queue, {Matrix(rms_norm(step, hidden, weights.draft_norm)), weights.head, logits, 1});
  return {logits.as<float>(), hidden};
}

void add_markov(Step& step, const Weights& weights, const Drafts& drafts, int position, View<const int32_t, 1> previous,
                View<float, 2> logits, AnyViewMut score) {
  const ModelConfig& c = step.config;
  const int64_t n = previous.shape[0], block = c.dspark_block_size, h = c.hidden_size, rank = c.dspark_markov_rank;
  const auto rows = step.host.vector<int32_t>(n);
  for (int64_t i = 0; i < n; ++i) rows[i] = int32_t(i * block + position);
  // [hidden | embedding of the token before]: the confidence head reads both, the Markov head the second part.
  const AnyViewMut joined = step.activations(n, h + rank);
  step.ops.gather_rows(step.queue, {drafts.hidden, rows, joined.columns(0, h)});
  step.ops.embed(step.queue, {previous, weights.markov_embed, joined.columns(h, rank), 1});
  const AnyViewMut bias = linear(step, Matrix(AnyView(joined.columns(h, rank))), weights.markov_head, DType::f32);
  const View<const float, 2> base(drafts.logits.data + position * c.vocab_size, {n, c.vocab_size},
                                  {block * c.vocab_size, 1});
  step.ops.add_rows(step.queue, {base, bias.as<float>(), logits});
  step.ops.linear(step.queue, {Matrix(joined), weights.confidence, score, 1});
}

}  // namespace fathom
