// fathom/cli/serve_until_end.h
// The life of a server from the moment it is ready: reloads when asked, drains when told to stop, and ends the program
// when the engine has ended, so that whoever watches over it starts another.
#pragma once
#include <chrono>
#include <functional>

#include "fathom/base/log.h"
#include "fathom/cli/serve_signals.h"
#include "fathom/server/api_server.h"
#include "fathom/server/engine_service.h"
#include "fathom/server/service.h"

namespace fathom::cli {

struct Serving {
  ApiServer& server;
  Service& service;
  EngineService& engine;  // its on_death calls ServeSignals::engine_ended
  Log& log;
  std::chrono::milliseconds drain;  // longest time for running answers to end
  std::function<void()> reload;     // SIGHUP
};

/// Blocks until a signal or the engine ends it, then closes all three. 0 after a drain. Errors: failed when the engine
/// has ended: every open request was told so, /health and /ready have said it for a second, and what is on its way to
/// readers was sent. Ends the process itself (kFailed) when a step does not come back within the drain.
Result<int> serve_until_end(ServeSignals& signals, const Serving& serving);

}  // namespace fathom::cli
