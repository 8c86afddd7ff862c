// fathom/backend/cpu/gate.cpp
// The gate: logits are a product like any other, scores are computed side by side, the choice is made row by row.
#include <cmath>

#include "fathom/backend/cpu/lanes.h"
#include "fathom/backend/cpu/product.h"
#include "fathom/backend/cpu/scratch.h"

namespace fathom::cpu {
namespace {

/// sqrt(log(1 + e^x)), within 6 units of the last place.
[[gnu::always_inline]] inline float score_of(float x) {
  // log(1 + e^x) = max(x, 0) + log(1 + t), t = e^-|x|; log(1 + t) = 2 artanh(z), z = t / (2 + t) <= 1 / 3: the first
  // term left out is z^16 / 17 < 2^-29 of the sum. Where t is the whole sum its root is known, and does not vanish.
  const float root = exp_of(-0.5f * std::abs(x)), t = root * root, z = t / (2 + t), zz = z * z;
  float sum = 1.0f / 15;
  sum = std::fma(sum, zz, 1.0f / 13);
  sum = std::fma(sum, zz, 1.0f / 11);
  sum = std::fma(sum, zz, 1.0f / 9);
  sum = std::fma(sum, zz, 1.0f / 7);
  sum = std::fma(sum, zz, 1.0f / 5);
  sum = std::fma(sum, zz, 1.0f / 3);
  const float log1p = 2 * std::fma(sum * zz, z, z);
  const float whole = std::sqrt(std::max(x, 0.0f) + log1p);
  return x < -20 ? root : whole;
}

[[gnu::target("avx2,fma")]] void scores_avx2(const float* logits, int64_t count, float* out) {
  for (int64_t i = 0; i < count; ++i) out[i] = score_of(logits[i]);
}
[[gnu::target("avx512f,avx512bw,avx512dq,avx512vl")]] void scores_avx512(const float* logits, int64_t count,
                                                                         float* out) {
  for (int64_t i = 0; i < count; ++i) out[i] = score_of(logits[i]);
}

/// The largest of `left`, the first of equals, which becomes NaN: chosen. NaN is never larger; if nothing else is left
/// the first expert that this row has not chosen is taken, so that the choice stays a set.
int32_t choose(float* left, int64_t experts, const int32_t* chosen, int64_t chosen_count) {
  int64_t best = -1;
  float value = -INFINITY;
  for (int64_t e = 0; e < experts; ++e) {
    if (left[e] > value || (best < 0 && left[e] == value)) {
      best = e;
      value = left[e];
    }
  }
  for (best = std::max<int64_t>(best, 0);
       std::find(chosen, chosen + chosen_count, int32_t(best)) != chosen + chosen_count;) {
    ++best;
  }
  left[best] = NAN;
  return int32_t(best);
}

}  // namespace

void run_gate(Queue& queue, const Gate& op, const ProductVariant& variant) {
  static thread_local Scratch scratch;
  constexpr int64_t kMostChosen = 64;
  const int64_t experts = op.weight.rows, count = op.experts.shape[1], rows = op.x.rows;
  check(count <= std::min(experts, kMostChosen), "gate: at most 64 experts are chosen, and not more than there are");
  float* logits = scratch.get<float>(2 * rows * experts);
  float* biased = logits + rows * experts;
  Linear product;
  product.x = Matrix(op.x);
  product.weight = Matrix(op.weight);
  product.out = {reinterpret_cast<uint8_t*>(logits), DType::f32, rows, experts};
  run_linear(queue, product, variant);

  const auto scores = variant.wide ? scores_avx512 : scores_avx2;
  for_row_pieces(queue, rows, 50 + experts * (2 + count), [&](int64_t begin, int64_t end) {
    scores(logits + begin * experts, (end - begin) * experts, logits + begin * experts);
    for (int64_t r = begin; r < end; ++r) {
      const View<const float, 1>& bias = !op.image.empty() && op.image[r] != 0 ? op.bias_image : op.bias;
      const float* score = logits + r * experts;
      float* left = biased + r * experts;
      for (int64_t e = 0; e < experts; ++e) left[e] = score[e] + bias[e];
      int32_t chosen[kMostChosen];
      double sum = 1e-20;
      for (int64_t i = 0; i < count; ++i) {
        chosen[i] = choose(left, experts, chosen, i);
        sum += double(score[chosen[i]]);
      }
      for (int64_t i = 0; i < count; ++i) {
        op.experts(r, i) = chosen[i];
        op.weights(r, i) = float(double(score[chosen[i]]) / sum * double(op.scale));
      }
    }
  });
}

}  // namespace fathom::cpu
