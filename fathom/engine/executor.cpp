#include "fathom/engine/executor.h"

#include <atomic>
#include <semaphore>
#include <thread>

#include "fathom/base/check_note.h"

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
      run(next % kMostInFlight);
      worker_->done.release();
    }
  });
}

Executor::~Executor() {
  if (!worker_) return;
  for (; in_flight() > 0; ++collected_) worker_->done.acquire();
  worker_->stop = true;
  worker_->ready.release();
  worker_->thread.join();
}

void Executor::run(size_t place) {
  if (!failure_) {
    try {
      runner_.run(*queue_[place]);
    } catch (...) {
      failure_ = std::current_exception();
      notes_ = take_unwound_notes();
    }
  }
  thrown_[place] = failure_;
}

void Executor::submit(StepWork& work) {
  check(in_flight() < kMostInFlight, "a step is collected before the one after the next is submitted");
  const size_t place = submitted_++ % kMostInFlight;
  queue_[place] = &work;
  if (worker_) {
    worker_->ready.release();
  } else {
    run(place);
  }
}

StepWork& Executor::wait() {
  check(in_flight() > 0, "there is something to wait for");
  if (worker_) worker_->done.acquire();
  const size_t place = collected_++ % kMostInFlight;
  if (thrown_[place]) {
    const CheckNote note([](const void* notes) { return *static_cast<const std::string*>(notes); }, &notes_);
    std::rethrow_exception(thrown_[place]);
  }
  return *queue_[place];
}

}  // namespace fathom
