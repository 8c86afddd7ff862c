// fathom/base/thread_pool.h
// A fork-join pool for loops inside one operation. Workers spin briefly, then sleep on a futex: pure spinning makes two
// threads on two busy cores many times slower than one (design/dependencies.md).
#pragma once
#include <atomic>
#include <cstdint>
#include <memory>
#include <thread>
#include <type_traits>
#include <vector>

namespace fathom {

/// CPUs that this process may really use: the affinity mask, cut by the cgroup quota (rounded up), at least 1.
int usable_cpus();

/// One caller at a time runs loops on it; the caller works too. Not reentrant: a loop body must not start another loop.
class ThreadPool {
 public:
  /// `threads` in all, the caller included; 1 starts none.
  explicit ThreadPool(int threads = usable_cpus());
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int threads() const { return int(workers_.size()) + 1; }

  /// Calls body(begin, end, thread) for disjoint pieces of [0, count), at most `grain` long, until all are done. A
  /// thread begins with its equal part, whatever the grain, then helps others: results must not depend on who runs a
  /// piece. Without more than one piece the caller runs it alone and wakes nobody. Allocates nothing.
  template <class Body>
  void run(int64_t count, int64_t grain, Body&& body) {
    using Plain = std::remove_reference_t<Body>;
    run_pieces(
        count, grain,
        [](void* context, int64_t begin, int64_t end, int thread) {
          (*static_cast<Plain*>(context))(begin, end, thread);
        },
        const_cast<void*>(static_cast<const void*>(&body)));
  }

 private:
  using Piece = void (*)(void* context, int64_t begin, int64_t end, int thread);
  void run_pieces(int64_t count, int64_t grain, Piece piece, void* context);
  void work(int thread);
  void take_pieces(int thread);
  bool enter();
  void leave();

  std::vector<std::thread> workers_;
  Piece piece_ = nullptr;
  void* context_ = nullptr;
  int64_t grain_ = 1;
  struct alignas(64) Share {  // pieces of one thread's part of the range that nobody has taken
    std::atomic<int64_t> next{0};
    int64_t end = 0;
  };
  std::unique_ptr<Share[]> shares_;             // [threads]
  alignas(64) std::atomic<uint32_t> epoch_{0};  // a loop begins: one more
  alignas(64) std::atomic<uint32_t> door_{0};   // kOpen while the loop may be entered, plus the workers inside
  std::atomic<bool> stop_{false};
};

}  // namespace fathom
