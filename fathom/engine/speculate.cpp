#include "fathom/engine/speculate.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>

#include "fathom/base/check.h"

namespace fathom {
namespace {

// The next factor of a cumulative confidence. Rounded to float in the drafts' order, as a device does it.
float factor(float confidence) { return std::isnan(confidence) ? 1.f : std::clamp(confidence, 0.f, 1.f); }

double with_corrections(const StepCost& cost, double milliseconds, int rows) {
  return milliseconds + std::max(0.0, cost.slope_milliseconds) * rows + cost.sampler_milliseconds;
}

// Time of `rows` rows; `at` is the first point of at least so many.
double time_at(const StepCost& cost, size_t at, int rows) {
  if (at == cost.curve.size()) return std::numeric_limits<double>::infinity();
  const CostPoint& above = cost.curve[at];
  if (cost.padded || at == 0) return with_corrections(cost, above.milliseconds, cost.padded ? above.rows : rows);
  const CostPoint& below = cost.curve[at - 1];
  const double part = double(rows - below.rows) / double(above.rows - below.rows);
  return with_corrections(cost, below.milliseconds + part * (above.milliseconds - below.milliseconds), rows);
}

}  // namespace

double step_milliseconds(const StepCost& cost, int rows) {
  const auto at = std::lower_bound(cost.curve.begin(), cost.curve.end(), rows,
                                   [](const CostPoint& point, int wanted) { return point.rows < wanted; });
  return time_at(cost, size_t(at - cost.curve.begin()), rows);
}

void VerificationPlanner::list(const Confidences& from) {
  const size_t sequences = from.drafts.size();
  keys_.clear();
  owner_.clear();
  for (size_t i = 0; i < sequences; ++i) {
    float cumulative = 1;
    for (int k = 0; k < from.drafts[i]; ++k) {
      cumulative *= factor(from.values(int64_t(i), k));
      keys_.push_back(std::bit_cast<uint32_t>(cumulative));
      owner_.push_back(int32_t(i));
    }
  }
}

// Bits of floats in [0, 1] rise with them and lie below 2^30: three passes of 10 bits, each stable, so that equal ones
// keep the order of (sequence, draft). A cumulative confidence never exceeds the one before it: what is taken of a
// sequence is a prefix.
void VerificationPlanner::sort_falling() {
  constexpr uint32_t kBins = 1024;
  const size_t count = keys_.size();
  sorted_keys_.resize(count);
  sorted_owner_.resize(count);
  if (count <= 48) {  // the bins would cost more than they save
    for (size_t i = 1; i < count; ++i) {
      const uint32_t key = keys_[i];
      const int32_t owner = owner_[i];
      size_t at = i;
      for (; at > 0 && keys_[at - 1] < key; --at) keys_[at] = keys_[at - 1], owner_[at] = owner_[at - 1];
      keys_[at] = key, owner_[at] = owner;
    }
    return;
  }
  std::array<std::array<uint32_t, kBins>, 3> bins{};
  for (const uint32_t key : keys_) {
    for (uint32_t pass = 0; pass < 3; ++pass) ++bins[pass][~(key >> 10 * pass) % kBins];
  }
  for (uint32_t pass = 0; pass < 3; ++pass) {
    uint32_t begin = 0;
    for (uint32_t& bin : bins[pass]) {  // counts become places
      const uint32_t in_bin = bin;
      bin = begin;
      begin += in_bin;
    }
    for (size_t i = 0; i < count; ++i) {
      const uint32_t at = bins[pass][~(keys_[i] >> 10 * pass) % kBins]++;
      sorted_keys_[at] = keys_[i];
      sorted_owner_[at] = owner_[i];
    }
    keys_.swap(sorted_keys_);
    owner_.swap(sorted_owner_);
  }
}

RowChoice VerificationPlanner::choose_rows(const StepCost& cost, const Confidences& older) {
  const int sequences = int(older.drafts.size());
  list(older);
  sort_falling();
  size_t point = 0;
  const auto reach = [&](int rows) {
    while (point < cost.curve.size() && cost.curve[point].rows < rows) ++point;
    return time_at(cost, point, rows);
  };
  RowChoice best{sequences, double(sequences), reach(sequences)};
  double expected = sequences;
  for (size_t extra = 0; extra < keys_.size(); ++extra) {
    expected += double(std::bit_cast<float>(keys_[extra]));
    const int rows = sequences + int(extra) + 1;
    // Padded, the rows up to the next size are free: only its end and the end of the drafts can be a maximum.
    const bool inside = cost.padded && extra + 1 < keys_.size() && keys_[extra + 1] > 0 && point < cost.curve.size() &&
                        rows < cost.curve[point].rows;
    if (inside) continue;
    const double milliseconds = reach(rows);
    if (!std::isfinite(milliseconds)) break;
    if (expected * best.milliseconds > best.expected_tokens * milliseconds) best = {rows, expected, milliseconds};
  }
  return best;
}

void VerificationPlanner::split_rows(int total_rows, const Confidences& newest, std::span<int> rows) {
  check(rows.size() == newest.drafts.size(), "every sequence gets its rows");
  std::fill(rows.begin(), rows.end(), 1);
  list(newest);
  const size_t extra = std::min(size_t(std::max(total_rows - int(rows.size()), 0)), keys_.size());
  if (extra == 0) return;
  if (extra < keys_.size()) sort_falling();
  for (size_t i = 0; i < extra; ++i) ++rows[size_t(owner_[i])];
}

void split_rows_by_rank(int total_rows, const Confidences& newest, std::span<int> rows) {
  const size_t sequences = newest.drafts.size();
  const auto cumulative = [&](size_t i, int k) {
    float product = 1;
    for (int j = 0; j <= k; ++j) product *= factor(newest.values(int64_t(i), j));
    return product;
  };
  for (size_t i = 0; i < sequences; ++i) {
    rows[i] = 1;
    for (int k = 0; k < newest.drafts[i]; ++k) {
      int rank = 0;
      for (size_t other = 0; other < sequences; ++other) {
        for (int j = 0; j < newest.drafts[other]; ++j) {
          const float mine = cumulative(i, k), theirs = cumulative(other, j);
          rank += theirs > mine || (theirs == mine && (other < i || (other == i && j < k)));
        }
      }
      rows[i] += rank < total_rows - int(sequences);
    }
  }
}

}  // namespace fathom
