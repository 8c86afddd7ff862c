#include "fathom/checkpoint/checkpoint.h"

#include <algorithm>
#include <filesystem>
#include <optional>
#include <utility>

#include "fathom/checkpoint/json_scanner.h"
#include "fathom/checkpoint/safetensors.h"

namespace fathom {
namespace {

constexpr const char* kConfig = "config.json";
constexpr const char* kIndex = "model.safetensors.index.json";
constexpr const char* kSingle = "model.safetensors";
constexpr int64_t kConfigLimit = int64_t(16) << 20;

std::string_view text_of(std::span<const uint8_t> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// Re-exports spell every name with this prefix; the rest of the program never sees it.
std::string_view without_prefix(std::string_view name) {
  constexpr std::string_view kPrefix = "model.";
  return name.starts_with(kPrefix) ? name.substr(kPrefix.size()) : name;
}

struct Placement {
  std::string tensor;  // as spelt
  int shard = 0;
  friend auto operator<=>(const Placement&, const Placement&) = default;
};

struct Index {
  std::vector<std::string> files;     // in order of their names
  std::vector<Placement> weight_map;  // sorted by tensor
  std::optional<int64_t> total_size;
};

// A plain file name: an index from elsewhere must not make us read outside its folder.
bool is_plain_shard_name(std::string_view file) {
  return file.ends_with(".safetensors") && file.find('/') == std::string_view::npos &&
         file.find('\0') == std::string_view::npos && file.size() < 256;
}

bool read_metadata(JsonScanner& json, std::string_view text, Index& index) {
  return json.object([&](const std::string& key) {
    const int64_t begin = json.position();
    if (!json.skip_value()) return false;
    if (key != "total_size") return true;
    const auto value = parse_json(text.substr(size_t(begin), size_t(json.position() - begin)), key);
    if (value) index.total_size = value->as_int64();  // some writers put 510286023000.0
    return true;
  });
}

bool read_weight_map(JsonScanner& json, std::vector<std::pair<std::string, std::string>>& out) {
  return json.object([&](std::string& tensor) {
    std::string file;
    if (!json.string(file)) return false;
    out.emplace_back(std::move(tensor), std::move(file));
    return true;
  });
}

Result<Index> read_index(std::string_view text, const std::string& where) {
  Index index;
  std::vector<std::pair<std::string, std::string>> map;
  JsonScanner json(text);
  bool has_map = false;
  const bool whole = json.object([&](const std::string& key) {
    if (key == "metadata") return read_metadata(json, text, index);
    if (key != "weight_map") return json.skip_value();
    if (std::exchange(has_map, true)) return json.fail("weight_map occurs twice");
    return read_weight_map(json, map);
  });
  if (whole) json.at_end();
  if (json.failed()) {
    return Error{ErrorCode::bad_input,
                 "index is damaged at byte " + std::to_string(json.position()) + ": " + json.mistake(), where,
                 "fetch this file again"};
  }
  if (!has_map || map.empty()) {
    return Error{ErrorCode::bad_input, has_map ? "weight_map is empty" : "weight_map is missing", where,
                 "it must map every tensor to its file"};
  }
  for (const auto& [tensor, file] : map) {
    if (!is_plain_shard_name(file)) {
      return Error{ErrorCode::bad_input, "weight_map places tensor " + tensor + " in file \"" + file + "\"", where,
                   "it must be the plain name of a .safetensors file in the same folder"};
    }
    index.files.push_back(file);
  }
  std::sort(index.files.begin(), index.files.end());
  index.files.erase(std::unique(index.files.begin(), index.files.end()), index.files.end());
  for (auto& [tensor, file] : map) {
    const auto at = std::lower_bound(index.files.begin(), index.files.end(), file);
    index.weight_map.push_back({std::move(tensor), int(at - index.files.begin())});
  }
  std::sort(index.weight_map.begin(), index.weight_map.end());
  const auto twice = std::adjacent_find(index.weight_map.begin(), index.weight_map.end(),
                                        [](const auto& a, const auto& b) { return a.tensor == b.tensor; });
  if (twice != index.weight_map.end()) {
    return Error{ErrorCode::bad_input, "weight_map lists tensor " + twice->tensor + " twice", where,
                 "fetch this file again"};
  }
  return index;
}

}  // namespace

// Fills a Checkpoint step by step; every step appends what is wrong and goes on with what is left.
class CheckpointReader {
 public:
  CheckpointReader(Checkpoint& out, std::vector<Error>& problems) : out_(out), problems_(problems) {}

  void read() {
    std::error_code ignored;
    if (!out_.in_memory_ && !std::filesystem::is_directory(out_.location_, ignored)) {
      problems_.push_back(Error{ErrorCode::not_found, "no such folder", out_.location_,
                                "name a folder with config.json and *.safetensors"});
      return;
    }
    read_config();
    read_index_file();
    read_shards();
    compare_with_weight_map();
    sort_by_name();
    compare_total();
  }

  void read_config() {
    const auto config = bytes_of(kConfig);
    if (!config) {
      problem(config.error(), "a checkpoint folder holds config.json and *.safetensors");
      return;
    }
    auto json = parse_json(text_of(*config), out_.path_of(kConfig), {.bytes = kConfigLimit});
    if (json) {
      out_.config_ = std::move(*json);
    } else {
      problems_.push_back(json.error());
    }
  }

 private:
  void problem(Error error, std::string remedy) {
    error.remedy = std::move(remedy);
    problems_.push_back(std::move(error));
  }

  // Maps the file; the mapping lives as long as the checkpoint.
  Result<std::span<const uint8_t>> bytes_of(const std::string& file) {
    if (out_.in_memory_) {
      for (const EmbeddedFile& embedded : out_.embedded_) {
        if (embedded.name == file) return embedded.bytes;
      }
      return Error{ErrorCode::not_found, "no such file", out_.path_of(file), ""};
    }
    auto map = MappedFile::open(out_.path_of(file));
    if (!map) return map.error();
    out_.maps_.push_back(std::move(*map));
    return out_.maps_.back().bytes();
  }

  void read_index_file() {
    if (!out_.has_file(kIndex)) {
      if (out_.has_file(kSingle)) {
        index_.files = {kSingle};
      } else {
        problems_.push_back(Error{ErrorCode::not_found,
                                  "no weights: neither " + std::string(kIndex) + " nor " + kSingle, out_.location_,
                                  "name a checkpoint folder, or fetch the missing files"});
      }
      return;
    }
    const auto bytes = bytes_of(kIndex);
    if (!bytes) return problem(bytes.error(), "fetch this file again");
    auto index = read_index(text_of(*bytes), out_.path_of(kIndex));
    if (index) {
      index_ = std::move(*index);
      has_map_ = true;
    } else {
      problems_.push_back(index.error());
    }
  }

  void read_shards() {
    readable_.assign(index_.files.size(), false);
    for (size_t shard = 0; shard < index_.files.size(); ++shard) {
      const std::string& file = index_.files[shard];
      out_.shards_.push_back({file, {}});
      const auto bytes = bytes_of(file);
      if (!bytes) {
        problem(bytes.error(), has_map_ ? "the index names this shard; fetch it" : "fetch it");
        continue;
      }
      auto header = read_safetensors_header(*bytes, out_.path_of(file));
      if (!header) {
        problems_.push_back(header.error());
        continue;
      }
      readable_[shard] = true;
      out_.shards_[shard].bytes = *bytes;
      for (TensorEntry& tensor : header->tensors) {
        out_.tensors_.push_back({std::move(tensor.spec), int(shard), tensor.begin});
      }
    }
  }

  // Both directions: nothing is promised that is not there, nothing is there that was not promised.
  void compare_with_weight_map() {
    if (!has_map_) return;
    std::vector<Placement> found;
    found.reserve(out_.tensors_.size());
    for (const TensorInfo& tensor : out_.tensors_) found.push_back({tensor.spec.name, tensor.shard});
    std::sort(found.begin(), found.end());
    const auto& promised = index_.weight_map;
    auto f = found.begin();
    for (auto p = promised.begin(); p != promised.end() || f != found.end();) {
      if (f == found.end() || (p != promised.end() && *p < *f)) {
        if (readable_[size_t(p->shard)]) {
          problems_.push_back(Error{ErrorCode::corrupt, "tensor " + p->tensor + " is not in this file", path(p->shard),
                                    std::string(kIndex) + " places it there; fetch both files again"});
        } else {
          out_.unreadable_.emplace_back(without_prefix(p->tensor));
        }
        ++p;
      } else if (p == promised.end() || *f < *p) {
        problems_.push_back(Error{ErrorCode::corrupt, "tensor " + f->tensor + " is in this file", path(f->shard),
                                  std::string(kIndex) + " does not place it there; fetch both files again"});
        ++f;
      } else {
        ++p, ++f;
      }
    }
    std::sort(out_.unreadable_.begin(), out_.unreadable_.end());
  }

  void sort_by_name() {
    auto& tensors = out_.tensors_;
    for (TensorInfo& tensor : tensors) {
      const auto bare = without_prefix(tensor.spec.name);
      if (bare.size() != tensor.spec.name.size()) tensor.spec.name = std::string(bare);
    }
    std::sort(tensors.begin(), tensors.end(),
              [](const TensorInfo& a, const TensorInfo& b) { return a.spec.name < b.spec.name; });
    for (size_t i = 1; i < tensors.size(); ++i) {
      const TensorInfo &before = tensors[i - 1], &tensor = tensors[i];
      if (before.spec.name != tensor.spec.name) continue;
      problems_.push_back(
          Error{ErrorCode::corrupt,
                "tensor " + tensor.spec.name + " exists twice, in " + index_.files[size_t(before.shard)] + " and in " +
                    index_.files[size_t(tensor.shard)],
                path(tensor.shard), "names with and without the prefix \"model.\" are the same; keep one"});
    }
  }

  void compare_total() {
    const int64_t found = out_.tensor_bytes();
    if (!has_map_ || !problems_.empty()) return;
    if (!index_.total_size) {
      out_.warnings_.push_back(out_.path_of(kIndex) + ": metadata.total_size is absent");
    } else if (*index_.total_size != found) {
      out_.warnings_.push_back(out_.path_of(kIndex) + ": metadata.total_size is " + with_commas(*index_.total_size) +
                               ", the headers add up to " + with_commas(found) + " bytes");
    }
  }

  std::string path(int shard) const { return out_.path_of(index_.files[size_t(shard)]); }

  Checkpoint& out_;
  std::vector<Error>& problems_;
  Index index_;
  bool has_map_ = false;
  std::vector<bool> readable_;  // by shard
};

Checkpoint Checkpoint::open_partly(const std::string& folder, std::vector<Error>& problems) {
  Checkpoint checkpoint;
  checkpoint.location_ = folder;
  CheckpointReader(checkpoint, problems).read();
  return checkpoint;
}

Checkpoint Checkpoint::open_partly(std::span<const EmbeddedFile> files, std::vector<Error>& problems,
                                   std::string location) {
  Checkpoint checkpoint;
  checkpoint.location_ = std::move(location);
  checkpoint.embedded_ = files;
  checkpoint.in_memory_ = true;
  CheckpointReader(checkpoint, problems).read();
  return checkpoint;
}

Result<Checkpoint> Checkpoint::open(const std::string& folder) {
  std::vector<Error> problems;
  Checkpoint checkpoint = open_partly(folder, problems);
  if (!problems.empty()) return problems.front();
  return checkpoint;
}

Result<Checkpoint> Checkpoint::open(std::span<const EmbeddedFile> files, std::string location) {
  std::vector<Error> problems;
  Checkpoint checkpoint = open_partly(files, problems, std::move(location));
  if (!problems.empty()) return problems.front();
  return checkpoint;
}

Result<Json> Checkpoint::read_config(const std::string& folder) {
  std::vector<Error> problems;
  Checkpoint checkpoint;
  checkpoint.location_ = folder;
  CheckpointReader(checkpoint, problems).read_config();
  if (!problems.empty()) return problems.front();
  return std::move(checkpoint.config_);
}

std::string Checkpoint::path_of(std::string_view file) const {
  if (in_memory_) return location_ + " " + std::string(file);
  return location_ + (location_.ends_with('/') ? "" : "/") + std::string(file);
}

int64_t Checkpoint::tensor_bytes() const {
  int64_t sum = 0;
  for (const TensorInfo& tensor : tensors_) sum += tensor.spec.bytes();
  return sum;
}

const TensorInfo* Checkpoint::find(std::string_view name) const {
  const auto at =
      std::lower_bound(tensors_.begin(), tensors_.end(), name,
                       [](const TensorInfo& tensor, std::string_view key) { return tensor.spec.name < key; });
  return at != tensors_.end() && at->spec.name == name ? &*at : nullptr;
}

bool Checkpoint::unreadable(std::string_view name) const {
  return std::binary_search(unreadable_.begin(), unreadable_.end(), name, std::less<>());
}

std::span<const uint8_t> Checkpoint::bytes_of(const TensorInfo& tensor) const {
  return shards_[size_t(tensor.shard)].bytes.subspan(size_t(tensor.offset), size_t(tensor.spec.bytes()));
}

Result<AnyView> Checkpoint::tensor(std::string_view name) const {
  const TensorInfo* info = find(name);
  if (!info) {
    return Error{ErrorCode::not_found, "no tensor " + std::string(name), location_, "use a complete checkpoint"};
  }
  const Shape& shape = info->spec.shape;
  const int64_t cols = shape.rank() == 0 ? 1 : shape[shape.rank() - 1];
  int64_t rows = 1;
  for (int i = 0; i + 1 < shape.rank(); ++i) rows *= shape[i];
  return AnyView(bytes_of(*info).data(), info->spec.dtype, rows, cols);
}

bool Checkpoint::is_aligned(const TensorInfo& tensor) const {
  const auto element_bytes = uintptr_t(std::max(bits_of(tensor.spec.dtype) / 8, 1));
  return reinterpret_cast<uintptr_t>(bytes_of(tensor).data()) % element_bytes == 0;
}

const MappedFile* Checkpoint::file_of(std::span<const uint8_t> bytes) const {
  for (const MappedFile& map : maps_) {
    const auto whole = map.bytes();
    if (bytes.data() >= whole.data() && bytes.data() + bytes.size() <= whole.data() + whole.size()) return &map;
  }
  return nullptr;
}

bool Checkpoint::has_file(std::string_view file) const {
  if (in_memory_) {
    return std::any_of(embedded_.begin(), embedded_.end(), [&](const EmbeddedFile& f) { return f.name == file; });
  }
  std::error_code ignored;
  return std::filesystem::exists(path_of(file), ignored);
}

Result<std::string> Checkpoint::read_text(std::string_view file) const {
  if (!in_memory_) return read_file(path_of(file));
  for (const EmbeddedFile& embedded : embedded_) {
    if (embedded.name == file) return std::string(text_of(embedded.bytes));
  }
  return Error{ErrorCode::not_found, "no such file", path_of(file), "check the path"};
}

}  // namespace fathom
