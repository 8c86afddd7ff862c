// The device's side of backend/copy_lane.h: a stream of its own, which the default stream does not wait for, and events
// between it and the queue's.
#include "fathom/backend/copy_lane.h"

#include <array>

#include "fathom/backend/cuda/call.h"

namespace fathom {
namespace {

// Events of the newest numbers. One that is taken again stands for a later number: who waits for the old one waits
// longer than needed, and never for what comes after his own call.
class Events {
 public:
  Events() {
    for (cudaEvent_t& event : events_) {
      cuda::expect(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "an event");
    }
  }
  ~Events() {
    for (const cudaEvent_t event : events_) cudaEventDestroy(event);
  }
  Events(const Events&) = delete;
  Events& operator=(const Events&) = delete;

  int64_t record(cudaStream_t stream) {
    cuda::expect(cudaEventRecord(events_[size_t(++newest_) % events_.size()], stream), "an event");
    return newest_;
  }
  cudaEvent_t of(int64_t number) const { return events_[size_t(number) % events_.size()]; }

 private:
  std::array<cudaEvent_t, 1024> events_{};
  int64_t newest_ = 0;
};

cudaStream_t stream_of(Queue& queue) { return static_cast<cuda::DeviceQueue&>(queue).stream; }

class DeviceLane : public CopyLane {
 public:
  explicit DeviceLane(cudaStream_t stream) : stream_(stream) {}
  ~DeviceLane() override {
    cudaStreamSynchronize(stream_);
    cudaStreamDestroy(stream_);
  }
  int64_t point(Queue& queue) override { return points_.record(stream_of(queue)); }
  int64_t copy(void* to, const void* from, int64_t bytes, int64_t after) override {
    if (after > 0) cuda::expect(cudaStreamWaitEvent(stream_, points_.of(after)), "a copy");
    cuda::expect(cudaMemcpyAsync(to, from, size_t(bytes), cudaMemcpyHostToDevice, stream_), "a copy");
    return copies_.record(stream_);
  }
  void await(Queue& queue, int64_t copy) override {
    cuda::expect(cudaStreamWaitEvent(stream_of(queue), copies_.of(copy)), "a copy");
  }
  bool done(int64_t copy) override {
    if (copy <= done_) return true;
    const cudaError_t status = cudaEventQuery(copies_.of(copy));
    if (status == cudaErrorNotReady) return false;
    cuda::expect(status, "a copy");
    done_ = copy;
    return true;
  }

 private:
  cudaStream_t stream_;
  Events points_, copies_;
  int64_t done_ = 0;
};

}  // namespace

Result<Buffer> cuda_allocate_host(int64_t bytes) { return cuda::allocate_host(bytes); }

Result<std::unique_ptr<CopyLane>> cuda_copy_lane() {
  cudaStream_t stream = nullptr;
  if (const cudaError_t status = cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking); status != cudaSuccess) {
    return Error{ErrorCode::failed, std::string("cannot open a stream: ") + cudaGetErrorString(status),
                 "--backend cuda", "see whether another program fills the GPU (nvidia-smi)"};
  }
  return std::unique_ptr<CopyLane>(new DeviceLane(stream));
}

}  // namespace fathom
