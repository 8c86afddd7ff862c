#include "fathom/base/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

namespace fathom {
namespace {

Error system_error(const char* what, const std::string& path) {
  const int code = errno;
  if (code == ENOENT || code == ENOTDIR) {
    return Error{ErrorCode::not_found, "no such file", path, "check the path"};
  }
  return Error{ErrorCode::failed, std::string(what) + ": " + std::generic_category().message(code), path,
               code == EACCES ? "check its permissions" : "check the file system"};
}

struct Descriptor {
  int fd = -1;

  explicit Descriptor(int opened) : fd(opened) {}
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() {
    if (fd >= 0) ::close(fd);
  }
};

}  // namespace

Result<MappedFile> MappedFile::open(const std::string& path) {
  // O_NONBLOCK: opening a pipe that nobody writes would wait for ever. Regular files do not care.
  const Descriptor file{::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)};
  if (file.fd < 0) return system_error("cannot open the file", path);
  struct stat info = {};
  if (::fstat(file.fd, &info) != 0) return system_error("cannot read the file's size", path);
  if (!S_ISREG(info.st_mode)) {
    return Error{ErrorCode::bad_input, "not a regular file", path, "name a file, not a folder or a device"};
  }
  MappedFile out;
  out.path_ = path;
  out.size_ = size_t(info.st_size);
  if (out.size_ != 0) {
    void* data = ::mmap(nullptr, out.size_, PROT_READ, MAP_SHARED, file.fd, 0);
    if (data == MAP_FAILED) return system_error("cannot map the file", path);
    out.data_ = static_cast<const uint8_t*>(data);
  }
  return out;
}

MappedFile::MappedFile(MappedFile&& other) noexcept { *this = std::move(other); }

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  std::swap(path_, other.path_);
  return *this;
}

MappedFile::~MappedFile() {
  if (data_) ::munmap(const_cast<uint8_t*>(data_), size_);
}

Result<std::string> read_file(const std::string& path, int64_t limit_bytes) {
  const auto file = MappedFile::open(path);
  if (!file) return file.error();
  const auto bytes = file->bytes();
  if (int64_t(bytes.size()) > limit_bytes) {
    return Error{ErrorCode::bad_input, "file of " + std::to_string(bytes.size()) + " bytes", path,
                 "the limit is " + std::to_string(limit_bytes) + " bytes"};
  }
  return std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size());
}

namespace {

Result<void> write_whole(const std::string& path, std::string_view bytes) {
  const Descriptor file{::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644)};
  if (file.fd < 0) return system_error("cannot create the file", path);
  while (!bytes.empty()) {
    const ssize_t wrote = ::write(file.fd, bytes.data(), bytes.size());
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote < 0) return system_error("cannot write the file", path);
    bytes.remove_prefix(size_t(wrote));
  }
  return {};
}

}  // namespace

Result<void> write_file(const std::string& path, std::string_view bytes) {
  const std::string part = path + ".part";
  auto done = write_whole(part, bytes);
  if (done && ::rename(part.c_str(), path.c_str()) != 0) done = system_error("cannot rename the file", path);
  if (!done) ::unlink(part.c_str());  // half a file helps nobody
  return done;
}

}  // namespace fathom
