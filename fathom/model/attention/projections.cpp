// What enters and what leaves attention: model.md 5.1, 5.2, 5.5.
#include "fathom/model/attention/attention.h"

namespace fathom {

Queries project_queries(Step& step, const BlockWeights& w, const Matrix& u, const RowSet& rows,
                        std::span<const float> frequencies, bool beside) {
  const DType a = step.numerics.activations;
  const Matrix rounded = normed_input(step, linear(step, u, w.wq_a, a, beside), w.q_norm);
  const AnyViewMut heads = linear(step, rounded, w.wq_b, a);
  step.ops.rope(step.queue, {heads, int(step.config.num_attention_heads), rows.positions, frequencies, false});
  return {rounded, heads};
}

AnyViewMut window_rows(Step& step, const BlockWeights& w, const Matrix& u) {
  return linear(step, u, w.wkv, step.numerics.activations);
}

View<uint8_t, 2> window_entries(Step& step, const BlockWeights& w, AnyView row, View<const int64_t, 1> positions,
                                std::span<const float> frequencies, RowFormat format) {
  const auto out = step.scratch.table<uint8_t>(row.rows, row_bytes(format, row.cols));
  step.ops.encode_rows(
      step.queue, {row, 1, format, out, {w.kv_norm, float(step.config.rms_norm_eps)}, {positions, frequencies, false}});
  return out;
}

AnyViewMut project_out(Step& step, const BlockWeights& w, AnyViewMut o, View<const int64_t, 1> positions,
                       std::span<const float> frequencies) {
  const DType a = step.numerics.activations;
  const int groups = int(step.config.o_groups), heads = int(step.config.num_attention_heads);
  // Profile deepinfer: Q8 in, and Q8 straight from float out; profile reference: both in bf16 (model.md 14, row 6).
  const bool q8 = step.numerics.quantize_wo_a;
  if (!q8) step.ops.rope(step.queue, {o, heads, positions, frequencies, true});
  const Matrix turned = q8 ? quantized(step, o, heads, {positions, frequencies, true}) : Matrix(o);
  const AnyViewMut z = step.scratch.rows(q8 ? DType::f32 : a, o.rows, w.wo_a.rows());
  step.ops.linear(step.queue, {turned, w.wo_a, z, groups});
  return linear(step, rounded_input(step, z), w.wo_b, a);
}

}  // namespace fathom
