#include "fathom/cli/batch_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <map>
#include <utility>

#include "fathom/cli/terminal.h"

namespace fathom::cli {
namespace {

Error system_error(const std::string& what, const std::string& path) {
  const ErrorCode code =
      errno == ENOENT || errno == ENOTDIR || errno == EISDIR ? ErrorCode::not_found : ErrorCode::failed;
  return Error{code, what + ": " + std::strerror(errno), path,
               errno == ENOSPC ? "make room, then go on with --resume" : "check the folder and its permissions"};
}

std::string line_id(int64_t number) { return std::to_string(number); }

}  // namespace

std::vector<BatchLine> read_batch_lines(std::string_view bytes, const std::string& path) {
  std::vector<BatchLine> lines;
  std::map<std::string, int64_t> owners;  // id -> number of the line that has it
  int64_t number = 0;
  while (!bytes.empty()) {
    ++number;
    const size_t end = std::min(bytes.find('\n'), bytes.size());
    std::string_view text = bytes.substr(0, end);
    bytes.remove_prefix(std::min(end + 1, bytes.size()));
    if (text.ends_with('\r')) text.remove_suffix(1);
    if (text.find_first_not_of(" \t") == std::string_view::npos) continue;
    BatchLine line;
    line.number = number;
    line.text = text;
    const std::string where = path + ", line " + std::to_string(number);
    const auto tree = parse_json(text, where);
    if (!tree) {
      line.error = tree.error();
    } else if (!tree->is_object()) {
      line.error = Error{ErrorCode::bad_input, "not a JSON object", where, R"(write {"id": …, "prompt": …})"};
    } else if (const Json* id = tree->find("id"); id != nullptr && !id->is_null()) {
      if (!id->is_string() && !id->is_number()) {
        line.error = Error{ErrorCode::bad_input, "\"id\" is neither a text nor a number", where, "give it one"};
      } else if (const auto owner = owners.find(to_string(*id)); owner != owners.end()) {
        line.error = Error{ErrorCode::bad_input,
                           "id " + owner->first + " is already that of line " + std::to_string(owner->second), where,
                           "give each line its own id"};
      } else {
        line.id = to_string(*id);
      }
    }
    if (line.id.empty()) line.id = line_id(number);
    // A number that some line claims as its id cannot name another line.
    if (owners.contains(line.id)) line.id = "\"line " + std::to_string(number) + "\"";
    owners.emplace(line.id, number);
    lines.push_back(std::move(line));
  }
  return lines;
}

Result<BatchOutput> BatchOutput::open(const std::string& path, bool resume) {
  BatchOutput output;
  output.path_ = path;
  output.descriptor_ = ::open(path.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (output.descriptor_ < 0) return system_error("cannot open the file", path);
  if (::flock(output.descriptor_, LOCK_EX | LOCK_NB) != 0) {
    return Error{ErrorCode::usage, "another run is writing this file", path, "wait for it, or choose another --output"};
  }
  struct stat info = {};
  if (::fstat(output.descriptor_, &info) != 0) return system_error("cannot read the file's size", path);
  if (!S_ISREG(info.st_mode)) return output;  // a pipe or a device holds no earlier answers
  std::string text;
  std::string piece(size_t(1) << 20, '\0');
  for (int64_t at = 0;;) {
    const ssize_t count = ::pread(output.descriptor_, piece.data(), piece.size(), at);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return system_error("cannot read the file", path);
    if (count == 0) break;
    text.append(piece.data(), size_t(count));
    at += count;
  }
  if (text.empty()) return output;
  if (!resume) {
    return Error{ErrorCode::usage, "the file has answers already", path,
                 "add --resume to go on with them, or choose another --output"};
  }
  const size_t last = text.rfind('\n');
  const size_t whole = last == std::string::npos ? 0 : last + 1;
  if (whole < text.size()) {
    output.cut_bytes_ = int64_t(text.size() - whole);
    if (::ftruncate(output.descriptor_, off_t(whole)) != 0) return system_error("cannot cut the torn last line", path);
  }
  int64_t number = 0;
  for (std::string_view rest = std::string_view(text).substr(0, whole); !rest.empty();) {
    ++number;
    const size_t end = rest.find('\n');
    const std::string where = path + ", line " + std::to_string(number);
    const auto tree = parse_json(rest.substr(0, end), where);
    rest.remove_prefix(end + 1);
    const Json* id = tree ? tree->find("id") : nullptr;
    if (id == nullptr || (tree->find("response") == nullptr && tree->find("error") == nullptr)) {
      return Error{ErrorCode::bad_input, "not an answer of fathom generate", where,
                   "choose another --output, or remove this line"};
    }
    output.answered_.insert(to_string(*id));
    if (tree->find("error") != nullptr) output.failed_.insert(to_string(*id));
  }
  return output;
}

BatchOutput::BatchOutput(BatchOutput&& other) noexcept
    : descriptor_(std::exchange(other.descriptor_, -1)),
      path_(std::move(other.path_)),
      answered_(std::move(other.answered_)),
      failed_(std::move(other.failed_)),
      cut_bytes_(other.cut_bytes_) {}

BatchOutput& BatchOutput::operator=(BatchOutput&& other) noexcept {
  std::swap(descriptor_, other.descriptor_);
  std::swap(path_, other.path_);
  std::swap(answered_, other.answered_);
  std::swap(failed_, other.failed_);
  std::swap(cut_bytes_, other.cut_bytes_);
  return *this;
}

BatchOutput::~BatchOutput() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

Result<void> BatchOutput::append(const std::string& id, std::string_view key, std::string_view value) {
  std::string line = "{\"id\":" + id + ",";
  append_json_string(line, key);
  line += ':';
  line += value;
  line += "}\n";
  std::string_view rest = line;
  while (!rest.empty()) {  // one write, unless the disk takes only a part
    const ssize_t written = ::write(descriptor_, rest.data(), rest.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return system_error("cannot append an answer", path_);
    rest.remove_prefix(size_t(written));
  }
  answered_.insert(id);
  return {};
}

Result<void> BatchOutput::sync() {
  // A pipe or a device has nothing to synchronise.
  if (::fdatasync(descriptor_) != 0 && errno != EINVAL && errno != EROFS) {
    return system_error("cannot bring the answers to the disk", path_);
  }
  return {};
}

}  // namespace fathom::cli
