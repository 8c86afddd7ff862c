// fathom/server/fake_engine.h
// For tests and benchmarks: an engine that answers what it is told, one token a step for each running request, at the
// pace it is told. Knows no model.
#pragma once
#include <algorithm>
#include <atomic>
#include <chrono>
#include <deque>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "fathom/server/engine_port.h"

namespace fathom {

class FakeEngine {
 public:
  struct Script {
    std::vector<int32_t> ids;          // the answer; its last token is the end token when it ends by itself
    int64_t prefill_steps = 0;         // steps without a token before the first one
    int64_t cached_tokens = 0;         // as usage tells
    std::optional<Error> fails_after;  // instead of the end: the request fails
  };

  FakeEngine() {
    limits.vocabulary = 1 << 20;
    limits.context = 4096;
    limits.drafts = 5;
    limits.eos_id = 1;
  }

  /// What to answer; must be set before use. Called by submit.
  std::function<Script(const Request&)> answer;
  std::function<void()> before_step;  // may sleep, block or throw
  std::optional<Error> lost;          // what the next step ends with
  std::chrono::microseconds step_time{0};
  RequestLimits limits;
  int sequences = 16;
  std::atomic<int64_t> steps{0}, cancels{0}, submitted{0};

  EnginePort port() {
    EnginePort out;
    out.submit = [this](Request request) { return submit(std::move(request)); };
    out.cancel = [this](RequestId id) { cancel(id); };
    out.step = [this]() -> Result<std::span<const Event>> {
      const std::span<const Event> events = step();
      return lost ? Result<std::span<const Event>>(*lost) : events;
    };
    out.state = [](size_t most_steps) { return R"({"steps":)" + std::to_string(most_steps) + "}"; };
    out.limits = limits;
    out.sequences = sequences;
    return out;
  }

 private:
  struct Running {
    RequestId id = 0;
    Script script;
    Usage usage;
    size_t next = 0;
    int64_t most = 0;
    bool cancelled = false;
    std::chrono::steady_clock::time_point begun;
  };

  Result<RequestId> submit(Request request) {
    ++submitted;
    Running one;
    one.id = next_id_++;
    one.script = answer(request);
    one.usage.prompt_tokens = int64_t(request.ids.size());
    one.usage.cached_tokens = one.script.cached_tokens;
    one.most = request.sampling.max_tokens;
    one.begun = std::chrono::steady_clock::now();
    queue_.push_back(std::move(one));
    return queue_.back().id;
  }
  void cancel(RequestId id) {
    ++cancels;
    for (Running& one : queue_) {
      if (one.id == id) one.cancelled = true;
    }
  }
  std::span<const Event> step() {
    if (before_step) before_step();
    if (step_time.count() > 0) std::this_thread::sleep_for(step_time);
    ++steps;
    events_.clear();
    int64_t running = 0;
    for (Running& one : queue_) {
      if (one.cancelled) {
        events_.push_back(ended(one, FinishReason::cancelled));
      } else if (running++ < sequences && --one.script.prefill_steps < 0) {
        advance(one);
      }
    }
    std::erase_if(queue_, [](const Running& one) { return one.id == 0; });
    return events_;
  }
  void advance(Running& one) {
    if (one.next >= one.script.ids.size()) {
      events_.push_back(ended(one, FinishReason::failed));
      return;
    }
    Event event;
    event.request = one.id;
    event.ids.push_back(one.script.ids[one.next++]);
    if (one.usage.generated_tokens++ == 0) {
      one.usage.first_token_seconds = since(one);
      event.cached_tokens = one.script.cached_tokens;
    }
    const bool last = one.next == one.script.ids.size() && !one.script.fails_after;
    const bool full = one.most > 0 && int64_t(one.next) == one.most;
    if (last || full) {
      const bool stop = event.ids[0] == limits.eos_id;
      event.finish = ended(one, stop ? FinishReason::stop : FinishReason::length).finish;
    }
    events_.push_back(std::move(event));
  }
  Event ended(Running& one, FinishReason reason) {
    Event event;
    event.request = one.id;
    one.usage.total_seconds = since(one);
    event.finish = Finish{reason, reason == FinishReason::failed ? one.script.fails_after : std::nullopt, one.usage};
    one.id = 0;
    return event;
  }
  double since(const Running& one) const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - one.begun).count();
  }

  std::deque<Running> queue_;
  std::vector<Event> events_;
  RequestId next_id_ = 1;
};

}  // namespace fathom
