#include "fathom/backend/cuda/device_memory.h"

#include <atomic>
#include <cstdio>
#include <cstring>
#include <map>
#include <mutex>
#include <shared_mutex>
#include <string>

#include "fathom/backend/cuda/waits.h"
#include "fathom/base/check.h"

namespace fathom::cuda {
namespace {

// Allocations by their first byte. They are few (weights are uploaded in large pieces) and change rarely.
struct Allocations {
  std::shared_mutex mutex;
  std::map<uintptr_t, int64_t> bytes_at;

  void add(const void* memory, int64_t bytes) {
    const std::unique_lock lock(mutex);
    bytes_at[reinterpret_cast<uintptr_t>(memory)] = bytes;
  }
  void remove(const void* memory) {
    const std::unique_lock lock(mutex);
    bytes_at.erase(reinterpret_cast<uintptr_t>(memory));
  }
  bool hold(const void* memory) {
    const std::shared_lock lock(mutex);
    const auto at = reinterpret_cast<uintptr_t>(memory);
    auto next = bytes_at.upper_bound(at);
    if (next == bytes_at.begin()) return false;
    --next;
    return at < next->first + uintptr_t(next->second);
  }
};

// Never destroyed: a Buffer of static storage may be freed at exit.
Allocations& allocations() {
  static auto* all = new Allocations;
  return *all;
}
// Of them, those whose pages move.
Allocations& migrating() {
  static auto* all = new Allocations;
  return *all;
}

std::atomic<int64_t> wait_count{0};

}  // namespace

void count_wait() { ++wait_count; }
int64_t waits() { return wait_count; }

void expect(cudaError_t status, const char* what) {
  if (status == cudaSuccess) [[likely]]
    return;
  std::fprintf(stderr, "fathom: cuda: %s in %s\n", cudaGetErrorString(status), what);
  check(false, "the device did what it was told");
}

Result<Buffer> allocate_device(int64_t bytes) {
  if (bytes <= 0) return Buffer();
  void* memory = nullptr;
  if (const cudaError_t status = cudaMalloc(&memory, size_t(bytes)); status != cudaSuccess) {
    cudaGetLastError();  // forgotten: the caller is told
    size_t free = 0, total = 0;
    cudaMemGetInfo(&free, &total);
    return Error{ErrorCode::out_of_memory,
                 "the GPU refuses " + std::to_string(bytes) + " bytes of memory, " + std::to_string(free) + " are free",
                 "--backend cuda", "ask for a shorter context or a smaller cache, or use a GPU with more memory"};
  }
  expect(cudaMemset(memory, 0, size_t(bytes)), "filling fresh memory with zeros");
  allocations().add(memory, bytes);
  return Buffer(memory, bytes, [](void* given, int64_t) {
    allocations().remove(given);
    cudaFree(given);
  });
}

Result<Buffer> allocate_host(int64_t bytes) {
  if (bytes <= 0) return Buffer();
  void* memory = nullptr;
  if (cudaHostAlloc(&memory, size_t(bytes), cudaHostAllocPortable | cudaHostAllocMapped) != cudaSuccess) {
    cudaGetLastError();
    return Error{ErrorCode::out_of_memory, "the machine refuses to pin " + std::to_string(bytes) + " bytes of memory",
                 "--backend cuda", "raise the limit of locked memory (ulimit -l), or free memory"};
  }
  allocations().add(memory, bytes);
  return Buffer(memory, bytes, [](void* given, int64_t) {
    allocations().remove(given);
    cudaFreeHost(given);
  });
}

Result<Buffer> allocate_migrating(int64_t bytes) {
  if (bytes <= 0) return Buffer();
  void* memory = nullptr;
  if (cudaMallocManaged(&memory, size_t(bytes)) != cudaSuccess) {
    cudaGetLastError();
    return Error{ErrorCode::out_of_memory, "the machine refuses " + std::to_string(bytes) + " bytes of managed memory",
                 "--backend cuda", "free memory, or measure fewer kernels at once (--kernel, --filter)"};
  }
  std::memset(memory, 0, size_t(bytes));
  allocations().add(memory, bytes);
  migrating().add(memory, bytes);
  return Buffer(memory, bytes, [](void* given, int64_t) {
    allocations().remove(given);
    migrating().remove(given);
    cudaFree(given);
  });
}

void settle_migrating(cudaStream_t stream) {
  cudaMemLocation here{cudaMemLocationTypeDevice, 0};
  expect(cudaGetDevice(&here.id), "finding the GPU");
  const std::shared_lock lock(migrating().mutex);
  for (const auto& [memory, bytes] : migrating().bytes_at) {
    expect(cudaMemPrefetchAsync(reinterpret_cast<void*>(memory), size_t(bytes), here, 0, stream), "moving pages");
  }
}

Result<Buffer> allocate_shared(int64_t bytes) {
  auto memory = allocate_host(bytes);
  if (memory.ok() && memory->data() != nullptr) std::memset(memory->data(), 0, size_t(bytes));
  return memory;
}

bool is_reachable(const void* memory) { return allocations().hold(memory); }

void copy(void* to, const void* from, int64_t bytes) {
  if (bytes <= 0) return;
  // Queues are ordered with the default stream, so this one call comes after all that they were given.
  expect(cudaMemcpyAsync(to, from, size_t(bytes), cudaMemcpyDefault, nullptr), "copying");
  count_wait();
  expect(cudaStreamSynchronize(nullptr), "copying");
}

}  // namespace fathom::cuda
