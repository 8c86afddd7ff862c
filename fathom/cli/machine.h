// fathom/cli/machine.h
// What this computer has, read from /proc and /sys and, where it is installed, NVIDIA's management library. Reads only;
// whatever cannot be read is simply absent.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace fathom::cli {

struct Gpu {
  std::string name;
  std::string detail;  // "driver 580.65, compute capability 9.0", or why there is no more to say
  std::optional<int64_t> memory_bytes;
  std::optional<double> capability;  // 9.0
};

struct Machine {
  std::string processor;              // "AMD EPYC 9355"
  std::vector<std::string> features;  // of those that matter to us: avx2, fma, f16c, avx512f, ...
  int processors = 0;                 // online
  int affinity = 0;                   // that this process may run on
  std::optional<double> quota;        // of the cgroup, in processors
  int usable = 0;                     // what --threads defaults to
  std::optional<double> clock_ghz;
  int64_t memory_bytes = 0, available_bytes = 0;
  std::optional<int64_t> memory_limit_bytes;    // of the cgroup
  std::string transparent_huge_pages;           // "always", "madvise", "never"
  int64_t huge_pages = 0, huge_page_bytes = 0;  // reserved ones
  std::string io_uring;                         // "available", or why not
  std::vector<Gpu> gpus;
  std::vector<std::string> accelerators;  // of other vendors on the PCI bus
};

Machine read_machine();

/// What a result of `backend` was measured on: the GPU, or the processor.
std::string machine_name(std::string_view backend);

/// Memory that a program may still take: available, cut by the cgroup's limit.
int64_t usable_memory_bytes(const Machine& machine);

}  // namespace fathom::cli
