// fathom/cli/kernel_timer.h
// Times one operation of a backend, again and again, as `fathom bench kernels` needs it. On a processor calls follow
// each other. On a device they are recorded and launched as one (backend/recorder.h), as a model's steps are: what a
// launch costs the processor is not measured, and the clock is the device's own.
#pragma once
#include <memory>

#include "fathom/backend/instruments.h"
#include "fathom/backend/kernel_cases.h"
#include "fathom/backend/recorder.h"

namespace fathom::cli {

/// One thread; backend and queue outlive it.
class KernelTimer {
 public:
  KernelTimer(const Backend& backend, Queue& queue);

  /// Warms up, `warmup` times at least, and sees how many calls a sample of about 10 ms takes.
  void prepare(const KernelRun& run, int64_t warmup);
  /// Seconds of a call: the mean of one sample. `wakes`: another program ran since, so a call goes before.
  double sample(bool wakes);

 private:
  double seconds_of(int64_t calls);
  double seconds_of_recording();

  const Backend& backend_;
  Queue& queue_;
  Instruments instruments_;
  Recorder recorder_;
  std::unique_ptr<QueueClock> clock_;
  const KernelRun* run_ = nullptr;
  int64_t calls_ = 1;
  std::unique_ptr<Recording> recording_;
};

}  // namespace fathom::cli
