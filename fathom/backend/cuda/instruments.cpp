// The device's side of backend/instruments.h.
#include "fathom/backend/instruments.h"

#include <algorithm>

#include "fathom/backend/cuda/call.h"
#include "fathom/backend/cuda/measuring.h"
#include "fathom/backend/cuda/waits.h"

namespace fathom {
namespace {

// Events in the queue's stream. Between two of them lies a little time even when nothing does; it is measured once and
// taken off.
class EventClock : public QueueClock {
 public:
  explicit EventClock(cudaStream_t stream) : stream_(stream) {
    constexpr int64_t kPairs = 64;
    for (int64_t i = 0; i <= kPairs; ++i) mark();
    double least = 1;
    for (int64_t i = 0; i < kPairs; ++i) least = std::min(least, seconds(i, i + 1));
    between_ = least;
    restart();
  }
  ~EventClock() override {
    for (const cudaEvent_t event : events_) cudaEventDestroy(event);
  }
  int64_t mark() override {
    if (used_ == events_.size()) cuda::expect(cudaEventCreate(&events_.emplace_back()), "an event");
    cuda::expect(cudaEventRecord(events_[used_], stream_), "an event");
    return int64_t(used_++);
  }
  double seconds(int64_t from, int64_t to) override {
    float ms = 0;
    cuda::expect(cudaEventSynchronize(events_[size_t(to)]), "an event");
    cuda::expect(cudaEventElapsedTime(&ms, events_[size_t(from)], events_[size_t(to)]), "an event");
    return std::max(0.0, double(ms) * 1e-3 - between_);
  }
  void restart() override { used_ = 0; }

 private:
  cudaStream_t stream_;
  std::vector<cudaEvent_t> events_;
  size_t used_ = 0;
  double between_ = 0;
};

int64_t free_bytes() {
  size_t free = 0, total = 0;
  cuda::expect(cudaMemGetInfo(&free, &total), "reading free memory");
  return int64_t(free);
}

int64_t cache_bytes() {
  int device = 0, bytes = 0;
  cuda::expect(cudaGetDevice(&device), "finding the GPU");
  cuda::expect(cudaDeviceGetAttribute(&bytes, cudaDevAttrL2CacheSize, device), "reading the GPU's properties");
  return bytes;
}

cudaStream_t stream_of(Queue& queue) { return static_cast<cuda::DeviceQueue&>(queue).stream; }

void settle(Queue& queue) { cuda::settle_migrating(stream_of(queue)); }
std::unique_ptr<QueueClock> open_clock(Queue& queue) { return std::make_unique<EventClock>(stream_of(queue)); }
Result<MachinePeaks> peaks(Queue& queue) {
  return cuda::measure_device_peaks(stream_of(queue), static_cast<cuda::DeviceQueue&>(queue).instructions);
}

}  // namespace

Instruments cuda_instruments() {
  return {.free_bytes = free_bytes,
          .cache_bytes = cache_bytes,
          .draw = cuda::draw_random_weights,
          .allocate_migrating = cuda::allocate_migrating,
          .settle = settle,
          .open_clock = open_clock,
          .peaks = peaks,
          .waits = cuda::waits};
}

}  // namespace fathom
