#include "fathom/cli/disk_speed.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "fathom/base/philox.h"
#include "fathom/cli/terminal.h"

namespace fathom::cli {
namespace {

using Clock = std::chrono::steady_clock;

// One request of this size is split by the kernel into many that the disk works on at once, so one thread is enough.
constexpr int64_t kBlockBytes = int64_t(8) << 20;
constexpr size_t kAlignment = 4096;     // what direct I/O asks of addresses, lengths and offsets, at most
constexpr double kSeconds = 1;          // each way
constexpr int64_t kTmpfs = 0x01021994;  // TMPFS_MAGIC of linux/magic.h

double since(Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); }

Error failure(const std::string& what, const std::string& folder, int code) {
  const char* remedy = code == ENOSPC || code == EDQUOT ? "free some space, or name another folder"
                       : code == EACCES || code == EPERM || code == EROFS
                           ? "give this user the right to write there, or name another folder"
                           : "check the disk and its file system, or name another folder";
  return Error{ErrorCode::failed, what + ": " + std::strerror(code), "--kv-disk " + folder, remedy};
}

class File {
 public:
  explicit File(int descriptor) : descriptor_(descriptor) {}
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  ~File() {
    if (descriptor_ >= 0) ::close(descriptor_);
  }
  int descriptor() const { return descriptor_; }

 private:
  int descriptor_;
};

// A file without a name; where the file system has none, one whose name is taken away at once. -1 and errno.
int open_nameless(const std::string& folder) {
  const int descriptor = ::open(folder.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
  if (descriptor >= 0 || (errno != EOPNOTSUPP && errno != EISDIR && errno != EINVAL)) return descriptor;
  std::string path = folder + "/fathom-disk-XXXXXX";
  const int named = ::mkostemp(path.data(), O_CLOEXEC);
  if (named >= 0) ::unlink(path.c_str());
  return named;
}

// Random bytes: a disk or file system that compresses gains nothing.
void fill(std::span<uint8_t> block) {
  for (size_t i = 0; i + 16 <= block.size(); i += 16) {
    const auto words = philox(1, {uint32_t(i), 0, 0, 0});
    std::memcpy(block.data() + i, words.data(), 16);
  }
}

// The whole block or -1 and errno.
template <class Transfer>
int transfer_block(Transfer transfer, int descriptor, uint8_t* block, int64_t offset) {
  for (int64_t done = 0; done < kBlockBytes;) {
    const ssize_t count = transfer(descriptor, block + done, size_t(kBlockBytes - done), offset + done);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) {
      if (count == 0) errno = EIO;
      return -1;
    }
    done += count;
  }
  return 0;
}

}  // namespace

Result<DiskSpeed> measure_disk(const std::string& folder, int64_t most_bytes) {
  struct stat info = {};
  if (::stat(folder.c_str(), &info) != 0) {
    if (errno != ENOENT && errno != ENOTDIR) return failure("cannot look at the folder", folder, errno);
    return Error{ErrorCode::not_found, "no such folder", "--kv-disk " + folder, "make it, or name another"};
  }
  if (!S_ISDIR(info.st_mode)) {
    return Error{ErrorCode::bad_input, "this is no folder", "--kv-disk " + folder, "name a folder"};
  }
  DiskSpeed speed;
  struct statvfs space = {};
  if (::statvfs(folder.c_str(), &space) != 0) return failure("cannot ask for free space", folder, errno);
  speed.free_bytes = int64_t(space.f_bavail) * int64_t(space.f_frsize);
  struct statfs system = {};
  speed.in_memory = ::statfs(folder.c_str(), &system) == 0 && int64_t(system.f_type) == kTmpfs;

  const File file(open_nameless(folder));
  if (file.descriptor() < 0) return failure("a file cannot be written there", folder, errno);
  // Half of what is free at most: the measurement must not be what fills the disk of somebody else.
  const int64_t most = std::min(most_bytes, speed.free_bytes / 2) / kBlockBytes * kBlockBytes;
  if (most == 0) {
    return Error{ErrorCode::failed,
                 "the disk is full: " + size_text(speed.free_bytes) + " are free, the measurement takes " +
                     size_text(2 * kBlockBytes),
                 "--kv-disk " + folder, "free some space, or name another folder"};
  }
  speed.direct = ::fcntl(file.descriptor(), F_SETFL, ::fcntl(file.descriptor(), F_GETFL) | O_DIRECT) == 0;
  const std::unique_ptr<void, void (*)(void*)> memory(std::aligned_alloc(kAlignment, size_t(kBlockBytes)), std::free);
  auto* block = static_cast<uint8_t*>(memory.get());
  if (block == nullptr)
    return Error{ErrorCode::out_of_memory, "no memory for 8 MiB", "--kv-disk " + folder, "end other programs"};
  fill({block, size_t(kBlockBytes)});

  auto begin = Clock::now();
  while (speed.bytes < most && since(begin) < kSeconds) {
    if (transfer_block(::pwrite, file.descriptor(), block, speed.bytes) != 0) {
      // Some file systems take the flag and refuse the request.
      if (errno == EINVAL && speed.direct && speed.bytes == 0) {
        speed.direct = false;
        ::fcntl(file.descriptor(), F_SETFL, ::fcntl(file.descriptor(), F_GETFL) & ~O_DIRECT);
        continue;
      }
      return failure("the test file cannot be written", folder, errno);
    }
    speed.bytes += kBlockBytes;
    // Without direct I/O each block is written through, or the last call would wait for all of them.
    if (!speed.direct && ::fdatasync(file.descriptor()) != 0) {
      return failure("the test file cannot be written", folder, errno);
    }
  }
  if (::fdatasync(file.descriptor()) != 0) return failure("the test file cannot be written", folder, errno);
  speed.write_bytes_per_s = double(speed.bytes) / std::max(since(begin), 1e-9);

  if (!speed.direct) ::posix_fadvise(file.descriptor(), 0, 0, POSIX_FADV_DONTNEED);
  begin = Clock::now();
  int64_t read = 0;
  while (read < speed.bytes && since(begin) < kSeconds) {
    if (transfer_block(::pread, file.descriptor(), block, read) != 0) {
      return failure("the test file cannot be read", folder, errno);
    }
    read += kBlockBytes;
  }
  speed.read_bytes_per_s = double(read) / std::max(since(begin), 1e-9);
  return speed;
}

}  // namespace fathom::cli
