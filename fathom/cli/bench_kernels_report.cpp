#include "fathom/cli/bench_kernels_report.h"

#include "fathom/cli/bench_report.h"
#include "fathom/cli/terminal.h"

namespace fathom::cli {
namespace {

std::string percent(double share) { return fixed(100 * share, 0) + " %"; }

}  // namespace

std::vector<KernelBenchRow> rows_of(const MachinePeaks& p) {
  std::vector<KernelBenchRow> rows;
  const auto add = [&](const char* name, int64_t bytes, double rate, const char* bound, const std::string& by) {
    KernelBenchRow row;
    row.op = std::string("peak ") + name;
    row.shape = bytes > 0 ? std::to_string(bytes) + " bytes" : by;
    row.model = "machine";
    row.threads = p.threads;
    (bytes > 0 ? row.gbps : row.gflops) = 1e-9 * rate;
    row.bound = bound;
    row.share = 1;
    rows.push_back(std::move(row));
  };
  add("memory", p.memory_read, p.memory, "memory", "");
  rows.back().pages = "small";
  add("memory, large pages", p.memory_read, p.memory_large_pages, "memory", "");
  rows.back().pages = "large";
  add("l3", p.l3_read, p.l3, "cache", "");
  // A device has one cache that keeps something between kernels; the others were not read.
  if (p.l2_read > 0) add("l2", p.l2_read, p.l2, "cache", "");
  if (p.l1_read > 0) add("l1", p.l1_read, p.l1, "cache", "");
  add("bf16", 0, p.bf16, "compute", p.bf16_by);
  add("int8", 0, p.int8, "compute", p.int8_by);
  add("f32", 0, p.f32, "compute", p.f32_by);
  return rows;
}

Json to_json(const KernelBenchRow& r) {
  Json tree = Json::object();
  tree.set("op", Json::of(r.op));
  tree.set("weights", Json::of(r.weights));
  tree.set("rows", Json::of(r.rows));
  tree.set("shape", Json::of(r.shape));
  tree.set("model", Json::of(r.model));
  tree.set("place", Json::of(r.place));
  tree.set("threads", Json::of(r.threads));
  tree.set("us", Json::of(r.us));
  tree.set("gbps", Json::of(r.gbps));
  tree.set("gflops", Json::of(r.gflops));
  tree.set("bound", Json::of(r.bound));
  tree.set("share", Json::of(r.share));
  tree.set("arithmetic", Json::of(r.arithmetic));
  tree.set("pages", Json::of(r.pages));
  tree.set("repeat", Json::of(r.repeat));
  tree.set("spread", Json::of(r.spread));
  tree.set("error", r.error ? Json::of(*r.error) : Json());
  for (const PeerTime& peer : r.peers) {
    tree.set(peer.name + "_us", Json::of(peer.us));
    tree.set(peer.name + "_ratio", Json::of(r.us > 0 ? peer.us / r.us : 0));
  }
  if (!r.peers.empty()) tree.set("peer_version", Json::of(r.peer_version));
  tree.set("backend", Json::of(r.backend));
  tree.set("machine", Json::of(r.machine));
  tree.set("commit", Json::of(r.commit));
  tree.set("command", Json::of(r.command));
  return tree;
}

std::string to_csv(std::span<const KernelBenchRow> rows) {
  std::vector<Json> trees;
  for (const KernelBenchRow& row : rows) trees.push_back(to_json(row));
  return csv_of(trees);
}

std::string to_table(std::span<const KernelBenchRow> rows) {
  using Side = Table::Side;
  std::vector<Table::Column> columns = {{"op"},
                                        {"weights"},
                                        {"shape"},
                                        {"model"},
                                        {"place"},
                                        {"rows", Side::right},
                                        {"threads", Side::right},
                                        {"us", Side::right},
                                        {"GB/s", Side::right},
                                        {"GFLOP/s", Side::right},
                                        {"bound"},
                                        {"share", Side::right},
                                        {"spread", Side::right},
                                        {"error", Side::right}};
  if (!rows.empty()) {
    for (const PeerTime& peer : rows[0].peers) {
      columns.push_back({peer.name + " us", Side::right});
      columns.push_back({"ratio", Side::right});
    }
  }
  Table table(std::move(columns));
  for (const KernelBenchRow& r : rows) {
    std::vector<std::string> cells = {r.op,
                                      r.weights,
                                      r.shape,
                                      r.model,
                                      r.place,
                                      with_commas(r.rows),
                                      std::to_string(r.threads),
                                      brief(r.us),
                                      brief(r.gbps),
                                      brief(r.gflops),
                                      r.bound,
                                      percent(r.share),
                                      percent(r.spread),
                                      r.error ? brief(*r.error) : ""};
    for (const PeerTime& peer : r.peers) {
      cells.push_back(peer.us > 0 ? brief(peer.us) : "");
      cells.push_back(peer.us > 0 ? fixed(peer.us / r.us, 2) : "");
    }
    table.add(std::move(cells));
  }
  return table.text();
}

std::string to_peak_table(std::span<const MachinePeaks> peaks) {
  using Side = Table::Side;
  Table table({{"threads", Side::right},
               {"memory GB/s", Side::right},
               {"large pages", Side::right},
               {"L3 GB/s", Side::right},
               {"L2 GB/s", Side::right},
               {"L1 GB/s", Side::right},
               {"bf16 GFLOP/s", Side::right},
               {"int8 Gop/s", Side::right},
               {"f32 GFLOP/s", Side::right}});
  for (const MachinePeaks& p : peaks) {
    const auto cache = [](int64_t read, double rate) { return read > 0 ? brief(1e-9 * rate) : std::string(); };
    table.add({std::to_string(p.threads), brief(1e-9 * p.memory), brief(1e-9 * p.memory_large_pages),
               cache(p.l3_read, p.l3), cache(p.l2_read, p.l2), cache(p.l1_read, p.l1), brief(1e-9 * p.bf16),
               brief(1e-9 * p.int8), brief(1e-9 * p.f32)});
  }
  return table.text();
}

}  // namespace fathom::cli
