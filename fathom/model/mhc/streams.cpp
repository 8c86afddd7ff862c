#include "fathom/model/mhc/streams.h"

#include <utility>

namespace fathom {
namespace {

// How the streams become a sub-layer's input, in the memory of `streams`.
StreamCollapse input_of(Step& step, const Streams& streams, AnyView norm) {
  return {streams.x, streams.pre, streams.u, {norm, float(step.config.rms_norm_eps)}, streams.codes};
}

}  // namespace

Streams make_streams(Step& step, int64_t rows) {
  const int64_t c = step.config.hc_mult, hidden = step.config.hidden_size;
  const DType a = step.numerics.activations;
  Streams out{step.kept.rows(a, rows, c * hidden),
              step.kept.table<float>(rows, c),
              step.kept.table<float>(rows, c),
              step.kept.rows(a, rows, hidden),
              {}};
  if (step.numerics.quantize_inputs) out.codes = q8_rows(step.kept, rows, hidden);
  return out;
}

Streams open_streams(Step& step, AnyView table, View<const int32_t, 1> ids) {
  const int64_t rows = ids.shape[0], c = step.config.hc_mult;
  const Streams out = make_streams(step, rows);
  step.ops.embed(step.queue, {ids, table, out.x, int(c)});
  // One row from the processor, copied to all by the device, to whose memory later sites write theirs.
  const auto first = step.host.table<float>(1, c);
  for (int64_t i = 0; i < c; ++i) first(0, i) = i == 0 ? 1.0f : 0.0f;
  const auto zeros = step.host.vector<int32_t>(rows);
  for (int64_t r = 0; r < rows; ++r) zeros[r] = 0;
  const auto bytes = [c](View<float, 2> table) {
    return AnyViewMut(reinterpret_cast<uint8_t*>(table.data), DType::f32, table.shape[0], c);
  };
  step.ops.gather_rows(step.queue, {bytes(first), zeros, bytes(out.pre)});
  return out;
}

SiteMixes site_mixes(Step& step, const MixWeights& weights, const Streams& streams) {
  const int64_t rows = streams.x.rows, c = step.config.hc_mult;
  const SiteMixes out{step.scratch.table<float>(rows, c), step.scratch.table<float>(rows, c * c)};
  StreamMixes op;
  op.streams = streams.x;
  op.fn = weights.fn;
  op.scale = weights.scale;
  op.base = weights.base;
  op.iterations = step.config.hc_sinkhorn_iters;
  op.sinkhorn_eps = float(step.config.hc_eps);
  op.norm_eps = float(step.config.rms_norm_eps);
  op.pre = streams.next;
  op.post = out.post;
  op.comb = out.comb;
  step.ops.stream_mixes(step.queue, op);
  return out;
}

AnyViewMut collapse(Step& step, const Streams& streams) {
  const AnyViewMut out = step.activations(streams.x.rows, step.config.hidden_size);
  step.ops.stream_collapse(step.queue, {streams.x, streams.pre, out});
  return out;
}

SiteInput site_input(Step& step, Streams& streams, AnyView norm) {
  if (!streams.ready) step.ops.stream_collapse(step.queue, input_of(step, streams, norm));
  streams.ready = false;
  const Q8Rows& q8 = streams.codes;
  return {streams.u, q8.wanted() ? Matrix(q8.codes, q8.scales, 1) : Matrix(streams.u)};
}

void spread(Step& step, const SiteResult& result, const SiteMixes& mixes, Streams& streams, AnyView next_norm) {
  std::swap(streams.pre, streams.next);
  streams.ready = next_norm.data != nullptr;
  StreamSpread op{result.y, mixes.post, mixes.comb, streams.x, result.routed, result.place};
  if (streams.ready) op.next = input_of(step, streams, next_norm);
  step.ops.stream_spread(step.queue, op);
}

}  // namespace fathom
