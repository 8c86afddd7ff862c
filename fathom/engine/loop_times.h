// fathom/engine/loop_times.h
#pragma once
#include <cstdint>

namespace fathom {

/// Where the time of all steps went so far.
struct LoopTimes {
  uint64_t steps = 0;
  double host_seconds = 0;  // planning, packing, committing, making events (spec/engine.md R-13)
  double step_seconds = 0;  // of the executor
  double wait_seconds = 0;  // of the host for the executor
};

}  // namespace fathom
