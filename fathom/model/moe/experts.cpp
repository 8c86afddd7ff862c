#include "fathom/model/moe/experts.h"

#include <algorithm>

#include "fathom/model/memory_plan.h"
#include "fathom/model/moe/expert_slots.h"
#include "fathom/model/moe/expert_stream.h"

namespace fathom {
namespace {

constexpr int64_t kRowsThatGuess = 64;  // more have their guess made by number alone, or none

AnyViewMut grouped(Step& step, const Matrix& x, View<const int32_t, 1> x_row, const GroupByExpert& groups,
                   std::span<const Matrix> weights, bool beside = false) {
  const AnyViewMut out = step.activations(groups.row.shape[0], weights[0].rows());
  step.ops.grouped_linear(step.queue, {x, x_row, groups.begin, weights, out, {}, beside});
  return out;
}

// As the next product reads it.
Matrix swiglu(Step& step, AnyView gate, AnyView up, View<const float, 1> weight) {
  return input_made_by(step, gate.rows, gate.cols, [&](AnyViewMut out, const Q8Rows& q8) {
    step.ops.swiglu(step.queue, {gate, up, weight, float(step.config.swiglu_limit), out, q8});
  });
}

// The experts that each row chooses go to `experts` [rows, chosen].
Gate choose(Step& step, const BlockWeights& w, AnyView u, View<const uint8_t, 1> image, View<int32_t, 2> experts) {
  Gate gate;
  gate.x = u;
  gate.weight = w.gate;
  gate.bias = w.gate_bias;
  gate.bias_image = w.gate_bias_image;
  gate.image = image;
  gate.scale = float(step.config.routed_scaling_factor);
  gate.experts = experts;
  gate.weights = step.scratch.table<float>(experts.shape[0], experts.shape[1]);
  step.ops.gate(step.queue, gate);
  return gate;
}

// Assignments sorted by what `number` says of their experts, among `count` numbers.
GroupByExpert sort_by(Step& step, const Gate& gate, View<const int32_t, 1> number, int64_t count) {
  const int64_t rows = gate.experts.shape[0], per_token = gate.experts.shape[1], chosen = rows * per_token;
  GroupByExpert groups;
  groups.experts = gate.experts;
  groups.weights = gate.weights;
  groups.number = number;
  groups.begin = step.scratch.vector<int32_t>(count + 1);
  groups.row = step.scratch.vector<int32_t>(chosen);
  groups.weight = step.scratch.vector<float>(chosen);
  groups.place = step.scratch.table<int32_t>(rows, per_token);
  step.ops.group_by_expert(step.queue, groups);
  return groups;
}

GroupByExpert route(Step& step, const BlockWeights& w, AnyView u, View<const uint8_t, 1> image, int per_token) {
  const Gate gate = choose(step, w, u, image, step.scratch.table<int32_t>(u.rows, per_token));
  // The numbers that a rank's experts have among themselves.
  return sort_by(step, gate, {w.expert_map.data, {w.expert_map.shape[0]}}, int64_t(w.w1.size()));
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
  const AnyViewMut up = grouped(step, x, groups.row, groups, w.w3, true);
  return grouped(step, swiglu(step, gate, up, groups.weight), {}, groups, w.w2);
}

// What the shared expert makes of the rows.
AnyViewMut shared_expert(Step& step, const BlockWeights& w, const Matrix& x) {
  const DType a = step.numerics.activations;
  const AnyViewMut gate = linear(step, x, w.shared_w1, a), up = linear(step, x, w.shared_w3, a, true);
  return linear(step, swiglu(step, gate, up, {}), w.shared_w2, a);
}

// How often each of a block's own experts was chosen.
void count_choices(View<const int32_t, 2> experts, std::span<int32_t> counts) {
  std::fill(counts.begin(), counts.end(), 0);
  const auto own = int64_t(counts.size());
  for (int64_t r = 0; r < experts.shape[0]; ++r) {
    for (int64_t i = 0; i < experts.shape[1]; ++i) ++counts[size_t(own_expert(experts(r, i), own))];
  }
}

// The next block's experts before its gate has seen its rows. Many rows use nearly all of them. Of few rows the gate is
// asked now, about what enters this block's experts: the streams change little from block to block. A wrong guess costs
// the bus as much as a right one saves, so no more is copied than attention leaves time for; of those that were not
// there anyway two of three were right with the trained miniature.
void guess_next(Step& step, int per_token, View<const int32_t, 2> guessed) {
  const BlockWeights* next = step.next_block;
  if (next == nullptr) return step.slots->expect({}, 0);
  const auto own = int64_t(next->w1.size());
  const auto pieces = step.results.vector<int32_t>(own);
  if (takes_nearly_all(step.next_rows, per_token, own)) {
    for (int64_t e = 0; e < own; ++e) pieces[e] = next->first_piece + int32_t(e);
    return step.slots->expect({pieces.data, size_t(own)}, own);
  }
  constexpr int64_t kCopies = 1;  // of 18.8 MB: 0.35 ms
  const auto counts = step.results.vector<int32_t>(own);
  count_choices(guessed, {counts.data, size_t(own)});
  int64_t n = 0;
  for (int64_t e = 0; e < own; ++e) {
    if (counts[e] > 0) pieces[n++] = next->first_piece + int32_t(e);
  }
  std::stable_sort(pieces.data, pieces.data + n,
                   [&](int32_t a, int32_t b) { return counts[a - next->first_piece] > counts[b - next->first_piece]; });
  step.slots->expect({pieces.data, size_t(n)}, kCopies);
}

// Some of the sorted assignments: those of the wave's experts, which lie in slots now.
void wave_products(Step& step, const BlockWeights& w, const Matrix& x, const GroupByExpert& groups,
                   std::span<const int32_t> pieces, View<const int32_t, 1> begin, int64_t first, AnyViewMut out) {
  const auto own = int64_t(w.w1.size()), count = int64_t(begin[begin.shape[0] - 1]);
  std::vector<Matrix> w1, w2, w3;
  for (const int32_t piece : pieces) {
    const auto e = size_t(piece - w.first_piece);
    const uint8_t *run = expert_run(w, e), *place = step.slots->place(piece);
    w1.push_back(in_slot(w.w1[e], run, place));
    w2.push_back(in_slot(w.w2[e], run, place));
    w3.push_back(in_slot(w.w3[e], run, place));
  }
  const WholeProduct whole{groups.row.shape[0], own};
  const View<const int32_t, 1> x_row(groups.row.data + first, {count});
  const auto product = [&](std::span<const Matrix> weights, bool beside) {
    const AnyViewMut to = step.activations(count, weights[0].rows());
    step.ops.grouped_linear(step.queue, {x, x_row, begin, weights, to, whole, beside});
    return to;
  };
  const AnyViewMut gate = product(w1, false), up = product(w3, true);
  const Matrix active = swiglu(step, gate, up, View<const float, 1>(groups.weight.data + first, {count}));
  step.ops.grouped_linear(step.queue, {active, {}, begin, w2, out.slice(first, count), whole});
}

// Experts that the device holds some of. The processor looks at what the gates chose, has what is missing copied, and
// queues the products wave by wave behind the copies.
SiteResult experts_in_slots(Step& step, const BlockWeights& w, const SiteInput& in, View<const uint8_t, 1> image,
                            int per_token) {
  const int64_t rows = in.u.rows, chosen = rows * per_token;
  const auto own = int64_t(w.w1.size());
  ExpertSlots& slots = *step.slots;
  const bool asks = step.next_block != nullptr && rows <= kRowsThatGuess;
  const auto both = step.scratch.table<int32_t>((asks ? 2 : 1) * rows, per_token);
  const Gate gate = choose(step, w, in.u, image, {both.data, {rows, per_token}});
  if (asks) choose(step, *step.next_block, in.u, image, {both.data + chosen, {rows, per_token}});
  const auto seen = step.results.table<int32_t>(both.shape[0], per_token);
  step.memory.copy(seen.data, both.data, both.size() * int64_t(sizeof(int32_t)));

  const auto counts = step.results.vector<int32_t>(own);
  count_choices({seen.data, {rows, per_token}}, {counts.data, size_t(own)});
  const auto used = step.results.vector<int32_t>(own);
  int64_t n = 0;
  for (int64_t e = 0; e < own; ++e) {
    if (counts[e] > 0) used[n++] = w.first_piece + int32_t(e);
  }
  slots.want({used.data, size_t(n)});
  const auto order = slots.order();
  // Assignments in the order of the waves.
  const int64_t experts = w.gate.rows;
  const auto place = step.results.vector<int32_t>(own);
  for (int64_t i = 0; i < n; ++i) place[order[size_t(i)] - w.first_piece] = int32_t(i);
  const auto number = step.host.vector<int32_t>(experts);
  for (int64_t e = 0; e < experts; ++e) {
    const int64_t mine = own_expert(e, own);
    number[e] = counts[mine] > 0 ? place[mine] : 0;  // nobody chose it
  }
  const GroupByExpert groups = sort_by(step, gate, number, n);
  const AnyViewMut shared = shared_expert(step, w, in.rounded);

  const AnyViewMut out = step.activations(chosen, w.w2[0].rows());
  int64_t first = 0;
  for (auto wave = slots.next(step.queue); wave.count > 0; wave = slots.next(step.queue)) {
    const auto pieces = order.subspan(size_t(wave.first), size_t(wave.count));
    const auto begin = step.host.vector<int32_t>(wave.count + 1);
    begin[0] = 0;
    for (int64_t i = 0; i < wave.count; ++i) begin[i + 1] = begin[i] + counts[pieces[size_t(i)] - w.first_piece];
    wave_products(step, w, in.rounded, groups, pieces, begin, first, out);
    slots.release(step.queue);
    first += begin[wave.count];
  }
  guess_next(step, per_token,
             asks ? View<const int32_t, 2>(seen.data + chosen, {rows, per_token}) : View<const int32_t, 2>());
  return {shared, out, groups.place};
}

}  // namespace

SiteResult experts(Step& step, const BlockWeights& w, const SiteInput& in, View<const uint8_t, 1> image,
                   int per_token) {
  if (step.slots != nullptr) return experts_in_slots(step, w, in, image, per_token);
  if (step.stream != nullptr) {
    const GroupByExpert groups = route(step, w, in.u, image, per_token);
    want(step, w, groups);
    // The shared expert first: nothing has to be read for it.
    const AnyViewMut shared = shared_expert(step, w, in.rounded);
    const AnyViewMut chosen = streamed(step, w, in.rounded, groups);
    expect_next(step, per_token);
    return {shared, chosen, groups.place};
  }
  // Gate, sorting and the routed experts of few rows leave much of a device idle: the shared expert runs beside them.
  // It reads rows that were there before, and what either writes the other does not read.
  const bool beside = step.side != nullptr && in.u.rows <= kMostRowsBeside;
  if (beside) step.side->fork(step.queue);
  Step on_side = step.on(beside ? *step.side->queue : step.queue);
  const AnyViewMut shared = shared_expert(on_side, w, in.rounded);
  const GroupByExpert groups = route(step, w, in.u, image, per_token);
  const AnyViewMut chosen = routed(step, w, in.rounded, groups);
  if (beside) step.side->join(step.queue);
  return {shared, chosen, groups.place};
}

}  // namespace fathom
