// fathom/cli/interrupt.h
// Ctrl-C. A command that has something to finish (a line half written, an answer running) holds an InterruptScope: the
// first SIGINT then only sets a flag that the command looks at between steps, the second one ends the program. Without
// a scope the first one ends it. Exit code 130 either way.
#pragma once
#include "fathom/base/result.h"

namespace fathom::cli {

/// Once, at the start of the program. SIGTERM is treated alike.
void install_interrupt_handler();

/// At most one at a time.
class InterruptScope {
 public:
  InterruptScope();
  ~InterruptScope();
  InterruptScope(const InterruptScope&) = delete;
  InterruptScope& operator=(const InterruptScope&) = delete;
};

/// True after a SIGINT inside a scope.
bool interrupted();
/// Waits until `descriptor` can be read; false when a SIGINT came before or while waiting, even just before.
bool wait_for_input(int descriptor);
/// Forgets it: `chat` goes on after it has stopped an answer.
void clear_interrupt();

/// The error of a run that was stopped. `remedy` says how to go on.
Error interrupted_error(const char* where, const char* remedy);

}  // namespace fathom::cli
