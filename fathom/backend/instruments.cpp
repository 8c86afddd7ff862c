#include "fathom/backend/instruments.h"

#include <chrono>

#include "fathom/base/system_memory.h"

namespace fathom {
namespace {

// Operations finish before they return, so a mark is the time at which it was asked for.
class HostClock : public QueueClock {
 public:
  int64_t mark() override {
    marks_.push_back(std::chrono::steady_clock::now());
    return int64_t(marks_.size()) - 1;
  }
  double seconds(int64_t from, int64_t to) override {
    return std::chrono::duration<double>(marks_[size_t(to)] - marks_[size_t(from)]).count();
  }
  void restart() override { marks_.clear(); }

 private:
  std::vector<std::chrono::steady_clock::time_point> marks_;
};

std::unique_ptr<QueueClock> open_host_clock(Queue&) { return std::make_unique<HostClock>(); }
Result<MachinePeaks> host_peaks(Queue& queue) { return measure_peaks(queue.pool); }

}  // namespace

Instruments instruments_of(const Backend& backend) {
  if (backend.name == "cuda") return cuda_instruments();
  return {.free_bytes = [] { return available_memory_bytes(); }, .open_clock = open_host_clock, .peaks = host_peaks};
}

}  // namespace fathom
