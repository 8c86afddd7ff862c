// fathom/checkpoint/memory_checkpoint.h
// The files of a checkpoint folder as memory of this process: what write_checkpoint() would put on disk, byte for byte,
// without a disk. Shards that are holes are declared, read as zero and take no memory.
#pragma once
#include <span>
#include <string>
#include <vector>

#include "fathom/base/result.h"
#include "fathom/base/thread_pool.h"
#include "fathom/checkpoint/checkpoint_writer.h"
#include "fathom/checkpoint/embedded_model.h"
#include "fathom/tensor/buffer.h"

namespace fathom {

/// Owner; moves, does not copy. Every Checkpoint opened from files() must die first. Read-only once made: a write into
/// it is a segmentation fault, as with a mapped file. Any number of threads may read.
class MemoryCheckpoint {
 public:
  /// Empty: no files.
  MemoryCheckpoint() = default;

  /// Lays everything out and fills what is no hole, with all threads of the pool.
  /// Errors: out_of_memory when the system refuses address space; interrupted when `progress` returns false. Whether
  /// the weights fit must be asked before: the system grants more than it has.
  static Result<MemoryCheckpoint> make(const CheckpointContent& content, const FillRows& fill, ThreadPool& pool,
                                       const WriteProgress& progress = {});

  /// Valid until it dies, also after a move.
  std::span<const EmbeddedFile> files() const { return files_; }

 private:
  Result<std::span<uint8_t>> add(std::string_view name, int64_t bytes);
  Result<void> add_text(std::string_view name, std::string_view text);
  void make_read_only();

  std::vector<Buffer> memory_;
  std::vector<std::vector<char>> names_;  // vectors, because a short string's letters move with it
  std::vector<EmbeddedFile> files_;
};

}  // namespace fathom
