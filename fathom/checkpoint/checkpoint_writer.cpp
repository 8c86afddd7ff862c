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

namespace fathom {
namespace {

constexpr int64_t kPieceBytes = int64_t(4) << 20;    // what one thread fills and writes at a time
constexpr int64_t kRoundBytes = int64_t(256) << 20;  // between two looks at `progress`

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

struct Piece {
  const TensorSpec* tensor = nullptr;
  int64_t file_offset = 0, first_row = 0, rows = 0, bytes = 0;
};

std::vector<Piece> cut(const ShardSpec& shard, int64_t offset) {
  std::vector<Piece> pieces;
  for (const TensorSpec& tensor : shard.tensors) {
    const Shape& shape = tensor.shape;
    const int64_t cols = shape.rank() == 0 ? 1 : shape[shape.rank() - 1];
    const int64_t rows = cols == 0 ? 0 : shape.elements() / cols;
    const int64_t row_bytes = bytes_of(tensor.dtype, cols);
    const int64_t step = std::max<int64_t>(kPieceBytes / std::max<int64_t>(row_bytes, 1) / 32, 1) * 32;
    for (int64_t row = 0; row < rows; row += step) {
      const int64_t count = std::min(step, rows - row);
      pieces.push_back({&tensor, offset + row * row_bytes, row, count, count * row_bytes});
    }
    offset += tensor.bytes();
  }
  return pieces;
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
    if (const auto wrote = write_file(folder_ + "/model.safetensors.index.json", index_text()); !wrote) return wrote;
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

  Result<void> write_data(int fd, const std::string& path, const std::vector<Piece>& pieces) {
    for (size_t first = 0; first < pieces.size();) {
      size_t last = first;
      for (int64_t bytes = 0; last < pieces.size() && bytes < kRoundBytes; ++last) bytes += pieces[last].bytes;
      std::atomic<int> failure{0};
      pool_.run(int64_t(last - first), 1, [&](int64_t begin, int64_t end, int) {
        std::vector<uint8_t> memory;
        for (int64_t i = begin; i < end && failure == 0; ++i) {
          const Piece& piece = pieces[first + size_t(i)];
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

  std::string index_text() const {
    std::string map;
    int64_t total = 0;
    std::vector<std::pair<std::string_view, std::string_view>> places;
    for (const ShardSpec& shard : content_.shards) {
      for (const TensorSpec& tensor : shard.tensors) places.emplace_back(tensor.name, shard.file);
      total += shard.data_bytes();
    }
    std::sort(places.begin(), places.end());
    for (const auto& [tensor, file] : places) {
      map += map.empty() ? "\n  " : ",\n  ";
      append_json_string(map, tensor);
      map += ": ";
      append_json_string(map, file);
    }
    return "{\n \"metadata\": {\"total_size\": " + std::to_string(total) + "},\n \"weight_map\": {" + map + "\n }\n}\n";
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
