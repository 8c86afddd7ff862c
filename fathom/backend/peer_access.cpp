#include "fathom/backend/peer_access.h"

#include <dlfcn.h>

#include <array>
#include <memory>
#include <type_traits>

namespace fathom {
namespace {

// The part of the driver's C interface that is asked, which is stable. Devices are numbers, 0 is success.
constexpr int kNoDevice = 100;  // CUDA_ERROR_NO_DEVICE

std::string list_of(const std::vector<int>& numbers) {
  std::string out;
  for (const int number : numbers) out += (out.empty() ? "" : ", ") + std::to_string(number);
  return out;
}

}  // namespace

PeerAccess read_peer_access() {
  PeerAccess access;
  const std::unique_ptr<void, int (*)(void*)> library(::dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL), ::dlclose);
  if (!library) return access;
  access.driver = true;
  int (*init)(unsigned) = nullptr;
  int (*count)(int*) = nullptr;
  int (*device)(int*, int) = nullptr;
  int (*name)(char*, int, int) = nullptr;
  int (*can_access)(int*, int, int) = nullptr;
  const auto load = [&](auto& function, const char* symbol) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(::dlsym(library.get(), symbol));
    return function != nullptr;
  };
  if (!load(init, "cuInit") || !load(count, "cuDeviceGetCount") || !load(device, "cuDeviceGet") ||
      !load(name, "cuDeviceGetName") || !load(can_access, "cuDeviceCanAccessPeer")) {
    access.problem = "libcuda.so.1 lacks functions of the CUDA driver";
    return access;
  }
  int code = init(0), devices = 0;
  if (code == 0) code = count(&devices);
  if (code == kNoDevice) return access;
  if (code != 0) {
    access.problem = "CUDA error " + std::to_string(code);
    return access;
  }
  std::vector<int> handles(static_cast<size_t>(devices));
  for (int i = 0; i < devices; ++i) {
    std::array<char, 128> text{};
    if (device(&handles[size_t(i)], i) != 0 || name(text.data(), int(text.size()), handles[size_t(i)]) != 0) {
      access.problem = "GPU " + std::to_string(i) + " does not answer";
      return access;
    }
    access.devices.emplace_back(text.data());
  }
  access.reaches.resize(size_t(devices));
  for (int from = 0; from < devices; ++from) {
    for (int to = 0; to < devices; ++to) {
      int yes = 0;
      if (from != to && can_access(&yes, handles[size_t(from)], handles[size_t(to)]) == 0 && yes != 0) {
        access.reaches[size_t(from)].push_back(to);
      }
    }
  }
  return access;
}

std::string to_string(const PeerAccess& access) {
  if (!access.driver) return "no NVIDIA device: its driver (libcuda.so.1) is not installed";
  if (!access.problem.empty()) return "unknown: " + access.problem + "; look at nvidia-smi";
  const size_t devices = access.devices.size();
  if (devices == 0) return "CUDA shows no NVIDIA device";
  if (devices == 1) return "one GPU: there is no other to read from";
  std::string out;
  bool any = false;
  for (size_t from = 0; from < devices; ++from) {
    const auto& reached = access.reaches[from];
    any = any || !reached.empty();
    if (reached.size() == devices - 1) continue;
    out += (out.empty() ? "GPU " : "; GPU ") + std::to_string(from) + " reads " +
           (reached.empty() ? "none" : "only " + list_of(reached));
  }
  if (out.empty()) return "each of " + std::to_string(devices) + " GPUs reads the memory of every other";
  if (!any) return "none: no GPU of " + std::to_string(devices) + " reads the memory of another";
  return "not everywhere: " + out;
}

}  // namespace fathom
