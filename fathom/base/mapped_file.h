// fathom/base/mapped_file.h
// A file as read-only memory. Nothing is read until it is touched; the pages belong to the page cache.
#pragma once
#include <cstdint>
#include <optional>
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

  // What the kernel does with the pages of a part of bytes(), whole pages outwards. All of it is advice: when the
  // kernel declines, reading the bytes is slower and gives the same. Any thread.

  static constexpr int64_t kHugePage = int64_t(2) << 20;  // bytes; they begin at multiples of it in the file

  /// Reads and maps this part 2 MiB at a time and nothing ahead of that, where kernel and file system can: one request
  /// to the disk and one entry in the page table instead of 512. Without it reading ahead takes most of a processor
  /// (0.27 s/GB instead of 0.01, 1.0 GB/s instead of 2.3: Linux 6.18, ext4, a virtual disk).
  void use_huge_pages(std::span<const uint8_t> part) const;
  /// Returns when the pages are in memory and mapped, so that reading them waits for nothing. Blocks for the disk.
  void populate(std::span<const uint8_t> part) const;
  /// Takes the pages out of this process; `from_cache`: out of the page cache as well, where nobody else maps them.
  void drop(std::span<const uint8_t> part, bool from_cache) const;
  /// Bytes of the part that are in the page cache, in whole pages. Nothing when the kernel does not say: of a file that
  /// this process neither owns nor may write it calls every page cached.
  std::optional<int64_t> cached_bytes(std::span<const uint8_t> part) const;

 private:
  MappedFile() = default;
  const uint8_t* data_ = nullptr;
  size_t size_ = 0;
  int descriptor_ = -1;  // kept for drop()
  bool cache_is_told_ = false;
  std::string path_;
};

/// The whole file as a string. Errors as MappedFile::open, and bad_input beyond `limit_bytes`.
Result<std::string> read_file(const std::string& path, int64_t limit_bytes = int64_t(1) << 30);

/// Writes beside the target and renames: a reader sees the old file or the new one, never half of it.
/// Errors: not_found (no such folder), failed with the system's reason; then the old file stands and no part is left.
Result<void> write_file(const std::string& path, std::string_view bytes);

}  // namespace fathom
