// Mixture of experts: choosing, sorting, the activation, the sum. The products are in linear.cpp.
#include <cmath>
#include <numeric>
#include <vector>

#include "fathom/backend/element.h"
#include "fathom/backend/reference/reference.h"

namespace fathom::reference {
namespace {

double softplus(double x) { return x > 20 ? x : std::log1p(std::exp(x)); }

}  // namespace

void gate(Queue& queue, const Gate& op) {
  const int64_t experts = op.weight.rows, chosen = op.experts.shape[1];
  for_each_row(queue, op.x.rows, [&](int64_t r) {
    const bool image = !op.image.empty() && op.image[r] != 0;
    const auto x = load_row(op.x, r);
    // Scores are rounded to float before they are compared: equal floats are a tie, and ties go to the lower expert.
    std::vector<float> score(size_t(experts), 0.0f), biased(size_t(experts), 0.0f);
    for (int64_t e = 0; e < experts; ++e) {
      double logit = 0;
      for (int64_t i = 0; i < op.x.cols; ++i) {
        logit += double(x[size_t(i)]) * load(op.weight.dtype, op.weight.row(e), i);
      }
      score[size_t(e)] = float(std::sqrt(softplus(logit)));
      biased[size_t(e)] = score[size_t(e)] + (image ? op.bias_image : op.bias)[e];
    }
    std::vector<int32_t> order(size_t(experts), 0);
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(),
                     [&](int32_t a, int32_t b) { return biased[size_t(a)] > biased[size_t(b)]; });
    double sum = 1e-20;
    for (int64_t i = 0; i < chosen; ++i) sum += score[size_t(order[size_t(i)])];
    for (int64_t i = 0; i < chosen; ++i) {
      op.experts(r, i) = order[size_t(i)];
      op.weights(r, i) = float(score[size_t(order[size_t(i)])] / sum * op.scale);
    }
  });
}

void group_by_expert(Queue&, const GroupByExpert& op) {
  const int64_t rows = op.experts.shape[0], chosen = op.experts.shape[1], experts = op.begin.shape[0] - 1;
  const auto expert = [&](int64_t r, int64_t slot) {
    const int32_t e = op.experts(r, slot);
    return op.number.empty() ? e : op.number[e];
  };
  for (int64_t e = 0; e <= experts; ++e) op.begin[e] = 0;
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t slot = 0; slot < chosen; ++slot) ++op.begin[expert(r, slot) + 1];
  }
  for (int64_t e = 0; e < experts; ++e) op.begin[e + 1] += op.begin[e];
  // begin[e] is now where expert e starts; it walks to the expert's end while assignments are placed, and is put back.
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t slot = 0; slot < chosen; ++slot) {
      const int32_t at = op.begin[expert(r, slot)]++;
      op.row[at] = int32_t(r);
      op.weight[at] = op.weights(r, slot);
      op.place(r, slot) = at;
    }
  }
  for (int64_t e = experts; e > 0; --e) op.begin[e] = op.begin[e - 1];
  op.begin[0] = 0;
}

void swiglu(Queue& queue, const SwiGlu& op) {
  for_each_row(queue, op.gate.rows, [&](int64_t r) {
    std::vector<float> out(size_t(op.gate.cols));
    const double weight = op.weight.empty() ? 1 : op.weight[r];
    for (int64_t i = 0; i < op.gate.cols; ++i) {
      double g = load(op.gate.dtype, op.gate.row(r), i), u = load(op.up.dtype, op.up.row(r), i);
      if (op.limit > 0) {
        g = std::min(g, double(op.limit));
        u = std::clamp(u, -double(op.limit), double(op.limit));
      }
      out[size_t(i)] = rounded(op.gate.dtype, g / (1 + std::exp(-g)) * u * weight);
    }
    put_row(op.out, op.q8, r, out);
  });
}

void combine_row(const AnyView& routed, View<const int32_t, 2> place, const AnyView& shared, int64_t r,
                 std::span<float> out) {
  for (int64_t i = 0; i < int64_t(out.size()); ++i) {
    double sum = 0;
    for (int64_t slot = 0; slot < place.shape[1]; ++slot) sum += load(routed.dtype, routed.row(place(r, slot)), i);
    out[size_t(i)] = rounded(shared.dtype, sum + load(shared.dtype, shared.row(r), i));
  }
}

void combine(Queue& queue, const Combine& op) {
  for_each_row(queue, op.shared.rows, [&](int64_t r) {
    std::vector<float> out(size_t(op.shared.cols));
    combine_row(op.routed, op.place, op.shared, r, out);
    put_row(op.out, {}, r, out);
  });
}

}  // namespace fathom::reference
