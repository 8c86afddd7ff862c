#include "fathom/server/response_store.h"

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <filesystem>
#include <list>
#include <mutex>
#include <thread>
#include <unordered_map>
#include <vector>

#include "fathom/base/json.h"
#include "fathom/base/mapped_file.h"

namespace fathom {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kEnding = ".json", kPartEnding = ".json.part";  // write_file names them so

bool is_id(std::string_view id) {
  const auto plain = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-';
  };
  return !id.empty() && id.size() <= 128 && std::all_of(id.begin(), id.end(), plain);
}

std::string text_of(const StoredResponse& one) {
  std::string text = R"({"tenant":)";
  append_json_string(text, one.tenant);
  return text.append(R"(,"input":)").append(one.input).append(R"(,"response":)").append(one.response).append("}\n");
}

std::optional<StoredResponse> stored_of(std::string_view text) {
  const auto tree = parse_json(text, "stored response");
  if (!tree) return {};
  const Json* tenant = tree->find("tenant");
  const Json* input = tree->find("input");
  const Json* response = tree->find("response");
  if (tenant == nullptr || input == nullptr || response == nullptr || !input->is_array()) return {};
  return StoredResponse{tenant->text, to_string(*input), to_string(*response)};
}

}  // namespace

struct ResponseStore::State {
  const ResponseStoreOptions options;
  struct Entry {
    std::optional<std::string> text;  // in memory, or not yet written
    int64_t bytes = 0;
    std::list<std::string>::iterator place;  // in `order`
  };
  mutable std::mutex mutex;
  std::condition_variable wakes;
  std::list<std::string> order;  // oldest first
  std::unordered_map<std::string, Entry> entries;
  std::deque<std::string> to_write;
  std::vector<std::string> to_delete;
  int64_t bytes = 0, failures = 0;
  bool stopping = false;
  std::thread writer;

  explicit State(ResponseStoreOptions o) : options(std::move(o)) {}

  std::string path_of(const std::string& id) const { return options.folder + "/" + id + std::string(kEnding); }

  // Under `mutex`.
  void drop(const std::string& id) {
    const auto at = entries.find(id);
    if (at == entries.end()) return;
    bytes -= at->second.bytes;
    order.erase(at->second.place);
    entries.erase(at);
    if (!options.folder.empty()) to_delete.push_back(id);
  }
  void add(const std::string& id, std::optional<std::string> text, int64_t size) {
    drop(id);
    std::erase(to_delete, id);
    order.push_back(id);
    entries.emplace(id, Entry{std::move(text), size, std::prev(order.end())});
    bytes += size;
    while (!order.empty() && (int64_t(order.size()) > options.most_responses || bytes > options.most_bytes)) {
      drop(std::string(order.front()));
    }
  }

  void write() {
    while (true) {
      std::string id, text;
      std::vector<std::string> deleted;
      {
        std::unique_lock lock(mutex);
        wakes.wait(lock, [&] { return stopping || !to_write.empty() || !to_delete.empty(); });
        if (to_write.empty() && to_delete.empty()) return;
        deleted.swap(to_delete);
        if (!to_write.empty()) {
          id = std::move(to_write.front());
          to_write.pop_front();
          const auto at = entries.find(id);
          if (at != entries.end() && at->second.text) text = *at->second.text;
        }
      }
      std::error_code ignored;
      for (const std::string& one : deleted) fs::remove(path_of(one), ignored);
      if (text.empty()) continue;
      const Result<void> written = write_file(path_of(id), text);
      const std::lock_guard lock(mutex);
      const auto at = entries.find(id);
      if (at == entries.end()) continue;
      if (written) {
        at->second.text.reset();
      } else {
        ++failures;
        drop(id);
      }
    }
  }
};

ResponseStore::ResponseStore(std::unique_ptr<State> state) : state_(std::move(state)) {}

Result<std::unique_ptr<ResponseStore>> ResponseStore::open(ResponseStoreOptions options) {
  auto state = std::make_unique<State>(std::move(options));
  State& s = *state;
  if (!s.options.folder.empty()) {
    std::error_code failure;
    fs::create_directories(s.options.folder, failure);
    std::vector<std::pair<fs::file_time_type, fs::path>> found;
    std::vector<fs::path> unfinished;  // of a process that was killed while it wrote
    if (!failure) {
      for (const auto& file : fs::directory_iterator(s.options.folder, failure)) {
        const fs::path& path = file.path();
        if (path.extension() == kEnding) found.emplace_back(file.last_write_time(failure), path);
        if (path.native().ends_with(kPartEnding)) unfinished.push_back(path);
      }
    }
    if (failure) {
      return Error{ErrorCode::failed, failure.message(), s.options.folder, "name a folder that this user may write to"};
    }
    for (const fs::path& path : unfinished) fs::remove(path, failure);
    std::sort(found.begin(), found.end());
    for (const auto& [time, path] : found) {
      s.add(path.stem().string(), {}, int64_t(fs::file_size(path, failure)));
    }
    s.writer = std::thread([&s] { s.write(); });
  }
  return std::unique_ptr<ResponseStore>(new ResponseStore(std::move(state)));
}

ResponseStore::~ResponseStore() {
  {
    const std::lock_guard lock(state_->mutex);
    state_->stopping = true;
    state_->wakes.notify_all();
  }
  if (state_->writer.joinable()) state_->writer.join();
}

void ResponseStore::put(const std::string& id, StoredResponse one) {
  if (!is_id(id)) return;
  std::string text = text_of(one);
  const auto size = int64_t(text.size());
  const std::lock_guard lock(state_->mutex);
  state_->add(id, std::move(text), size);
  if (state_->options.folder.empty()) return;
  state_->to_write.push_back(id);
  state_->wakes.notify_one();
}

std::optional<StoredResponse> ResponseStore::get(const std::string& id, std::string_view tenant) {
  if (!is_id(id)) return {};
  std::string text;
  {
    const std::lock_guard lock(state_->mutex);
    const auto at = state_->entries.find(id);
    if (at == state_->entries.end()) return {};
    if (at->second.text) text = *at->second.text;
  }
  if (text.empty()) {
    auto read = read_file(state_->path_of(id), state_->options.most_bytes);
    if (!read) return {};
    text = std::move(*read);
  }
  auto one = stored_of(text);
  if (!one || one->tenant != tenant) return {};
  return one;
}

bool ResponseStore::remove(const std::string& id, std::string_view tenant) {
  if (!get(id, tenant)) return false;
  const std::lock_guard lock(state_->mutex);
  state_->drop(id);
  state_->wakes.notify_one();
  return true;
}

int64_t ResponseStore::size() const {
  const std::lock_guard lock(state_->mutex);
  return int64_t(state_->entries.size());
}
int64_t ResponseStore::bytes() const {
  const std::lock_guard lock(state_->mutex);
  return state_->bytes;
}
int64_t ResponseStore::failures() const {
  const std::lock_guard lock(state_->mutex);
  return state_->failures;
}

}  // namespace fathom
