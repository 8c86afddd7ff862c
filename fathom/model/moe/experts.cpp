#include "fathom/model/moe/experts.h"

#include "fathom/model/moe/expert_stream.h"

namespace fathom {
namespace {

AnyViewMut grouped(Step& step, const Matrix& x, View<const int32_t, 1> x_row, const GroupByExpert& groups,
                   std::span<const Matrix> weights) {
  const AnyViewMut out = step.activations(groups.row.shape[0], weights[0].rows());
  step.ops.grouped_linear(step.queue, {x, x_row, groups.begin, weights, out});
  return out;
}

// As the next product reads it.
Matrix swiglu(Step& step, AnyView gate, AnyView up, View<const float, 1> weight) {
  return input_made_by(step, gate.rows, gate.cols, [&](AnyViewMut out, const Q8Rows& q8) {
    step.ops.swiglu(step.queue, {gate, up, weight, float(step.config.swiglu_limit), out, q8});
  });
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
  // The numbers that a rank's experts have among themselves.
  groups.number = {w.expert_map.data, {w.expert_map.shape[0]}};
  groups.begin = step.scratch.vector<int32_t>(int64_t(w.w1.size()) + 1);
  groups.row = step.scratch.vector<int32_t>(chosen);
  groups.weight = step.scratch.vector<float>(chosen);
  groups.place = step.scratch.table<int32_t>(rows, per_token);
  step.ops.group_by_expert(step.queue, groups);
  return groups;
}

// The experts that some row chose, as pieces of the stream.
void want(Step& step, const BlockWeights& w, const GroupByExpert& groups) {
  const auto experts = int64_t(w.w1.size());
  const auto pieces = step.host.vector<int32_t>(experts);
  size_t count = 0;
  for (int64_t e = 0; e < experts; ++e) {
    if (groups.begin[e] < groups.begin[e + 1]) pieces.data[count++] = w.first_piece + int32_t(e);
  }
  step.stream->want({pieces.data, count});
}

// Long prompts use nearly every expert of the next block whatever its gate says: the disk begins before that is known,
// and reads while attention computes.
void expect_next(Step& step, int per_token) {
  if (step.next_block == nullptr) return;
  const auto experts = int64_t(step.next_block->w1.size());
  if (!takes_nearly_all(step.next_rows, per_token, experts)) return;
  const auto pieces = step.host.vector<int32_t>(experts);
  for (int64_t e = 0; e < experts; ++e) pieces[e] = step.next_block->first_piece + int32_t(e);
  step.stream->expect({pieces.data, size_t(experts)});
}

// Expert by expert in the order in which they come from the disk. A row's bits do not depend on what is computed beside
// it (ops.h), so they are those of the grouped products.
AnyViewMut streamed(Step& step, const BlockWeights& w, const Matrix& x, const GroupByExpert& groups) {
  const int64_t chosen = groups.row.shape[0];
  const AnyViewMut gate = step.activations(chosen, w.w1[0].rows()), up = step.activations(chosen, w.w3[0].rows());
  const AnyViewMut out = step.activations(chosen, w.w2[0].rows());
  const auto begin = step.host.vector<int32_t>(2);
  for (int32_t piece = step.stream->next(); piece >= 0; piece = step.stream->next()) {
    const auto e = size_t(piece - w.first_piece);
    const int64_t first = groups.begin[int64_t(e)], count = groups.begin[int64_t(e) + 1] - first;
    begin[0] = 0;
    begin[1] = int32_t(count);
    const View<const int32_t, 1> x_row(groups.row.data + first, {count});
    const AnyViewMut inner = gate.slice(first, count);
    step.ops.grouped_linear(step.queue, {x, x_row, begin, {&w.w1[e], 1}, inner});
    step.ops.grouped_linear(step.queue, {x, x_row, begin, {&w.w3[e], 1}, up.slice(first, count)});
    const Matrix active =
        swiglu(step, inner, up.slice(first, count), View<const float, 1>(groups.weight.data + first, {count}));
    step.ops.grouped_linear(step.queue, {active, {}, begin, {&w.w2[e], 1}, out.slice(first, count)});
    step.stream->release(piece);
  }
  return out;
}

AnyViewMut routed(Step& step, const BlockWeights& w, const Matrix& x, const GroupByExpert& groups) {
  const AnyViewMut gate = grouped(step, x, groups.row, groups, w.w1);
  const AnyViewMut up = grouped(step, x, groups.row, groups, w.w3);
  return grouped(step, swiglu(step, gate, up, groups.weight), {}, groups, w.w2);
}

}  // namespace

SiteResult experts(Step& step, const BlockWeights& w, const SiteInput& in, View<const uint8_t, 1> image,
                   int per_token) {
  const GroupByExpert groups = route(step, w, in.u, image, per_token);
  if (step.stream) want(step, w, groups);
  const DType a = step.numerics.activations;
  const Matrix& x = in.rounded;

  // The shared expert first: nothing has to be read for it.
  const Matrix shared_inner = swiglu(step, linear(step, x, w.shared_w1, a), linear(step, x, w.shared_w3, a), {});
  const AnyViewMut shared = linear(step, shared_inner, w.shared_w2, a);
  const AnyViewMut chosen = step.stream ? streamed(step, w, x, groups) : routed(step, w, x, groups);
  if (step.stream) expect_next(step, per_token);
  return {shared, chosen, groups.place};
}

}  // namespace fathom
