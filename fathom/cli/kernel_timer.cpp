#include "fathom/cli/kernel_timer.h"

#include <algorithm>

namespace fathom::cli {
namespace {

constexpr double kSampleSeconds = 0.01;  // calls shorter than this are repeated
constexpr int64_t kMostRecorded = 400;   // calls of a recording
constexpr double kWarmSeconds = 0.1;     // until a device runs at the clock that it keeps

}  // namespace

KernelTimer::KernelTimer(const Backend& backend, Queue& queue)
    : backend_(backend),
      queue_(queue),
      instruments_(instruments_of(backend)),
      recorder_(recorder_of(backend)),
      clock_(instruments_.open_clock(queue)) {}

double KernelTimer::seconds_of(int64_t calls) {
  clock_->restart();
  const int64_t begin = clock_->mark();
  for (int64_t i = 0; i < calls; ++i) run_->call(backend_.ops, queue_);
  return clock_->seconds(begin, clock_->mark()) / double(calls);
}

double KernelTimer::seconds_of_recording() {
  clock_->restart();
  const int64_t begin = clock_->mark();
  recording_->run();
  return clock_->seconds(begin, clock_->mark()) / double(calls_);
}

void KernelTimer::prepare(const KernelRun& run, int64_t warmup) {
  recording_.reset();
  run_ = &run;
  if (instruments_.settle != nullptr) instruments_.settle(queue_);
  double once = seconds_of(1);
  if (once < kSampleSeconds) {
    for (int64_t i = 0; i < std::max<int64_t>(warmup, 1); ++i) once = seconds_of(2);
  }
  calls_ = std::max<int64_t>(1, int64_t(kSampleSeconds / once));
  if (recorder_.begin == nullptr) return;
  calls_ = std::min(calls_, kMostRecorded);
  queue_.wait();
  recorder_.begin(queue_);
  for (int64_t i = 0; i < calls_; ++i) run.call(backend_.ops, queue_);
  recording_ = recorder_.end(queue_);
  for (double spent = 0; spent < kWarmSeconds;) spent += std::max(1e-6, seconds_of_recording() * double(calls_));
}

double KernelTimer::sample(bool wakes) {
  if (recording_ == nullptr) {
    if (wakes) seconds_of(1);
    return seconds_of(calls_);
  }
  if (wakes) seconds_of_recording();
  return seconds_of_recording();
}

}  // namespace fathom::cli
