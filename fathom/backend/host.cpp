// What the backends of this machine's processor share: memory, queues, and the backend made of definitions.
#include <sys/mman.h>

#include <cerrno>
#include <cstring>
#include <string>
#include <system_error>

#include "fathom/backend/host.h"

namespace fathom {
namespace {

Result<Buffer> allocate(int64_t bytes) {
  if (bytes <= 0) return Buffer();
  void* memory = mmap(nullptr, size_t(bytes), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) {
    return Error{ErrorCode::out_of_memory,
                 "the machine refuses " + std::to_string(bytes) + " bytes of memory: " + std::strerror(errno), "",
                 "ask for a shorter context or a smaller cache, or free memory"};
  }
  return Buffer(memory, bytes, [](void* mapped, int64_t length) { munmap(mapped, size_t(length)); });
}

Result<std::unique_ptr<Queue>> open_queue(int threads) {
  try {  // std::thread throws when the system has no more threads
    return std::make_unique<Queue>(threads > 0 ? threads : usable_cpus());
  } catch (const std::system_error& error) {
    return Error{ErrorCode::failed, "cannot start " + std::to_string(threads) + " threads: " + error.what(),
                 "--threads", "pass a smaller number"};
  }
}

}  // namespace

Backend host_backend(std::string name, const Operations& operations, std::string detail) {
  return Backend{std::move(name), Memory{.allocate = allocate}, operations, std::move(detail), open_queue};
}

Backend reference_backend() { return host_backend("reference", reference_operations(), "scalar, in double"); }

}  // namespace fathom
