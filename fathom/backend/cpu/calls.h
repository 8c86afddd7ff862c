// fathom/backend/cpu/calls.h
// What it costs to call the other threads, learnt from the calls. Two processors that share a cache begin to help after
// 0.1 us; where every line between them travels through the fabric it takes 0.8 us, and the lines that they exchange
// cost as much more; a thread that sleeps, or whose processor somebody else uses, comes later than a small loop ends. A
// virtual machine's processors move from one case to the other while it runs, so no constant is right for a step of one
// row, whose loops take 1 to 5 us. Bits never depend on it: pieces of rows and of outputs are the same on any thread.
#pragma once
#include <atomic>
#include <chrono>
#include <cstdint>

#include "fathom/base/thread_pool.h"

namespace fathom::cpu {

/// Of a process: its queues run on the same processors. Any thread may call it; what it loses to races is one sample.
class CallCost {
 public:
  /// Whether a loop that takes one thread `ns` is worth calling the others. A no makes the next one a little less sure,
  /// so that it is tried again after some ten thousand where no loop is large enough to tell.
  bool worth(double ns);
  /// A call was answered after `ns`, or was not while the loop took `ns`.
  void learn(double ns);

 private:
  std::atomic<float> ns_{200};
};

inline CallCost call_cost;

/// Whether to call the other threads for a loop that takes one thread `ns`.
inline bool worth_threads(const ThreadPool& pool, double ns) { return pool.threads() > 1 && call_cost.worth(ns); }

/// pool.run for a loop that is worth it. Every fourth call is timed.
template <class Piece>
void call_threads(ThreadPool& pool, int64_t count, int64_t grain, const Piece& piece) {
  using Clock = std::chrono::steady_clock;
  static thread_local unsigned calls = 0;
  if (calls++ % 4 != 0) {
    return pool.run(count, grain, [&piece](int64_t begin, int64_t end, int) { piece(begin, end); });
  }
  std::atomic<int64_t> came{0};  // ns since the call
  const auto called = Clock::now();
  const auto since = [called] { return (Clock::now() - called) / std::chrono::nanoseconds(1); };
  pool.run(count, grain, [&](int64_t begin, int64_t end, int thread) {
    if (thread != 0 && came.load(std::memory_order_relaxed) == 0) came.store(since(), std::memory_order_relaxed);
    piece(begin, end);
  });
  const int64_t answer = came.load(std::memory_order_relaxed);
  call_cost.learn(double(answer != 0 ? answer : since()));
}

}  // namespace fathom::cpu
