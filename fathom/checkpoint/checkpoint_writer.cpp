#include "fathom/checkpoint/checkpoint_writer.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <filesystem>

#include "fathom/base/mapped_file.h"
#include "fathom/checkpoint/safetensors.h"
#include "fathom/checkpoint/shard_pieces.h"

namespace fathom {
namespace {

Error system_error(const std::string& what, const std::string& path, int code) {
  const char* remedy = code == ENOSPC   ? "free some space, or choose another folder"
                       : code == EACCES ? "check its permissions"
                                        : "check the file system";
  return Error{ErrorCode::failed, what + ": " + std::strerror(code), path, remedy};
}

// A file under its temporary name: closed and removed unless it was renamed.
class PartFile {
 public:
  explicit PartFile(std::string path) : path_(std::move(path)), part_(path_ + ".part") {
    fd_ = ::open(part_.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  }
  PartFile(const PartFile&) = delete;
  PartFile& operator=(const PartFile&) = delete;
  ~PartFile() {
    if (fd_ < 0) return;
    ::close(fd_);
    ::unlink(part_.c_str());
  }
  int fd() const { return fd_; }
  const std::string& part() const { return part_; }

  Result<void> rename() {
    const int closed = ::close(std::exchange(fd_, -1));
    if (closed != 0 || ::rename(part_.c_str(), path_.c_str()) != 0) {
      const Error error = system_error("cannot finish the file", path_, errno);
      ::unlink(part_.c_str());
      return error;
    }
    return {};
  }

 private:
  std::string path_, part_;
  int fd_ = -1;
};

// 0, or the system's error.
int write_at(int fd, int64_t offset, std::span<const uint8_t> bytes) {
  while (!bytes.empty()) {
    const ssize_t wrote = ::pwrite(fd, bytes.data(), bytes.size(), offset);
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote <= 0) return wrote == 0 ? EIO : errno;
    offset += wrote;
    bytes = bytes.subspan(size_t(wrote));
  }
  return 0;
}

// A file system without holes would write 510 GB of zeros, or say that the disk is full: ask it before.
Result<void> check_holes(const std::string& folder, int64_t longest_bytes) {
  const Error none{
      ErrorCode::bad_input,
      "the file system of this folder cannot hold files with holes of " + with_commas(longest_bytes) + " bytes", folder,
      "choose a folder on ext4, xfs, btrfs or tmpfs"};
  const PartFile probe(folder + "/holes");
  if (probe.fd() < 0) return system_error("cannot create the file", probe.part(), errno);
  if (::ftruncate(probe.fd(), off_t(longest_bytes)) != 0) return none;
  struct stat info = {};
  if (::fstat(probe.fd(), &info) != 0) return system_error("cannot read the file's size", probe.part(), errno);
  if (info.st_size != longest_bytes || int64_t(info.st_blocks) * 512 > (int64_t(1) << 20)) return none;
  return {};
}

class Writer {
 public:
  Writer(const std::string& folder, const CheckpointContent& content, const FillRows& fill, ThreadPool& pool,
         const WriteProgress& progress)
      : folder_(folder), content_(content), fill_(fill), pool_(pool), progress_(progress) {
    for (const ShardSpec& shard : content.shards) {
      if (!shard.hole) total_ += shard.data_bytes();
    }
  }

  Result<void> write() {
    if (const auto ready = prepare(); !ready) return ready.error();
    for (const ShardSpec& shard : content_.shards) {
      if (const auto wrote = write_shard(shard); !wrote) return wrote.error();
    }
    if (const auto wrote = write_file(folder_ + "/model.safetensors.index.json", index_text(content_.shards)); !wrote)
      return wrote;
    for (const TextFile& file : content_.files) {
      if (const auto wrote = write_file(folder_ + "/" + file.name, file.text); !wrote) return wrote;
    }
    return write_file(folder_ + "/config.json", to_string(content_.config) + "\n");
  }

 private:
  Result<void> prepare() {
    std::error_code code;
    std::filesystem::create_directories(folder_, code);
    if (code) return system_error("cannot create the folder", folder_, code.value());
    const std::filesystem::directory_iterator entries(folder_, code);
    if (code) return system_error("cannot read the folder", folder_, code.value());
    if (entries != std::filesystem::directory_iterator{}) {
      return Error{ErrorCode::usage, "the folder is not empty: it holds " + entries->path().filename().string(),
                   folder_, "name a new or an empty one"};
    }
    int64_t longest_hole = 0;
    for (const ShardSpec& shard : content_.shards) {
      if (shard.hole) longest_hole = std::max(longest_hole, shard.data_bytes());
    }
    if (longest_hole > 0) {
      if (const auto holes = check_holes(folder_, longest_hole); !holes) return holes.error();
    }
    struct statvfs space = {};
    if (::statvfs(folder_.c_str(), &space) == 0) {
      const auto free_bytes = int64_t(space.f_bavail) * int64_t(space.f_frsize);
      if (free_bytes < total_) {
        return Error{ErrorCode::failed,
                     "the weights take " + with_commas(total_) + " bytes, " + with_commas(free_bytes) + " are free",
                     folder_, "free some space, choose another folder, or make a smaller checkpoint"};
      }
    }
    return {};
  }

  Result<void> write_shard(const ShardSpec& shard) {
    const std::string path = folder_ + "/" + shard.file;
    PartFile file(path);
    if (file.fd() < 0) return system_error("cannot create the file", path, errno);
    const std::string header = write_safetensors_header(shard.tensors);
    const std::span header_bytes(reinterpret_cast<const uint8_t*>(header.data()), header.size());
    if (::ftruncate(file.fd(), off_t(int64_t(header.size()) + shard.data_bytes())) != 0) {
      return system_error("cannot make the file as long as it must be", path, errno);
    }
    if (const int code = write_at(file.fd(), 0, header_bytes)) return system_error("cannot write the file", path, code);
    if (!shard.hole) {
      if (const auto wrote = write_data(file.fd(), path, cut(shard, int64_t(header.size()))); !wrote) return wrote;
    }
    return file.rename();
  }

  Result<void> write_data(int fd, const std::string& path, const std::vector<ShardPiece>& pieces) {
    for (size_t first = 0; first < pieces.size();) {
      const size_t last = round_end(pieces, first);
      std::atomic<int> failure{0};
      pool_.run(int64_t(last - first), 1, [&](int64_t begin, int64_t end, int) {
        std::vector<uint8_t> memory;
        for (int64_t i = begin; i < end && failure == 0; ++i) {
          const ShardPiece& piece = pieces[first + size_t(i)];
          memory.resize(size_t(piece.bytes));
          fill_(*piece.tensor, piece.first_row, piece.rows, memory);
          if (const int code = write_at(fd, piece.file_offset, memory)) failure = code;
        }
      });
      if (failure != 0) return system_error("cannot write the file", path, failure);
      for (; first < last; ++first) done_ += pieces[first].bytes;
      if (progress_ && !progress_(done_, total_)) {
        return Error{ErrorCode::interrupted,
                     "stopped at " + with_commas(done_) + " of " + with_commas(total_) + " bytes", folder_,
                     "remove the folder and start again"};
      }
    }
    return {};
  }

  const std::string& folder_;
  const CheckpointContent& content_;
  const FillRows& fill_;
  ThreadPool& pool_;
  const WriteProgress& progress_;
  int64_t total_ = 0, done_ = 0;
};

}  // namespace

int64_t ShardSpec::data_bytes() const {
  int64_t sum = 0;
  for (const TensorSpec& tensor : tensors) sum += tensor.bytes();
  return sum;
}

Result<void> write_checkpoint(const std::string& folder, const CheckpointContent& content, const FillRows& fill,
                              ThreadPool& pool, const WriteProgress& progress) {
  return Writer(folder, content, fill, pool, progress).write();
}

void order_for_alignment(std::vector<TensorSpec>& tensors) {
  std::sort(tensors.begin(), tensors.end(), [](const TensorSpec& a, const TensorSpec& b) {
    const int wide_a = bits_of(a.dtype), wide_b = bits_of(b.dtype);
    return wide_a != wide_b ? wide_a > wide_b : a.name < b.name;
  });
}

}  // namespace fathom
