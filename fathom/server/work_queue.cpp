#include "fathom/server/work_queue.h"

#include <condition_variable>
#include <deque>
#include <mutex>
#include <new>
#include <thread>
#include <vector>

namespace fathom {

struct WorkQueue::State {
  const int64_t most_waiting;
  mutable std::mutex mutex;
  std::condition_variable wakes;
  std::deque<std::function<void()>> jobs;
  bool stopping = false;
  std::vector<std::thread> threads;

  explicit State(int64_t most) : most_waiting(most) {}

  void work() {
    std::unique_lock lock(mutex);
    while (true) {
      wakes.wait(lock, [&] { return stopping || !jobs.empty(); });
      if (stopping) return;
      std::function<void()> job = std::move(jobs.front());
      jobs.pop_front();
      lock.unlock();
      try {
        job();
      } catch (const std::bad_alloc&) {  // what the job held answers for it when it goes
      }
      job = nullptr;
      lock.lock();
    }
  }
};

WorkQueue::WorkQueue(int threads, int64_t most_waiting) : state_(std::make_unique<State>(most_waiting)) {
  for (int i = 0; i < threads; ++i) {
    state_->threads.emplace_back([state = state_.get()] { state->work(); });
  }
}

WorkQueue::~WorkQueue() { stop(); }

bool WorkQueue::add(std::function<void()> job) {
  const std::lock_guard lock(state_->mutex);
  if (state_->stopping || int64_t(state_->jobs.size()) >= state_->most_waiting) return false;
  state_->jobs.push_back(std::move(job));
  state_->wakes.notify_one();
  return true;
}

void WorkQueue::stop() {
  std::deque<std::function<void()>> dropped;
  {
    const std::lock_guard lock(state_->mutex);
    state_->stopping = true;
    dropped.swap(state_->jobs);
    state_->wakes.notify_all();
  }
  for (std::thread& thread : state_->threads) {
    if (thread.joinable()) thread.join();
  }
}

int64_t WorkQueue::waiting() const {
  const std::lock_guard lock(state_->mutex);
  return int64_t(state_->jobs.size());
}

}  // namespace fathom
