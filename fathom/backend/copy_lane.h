// fathom/backend/copy_lane.h
// Copies from host memory to a backend's own that run beside the work of a queue: on a device the copy engine moves
// weights over the bus while kernels compute. Order between the two is what the caller says, and nothing else.
//
//   n = lane.copy(slot, weights, bytes, 0);   begins at once
//   ...                                       operations that need none of it are queued
//   lane.await(queue, n);                     what is queued from here on finds it
//   p = lane.point(queue);                    behind the last operation that reads the slot
//   lane.copy(slot, others, bytes, p);        begins when the queue has come so far
#pragma once
#include <cstdint>
#include <memory>

#include "fathom/backend/backend.h"

namespace fathom {

/// One thread. Neither of its functions waits.
class CopyLane {
 public:
  virtual ~CopyLane() = default;
  /// A point of the queue's work, passed when everything is done that was queued before. Numbers rise from 1.
  virtual int64_t point(Queue& queue) = 0;
  /// Copies `bytes` from memory of allocate_host() to the backend's own, behind all earlier copies of this lane and,
  /// unless 0, behind the point `after`. Both stay as they are until it is done. Returns its number; they rise from 1.
  virtual int64_t copy(void* to, const void* from, int64_t bytes, int64_t after) = 0;
  /// What is queued from here on begins when that copy is done, and with it all before it.
  virtual void await(Queue& queue, int64_t copy) = 0;
  /// Whether it surely is; never false for ever.
  virtual bool done(int64_t copy) = 0;
};

/// Where the processor and operations share memory a copy is done when it returns. Errors: failed, with the device's
/// words.
Result<std::unique_ptr<CopyLane>> open_copy_lane(const Backend& backend);

/// Memory of the host that a lane copies from and operations read over the bus, for weights that the device has no room
/// for: page-locked, one address for both sides, not cleared. Where the processor and operations share memory it is
/// that. Errors: out_of_memory.
Result<Buffer> allocate_host(const Memory& memory, int64_t bytes);

/// Of the cuda backend; asked for only when there is one.
Result<Buffer> cuda_allocate_host(int64_t bytes);
Result<std::unique_ptr<CopyLane>> cuda_copy_lane();

}  // namespace fathom
