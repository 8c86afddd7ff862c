// fathom/backend/cuda/waits.h
// How often the processor has waited for the device: what of spec/engine.md are about, for tests.
#pragma once
#include <cstdint>

namespace fathom::cuda {

/// Called by whatever waits until all work of a stream is done. Any thread.
void count_wait();
int64_t waits();

}  // namespace fathom::cuda
