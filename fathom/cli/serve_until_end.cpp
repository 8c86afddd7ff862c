#include "fathom/cli/serve_until_end.h"

#include <cstdlib>
#include <thread>

#include "fathom/cli/program.h"

namespace fathom::cli {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kSlowReaders{5000};  // for what is on its way to them
constexpr milliseconds kTold{1000};         // so long /health says that the engine has ended

void close(const Serving& s) {
  s.service.stop();
  s.engine.stop();
  s.server.stop(kSlowReaders);
  s.log.write(LogLevel::info, "ended");
}

void drain(const Serving& s) {
  s.log.write(LogLevel::info, "draining", {{"open_requests", s.engine.health().open}, {"longest_ms", s.drain.count()}});
  s.engine.drain();
  if (s.engine.wait_until_idle(std::chrono::steady_clock::now() + s.drain)) return;
  const EngineHealth health = s.engine.health();
  s.log.write(LogLevel::warn, "not all answers ended in time", {{"open_requests", health.open}});
  // A device that does not come back from its step must not keep the process.
  if (health.stuck) {
    s.log.flush();
    std::_Exit(kFailed);
  }
}

}  // namespace

Result<int> serve_until_end(ServeSignals& signals, const Serving& s) {
  ServeSignals::Asked asked = signals.wait();
  for (; asked == ServeSignals::Asked::reload; asked = signals.wait()) s.reload();
  if (asked == ServeSignals::Asked::stop) {
    drain(s);
    // An engine that ended while it drained leaves nothing to wait for, and was told in the answers.
    close(s);
    return kDone;
  }
  const std::string problem = s.engine.health().problem;
  s.log.write(LogLevel::error, problem, {{"answered_for_ms", kTold.count()}});
  std::this_thread::sleep_for(kTold);
  close(s);
  return Error{ErrorCode::failed, problem, "fathom serve", "look at the lines above; the server can be started again"};
}

}  // namespace fathom::cli
