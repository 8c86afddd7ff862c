#include "fathom/engine/waiting_queue.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace fathom {

void WaitingQueue::push(const Waiting& one) {
  const bool tenant_was_away =
      std::none_of(lanes_.begin(), lanes_.end(), [&](const auto& lane) { return lane.second.tenant == one.tenant; });
  if (tenant_was_away && !lanes_.empty()) {
    int64_t least = std::numeric_limits<int64_t>::max();
    for (const auto& [key, lane] : lanes_) least = std::min(least, served(lane.tenant));
    served_[one.tenant] = std::max(served(one.tenant), least);
  }
  Lane& lane = lanes_[{one.priority, one.tenant}];
  lane.priority = one.priority;
  lane.tenant = one.tenant;
  const double due = one.first_token_by.value_or(one.arrived + policy_.patience_seconds);
  const Place place{due, pushes_++, one.id, one.arrived, one.rows};
  lane.places.insert(place);
  check(entries_.emplace(one.id, Entry{one, &lane, place}).second, "a request waits once");
}

bool WaitingQueue::remove(SequenceId id) {
  const auto at = entries_.find(id);
  if (at == entries_.end()) return false;
  Lane& lane = *at->second.lane;
  lane.places.erase(at->second.place);
  if (lane.places.empty()) lanes_.erase({lane.priority, lane.tenant});
  entries_.erase(at);
  return true;
}

int64_t WaitingQueue::served(uint32_t tenant) const {
  const auto at = served_.find(tenant);
  return at == served_.end() ? 0 : at->second;
}

int64_t WaitingQueue::rank(const Lane& lane, const Place& place, double now) const {
  const double waited = std::max(0.0, now - place.arrived);
  return lane.priority + int64_t(std::floor(waited / policy_.ageing_seconds));
}

std::span<const SequenceId> WaitingQueue::order(double now) {
  order_.clear();
  ahead_.clear();
  for (auto& [key, lane] : lanes_) lane.next = lane.places.begin();
  while (int(order_.size()) < policy_.look_ahead) {
    Lane* best = nullptr;
    int64_t best_rank = 0, best_served = 0;
    for (auto& [key, lane] : lanes_) {
      if (lane.next == lane.places.end()) continue;
      const int64_t rank_here = rank(lane, *lane.next, now);
      const int64_t served_here = served(lane.tenant) + ahead_[lane.tenant];
      const bool better = best == nullptr || rank_here > best_rank ||
                          (rank_here == best_rank &&
                           (served_here < best_served || (served_here == best_served && *lane.next < *best->next)));
      if (better) best = &lane, best_rank = rank_here, best_served = served_here;
    }
    if (best == nullptr) break;
    order_.push_back(best->next->id);
    ahead_[best->tenant] += best->next->rows;
    ++best->next;
  }
  return order_;
}

void WaitingQueue::charge(uint32_t tenant, int64_t rows) { served_[tenant] += rows; }

const Waiting* WaitingQueue::find(SequenceId id) const {
  const auto at = entries_.find(id);
  return at == entries_.end() ? nullptr : &at->second.waiting;
}

std::optional<double> WaitingQueue::earliest_due() const {
  std::optional<double> out;
  for (const auto& [key, lane] : lanes_) {
    const double due = lane.places.begin()->due;
    out = std::min(out.value_or(due), due);
  }
  return out;
}

}  // namespace fathom
