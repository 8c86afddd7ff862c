// fathom/server/engine_port.h
// What the service needs of an engine, as functions: the real one, or a clock that plays one in tests and benchmarks.
#pragma once
#include <cstdint>
#include <functional>
#include <span>
#include <string>

#include "fathom/engine/engine.h"
#include "fathom/engine/request.h"

namespace fathom {

/// All functions are called on one thread, one at a time. They mean what Engine's members of the same names mean; step
/// may block as long as a step takes. An error of step means that the device is lost: no function is called again. What
/// a device's library throws counts the same.
struct EnginePort {
  std::function<Result<RequestId>(Request)> submit;
  std::function<void(RequestId)> cancel;
  std::function<Result<std::span<const Event>>()> step;  // valid until the next call
  std::function<std::string(size_t most_steps)>
      state;  // JSON of all that runs and waits, and of the last steps; may be empty
  /// Something worth doing while no request is open, for as long as a prompt takes; false when there is nothing. May be
  /// empty.
  std::function<bool()> idle_work;
  RequestLimits limits;  // what check_request asks, before anything is queued
  int sequences = 1;     // that run at once; more than these wait
};

/// `engine` must outlive every use of the port.
EnginePort port_of(Engine& engine);

}  // namespace fathom
