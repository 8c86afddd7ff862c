#include "fathom/cli/interrupt.h"

#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>

namespace fathom::cli {
namespace {

// Signal handlers can reach nothing but globals; these are lock-free.
std::atomic<bool> stop_asked{false};
std::atomic<bool> in_scope{false};

void on_signal(int) {
  if (!in_scope.load() || stop_asked.exchange(true)) ::_exit(130);
}

}  // namespace

void install_interrupt_handler() {
  struct sigaction action = {};
  action.sa_handler = on_signal;  // without SA_RESTART: a blocked read returns, so chat notices at its prompt
  sigemptyset(&action.sa_mask);
  ::sigaction(SIGINT, &action, nullptr);
  ::sigaction(SIGTERM, &action, nullptr);
}

InterruptScope::InterruptScope() {
  stop_asked = false;
  in_scope = true;
}
InterruptScope::~InterruptScope() { in_scope = false; }

bool interrupted() { return stop_asked.load(); }
bool wait_for_input(int descriptor) {
  sigset_t stops, before;
  sigemptyset(&stops);
  sigaddset(&stops, SIGINT);
  sigaddset(&stops, SIGTERM);
  ::pthread_sigmask(SIG_BLOCK, &stops, &before);
  pollfd input{descriptor, POLLIN, 0};
  bool ready = false;
  // A worker thread may take the signal instead of us, and then nothing ends the wait: look again five times a second.
  const timespec pause{0, 200'000'000};
  while (!interrupted() && !ready) ready = ::ppoll(&input, 1, &pause, &before) > 0;
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return ready;
}
void clear_interrupt() { stop_asked = false; }

Error interrupted_error(const char* where, const char* remedy) {
  return Error{ErrorCode::interrupted, "interrupted", where, remedy};
}

}  // namespace fathom::cli
