#include "fathom/backend/cuda/call.h"

#include <algorithm>
#include <atomic>

#include "fathom/backend/cuda/tables.h"
#include "fathom/backend/cuda/waits.h"
#include "fathom/backend/cuda/workspace_sizes.h"

namespace fathom::cuda {
namespace {

std::atomic<int64_t> moves{0};
constexpr const char* kNoWorkspace = "no memory on the GPU for the workspace of an operation: lower --step-rows";

}  // namespace

int64_t workspace_moves() { return moves; }
void end_recordings() { ++moves; }

void Workspace::reset() {
  if (chunks_.size() > 1) replace(taken_);  // the last call found out how much is needed: next time it is one piece
  chunk_ = 0;
  used_ = taken_ = 0;
}

Result<void> Workspace::prepare(int64_t bytes) {
  reset();
  if (holds(bytes)) return {};
  chunks_.clear();
  return add(bytes);
}

void Workspace::reserve(int64_t bytes) {
  if (taken_ == 0 && !holds(bytes)) replace(bytes);
}

uint8_t* Workspace::take(int64_t bytes) {
  const int64_t padded = workspace_array(bytes);
  reserve(padded);
  while (chunk_ < chunks_.size() && used_ + padded > chunks_[chunk_].bytes()) {
    ++chunk_;
    used_ = 0;
  }
  if (chunk_ == chunks_.size()) check(add(padded).ok(), kNoWorkspace);
  uint8_t* at = chunks_[chunk_].data() + used_;
  used_ += padded;
  taken_ += padded;
  return at;
}

// Freeing waits for all that was queued, so no kernel loses its memory.
void Workspace::replace(int64_t bytes) {
  const int64_t before = chunks_.empty() ? 0 : chunks_[0].bytes();
  chunks_.clear();
  if (add(std::max(bytes, before / 2 * 3)).ok()) return;
  check(add(bytes).ok(), kNoWorkspace);
}

Result<void> Workspace::add(int64_t bytes) {
  auto chunk = allocate_device(std::max(bytes, kLeastWorkspace));
  if (!chunk) return chunk.error();
  ++moves;
  chunks_.push_back(std::move(*chunk));
  return {};
}

int64_t Workspace::bytes() const {
  int64_t all = 0;
  for (const Buffer& chunk : chunks_) all += chunk.bytes();
  return all;
}

DeviceQueue::~DeviceQueue() {
  cudaStreamSynchronize(stream);
  if (reached != nullptr) cudaEventDestroy(reached);
  cudaStreamDestroy(stream);
}

void DeviceQueue::wait() {
  count_wait();
  expect(cudaStreamSynchronize(stream), "the work of a queue");
}

Call::Call(Queue& queue, const char* operation) : queue_(static_cast<DeviceQueue&>(queue)), operation_(operation) {
  queue_.workspace.reset();
  queue_.arranged_ahead = queue_.arranged;
  queue_.arranged = {};
}

Call::~Call() {
  expect(cudaGetLastError(), operation_);
  if (!staged_) return;
  for (const Returned& one : returned_) {
    expect(cudaMemcpyAsync(one.host, one.device, size_t(one.bytes), cudaMemcpyDeviceToHost, queue_.stream), operation_);
  }
  if (returned_.empty()) return;
  count_wait();
  expect(cudaStreamSynchronize(queue_.stream), operation_);
}

void* Call::place(const void* memory, int64_t bytes, bool written) {
  if (memory == nullptr || bytes == 0) return const_cast<void*>(memory);
  if (const void* table = table_on_device(memory, bytes, queue_.stream)) {
    check(!written, "operations only read tables");
    return const_cast<void*>(table);
  }
  if (is_reachable(memory)) return const_cast<void*>(memory);
  cudaStreamCaptureStatus recording{};
  expect(cudaStreamIsCapturing(queue_.stream, &recording), operation_);
  check(recording == cudaStreamCaptureStatusNone, "a recorded step has no views of the process's own memory");
  staged_ = true;
  void* device = queue_.workspace.take(bytes);
  // An output is brought over too: rows may lie apart, and what lies between them stays. The source may change once
  // this returns: CUDA copies pageable memory before it does, behind all that was queued.
  count_wait();
  expect(cudaMemcpyAsync(device, memory, size_t(bytes), cudaMemcpyHostToDevice, queue_.stream), operation_);
  if (written) returned_.push_back({const_cast<void*>(memory), device, bytes});
  return device;
}

PagedRegion Call::region(const PagedRegion& pages, bool written) {
  PagedRegion out = pages;
  out.blocks = in(pages.blocks);
  if (pages.base == nullptr || is_reachable(pages.base)) return out;
  int64_t most = -1;
  for (int64_t s = 0; s < pages.blocks.shape[0]; ++s) {
    for (int64_t b = 0; b < pages.blocks.shape[1]; ++b) most = std::max<int64_t>(most, pages.blocks(s, b));
  }
  const int64_t bytes = most < 0 ? 0 : most * pages.block_stride + int64_t(pages.entries_per_block) * pages.entry_bytes;
  out.base = static_cast<uint8_t*>(place(pages.base, bytes, written));
  return out;
}

RingRegion Call::region(const RingRegion& ring, bool written) {
  RingRegion out = ring;
  out.slots = in(ring.slots);
  if (ring.base == nullptr || is_reachable(ring.base)) return out;
  int64_t most = -1;
  for (int64_t s = 0; s < ring.slots.shape[0]; ++s) most = std::max<int64_t>(most, ring.slots[s]);
  const int64_t bytes = most < 0 ? 0 : most * ring.slot_stride + int64_t(ring.capacity) * ring.entry_bytes;
  out.base = static_cast<uint8_t*>(place(ring.base, bytes, written));
  return out;
}

}  // namespace fathom::cuda
