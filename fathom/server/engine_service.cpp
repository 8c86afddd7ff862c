#include "fathom/server/engine_service.h"

#include <algorithm>
#include <cmath>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <new>
#include <thread>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "fathom/base/check_note.h"

namespace fathom {
namespace {

using Clock = std::chrono::steady_clock;

double seconds(Clock::duration time) { return std::chrono::duration<double>(time).count(); }

struct Open {
  Ticket ticket = 0;
  RequestSink sink;
  Clock::time_point submitted;
  std::optional<RequestId> id;  // of the engine; the engine's thread only
  bool ended = false;           // the engine's thread only: its last event is on the way
};
using OpenRequest = std::shared_ptr<Open>;

struct Delivery {
  OpenRequest to;
  Event event;
  bool opened = false;  // no event: the request exists from now on
};

Event last_event(FinishReason reason, Error error) {
  Event event;
  event.finish = Finish{reason, std::move(error), {}};
  return event;
}

/// With the step and the phase that a library's exception came from (case obs-03).
Error death_of(std::string what) {
  const std::string notes = take_unwound_notes();
  return {ErrorCode::failed, "the engine has ended: " + std::move(what) + (notes.empty() ? "" : " (" + notes + ")"), "",
          "restart the server"};
}

const Error kStopped{ErrorCode::interrupted, "the server is shutting down", "", "send the request again"};

}  // namespace

struct EngineService::State {
  EnginePort port;
  const EngineServiceOptions options;

  mutable std::mutex mutex;
  std::condition_variable engine_wakes, answers_wake, emptied;
  // Under `mutex`.
  std::vector<std::pair<OpenRequest, Request>> asked;
  std::vector<Ticket> cancelled;
  std::vector<std::pair<size_t, std::function<void(std::string)>>> looks;
  std::vector<Delivery> deliveries;
  int64_t open = 0;
  Ticket next = 1;
  bool draining = false, stopping = false, engine_ended = false;
  std::optional<Error> died;
  uint64_t steps = 0;
  Clock::time_point busy_since, last_step;
  double mean_seconds = 1;  // of a request; the last ones count most

  // The engine's thread only.
  std::unordered_map<RequestId, OpenRequest> by_id;
  std::unordered_map<Ticket, OpenRequest> by_ticket;
  // The thread of the answers only.
  std::unordered_set<OpenRequest> listening;

  std::thread engine, answers;

  State(EnginePort p, EngineServiceOptions o) : port(std::move(p)), options(std::move(o)) {}

  int64_t waiting() const { return std::max<int64_t>(0, open - port.sequences); }

  void run_engine();
  std::optional<Error> step(std::vector<Delivery>& out);
  bool wait_for_work(std::vector<std::pair<OpenRequest, Request>>& new_ones, std::vector<Ticket>& stops);
  void show();
  void admit(OpenRequest one, Request request, std::vector<Delivery>& out);
  void hand_on(std::vector<Delivery>& out);
  void end_all(const Error& error, std::vector<Delivery>& out);
  void end(const OpenRequest& one, Event event, std::vector<Delivery>& out);

  void run_answers();
  void deliver(Delivery& delivery);
  template <class Call>
  void call(Open& one, Call&& sink);
};

// False when the service stops.
bool EngineService::State::wait_for_work(std::vector<std::pair<OpenRequest, Request>>& new_ones,
                                         std::vector<Ticket>& stops) {
  std::unique_lock lock(mutex);
  const auto wanted = [&] { return stopping || !asked.empty() || !by_id.empty() || !looks.empty(); };
  for (bool more = bool(port.idle_work); more && !wanted();) {
    lock.unlock();
    try {
      more = port.idle_work();
    } catch (const std::exception&) {  // nobody waits for it; if the device is gone the next step says so
      more = false;
    }
    lock.lock();
  }
  engine_wakes.wait(lock, wanted);
  new_ones.swap(asked);
  stops.swap(cancelled);
  return !stopping;
}

void EngineService::State::show() {
  decltype(looks) taken;
  {
    const std::lock_guard lock(mutex);
    taken.swap(looks);
  }
  for (const auto& [most_steps, job] : taken) job(port.state(most_steps));
}

void EngineService::State::end(const OpenRequest& one, Event event, std::vector<Delivery>& out) {
  if (one->id) by_id.erase(*one->id);
  by_ticket.erase(one->ticket);
  one->ended = true;
  out.push_back({one, std::move(event)});
}

void EngineService::State::admit(OpenRequest one, Request request, std::vector<Delivery>& out) {
  Result<RequestId> id = RequestId(0);
  try {  // a prompt that memory has no room for ends alone
    id = port.submit(std::move(request));
  } catch (const std::bad_alloc&) {
    id = Error{ErrorCode::out_of_memory, "no memory for this request", "", "send a shorter one, or try again later"};
  }
  if (!id) {
    end(one, last_event(FinishReason::rejected, id.error()), out);
    return;
  }
  one->id = *id;
  by_ticket.emplace(one->ticket, one);
  by_id.emplace(*id, std::move(one));
}

void EngineService::State::end_all(const Error& error, std::vector<Delivery>& out) {
  std::vector<OpenRequest> all;
  for (auto& [id, one] : by_id) all.push_back(one);
  for (const OpenRequest& one : all) end(one, last_event(FinishReason::failed, error), out);
}

void EngineService::State::hand_on(std::vector<Delivery>& out) {
  if (out.empty()) return;
  std::unique_lock lock(mutex);
  // A step that brings more than the queue holds still goes through as a whole.
  emptied.wait(lock, [&] { return int64_t(deliveries.size()) < options.most_queued_events; });
  const bool wake = deliveries.empty();
  std::move(out.begin(), out.end(), std::back_inserter(deliveries));
  out.clear();
  if (wake) answers_wake.notify_one();
}

/// One step and its events; the error that ends the engine.
std::optional<Error> EngineService::State::step(std::vector<Delivery>& out) {
  try {
    const auto events = port.step();
    if (!events) return death_of(to_string(events.error()));
    for (const Event& event : *events) {
      const auto found = by_id.find(event.request);
      if (found == by_id.end()) continue;
      const OpenRequest one = found->second;
      if (event.finish) {
        end(one, event, out);
      } else {
        out.push_back({one, event});
      }
    }
    return {};
  } catch (const std::bad_alloc&) {
    return death_of("it ran out of memory");
  } catch (const std::exception& thrown) {
    return death_of(thrown.what());
  }
}

void EngineService::State::run_engine() {
  std::vector<std::pair<OpenRequest, Request>> new_ones;
  std::vector<Ticket> stops;
  std::vector<Delivery> out;
  bool running = true;
  std::optional<Error> death;
  while (running) {
    running = wait_for_work(new_ones, stops);
    for (auto& [one, request] : new_ones) admit(std::move(one), std::move(request), out);
    new_ones.clear();
    for (const Ticket ticket : stops) {
      const auto found = by_ticket.find(ticket);
      if (found != by_ticket.end()) port.cancel(*found->second->id);
    }
    stops.clear();
    show();
    if (running && !by_id.empty()) {
      death = step(out);
      running = !death;
      const std::lock_guard lock(mutex);
      ++steps;
      last_step = Clock::now();
      if (death) died = death;
    }
    if (!running) end_all(death ? *death : kStopped, out);
    hand_on(out);
  }
  // What came in between the last look and `died` or `stopping`.
  {
    const std::lock_guard lock(mutex);
    engine_ended = true;
    new_ones.swap(asked);
  }
  show();  // the engine stands still, it may be looked at
  for (auto& [one, request] : new_ones) end(one, last_event(FinishReason::failed, death ? *death : kStopped), out);
  hand_on(out);
  if (death && options.on_death) options.on_death(*death);
  const std::lock_guard lock(mutex);
  answers_wake.notify_one();
}

// An answer that memory has no room for ends alone: its sink goes, and with it what it held.
template <class Call>
void EngineService::State::call(Open& one, Call&& sink) {
  try {
    sink();
  } catch (const std::bad_alloc&) {
    one.sink = {};
    const std::lock_guard lock(mutex);
    if (!engine_ended) cancelled.push_back(one.ticket);
  }
}

void EngineService::State::deliver(Delivery& delivery) {
  if (delivery.opened) {
    listening.insert(std::move(delivery.to));
    return;
  }
  Open& one = *delivery.to;
  delivery.event.request = one.ticket;
  if (one.sink.on_event) call(one, [&] { one.sink.on_event(delivery.event); });
  if (!delivery.event.finish) return;
  const double took = seconds(Clock::now() - one.submitted);
  one.sink = {};
  listening.erase(delivery.to);
  const std::lock_guard lock(mutex);
  mean_seconds += 0.1 * (took - mean_seconds);
  if (--open == 0) emptied.notify_all();
}

void EngineService::State::run_answers() {
  std::vector<Delivery> taken;
  auto next_tick = Clock::now() + options.tick;
  while (true) {
    {
      std::unique_lock lock(mutex);
      const auto wakes = [&] { return !deliveries.empty() || (engine_ended && stopping); };
      if (listening.empty()) {
        answers_wake.wait(lock, wakes);
        next_tick = Clock::now() + options.tick;
      } else {
        answers_wake.wait_until(lock, next_tick, wakes);
      }
      if (deliveries.empty() && engine_ended && stopping) return;
      taken.swap(deliveries);
      emptied.notify_all();
    }
    for (Delivery& delivery : taken) deliver(delivery);
    taken.clear();
    if (Clock::now() < next_tick) continue;
    next_tick = Clock::now() + options.tick;
    for (const OpenRequest& one : listening) {
      if (one->sink.on_tick) call(*one, [&] { one->sink.on_tick(one->ticket); });
    }
  }
}

EngineService::EngineService(EnginePort port, EngineServiceOptions options)
    : state_(std::make_unique<State>(std::move(port), std::move(options))) {
  State& s = *state_;
  s.engine = std::thread([&s] { s.run_engine(); });
  s.answers = std::thread([&s] { s.run_answers(); });
}

EngineService::~EngineService() { stop(); }

Result<Ticket> EngineService::submit(Request request, RequestSink sink) {
  State& s = *state_;
  if (auto checked = check_request(request, s.port.limits); !checked) return checked.error();
  auto one = std::make_shared<Open>();
  one->sink = std::move(sink);
  one->submitted = Clock::now();
  const std::lock_guard lock(s.mutex);
  if (s.died) return *s.died;
  if (s.draining || s.stopping) return kStopped;
  if (s.open + 1 - s.port.sequences > s.options.most_waiting) {
    return Error{ErrorCode::out_of_memory, std::to_string(s.waiting()) + " requests are waiting already", "",
                 "try again later"};
  }
  one->ticket = s.next++;
  if (s.open++ == 0) s.busy_since = Clock::now();
  const Ticket ticket = one->ticket;
  // Before its first event, because that goes through the same queue.
  s.deliveries.push_back({one, {}, true});
  s.asked.emplace_back(std::move(one), std::move(request));
  s.engine_wakes.notify_one();
  s.answers_wake.notify_one();
  return ticket;
}

void EngineService::cancel(Ticket ticket) {
  State& s = *state_;
  const std::lock_guard lock(s.mutex);
  if (!s.engine_ended) s.cancelled.push_back(ticket);  // looked at before the next step; without one nothing is open
}

bool EngineService::look(size_t most_steps, std::function<void(std::string)> job) {
  State& s = *state_;
  const std::lock_guard lock(s.mutex);
  if (s.engine_ended || !s.port.state) return false;
  s.looks.emplace_back(most_steps, std::move(job));
  s.engine_wakes.notify_one();
  return true;
}

EngineHealth EngineService::health() const {
  const State& s = *state_;
  const std::lock_guard lock(s.mutex);
  EngineHealth health;
  health.open = s.open;
  health.waiting = s.waiting();
  health.steps = s.steps;
  if (s.open > 0) health.step_age = seconds(Clock::now() - std::max(s.last_step, s.busy_since));
  health.dead = s.died.has_value();
  health.stuck = !health.dead && health.step_age && *health.step_age > seconds(s.options.longest_step);
  if (s.died) {
    health.problem = s.died->message;
  } else if (s.draining || s.stopping) {
    health.problem = "draining";
  } else if (health.stuck) {
    health.problem = "no step for " + std::to_string(int64_t(*health.step_age)) + " s with " + std::to_string(s.open) +
                     (s.open == 1 ? " request open" : " requests open");
  }
  health.ready = health.problem.empty();
  return health;
}

int EngineService::retry_after_seconds() const {
  const State& s = *state_;
  const std::lock_guard lock(s.mutex);
  const double rounds = std::max(1.0, double(s.waiting()) / double(std::max(s.port.sequences, 1)));
  return int(std::clamp(std::ceil(rounds * s.mean_seconds), 1.0, 60.0));
}

const RequestLimits& EngineService::limits() const { return state_->port.limits; }

void EngineService::drain() {
  const std::lock_guard lock(state_->mutex);
  state_->draining = true;
}

bool EngineService::wait_until_idle(Clock::time_point deadline) {
  State& s = *state_;
  std::unique_lock lock(s.mutex);
  return s.emptied.wait_until(lock, deadline, [&] { return s.open == 0; });
}

void EngineService::stop() {
  State& s = *state_;
  {
    const std::lock_guard lock(s.mutex);
    s.draining = s.stopping = true;
    s.engine_wakes.notify_all();
    s.answers_wake.notify_all();
  }
  if (s.engine.joinable()) s.engine.join();
  if (s.answers.joinable()) s.answers.join();
}

}  // namespace fathom
