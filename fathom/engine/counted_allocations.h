// fathom/engine/counted_allocations.h
// For tests: how often this thread, or all of them, have allocated. The test program's operator new counts
// (counted_allocations_test.cpp).
#pragma once
#include <cstdint>

namespace fathom {

int64_t allocations_of_this_thread();
int64_t allocations_of_all_threads();

}  // namespace fathom
