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

// A heap of lanes by who stands first in them. What a candidate takes makes its tenant's other lanes wait longer, never
// shorter, so a lane whose place is out of date is found when it comes up, and put back.
std::span<const SequenceId> WaitingQueue::order(double now) {
  order_.clear();
  ahead_.clear();
  candidates_.clear();
  const auto candidate = [&](Lane& lane) {
    const auto ahead = ahead_.find(lane.tenant);
    const int64_t rows = ahead == ahead_.end() ? 0 : ahead->second;
    return Candidate{&lane, rank(lane, *lane.next, now), served(lane.tenant) + rows};
  };
  const auto comes_later = [](const Candidate& a, const Candidate& b) {
    if (a.rank != b.rank) return a.rank < b.rank;
    if (a.served != b.served) return a.served > b.served;
    return *b.lane->next < *a.lane->next;
  };
  for (auto& [key, lane] : lanes_) {
    lane.next = lane.places.begin();
    candidates_.push_back(candidate(lane));
  }
  std::make_heap(candidates_.begin(), candidates_.end(), comes_later);
  while (int(order_.size()) < policy_.look_ahead && !candidates_.empty()) {
    std::pop_heap(candidates_.begin(), candidates_.end(), comes_later);
    Candidate& first = candidates_.back();
    Lane& lane = *first.lane;
    const Candidate at_present = candidate(lane);
    if (at_present.served == first.served) {
      order_.push_back(lane.next->id);
      ahead_[lane.tenant] += lane.next->rows;
      if (++lane.next == lane.places.end()) {
        candidates_.pop_back();
        continue;
      }
      first = candidate(lane);
    } else {
      first = at_present;
    }
    std::push_heap(candidates_.begin(), candidates_.end(), comes_later);
  }
  return order_;
}

void WaitingQueue::charge(uint32_t tenant, int64_t rows) { served_[tenant] += rows; }

void WaitingQueue::forget(uint32_t tenant) { served_.erase(tenant); }

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
