#include "fathom/backend/cuda/tables.h"

#include <map>
#include <mutex>

#include "fathom/backend/cuda/device_memory.h"
#include "fathom/base/check.h"

namespace fathom::cuda {
namespace {

struct Table {
  Buffer shared, device;
  int64_t copied = 0;          // bytes from the front that the device has
  cudaEvent_t sent = nullptr;  // behind the last send_tables()
};

bool is_recorded(cudaStream_t stream) {
  cudaStreamCaptureStatus status{};
  expect(cudaStreamIsCapturing(stream, &status), "copying tables");
  return status != cudaStreamCaptureStatusNone;
}

// By their first byte. A queue's thread copies, another may allocate.
struct Tables {
  std::mutex mutex;
  std::map<uintptr_t, Table> all;

  Table* find(const void* memory) {
    const auto at = reinterpret_cast<uintptr_t>(memory);
    auto next = all.upper_bound(at);
    if (next == all.begin()) return nullptr;
    --next;
    return at < next->first + uintptr_t(next->second.shared.bytes()) ? &next->second : nullptr;
  }
};

// Never destroyed: a Buffer of static storage may be freed at exit.
Tables& tables() {
  static auto* all = new Tables;
  return *all;
}

}  // namespace

Result<Buffer> allocate_tables(int64_t bytes) {
  if (bytes <= 0) return Buffer();
  auto shared = allocate_shared(bytes);
  if (!shared) return shared.error();
  auto device = allocate_device(bytes);
  if (!device) return device.error();
  uint8_t* at = shared->data();
  const std::scoped_lock lock(tables().mutex);
  tables().all[reinterpret_cast<uintptr_t>(at)] = Table{std::move(*shared), std::move(*device)};
  return Buffer(at, bytes, [](void* given, int64_t) {
    const std::scoped_lock freeing(tables().mutex);
    const auto one = tables().all.find(reinterpret_cast<uintptr_t>(given));
    if (one->second.sent != nullptr) cudaEventDestroy(one->second.sent);
    tables().all.erase(one);
  });
}

void rewrite_tables(const uint8_t* memory) {
  const std::scoped_lock lock(tables().mutex);
  if (Table* table = tables().find(memory)) table->copied = 0;
}

void send_tables(const uint8_t* memory, int64_t bytes, cudaStream_t stream) {
  const std::scoped_lock lock(tables().mutex);
  Table* table = tables().find(memory);
  check(table != nullptr && bytes <= table->shared.bytes(), "what is sent is one allocation of tables");
  if (table->sent == nullptr) {
    expect(cudaEventCreateWithFlags(&table->sent, cudaEventDisableTiming), "sending tables");
  }
  if (bytes > 0) {
    expect(cudaMemcpyAsync(table->device.data(), table->shared.data(), size_t(bytes), cudaMemcpyHostToDevice, stream),
           "sending tables");
  }
  expect(cudaEventRecord(table->sent, stream), "sending tables");
}

void await_sent(const uint8_t* memory) {
  const std::scoped_lock lock(tables().mutex);
  Table* table = tables().find(memory);
  if (table != nullptr && table->sent != nullptr) expect(cudaEventSynchronize(table->sent), "sending tables");
}

const void* table_on_device(const void* memory, int64_t bytes, cudaStream_t stream) {
  const std::scoped_lock lock(tables().mutex);
  Table* table = tables().find(memory);
  if (table == nullptr) return nullptr;
  const int64_t offset = static_cast<const uint8_t*>(memory) - table->shared.data();
  check(offset + bytes <= table->shared.bytes(), "a table lies in one allocation");
  if (offset + bytes > table->copied && !is_recorded(stream)) {
    expect(cudaMemcpyAsync(table->device.data() + table->copied, table->shared.data() + table->copied,
                           size_t(offset + bytes - table->copied), cudaMemcpyHostToDevice, stream),
           "copying tables");
    table->copied = offset + bytes;
  }
  return table->device.data() + offset;
}

}  // namespace fathom::cuda
