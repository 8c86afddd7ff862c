// fathom/server/work_queue.h
// A few threads for what takes longer than an io thread may wait: unpacking a body, converting a conversation,
// tokenising a prompt. First come, first served; at most so many jobs wait.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>

namespace fathom {

class WorkQueue {
 public:
  WorkQueue(int threads, int64_t most_waiting);
  ~WorkQueue();  // stop()
  WorkQueue(const WorkQueue&) = delete;
  WorkQueue& operator=(const WorkQueue&) = delete;

  /// Any thread. False: too many wait, or the queue has stopped; then the job goes. A job must not throw but for
  /// std::bad_alloc, which ends the job alone.
  bool add(std::function<void()> job);
  /// Waits for the running jobs, drops the waiting ones. May be called again.
  void stop();
  int64_t waiting() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace fathom
