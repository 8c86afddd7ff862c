// From logits to a token: the steps of law.h, and the draw, which inverts the running sum of the law's integers or runs
// the race of race.h.
#include <cmath>
#include <numeric>
#include <vector>

#include "fathom/backend/draw.h"
#include "fathom/backend/law.h"
#include "fathom/backend/race.h"
#include "fathom/backend/reference/reference.h"

namespace fathom::reference {
namespace {

// NaN is no token: it counts as -inf.
float logit_of(float logit) { return std::isnan(logit) ? -INFINITY : logit; }

double sum_of(const std::vector<double>& weight) {
  double lanes[8] = {};
  for (size_t i = 0; i < weight.size(); ++i) lanes[i % 8] += weight[i];
  for (size_t half = 4; half > 0; half /= 2) {
    for (size_t l = 0; l < half; ++l) lanes[l] += lanes[l + half];
  }
  return lanes[0];
}

void greedy_law(std::span<const float> logits, std::span<uint32_t> law) {
  size_t best = 0;
  for (size_t i = 1; i < logits.size(); ++i) {
    if (logit_of(logits[i]) > logit_of(logits[best])) best = i;
  }
  std::fill(law.begin(), law.end(), 0u);
  law[best] = uint32_t(kCertain);
}

// Sets the weights outside the top-k/top-p prefix to 0.
void keep_top(std::span<const float> logits, const RowSampling& row, double total, std::vector<double>& weight) {
  const uint64_t wanted = uint64_t(std::floor(double(row.top_p) * kCertain)) + 1;
  std::vector<size_t> order(logits.size());
  std::iota(order.begin(), order.end(), size_t(0));
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return logit_of(logits[a]) > logit_of(logits[b]); });
  uint64_t mass = 0;
  size_t kept = 0;
  while (kept < order.size() && mass < wanted && (row.top_k <= 0 || kept < size_t(row.top_k))) {
    mass += uint64_t(std::floor(weight[order[kept++]] / total * kCertain));
  }
  for (size_t i = kept; i < order.size(); ++i) weight[order[i]] = 0;
}

void law_of(std::span<const float> logits, const RowSampling& row, std::span<uint32_t> law) {
  float best = -INFINITY;
  for (const float logit : logits) best = std::max(best, logit_of(logit));
  if (row.temperature < kGreedyBelow || !std::isfinite(best)) return greedy_law(logits, law);
  std::vector<double> weight(logits.size());
  for (size_t i = 0; i < logits.size(); ++i) {
    weight[i] = law_weight(double(logit_of(logits[i])) / row.temperature - double(best) / row.temperature);
  }
  const double total = sum_of(weight);
  if (row.top_k > 0 || row.top_p < 1) keep_top(logits, row, total, weight);
  for (double& w : weight) w = w >= row.min_p ? w : 0;
  const double kept = sum_of(weight);
  for (size_t i = 0; i < law.size(); ++i) law[i] = uint32_t(std::floor(weight[i] / kept * kCertain));
}

int32_t race(std::span<const uint32_t> law, const RowSampling& row) {
  double best = INFINITY;
  size_t winner = 0;
  for (size_t id = 0; id < law.size(); ++id) {
    if (law[id] == 0) continue;
    const double time = exponential_time(race_bits(row.seed, row.position, uint32_t(id))) / law[id];
    if (time < best) best = time, winner = id;
  }
  return int32_t(winner);
}

int32_t draw(std::span<const uint32_t> law, const RowSampling& row) {
  if (row.role == kCoupled) return race(law, row);
  const uint64_t total = std::accumulate(law.begin(), law.end(), uint64_t(0));
  uint64_t left = uniform_below(total, row.seed, row.position, row.role);
  size_t id = 0;
  while (left >= law[id]) left -= law[id++];
  return int32_t(id);
}

// Returns the tokens of the law; those that fit are in `list`.
int32_t list_law(std::span<const uint32_t> law, std::span<TokenWeight> list) {
  size_t count = 0;
  for (size_t id = 0; id < law.size(); ++id) {
    if (law[id] == 0) continue;
    if (count < list.size()) list[count] = {int32_t(id), law[id]};
    ++count;
  }
  return int32_t(count);
}

}  // namespace

void sample(Queue& queue, const Sample& op) {
  for_each_row(queue, op.count(), [&](int64_t r) {
    std::vector<uint32_t> own(op.laws.empty() ? size_t(op.logits.shape[1]) : 0);
    const std::span<uint32_t> law = op.laws.empty() ? std::span(own) : op.laws.row(r);
    const RowSampling& row = op.rows[size_t(r)];
    law_of(op.logits.row(op.source.empty() ? r : op.source[r]), row, law);
    if (!op.ids.empty()) op.ids[r] = draw(law, row);
    if (!op.lists.empty()) op.list_counts[r] = list_law(law, op.lists.row(r));
  });
}

}  // namespace fathom::reference
