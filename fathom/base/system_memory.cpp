#include "fathom/base/system_memory.h"

#include <malloc.h>

#include <algorithm>
#include <fstream>
#include <limits>
#include <optional>
#include <sstream>

namespace fathom {
namespace {

std::optional<int64_t> read_number(const std::string& path) {
  std::ifstream file(path);
  int64_t number = 0;
  if (file >> number) return number;
  return {};  // no such file, or the word "max"
}

int64_t available_of_machine(const std::string& root) {
  std::ifstream file(root + "proc/meminfo");
  std::string line;
  while (std::getline(file, line)) {
    std::istringstream words(line);
    std::string name;
    int64_t kibibytes = 0;
    if (words >> name >> kibibytes && name == "MemAvailable:") return kibibytes * 1024;
  }
  return 0;
}

// A group's limit less its use; a group inherits the limits of those above it. `limit` and `usage` are file names.
int64_t available_of_groups(const std::string& mount, std::string group, const char* limit, const char* usage) {
  int64_t available = std::numeric_limits<int64_t>::max();
  while (true) {
    const auto most = read_number(mount + group + "/" + limit);
    const auto used = read_number(mount + group + "/" + usage);
    if (most && used) available = std::min(available, std::max<int64_t>(*most - *used, 0));
    if (group.empty()) return available;
    group.resize(group.find_last_of('/') == std::string::npos ? 0 : group.find_last_of('/'));
  }
}

}  // namespace

int64_t available_memory_bytes(const std::string& root) {
  int64_t available = available_of_machine(root);
  std::ifstream groups(root + "proc/self/cgroup");
  std::string line;
  while (std::getline(groups, line)) {  // "0::/path" (version 2), "9:memory:/path" (version 1)
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    std::string path = line.substr(second + 1);
    if (path == "/") path.clear();
    const std::string mount = root + "sys/fs/cgroup";
    if (controllers.empty()) {
      available = std::min(available, available_of_groups(mount, path, "memory.max", "memory.current"));
    } else if (controllers == "memory") {
      available = std::min(
          available, available_of_groups(mount + "/memory", path, "memory.limit_in_bytes", "memory.usage_in_bytes"));
    }
  }
  return available;
}

void keep_little_free_memory() {
  ::mallopt(M_MMAP_THRESHOLD, 4 << 20);
  ::mallopt(M_TRIM_THRESHOLD, 8 << 20);
}

void return_free_memory() { ::malloc_trim(0); }

}  // namespace fathom
