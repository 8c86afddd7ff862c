#include "fathom/engine/counted_allocations.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <memory>
#include <new>
#include <thread>

namespace {
thread_local int64_t allocations = 0;
std::atomic<int64_t> of_all{0};

void count() {
  ++allocations;
  of_all.fetch_add(1, std::memory_order_relaxed);
}

void* counted(size_t bytes) {
  count();
  if (void* out = std::malloc(bytes > 0 ? bytes : 1)) return out;
  throw std::bad_alloc();
}
}  // namespace

// Not inlined: g++ would see malloc and delete in one function and warn of a mismatch that is none.
[[gnu::noinline]] void* operator new(size_t bytes) { return counted(bytes); }
[[gnu::noinline]] void* operator new[](size_t bytes) { return counted(bytes); }
// Those that return null as well: what one of them gave must not meet another library's delete.
[[gnu::noinline]] void* operator new(size_t bytes, const std::nothrow_t&) noexcept {
  count();
  return std::malloc(bytes > 0 ? bytes : 1);
}
[[gnu::noinline]] void* operator new[](size_t bytes, const std::nothrow_t&) noexcept {
  count();
  return std::malloc(bytes > 0 ? bytes : 1);
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete[](void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, size_t) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete[](void* memory, size_t) noexcept { std::free(memory); }

namespace fathom {

int64_t allocations_of_this_thread() { return allocations; }
int64_t allocations_of_all_threads() { return of_all.load(std::memory_order_relaxed); }

TEST(CountedAllocations, CountsOfAllThreadsTooWhatAnotherOneAllocates) {
  const int64_t before = allocations_of_all_threads();
  std::thread([] { delete new int(1); }).join();
  EXPECT_GT(allocations_of_all_threads(), before);
}

TEST(CountedAllocations, CountsThisThreadAlone) {
  const int64_t before = allocations_of_this_thread();
  auto one = std::make_unique<int>(1);
  EXPECT_EQ(allocations_of_this_thread(), before + 1);
  int64_t there = -1;
  std::thread([&] { there = allocations_of_this_thread(); }).join();
  EXPECT_LE(there, 0);
}

}  // namespace fathom
