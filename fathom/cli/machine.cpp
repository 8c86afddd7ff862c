#include "fathom/cli/machine.h"

#include <dlfcn.h>
#include <linux/io_uring.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "fathom/base/processor_name.h"
#include "fathom/base/thread_pool.h"
#include "fathom/cli/option_value.h"

namespace fathom::cli {
namespace {

namespace fs = std::filesystem;

/// The whole text of a small pseudo-file; empty when it cannot be read.
std::string text_of(const std::string& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  std::string out = text.str();
  while (!out.empty() && (out.back() == '\n' || out.back() == ' ' || out.back() == '\0')) out.pop_back();
  return out;
}

/// The value of the first line "key : value" of a pseudo-file.
std::string field_of(const std::string& text, std::string_view key) {
  for (const std::string& line : split(text, '\n')) {
    if (!line.starts_with(key)) continue;
    const size_t colon = line.find(':');
    if (colon == std::string::npos) continue;
    const size_t begin = line.find_first_not_of(" \t", colon + 1);
    return begin == std::string::npos ? "" : line.substr(begin);
  }
  return {};
}

int64_t kilobytes_of(const std::string& meminfo, std::string_view key) {
  const std::string value = field_of(meminfo, key);
  return parse_integer(value.substr(0, value.find(' '))).value_or(0);
}

void read_processor(Machine& machine) {
  const std::string info = text_of("/proc/cpuinfo");
  machine.processor = processor_name();
  std::string flags = field_of(info, "flags");
  if (flags.empty()) flags = field_of(info, "Features");
  const std::vector<std::string> present = split(flags, ' ');
  for (const char* wanted :
       {"avx2", "fma", "f16c", "avx512f", "avx512bw", "avx512dq", "avx512vl", "avx512_vbmi", "avx512_vnni",
        "avx512_bf16", "avx512_fp16", "amx_tile", "amx_bf16", "amx_int8", "asimd", "sve", "bf16"}) {
    if (std::count(present.begin(), present.end(), wanted)) machine.features.emplace_back(wanted);
  }
  if (const auto mhz = parse_number(field_of(info, "cpu MHz"))) machine.clock_ghz = *mhz / 1000;
  if (const auto khz = parse_integer(text_of("/sys/devices/system/cpu/cpu0/cpufreq/cpuinfo_max_freq"))) {
    machine.clock_ghz = double(*khz) / 1e6;
  }
  machine.processors = int(::sysconf(_SC_NPROCESSORS_ONLN));
  cpu_set_t set;
  machine.affinity = ::sched_getaffinity(0, sizeof(set), &set) == 0 ? CPU_COUNT(&set) : machine.processors;
  machine.usable = usable_cpus();
  const std::vector<std::string> quota = split(text_of("/sys/fs/cgroup/cpu.max"), ' ');
  if (quota.size() == 2) {
    const auto share = parse_number(quota[0]), period = parse_number(quota[1]);
    if (share && period && *period > 0) machine.quota = *share / *period;
  }
}

void read_memory(Machine& machine) {
  const std::string info = text_of("/proc/meminfo");
  machine.memory_bytes = 1024 * kilobytes_of(info, "MemTotal");
  machine.available_bytes = 1024 * kilobytes_of(info, "MemAvailable");
  machine.huge_pages = kilobytes_of(info, "HugePages_Total");
  machine.huge_page_bytes = 1024 * kilobytes_of(info, "Hugepagesize");
  machine.memory_limit_bytes = parse_integer(text_of("/sys/fs/cgroup/memory.max"));
  if (machine.memory_limit_bytes) {
    const int64_t used = parse_integer(text_of("/sys/fs/cgroup/memory.current")).value_or(0);
    machine.available_bytes =
        std::min(machine.available_bytes, std::max<int64_t>(*machine.memory_limit_bytes - used, 0));
  }
  // "always [madvise] never"
  const std::string pages = text_of("/sys/kernel/mm/transparent_hugepage/enabled");
  const size_t open = pages.find('['), close = pages.find(']');
  if (open != std::string::npos && close != std::string::npos) {
    machine.transparent_huge_pages = pages.substr(open + 1, close - open - 1);
  }
}

std::string io_uring_state() {
  io_uring_params parameters = {};
  const long ring = ::syscall(SYS_io_uring_setup, 4, &parameters);
  if (ring >= 0) {
    ::close(int(ring));
    return "available";
  }
  if (errno == ENOSYS) return "not in this kernel";
  if (errno == EPERM || errno == EACCES) return "blocked by the system or the container";
  return std::string("not usable: ") + std::strerror(errno);
}

/// NVIDIA's management library, loaded when it is there. The four functions and their types are its stable C interface.
struct Nvml {
  using Device = void*;
  struct Memory {
    unsigned long long total, free, used;
  };
  void* library = nullptr;
  int (*init)() = nullptr;
  int (*shutdown)() = nullptr;
  int (*count)(unsigned*) = nullptr;
  int (*device)(unsigned, Device*) = nullptr;
  int (*name)(Device, char*, unsigned) = nullptr;
  int (*memory)(Device, Memory*) = nullptr;
  int (*capability)(Device, int*, int*) = nullptr;
  int (*driver)(char*, unsigned) = nullptr;

  Nvml() : library(::dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL)) {
    if (library == nullptr) return;
    const auto load = [this](auto& function, const char* symbol) {
      function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(::dlsym(library, symbol));
      return function != nullptr;
    };
    const bool whole = load(init, "nvmlInit_v2") && load(shutdown, "nvmlShutdown") &&
                       load(count, "nvmlDeviceGetCount_v2") && load(device, "nvmlDeviceGetHandleByIndex_v2") &&
                       load(name, "nvmlDeviceGetName") && load(memory, "nvmlDeviceGetMemoryInfo") &&
                       load(capability, "nvmlDeviceGetCudaComputeCapability") &&
                       load(driver, "nvmlSystemGetDriverVersion");
    if (!whole || init() != 0) close();
  }
  ~Nvml() {
    if (library != nullptr) shutdown();
    close();
  }
  Nvml(const Nvml&) = delete;
  Nvml& operator=(const Nvml&) = delete;
  void close() {
    if (library != nullptr) ::dlclose(library);
    library = nullptr;
  }
};

void read_nvidia(Machine& machine) {
  const Nvml nvml;
  unsigned count = 0;
  if (nvml.library != nullptr && nvml.count(&count) == 0) {
    std::array<char, 96> text{};
    const std::string driver = nvml.driver(text.data(), unsigned(text.size())) == 0 ? text.data() : "unknown";
    for (unsigned i = 0; i < count; ++i) {
      Nvml::Device device = nullptr;
      if (nvml.device(i, &device) != 0) continue;
      Gpu gpu;
      if (nvml.name(device, text.data(), unsigned(text.size())) == 0) gpu.name = text.data();
      Nvml::Memory memory{};
      if (nvml.memory(device, &memory) == 0) gpu.memory_bytes = int64_t(memory.total);
      int major = 0, minor = 0;
      gpu.detail = "driver " + driver;
      if (nvml.capability(device, &major, &minor) == 0) {
        gpu.capability = major + minor / 10.0;
        gpu.detail += ", compute capability " + std::to_string(major) + "." + std::to_string(minor);
      }
      machine.gpus.push_back(std::move(gpu));
    }
    return;
  }
  std::error_code error;
  for (const auto& folder : fs::directory_iterator("/proc/driver/nvidia/gpus", error)) {
    machine.gpus.push_back({field_of(text_of(folder.path().string() + "/information"), "Model"),
                            "driver present, libnvidia-ml.so.1 not found",
                            {},
                            {}});
  }
}

/// Devices on the bus that no driver has shown us: NVIDIA displays and accelerators, Huawei Ascend.
void read_bus(Machine& machine) {
  std::error_code error;
  for (const auto& device : fs::directory_iterator("/sys/bus/pci/devices", error)) {
    const std::string vendor = text_of(device.path().string() + "/vendor");
    const std::string kind = text_of(device.path().string() + "/class");
    const std::string address = device.path().filename().string();
    if (vendor == "0x10de" && kind.starts_with("0x03") && machine.gpus.empty()) {
      machine.accelerators.push_back("NVIDIA device at " + address + " without a driver");
    }
    if (vendor == "0x19e5" && kind.starts_with("0x12")) machine.accelerators.push_back("Huawei Ascend at " + address);
  }
}

}  // namespace

Machine read_machine() {
  Machine machine;
  read_processor(machine);
  read_memory(machine);
  machine.io_uring = io_uring_state();
  read_nvidia(machine);
  read_bus(machine);
  return machine;
}

std::string machine_name(std::string_view backend) {
  const Machine machine = read_machine();
  if (backend == "cuda" && !machine.gpus.empty()) return machine.gpus[0].name;
  return machine.processor.empty() ? "unknown processor" : machine.processor;
}

int64_t usable_memory_bytes(const Machine& machine) { return machine.available_bytes; }

}  // namespace fathom::cli
