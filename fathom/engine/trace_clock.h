// fathom/engine/trace_clock.h
// When the requests of a trace come and are cancelled: at their time, or, in a session, a pause after the request
// before them has ended. The same for a simulated and a real clock.
#pragma once
#include <optional>
#include <queue>
#include <span>
#include <vector>

#include "fathom/engine/trace.h"

namespace fathom {

/// The trace must outlive it.
class TraceClock {
 public:
  explicit TraceClock(std::span<const TraceRequest> trace);

  struct Due {
    enum class Kind { arrival, cancel } kind = Kind::arrival;
    size_t request = 0;  // of the trace
    double time = 0;     // seconds since the start of the trace
  };
  /// When something is due next; nothing when nothing is, now or before somebody ends.
  std::optional<double> next() const;
  /// What is due at `now`, the earliest first; nothing when nothing is.
  std::optional<Due> take(double now);
  /// A request has ended, whatever way, with all its answers.
  void ended(size_t request, double now);

 private:
  struct Event {
    Due due;
    uint64_t order = 0;  // of what happens at the same time
    bool operator>(const Event& other) const {
      return due.time != other.due.time ? due.time > other.due.time : order > other.order;
    }
  };
  void push(Due::Kind kind, size_t request, double time) { events_.push({{kind, request, time}, pushed_++}); }

  std::span<const TraceRequest> trace_;
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
  uint64_t pushed_ = 0;
  std::vector<std::optional<size_t>> follower_;  // by request: the next of its session, which waits for it
};

}  // namespace fathom
