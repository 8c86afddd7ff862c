// fathom/cli/disk_speed.h
// How fast the disk under a folder writes and reads, measured with a file that has no name: it is gone when the program
// ends, however it ends.
#pragma once
#include <cstdint>
#include <string>

#include "fathom/base/result.h"

namespace fathom::cli {

struct DiskSpeed {
  double write_bytes_per_s = 0, read_bytes_per_s = 0;
  int64_t bytes = 0;       // written, and read again
  int64_t free_bytes = 0;  // of the file system, before
  bool direct = false;     // past the page cache; otherwise written through and dropped from it before reading
  bool in_memory = false;  // tmpfs: there is no disk
};

/// Writes and reads at most `most_bytes`, for about a second each. Blocks.
/// Errors: not_found (no such folder), bad_input (no folder), failed (not writable, full, the disk's own error).
Result<DiskSpeed> measure_disk(const std::string& folder, int64_t most_bytes = int64_t(256) << 20);

}  // namespace fathom::cli
