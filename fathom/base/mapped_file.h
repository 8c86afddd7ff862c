// fathom/base/mapped_file.h
// A file as read-only memory. Nothing is read until it is touched; the pages belong to the page cache.
#pragma once
#include <cstdint>
#include <span>
#include <string>

#include "fathom/base/result.h"

namespace fathom {

/// Owner of one mapping; moves, does not copy. Its bytes stay valid until it dies. Any number of threads may read.
class MappedFile {
 public:
  /// Errors: not_found, bad_input (a folder), failed (with the system's reason). An empty file maps to no bytes.
  static Result<MappedFile> open(const std::string& path);

  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  ~MappedFile();

  std::span<const uint8_t> bytes() const { return {data_, size_}; }
  const std::string& path() const { return path_; }

 private:
  MappedFile() = default;
  const uint8_t* data_ = nullptr;
  size_t size_ = 0;
  std::string path_;
};

/// The whole file as a string. Errors as MappedFile::open, and bad_input beyond `limit_bytes`.
Result<std::string> read_file(const std::string& path, int64_t limit_bytes = int64_t(1) << 30);

/// Writes beside the target and renames: a reader sees the old file or the new one, never half of it.
/// Errors: not_found (no such folder), failed with the system's reason; then the old file stands and no part is left.
Result<void> write_file(const std::string& path, std::string_view bytes);

}  // namespace fathom
