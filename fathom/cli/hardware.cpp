#include "fathom/cli/hardware.h"

#include <algorithm>
#include <chrono>
#include <vector>

#include "fathom/backend/instruments.h"
#include "fathom/base/thread_pool.h"
#include "fathom/base/toml.h"
#include "fathom/cli/machine.h"
#include "fathom/cli/option_value.h"
#include "fathom/cli/stream_speed.h"

namespace fathom::cli {
namespace {

Error bad_key(const std::string& where, const std::string& key, const std::string& what, const std::string& remedy) {
  return Error{ErrorCode::bad_input, "\"" + key + "\" " + what, where, remedy};
}

/// A size as text ("141GB") or a plain number.
std::optional<double> amount_of(const Json& value) {
  if (value.is_number()) return value.as_double();
  if (!value.is_string()) return {};
  const auto size = parse_size(value.text);
  if (!size) return {};
  return double(*size);
}

std::string lower(std::string text) {
  for (char& c : text) c = char(std::tolower(static_cast<unsigned char>(c)));
  return text;
}

/// Operations a cycle and core that the processor's widest multiply-add can do in BF16, or in F32 without it.
double flops_per_cycle(const Machine& machine) {
  const auto has = [&](const char* feature) {
    return std::count(machine.features.begin(), machine.features.end(), feature) > 0;
  };
  if (has("avx512_bf16")) return 128;  // two units of 16 lanes, each a pair of products
  if (has("avx512f")) return 64;
  if (has("avx2")) return 32;
  return 8;
}

double measured_bandwidth(int threads) {
  // Larger than any last-level cache that one core group has; each thread sums its own part.
  const std::vector<uint64_t> memory(size_t(32) << 20, 1);  // 256 MB
  ThreadPool pool(threads);
  std::vector<uint64_t> sums(size_t(threads) * 8);
  double best = 0;
  for (int round = 0; round < 3; ++round) {
    const auto begin = std::chrono::steady_clock::now();
    pool.run(int64_t(memory.size()), 1 << 18, [&](int64_t first, int64_t end, int thread) {
      uint64_t sum = 0;
      for (int64_t i = first; i < end; ++i) sum += memory[size_t(i)];
      sums[size_t(thread) * 8] += sum;
    });
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    best = std::max(best, double(memory.size() * sizeof(uint64_t)) / seconds);
  }
  // The sum is looked at, so that the loop cannot be left out.
  return sums[0] == 1 ? best + 1 : best;
}

}  // namespace

Result<Hardware> parse_hardware(std::string_view toml, const std::string& where) {
  const auto tree = parse_toml(toml, where);
  if (!tree) return tree.error();
  const std::vector<std::string> known = {"name", "kind", "memory",    "bandwidth",   "flops_fp8", "flops_bf16",
                                          "link", "disk", "host_link", "host_memory", "measured",  "devices"};
  Hardware hardware;
  for (const auto& [key, value] : tree->fields) {
    if (!std::count(known.begin(), known.end(), key)) {
      const auto near = closest(key, known);
      return bad_key(where, key, "is unknown",
                     (near ? "did you mean " + *near + "? " : "") + "The keys are " + joined(known, "and"));
    }
    if (key == "name" || key == "kind") {
      if (!value.is_string()) return bad_key(where, key, "is no text", "put it in quotes");
      (key == "name" ? hardware.name : hardware.kind) = value.text;
      continue;
    }
    if (key == "measured") {
      const auto truth = value.as_bool();
      if (!truth) return bad_key(where, key, "is neither true nor false", "write true or false");
      if (*truth) hardware.bandwidth_from = hardware.flops_from = "measured";
      continue;
    }
    const auto amount = amount_of(value);
    if (!amount || *amount < 0) {
      return bad_key(where, key, "is no amount", "write a number, or a size such as \"141GB\"");
    }
    if (key == "memory") hardware.memory_bytes = int64_t(*amount);
    if (key == "bandwidth") hardware.bytes_per_second = *amount;
    if (key == "flops_fp8") hardware.flops_fp8 = *amount;
    if (key == "flops_bf16") hardware.flops_bf16 = *amount;
    if (key == "link") hardware.link_bytes_per_second = *amount;
    if (key == "disk") hardware.disk_bytes_per_second = *amount;
    if (key == "host_link") hardware.host_link_bytes_per_second = *amount;
    if (key == "host_memory") hardware.host_memory_bytes = int64_t(*amount);
    if (key == "devices") hardware.devices = std::max(1, int(*amount));
  }
  for (const auto& [key, amount] : {std::pair<const char*, double>{"memory", double(hardware.memory_bytes)},
                                    {"bandwidth", hardware.bytes_per_second},
                                    {"flops_fp8", hardware.flops_fp8},
                                    {"flops_bf16", hardware.flops_bf16}}) {
    if (amount <= 0) return bad_key(where, key, "is missing", "see bench/machines/h200.toml for a whole file");
  }
  if (hardware.name.empty()) hardware.name = where;
  return hardware;
}

Result<Hardware> named_hardware(const std::string& text) {
  const size_t times = text.find('x');
  const auto count = times == std::string::npos ? std::optional<int64_t>(1) : parse_integer(text.substr(0, times));
  const std::string name = times == std::string::npos || !count ? text : text.substr(times + 1);
  std::vector<std::string> names;
  for (const MachineFile& file : machine_files()) {
    auto hardware = parse_hardware(file.text, std::string(file.name));
    check(hardware.ok(), "the machine files that are compiled in are right");
    names.push_back(hardware->name);
    if (lower(hardware->name) != lower(name)) continue;
    if (!count || *count < 1 || *count > 4096) {
      return Error{ErrorCode::usage, "\"" + text + "\" names no number of devices from 1 to 4,096", "--gpus",
                   "pass a count and a name, such as 4x" + hardware->name};
    }
    hardware->devices = int(*count);
    if (hardware->devices > 1 && hardware->bandwidth_from == "measured") {
      hardware->bandwidth_from = hardware->flops_from = "scaled";
    }
    return hardware;
  }
  const auto near = closest(name, names);
  return Error{ErrorCode::usage, "unknown hardware \"" + text + "\"", "--gpus",
               (near ? "did you mean " + *near + "? " : "") + "Pass a count and a name, such as 4xH200; known are " +
                   joined(names, "and") + "; others are described with --hardware FILE.toml"};
}

Result<Hardware> this_device(const Backend& backend) {
  const Machine machine = read_machine();
  Hardware hardware;
  hardware.name = backend.detail;
  hardware.kind = "gpu";
  hardware.memory_bytes = instruments_of(backend).free_bytes();
  hardware.host_memory_bytes = usable_memory_bytes(machine);
  const auto queue = backend.open_queue(1);
  if (!queue) return queue.error();
  const auto peaks = instruments_of(backend).peaks(**queue);
  if (!peaks) return peaks.error();
  hardware.bytes_per_second = peaks->memory;
  hardware.flops_bf16 = hardware.flops_fp8 = peaks->bf16;  // FP8 and FP4 weights are multiplied as f16 and BF16
  const auto link = measure_host_link(backend);
  if (!link) return link.error();
  hardware.host_link_bytes_per_second = *link;
  hardware.bandwidth_from = hardware.flops_from = "measured";
  return hardware;
}

Hardware this_machine(int threads) {
  const Machine machine = read_machine();
  Hardware hardware;
  hardware.name = machine.processor.empty() ? "this machine" : machine.processor;
  hardware.kind = "cpu";
  hardware.memory_bytes = usable_memory_bytes(machine);
  hardware.bytes_per_second = measured_bandwidth(threads);
  hardware.bandwidth_from = "measured";
  hardware.flops_bf16 = threads * flops_per_cycle(machine) * machine.clock_ghz.value_or(2) * 1e9;
  hardware.flops_fp8 = hardware.flops_bf16;  // FP8 and FP4 weights are widened to BF16
  return hardware;
}

}  // namespace fathom::cli
