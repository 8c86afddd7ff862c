// fathom/engine/executor.h
// Runs steps in the order in which they are submitted: on the caller's thread at once, or on a thread of its own that
// plays the device, so that the host plans one step while another one runs (spec/engine.md 4). Both do the same to the
// same values; what differs is when the caller learns of it.
#pragma once
#include <array>
#include <cstddef>
#include <exception>
#include <memory>
#include <string>

#include "fathom/engine/runner.h"

namespace fathom {

/// One caller. Allocates nothing per step; one wake-up of a thread in each direction.
class Executor {
 public:
  static constexpr size_t kMostInFlight = 2;

  Executor(Runner runner, bool asynchronous);
  ~Executor();
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;

  bool asynchronous() const { return worker_ != nullptr; }
  /// `work` and its live sequences are the executor's until wait() returns it.
  void submit(StepWork& work);
  /// The oldest work in flight, done. Rethrows what a library threw in it, with the notes that it went through
  /// (base/check_note.h); nothing runs after such a step, and what is in flight behind it throws the same.
  StepWork& wait();
  size_t in_flight() const { return size_t(submitted_ - collected_); }
  int64_t vocabulary() const { return runner_.vocabulary(); }
  int block() const { return runner_.block(); }

 private:
  struct Worker;
  void run(size_t place);

  Runner runner_;
  std::array<StepWork*, kMostInFlight> queue_{};
  std::array<std::exception_ptr, kMostInFlight> thrown_{};  // by place in queue_
  std::exception_ptr failure_;                              // of whoever runs steps, written once
  std::string notes_;                                       // of the failure
  size_t submitted_ = 0, collected_ = 0;
  std::unique_ptr<Worker> worker_;
};

}  // namespace fathom
