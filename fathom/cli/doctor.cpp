// fathom/cli/doctor.cpp
// `fathom doctor`: what this machine can do, what this build has, and what the model would lack (design/cli.md 5).
#include <algorithm>
#include <memory>

#include "fathom/backend/operation_list.h"
#include "fathom/backend/peer_access.h"
#include "fathom/base/check.h"
#include "fathom/base/json.h"
#include "fathom/cli/disk_speed.h"
#include "fathom/cli/loaded_model.h"
#include "fathom/cli/machine.h"
#include "fathom/cli/option_value.h"
#include "fathom/cli/program.h"
#include "fathom/cli/terminal.h"
#include "fathom/model/missing.h"
#include "fathom/model/tensor_list.h"

namespace fathom::cli {
namespace {

struct OperationRow {
  std::string name;
  std::vector<std::string> state;  // one a backend: native, slow, missing; "native, untested"
};

/// native: this backend's own function, on devices whose kernels never ran on one like this "native, untested"; slow:
/// the reference's; missing: none. On `reference` everything is native.
std::vector<OperationRow> compare_tables(const std::vector<Backend>& backends) {
  const auto reference = list_operations(reference_operations());
  std::vector<OperationRow> rows;
  for (const OperationEntry& entry : reference) rows.push_back({std::string(entry.name), {}});
  for (const Backend& backend : backends) {
    const auto own = list_operations(backend.ops);
    for (size_t i = 0; i < own.size(); ++i) {
      const bool borrowed = backend.name != "reference" && own[i].function == reference[i].function;
      rows[i].state.emplace_back(own[i].function == nullptr ? "missing"
                                 : borrowed                 ? "slow"
                                 : backend.untested         ? "native, untested"
                                                            : "native");
    }
  }
  return rows;
}

/// Why a backend is not present, for people: "not compiled in", or what is wrong with this machine for it.
std::string absence(const std::string& name) {
  const auto opened = open_backend(name);
  check(!opened.ok(), "a backend that is not among those present cannot be opened");
  const Error& error = opened.error();
  const std::string start = "the backend " + name + " is ";
  return error.message.starts_with(start) ? error.message.substr(start.size()) : error.message + ": " + error.remedy;
}

/// What --kv-disk names and what was found there.
struct Disk {
  std::string folder;  // empty: not asked
  std::optional<DiskSpeed> speed;
  std::optional<Error> error;  // why it could not be measured
};

Disk look_at_disk(const std::string& folder) {
  Disk disk{folder, {}, {}};
  if (folder.empty()) return disk;
  auto measured = measure_disk(folder);
  if (measured) {
    disk.speed = *measured;
  } else {
    disk.error = measured.error();
  }
  return disk;
}

std::string disk_text(const Disk& disk) {
  if (disk.folder.empty()) return "not measured; pass --kv-disk DIR";
  if (disk.error) return "not measured: " + disk.error->message;
  const DiskSpeed& s = *disk.speed;
  const std::string way = s.in_memory ? "a file system in memory, no disk"
                          : s.direct  ? "direct I/O"
                                      : "written through; the file system has no direct I/O";
  return fixed(s.write_bytes_per_s / 1e9, 2) + " GB/s written, " + fixed(s.read_bytes_per_s / 1e9, 2) + " GB/s read (" +
         size_text(s.bytes) + ", " + way + "), " + size_text(s.free_bytes) + " free";
}

Json disk_json(const Disk& disk) {
  if (disk.folder.empty()) return {};
  Json tree = Json::object();
  tree.set("folder", Json::of(disk.folder));
  tree.set("problem", disk.error ? Json::of(disk.error->message) : Json{});
  if (!disk.speed) return tree;
  tree.set("write_bytes_per_s", Json::of(disk.speed->write_bytes_per_s));
  tree.set("read_bytes_per_s", Json::of(disk.speed->read_bytes_per_s));
  tree.set("measured_bytes", Json::of(disk.speed->bytes));
  tree.set("free_bytes", Json::of(disk.speed->free_bytes));
  tree.set("direct", Json::of(disk.speed->direct));
  tree.set("in_memory", Json::of(disk.speed->in_memory));
  return tree;
}

Json peers_json(const PeerAccess& access) {
  Json tree = Json::object();
  tree.set("driver", Json::of(access.driver));
  tree.set("problem", access.problem.empty() ? Json{} : Json::of(access.problem));
  Json devices = Json::array();
  for (size_t i = 0; i < access.devices.size(); ++i) {
    Json entry = Json::object();
    entry.set("name", Json::of(access.devices[i]));
    Json reaches = Json::array();
    if (i < access.reaches.size()) {
      for (const int other : access.reaches[i]) reaches.push(Json::of(int64_t(other)));
    }
    entry.set("reads", std::move(reaches));
    devices.push(std::move(entry));
  }
  tree.set("devices", std::move(devices));
  return tree;
}

std::string machine_text(const Machine& m, const PeerAccess& peers, const Disk& disk) {
  std::string out = "This machine\n";
  const auto line = [&](const std::string& name, const std::string& value) {
    std::string head = "  " + name;
    head.resize(16, ' ');
    out += head + value + "\n";
  };
  line("processor", m.processor.empty() ? "unknown" : m.processor);
  line("features", m.features.empty() ? "none that fathom uses" : joined(m.features, "and"));
  line("threads", std::to_string(m.usable) + " usable of " + std::to_string(m.processors) + " (affinity " +
                      std::to_string(m.affinity) + ", quota " + (m.quota ? brief(*m.quota) : "none") + ")");
  line("memory", size_text(m.memory_bytes) + ", " + size_text(m.available_bytes) + " available" +
                     (m.memory_limit_bytes ? ", limited to " + size_text(*m.memory_limit_bytes) : ""));
  line("huge pages", "transparent " + (m.transparent_huge_pages.empty() ? "unknown" : m.transparent_huge_pages) + ", " +
                         std::to_string(m.huge_pages) + " reserved of " + size_text(m.huge_page_bytes));
  line("io_uring", m.io_uring);
  for (const Gpu& gpu : m.gpus) {
    line("GPU", gpu.name + (gpu.memory_bytes ? ", " + size_text(*gpu.memory_bytes) : "") + ", " + gpu.detail);
  }
  for (const std::string& other : m.accelerators) line("accelerator", other);
  if (m.gpus.empty() && m.accelerators.empty()) line("accelerators", "none found");
  line("peer access", to_string(peers));
  line("KV disk", disk_text(disk));
  return out;
}

Json machine_json(const Machine& m, const PeerAccess& peers, const Disk& disk) {
  Json tree = Json::object();
  tree.set("processor", Json::of(m.processor));
  Json features = Json::array();
  for (const std::string& feature : m.features) features.push(Json::of(feature));
  tree.set("features", std::move(features));
  tree.set("processors", Json::of(m.processors));
  tree.set("affinity", Json::of(m.affinity));
  tree.set("quota", m.quota ? Json::of(*m.quota) : Json{});
  tree.set("usable_threads", Json::of(m.usable));
  tree.set("memory_bytes", Json::of(m.memory_bytes));
  tree.set("available_bytes", Json::of(m.available_bytes));
  tree.set("memory_limit_bytes", m.memory_limit_bytes ? Json::of(*m.memory_limit_bytes) : Json{});
  tree.set("transparent_huge_pages", Json::of(m.transparent_huge_pages));
  tree.set("huge_pages", Json::of(m.huge_pages));
  tree.set("huge_page_bytes", Json::of(m.huge_page_bytes));
  tree.set("io_uring", Json::of(m.io_uring));
  Json gpus = Json::array();
  for (const Gpu& gpu : m.gpus) {
    Json entry = Json::object();
    entry.set("name", Json::of(gpu.name));
    entry.set("memory_bytes", gpu.memory_bytes ? Json::of(*gpu.memory_bytes) : Json{});
    entry.set("capability", gpu.capability ? Json::of(*gpu.capability) : Json{});
    entry.set("detail", Json::of(gpu.detail));
    gpus.push(std::move(entry));
  }
  tree.set("gpus", std::move(gpus));
  tree.set("peer_access", peers_json(peers));
  tree.set("kv_disk", disk_json(disk));
  return tree;
}

Result<int> run_doctor(const std::string& kv_disk, const Common& common) {
  const auto chosen = open_backend(common.backend);
  if (!chosen) return chosen.error();
  const auto model = load_model(common, WeightData::declared);
  if (!model) return model.error();
  std::vector<Backend> backends;
  for (const std::string& name : present_backends()) {
    auto backend = open_backend(name);
    if (!backend) return backend.error();
    backends.push_back(std::move(*backend));
  }
  const Machine machine = read_machine();
  const PeerAccess peers = read_peer_access();
  const Disk disk = look_at_disk(kv_disk);
  const auto rows = compare_tables(backends);
  const auto complete = missing_operations(*chosen);
  const int64_t needed = model->opened.checkpoint.tensor_bytes(), free = usable_memory_bytes(machine);

  std::string out;
  if (common.json) {
    Json tree = Json::object();
    tree.set("machine", machine_json(machine, peers, disk));
    Json list = Json::array();
    for (const Backend& backend : backends) {
      Json entry = Json::object();
      entry.set("name", Json::of(backend.name));
      entry.set("detail", Json::of(backend.detail));
      list.push(std::move(entry));
    }
    tree.set("backends", std::move(list));
    Json operations = Json::array();
    for (const OperationRow& row : rows) {
      Json entry = Json::object();
      entry.set("operation", Json::of(row.name));
      for (size_t i = 0; i < backends.size(); ++i) entry.set(backends[i].name, Json::of(row.state[i]));
      operations.push(std::move(entry));
    }
    tree.set("operations", std::move(operations));
    tree.set("backend", Json::of(chosen->name));
    tree.set("model", Json::of(model->name));
    tree.set("weight_bytes", Json::of(needed));
    tree.set("weights_fit", Json::of(needed <= free));
    tree.set("complete", Json::of(complete.ok()));
    out = to_string(tree) + "\n";
  } else {
    out = machine_text(machine, peers, disk) + "\nBackends in this build\n";
    for (const Backend& backend : backends) {
      std::string head = "  " + backend.name;
      head.resize(16, ' ');
      out += head + (backend.detail.empty() ? "the definition of every operation" : backend.detail) + "\n";
    }
    for (const char* other : {"cuda", "ascend"}) {
      const auto has_it = [other](const Backend& backend) { return backend.name == other; };
      if (std::none_of(backends.begin(), backends.end(), has_it)) {
        out +=
            "  " + std::string(other) + std::string(14 - std::string_view(other).size(), ' ') + absence(other) + "\n";
      }
    }
    std::vector<Table::Column> columns = {{"operation"}};
    for (const Backend& backend : backends) columns.push_back({backend.name});
    Table table(std::move(columns));
    for (const OperationRow& row : rows) {
      std::vector<std::string> cells = {row.name};
      cells.insert(cells.end(), row.state.begin(), row.state.end());
      table.add(std::move(cells));
    }
    out += "\nOperations (native: this backend's own; slow: the reference's)\n";
    for (const std::string& line : split(table.text(), '\n')) out += line.empty() ? "" : "  " + line + "\n";
    out += "\nThe model: " + model->name + "\n";
    const bool fits = needed <= free;
    out += "  weights       " + size_text(needed) + (is_synthetic(model->name) ? ", made in memory; " : ", mapped; ") +
           size_text(free) + " of memory can hold them" +
           (fits                        ? ""
            : is_synthetic(model->name) ? " only in part: it cannot be made"
                                        : " only in part: the rest is read from disk again and again") +
           "\n";
    out += "  backend       " + chosen->name + (complete ? ": nothing is missing" : ": " + complete.error().message) +
           "\n";
    const auto is_cuda = [](const Backend& backend) { return backend.name == "cuda"; };
    if (!machine.gpus.empty() && std::none_of(backends.begin(), backends.end(), is_cuda)) {
      const std::string why = absence("cuda");
      out += "  GPUs          not used: " +
             (why == "not compiled in" ? "the backend cuda is not compiled in; build with cmake --preset cuda" : why) +
             "\n";
    }
  }
  if (auto printed = print(out); !printed) return printed.error();
  if (disk.error) return *disk.error;  // the rest of the report stands
  if (complete) return kDone;
  Error error = complete.error();
  error.code = ErrorCode::failed;
  return error;
}

}  // namespace

Command doctor_command() {
  const auto kv_disk = std::make_shared<std::string>();
  return {
      .name = "doctor",
      .summary = "what this machine and this build can do",
      .example = "fathom doctor --kv-disk .",
      .note = "also for the model of --model",
      .options = {{.name = "kv-disk",
                   .value = "DIR",
                   .help = "measure the disk under this folder: at most 256 MiB and about 2 s; leaves nothing behind",
                   .fallback = "not measured",
                   .group = "What to measure",
                   .target = kv_disk.get()}},
      .run = [kv_disk](const Common& common) { return run_doctor(*kv_disk, common); }};
}

}  // namespace fathom::cli
