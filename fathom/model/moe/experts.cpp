#include "fathom/model/moe/experts.h"

namespace fathom {
namespace {

AnyViewMut grouped(Step& step, const Matrix& x, View<const int32_t, 1> x_row, const GroupByExpert& groups,
                   std::span<const Matrix> weights) {
  const AnyViewMut out = step.activations(groups.row.shape[0], weights[0].rows());
  step.ops.grouped_linear(step.queue, {x, x_row, groups.begin, weights, out});
  return out;
}

AnyViewMut swiglu(Step& step, AnyViewMut gate, AnyView up, View<const float, 1> weight) {
  step.ops.swiglu(step.queue, {gate, up, weight, float(step.config.swiglu_limit), gate});
  return gate;
}

GroupByExpert route(Step& step, const BlockWeights& w, AnyView u, View<const uint8_t, 1> image, int per_token) {
  const int64_t rows = u.rows, chosen = rows * per_token;
  Gate gate;
  gate.x = u;
  gate.weight = w.gate;
  gate.bias = w.gate_bias;
  gate.bias_image = w.gate_bias_image;
  gate.image = image;
  gate.scale = float(step.config.routed_scaling_factor);
  gate.experts = step.scratch.table<int32_t>(rows, per_token);
  gate.weights = step.scratch.table<float>(rows, per_token);
  step.ops.gate(step.queue, gate);
  GroupByExpert groups;
  groups.experts = gate.experts;
  groups.weights = gate.weights;
  groups.begin = step.scratch.vector<int32_t>(w.gate.rows + 1);
  groups.row = step.scratch.vector<int32_t>(chosen);
  groups.weight = step.scratch.vector<float>(chosen);
  groups.place = step.scratch.table<int32_t>(rows, per_token);
  step.ops.group_by_expert(step.queue, groups);
  return groups;
}

}  // namespace

AnyViewMut experts(Step& step, const BlockWeights& w, AnyView u, View<const uint8_t, 1> image, int per_token) {
  const GroupByExpert groups = route(step, w, u, image, per_token);
  const DType a = step.numerics.activations;
  const Matrix x = rounded_input(step, u);  // once, for all experts and the shared one

  const AnyViewMut gate = grouped(step, x, groups.row, groups, w.w1);
  const AnyViewMut up = grouped(step, x, groups.row, groups, w.w3);
  const AnyViewMut inner = swiglu(step, gate, up, groups.weight);
  const AnyViewMut routed = grouped(step, rounded_input(step, inner), {}, groups, w.w2);

  const AnyViewMut shared_inner = swiglu(step, linear(step, x, w.shared_w1, a), linear(step, x, w.shared_w3, a), {});
  const AnyViewMut shared = linear(step, rounded_input(step, shared_inner), w.shared_w2, a);

  const AnyViewMut out = step.activations(u.rows, u.cols);
  step.ops.combine(step.queue, {routed, groups.place, shared, out});
  return out;
}

}  // namespace fathom
