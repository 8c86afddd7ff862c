#include "fathom/engine/executor.h"

#include <atomic>
#include <semaphore>
#include <thread>

namespace fathom {

struct Executor::Worker {
  std::counting_semaphore<kMostInFlight + 1> ready{0}, done{0};
  std::atomic<bool> stop{false};
  std::thread thread;
};

Executor::Executor(Runner runner, bool asynchronous) : runner_(std::move(runner)) {
  if (!asynchronous) return;
  worker_ = std::make_unique<Worker>();
  worker_->thread = std::thread([this] {
    for (size_t next = 0;; ++next) {
      worker_->ready.acquire();
      if (worker_->stop) return;
      runner_.run(*queue_[next % kMostInFlight]);
      worker_->done.release();
    }
  });
}

Executor::~Executor() {
  if (!worker_) return;
  while (in_flight() > 0) wait();
  worker_->stop = true;
  worker_->ready.release();
  worker_->thread.join();
}

void Executor::submit(StepWork& work) {
  check(in_flight() < kMostInFlight, "a step is collected before the one after the next is submitted");
  queue_[submitted_++ % kMostInFlight] = &work;
  if (worker_) {
    worker_->ready.release();
  } else {
    runner_.run(work);
  }
}

StepWork& Executor::wait() {
  check(in_flight() > 0, "there is something to wait for");
  if (worker_) worker_->done.acquire();
  return *queue_[collected_++ % kMostInFlight];
}

}  // namespace fathom
