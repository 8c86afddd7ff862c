#include "fathom/checkpoint/memory_checkpoint.h"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string_view>

#include "fathom/checkpoint/safetensors.h"
#include "fathom/checkpoint/shard_pieces.h"

namespace fathom {

// Address space only: a page takes memory when it is first written, so a hole of 510 GB costs nothing. Pages begin at
// multiples of 4096, which is more than the 64 that EmbeddedFile asks for.
Result<std::span<uint8_t>> MemoryCheckpoint::add(std::string_view name, int64_t bytes) {
  const auto length = size_t(std::max<int64_t>(bytes, 1));
  void* memory = ::mmap(nullptr, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) {
    return Error{ErrorCode::out_of_memory,
                 "the system gave no " + with_commas(bytes) + " bytes of address space: " + std::strerror(errno),
                 std::string(name), "look at ulimit -v and vm.overcommit_memory, or write the checkpoint to a folder"};
  }
  memory_.emplace_back(memory, int64_t(length), [](void* mapping, int64_t size) { ::munmap(mapping, size_t(size)); });
  names_.emplace_back(name.begin(), name.end());
  const std::span<uint8_t> out(static_cast<uint8_t*>(memory), size_t(bytes));
  files_.push_back({{names_.back().data(), names_.back().size()}, out});
  return out;
}

Result<void> MemoryCheckpoint::add_text(std::string_view name, std::string_view text) {
  const auto out = add(name, int64_t(text.size()));
  if (!out) return out.error();
  std::copy(text.begin(), text.end(), out->begin());
  return {};
}

void MemoryCheckpoint::make_read_only() {
  for (const Buffer& buffer : memory_) ::mprotect(buffer.data(), size_t(buffer.bytes()), PROT_READ);
}

Result<MemoryCheckpoint> MemoryCheckpoint::make(const CheckpointContent& content, const FillRows& fill,
                                                ThreadPool& pool, const WriteProgress& progress) {
  MemoryCheckpoint checkpoint;
  int64_t done = 0, total = 0;
  for (const ShardSpec& shard : content.shards) total += shard.hole ? 0 : shard.data_bytes();
  for (const ShardSpec& shard : content.shards) {
    const std::string header = write_safetensors_header(shard.tensors);
    const auto file = checkpoint.add(shard.file, int64_t(header.size()) + shard.data_bytes());
    if (!file) return file.error();
    std::copy(header.begin(), header.end(), file->begin());
    if (shard.hole) continue;
    const auto pieces = cut(shard, int64_t(header.size()));
    for (size_t first = 0; first < pieces.size();) {
      const size_t last = round_end(pieces, first);
      pool.run(int64_t(last - first), 1, [&](int64_t begin, int64_t end, int) {
        for (int64_t i = begin; i < end; ++i) {
          const ShardPiece& piece = pieces[first + size_t(i)];
          fill(*piece.tensor, piece.first_row, piece.rows,
               file->subspan(size_t(piece.file_offset), size_t(piece.bytes)));
        }
      });
      for (; first < last; ++first) done += pieces[first].bytes;
      if (progress && !progress(done, total)) {
        return Error{ErrorCode::interrupted,
                     "stopped at " + with_commas(done) + " of " + with_commas(total) + " bytes of weights",
                     "weights in memory", "start again; nothing was written"};
      }
    }
  }
  if (const auto added = checkpoint.add_text("model.safetensors.index.json", index_text(content.shards)); !added) {
    return added.error();
  }
  for (const TextFile& file : content.files) {
    if (const auto added = checkpoint.add_text(file.name, file.text); !added) return added.error();
  }
  if (const auto added = checkpoint.add_text("config.json", to_string(content.config) + "\n"); !added) {
    return added.error();
  }
  checkpoint.make_read_only();
  return checkpoint;
}

}  // namespace fathom
