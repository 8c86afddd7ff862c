#include "fathom/engine/trace_clock.h"

#include <algorithm>
#include <functional>
#include <unordered_map>

namespace fathom {

TraceClock::TraceClock(std::span<const TraceRequest> trace) : trace_(trace), follower_(trace.size()) {
  std::unordered_map<std::string, size_t> last_of_session;
  for (size_t i = 0; i < trace.size(); ++i) {
    bool waits = false;
    if (!trace[i].session.empty()) {
      const auto [at, is_first] = last_of_session.try_emplace(trace[i].session, i);
      waits = !is_first && trace[i].pause_seconds.has_value();
      if (waits) follower_[at->second] = i;
      at->second = i;
    }
    if (!waits) push(Due::Kind::arrival, i, trace[i].arrival);
  }
}

std::optional<double> TraceClock::next() const {
  if (events_.empty()) return {};
  return events_.top().due.time;
}

std::optional<TraceClock::Due> TraceClock::take(double now) {
  if (events_.empty() || events_.top().due.time > now) return {};
  const Due due = events_.top().due;
  events_.pop();
  const TraceRequest& request = trace_[due.request];
  if (due.kind == Due::Kind::arrival && request.cancel_seconds) {
    push(Due::Kind::cancel, due.request, due.time + *request.cancel_seconds);
  }
  return due;
}

void TraceClock::ended(size_t request, double now) {
  const auto next = follower_[request];
  if (next) push(Due::Kind::arrival, *next, std::max(trace_[*next].arrival, now + *trace_[*next].pause_seconds));
}

}  // namespace fathom
