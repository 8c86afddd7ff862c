#include "fathom/cli/serve_signals.h"

#include <signal.h>
#include <unistd.h>

#include "fathom/cli/program.h"

namespace fathom::cli {
namespace {

sigset_t our_signals() {
  sigset_t set;
  sigemptyset(&set);
  for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGUSR2}) sigaddset(&set, number);
  return set;
}

}  // namespace

ServeSignals::ServeSignals() {
  const sigset_t ours = our_signals();
  ::pthread_sigmask(SIG_BLOCK, &ours, nullptr);
  ::signal(SIGPIPE, SIG_IGN);  // a closed log pipe must not end a server
  ::signal(SIGXFSZ, SIG_IGN);  // nor a file that may not grow further: writing says so
  thread_ = std::thread([this] { run(); });
}

ServeSignals::~ServeSignals() {
  {
    const std::lock_guard lock(mutex_);
    ended_ = true;
  }
  ::pthread_kill(thread_.native_handle(), SIGUSR2);  // wakes it, nobody else
  thread_.join();
}

void ServeSignals::run() {
  const sigset_t ours = our_signals();
  while (true) {
    int number = 0;
    if (::sigwait(&ours, &number) != 0) continue;
    const std::lock_guard lock(mutex_);
    if (ended_) return;
    if (number == SIGHUP) {
      reload_ = true;
    } else if (number == SIGINT || number == SIGTERM) {
      if (!loaded_ || stop_) ::_exit(kInterrupted);
      stop_ = true;
    }
    changed_.notify_all();
  }
}

void ServeSignals::loaded() {
  const std::lock_guard lock(mutex_);
  loaded_ = true;
}

void ServeSignals::engine_ended() {
  const std::lock_guard lock(mutex_);
  engine_ended_ = true;
  changed_.notify_all();
}

ServeSignals::Asked ServeSignals::wait() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return stop_ || reload_ || engine_ended_; });
  if (stop_) return Asked::stop;
  if (engine_ended_) return Asked::engine_ended;
  reload_ = false;
  return Asked::reload;
}

}  // namespace fathom::cli
