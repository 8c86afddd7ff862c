#include "fathom/base/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>
#include <utility>
#include <vector>

#include "fathom/base/check.h"

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
  int release() { return std::exchange(fd, -1); }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() {
    if (fd >= 0) ::close(fd);
  }
};

size_t page_bytes() {
  static const auto kPage = size_t(::sysconf(_SC_PAGESIZE));
  return kPage;
}

// Returns when they are in memory and mapped.
void populate_pages(uint8_t* begin, size_t bytes) {
  constexpr int kPopulateRead = 22;  // MADV_POPULATE_READ, Linux 5.14; the C library's headers may be older
  int done = 0;
  do done = ::madvise(begin, bytes, kPopulateRead);
  while (done != 0 && errno == EINTR);
  if (done == 0 || errno != EINVAL) return;  // not EINVAL: a page cannot be read, which is for the reader to find
  for (size_t at = 0; at < bytes; at += page_bytes()) (void)*const_cast<volatile const uint8_t*>(begin + at);
}

// The pages that hold a part of a mapping, which begins at a page itself.
struct PageRange {
  uint8_t* begin = nullptr;
  size_t bytes = 0;
  int64_t offset = 0;  // in the file

  PageRange(std::span<const uint8_t> whole, std::span<const uint8_t> part) {
    const size_t page = page_bytes();
    check(part.data() >= whole.data() && part.data() + part.size() <= whole.data() + whole.size(),
          "advice is for a part of the mapping");
    const auto from = size_t(part.data() - whole.data()) / page * page;
    const size_t until = (size_t(part.data() - whole.data()) + part.size() + page - 1) / page * page;
    begin = const_cast<uint8_t*>(whole.data()) + from;
    bytes = part.empty() ? 0 : until - from;
    offset = int64_t(from);
  }
};

}  // namespace

Result<MappedFile> MappedFile::open(const std::string& path) {
  // O_NONBLOCK: opening a pipe that nobody writes would wait for ever. Regular files do not care.
  Descriptor file{::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)};
  if (file.fd < 0) return system_error("cannot open the file", path);
  struct stat info = {};
  if (::fstat(file.fd, &info) != 0) return system_error("cannot read the file's size", path);
  if (!S_ISREG(info.st_mode)) {
    return Error{ErrorCode::bad_input, "not a regular file", path, "name a file, not a folder or a device"};
  }
  MappedFile out;
  out.path_ = path;
  out.size_ = size_t(info.st_size);
  out.cache_is_told_ = info.st_uid == ::geteuid() || ::faccessat(AT_FDCWD, path.c_str(), W_OK, AT_EACCESS) == 0;
  if (out.size_ != 0) {
    void* data = ::mmap(nullptr, out.size_, PROT_READ, MAP_SHARED, file.fd, 0);
    if (data == MAP_FAILED) return system_error("cannot map the file", path);
    out.data_ = static_cast<const uint8_t*>(data);
  }
  out.descriptor_ = file.release();
  return out;
}

MappedFile::MappedFile(MappedFile&& other) noexcept { *this = std::move(other); }

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  std::swap(descriptor_, other.descriptor_);
  std::swap(cache_is_told_, other.cache_is_told_);
  std::swap(path_, other.path_);
  return *this;
}

MappedFile::~MappedFile() {
  if (data_) ::munmap(const_cast<uint8_t*>(data_), size_);
  if (descriptor_ >= 0) ::close(descriptor_);
}

void MappedFile::use_huge_pages(std::span<const uint8_t> part) const {
  const PageRange pages(bytes(), part);
  if (pages.bytes == 0) return;
  (void)::madvise(pages.begin, pages.bytes, MADV_HUGEPAGE);
  (void)::madvise(pages.begin, pages.bytes, MADV_RANDOM);
}

void MappedFile::populate(std::span<const uint8_t> part) const {
  const PageRange all(bytes(), part);
  for (size_t done = 0; done < all.bytes;) {
    const int64_t at = all.offset + int64_t(done);
    const size_t count = std::min(all.bytes - done, size_t(kHugePage - at % kHugePage));
    uint8_t* begin = all.begin + done;
    // Where there are huge pages the first page brings the others. Where there are none, they are asked for together:
    // one by one each would be a request to the disk.
    populate_pages(begin, std::min(count, page_bytes()));
    const auto missing = [&] {
      const std::span<const uint8_t> piece(begin, std::min(count, size_t(bytes().data() + size_ - begin)));
      return cached_bytes(piece).value_or(0) < int64_t(piece.size());
    };
    if (missing()) (void)::madvise(begin, count, MADV_WILLNEED);
    populate_pages(begin, count);
    done += count;
  }
}

void MappedFile::drop(std::span<const uint8_t> part, bool from_cache) const {
  const PageRange pages(bytes(), part);
  if (pages.bytes == 0) return;
  (void)::madvise(pages.begin, pages.bytes, MADV_DONTNEED);  // of a shared mapping: forgets where, not what
  if (from_cache) (void)::posix_fadvise(descriptor_, off_t(pages.offset), off_t(pages.bytes), POSIX_FADV_DONTNEED);
}

std::optional<int64_t> MappedFile::cached_bytes(std::span<const uint8_t> part) const {
  const PageRange pages(bytes(), part);
  if (pages.bytes == 0) return 0;
  if (!cache_is_told_) return {};
  const size_t page = page_bytes();
  std::vector<unsigned char> in((pages.bytes + page - 1) / page);
  if (::mincore(pages.begin, pages.bytes, in.data()) != 0) return {};
  return int64_t(page) * std::count_if(in.begin(), in.end(), [](unsigned char flags) { return flags & 1; });
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
