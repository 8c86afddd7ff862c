// fathom/server/engine_service.h
// An engine that many threads may ask. Two threads of its own:
//
//   engine    takes what was asked and cancelled, runs one step, hands its events on, again and again; asleep when
//             nothing is open
//   answers   gives each event to the sink of its request, so that reading and writing text never holds up a step;
//             four times a second it also lets every open sink look at the clock
//
// Between them stands one bounded queue: an engine that is faster than the answers waits for them. Cost: two locks a
// step, whatever the number of streams. A request that cannot be served ends alone, with an event that says why. A step
// that fails as a whole (the device is lost, memory ran out, a library threw) ends the engine, and every open request
// with it: what the engine knows of its caches is then worth nothing. The process can still tell so, and should end.
// Source: spec/engine.md; spec/codec-policy.md 5; design/architecture.md 6.
#pragma once
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "fathom/server/engine_port.h"

namespace fathom {

using Ticket = uint64_t;

/// Where the events of one request go. Both are called on the thread of the answers, never at the same time, and must
/// not block. `on_event`: the last call has `finish`; there is exactly one such call, and nothing after it.
struct RequestSink {
  std::function<void(const Event&)> on_event;  // its `request` is the ticket
  std::function<void(Ticket)> on_tick;         // four times a second while the request is open; may be empty
};

struct EngineServiceOptions {
  int64_t most_waiting = 512;                       // requests beyond those that run; then submit refuses
  std::chrono::milliseconds tick{250};              // of on_tick
  std::chrono::milliseconds longest_step{25'000};   // a step that takes longer makes the service not ready
  int64_t most_queued_events = 65536;               // between the two threads; then the engine waits
  std::function<void(const Error&)> on_death = {};  // once, from the engine's thread, when health() says why
};

struct EngineHealth {
  bool ready = true;
  bool dead = false;    // no request will ever be served again
  bool stuck = false;   // no step for longer than longest_step while requests are open
  std::string problem;  // why not: "no step for 31 s"
  int64_t open = 0, waiting = 0;
  uint64_t steps = 0;              // so far
  std::optional<double> step_age;  // seconds since the last step ended, or since work came; none when idle
};

class EngineService {
 public:
  explicit EngineService(EnginePort port, EngineServiceOptions options = {});
  /// As stop().
  ~EngineService();
  EngineService(const EngineService&) = delete;
  EngineService& operator=(const EngineService&) = delete;

  /// Any thread. Checks the request and queues it; a later refusal by the engine comes as an event. Errors: those of
  /// check_request (usage, out_of_range); out_of_memory: too many wait; interrupted: the service drains or has stopped;
  /// failed: the engine died. Then the sink is never called.
  Result<Ticket> submit(Request request, RequestSink sink);
  /// Any thread. Takes effect before the next step; the final event says cancelled. Unknown tickets are ignored.
  void cancel(Ticket ticket);

  /// Any thread. `job` gets what EnginePort::state says, on the engine's thread, before its next step. False: the
  /// engine has ended or tells nothing, and the job is not called.
  bool look(size_t most_steps, std::function<void(std::string)> job);

  /// Any thread.
  EngineHealth health() const;
  /// Seconds after which a refused request may find room: from the mean time of the last requests, 1 to 60.
  int retry_after_seconds() const;
  const RequestLimits& limits() const;

  /// From now on submit refuses; what is open goes on.
  void drain();
  /// Whether everything open ended before `deadline`.
  bool wait_until_idle(std::chrono::steady_clock::time_point deadline);
  /// Drains, fails what is still open with `interrupted`, ends both threads. Waits for the running step.
  void stop();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace fathom
