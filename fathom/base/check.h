// fathom/base/check.h
// For our own bugs. A broken invariant means that results are wrong: print where, and stop, rather than serve them.
#pragma once
#include <source_location>

namespace fathom {

/// Prints `what`, file and line to stderr and aborts.
[[noreturn]] void check_failed(const char* what, const std::source_location& at);

/// Aborts when `condition` does not hold. Stays in release builds: put it where its cost does not count.
inline void check(bool condition, const char* what, const std::source_location& at = std::source_location::current()) {
  if (!condition) [[unlikely]]
    check_failed(what, at);
}

}  // namespace fathom
