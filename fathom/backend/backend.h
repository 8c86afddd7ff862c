// fathom/backend/backend.h
// What a machine must be able to do: give memory, order work in a queue, and run the operations of ops.h. A backend is
// a value; choosing one is choosing a row of this table. `reference` and `cpu` share memory and queue and differ in
// operations.
#pragma once
#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "fathom/backend/ops.h"
#include "fathom/base/result.h"
#include "fathom/base/thread_pool.h"
#include "fathom/tensor/buffer.h"

namespace fathom {

/// Where work is ordered: an operation that is given a queue may use everything that earlier ones on it wrote. On the
/// CPU backends operations finish before they return; on a device they may go on, and wait() waits for them. One thread
/// at a time uses a queue.
struct Queue {
  explicit Queue(int threads) : pool(threads) {}
  virtual ~Queue() = default;
  /// Returns when everything that was queued is done: before the processor reads what operations wrote, and before it
  /// writes again what they read.
  virtual void wait() {}
  /// Takes so much memory for what operations need beside their operands (workspace.h), so that none has to take it in
  /// the middle of work. Nothing is queued. Errors: out_of_memory.
  virtual Result<void> prepare(int64_t /*workspace_bytes*/) { return {}; }
  ThreadPool pool;
  /// A row's results have the same bits in any batch. The CPU's are so in any case; without it a device may add in an
  /// order that depends on how many rows there are.
  bool batch_invariant = true;
  /// Products of Q8 rows and FP8 or FP4 weights may go to tensor cores as codes with their scales, where a device has
  /// such (sm_100a): the operands are the same, but sums round as the hardware does. Without it only float sums round.
  bool scaled_products = false;
};

/// A backend's memory. On a device there are two kinds: the device's own, and shared memory, which the processor and
/// operations both read and write. Operations take views of either, and of ordinary memory of the process; that is
/// copied, and an operation that writes some waits.
struct Memory {
  /// 64-byte aligned, zero-filled, untouched pages stay unmapped. Errors: out_of_memory with the size.
  Result<Buffer> (*allocate)(int64_t bytes) = nullptr;
  bool host_visible = true;  // the CPU may read and write what `allocate` gives
  /// Shared memory; null: `allocate` gives it. Slow for the device: for small arrays and what the processor reads.
  Result<Buffer> (*allocate_shared)(int64_t bytes) = nullptr;
  /// Copies between memory of any kind, after everything queued before, and waits; null: plain memory.
  void (*copy_bytes)(void* to, const void* from, int64_t bytes) = nullptr;

  Result<Buffer> shared(int64_t bytes) const { return allocate_shared ? allocate_shared(bytes) : allocate(bytes); }
  void copy(void* to, const void* from, int64_t bytes) const {
    if (copy_bytes) return copy_bytes(to, from, bytes);
    if (bytes > 0) std::memcpy(to, from, size_t(bytes));
  }
};

struct Backend {
  std::string name;  // "reference", "cpu", "cuda"
  Memory memory;
  Operations ops;
  std::string detail;  // for people: instruction set in use
  /// `threads` work on the queue's operations (devices ignore it).
  Result<std::unique_ptr<Queue>> (*open_queue)(int threads) = nullptr;
  /// What `queue` is given from here on begins when all is done that `other` has been given until now; while `other` is
  /// recorded, so is `queue` until it is waited for. Does not wait. Null where operations finish before they return, so
  /// that a second queue brings nothing.
  void (*wait_for)(Queue& queue, Queue& other) = nullptr;
  bool untested = false;  // its kernels were compiled for this device but have never run on one like it
};

/// "reference", "cpu", "cuda" or "ascend"; "" picks the best present.
/// Errors: usage for another name, with the choices; unsupported for a backend that this build or machine lacks.
Result<Backend> open_backend(std::string_view name);

/// Names that open_backend accepts on this machine, best first.
std::vector<std::string> present_backends();

Backend reference_backend();
/// The fastest variants for this processor; FATHOM_CPU_ISA (portable, avx2, avx512, amx) caps the instruction set.
/// Errors: usage for an unknown FATHOM_CPU_ISA, unsupported when the processor lacks the one that is asked for.
Result<Backend> cpu_backend();
/// The first GPU that CUDA shows (CUDA_VISIBLE_DEVICES counts), of compute capability 9.0; of 10.0, untested, in a
/// build with the preset cuda-sm100. Errors: unsupported when it is not compiled in, or the machine has no such GPU or
/// no driver for it.
Result<Backend> cuda_backend();

}  // namespace fathom
