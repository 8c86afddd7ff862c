#include "fathom/cli/bench_report.h"

#include <algorithm>
#include <map>
#include <tuple>

#include "fathom/cli/option_value.h"
#include "fathom/cli/plot.h"
#include "fathom/cli/terminal.h"
#include "fathom/engine/stream_series.h"

namespace fathom::cli {
namespace {

/// A cell of CSV, in quotes when it must be.
std::string csv_cell(const std::string& text) {
  if (text.find_first_of(",\"\n") == std::string::npos) return text;
  std::string out = "\"";
  for (char c : text) out += c == '"' ? std::string("\"\"") : std::string(1, c);
  return out + "\"";
}

std::vector<std::string> csv_cells(std::string_view line) {
  std::vector<std::string> cells(1);
  bool quoted = false;
  for (size_t i = 0; i < line.size(); ++i) {
    if (line[i] == '"') {
      if (quoted && i + 1 < line.size() && line[i + 1] == '"') {
        cells.back() += line[++i];
      } else {
        quoted = !quoted;
      }
    } else if (line[i] == ',' && !quoted) {
      cells.emplace_back();
    } else {
      cells.back() += line[i];
    }
  }
  return cells;
}

std::string curve_of(const BenchRow& r) {
  std::string name =
      r.bench + ", " + (r.bench == "decode" ? "behind " + with_commas(r.cached) : with_commas(r.length)) + " tokens";
  if (r.drafts > 0) name += ", " + std::to_string(r.drafts) + " drafts";
  return name + ", " + r.backend;
}

}  // namespace

WholeWork whole_work(const BenchRow& row) {
  WholeWork whole;
  for (const OperationTime& operation : row.operations) {
    whole.memory_bytes += operation.memory_bytes;
    whole.operations += operation.operations;
    whole.bound_ms += 1000 * operation.bound_seconds;
    whole.in_operations_ms += 1000 * operation.seconds;
  }
  if (row.ms <= 0) return whole;
  whole.idle_share = std::max(0.0, 1 - whole.in_operations_ms / row.ms);
  whole.share_of_bound = whole.bound_ms / row.ms;
  if (row.peaks && row.peaks->memory > 0) {
    whole.share_of_memory = 1000 * double(whole.memory_bytes) / row.ms / row.peaks->memory;
  }
  return whole;
}

namespace {

/// What every row has: the columns of a CSV.
Json columns_of(const BenchRow& r) {
  Json tree = Json::object();
  tree.set("bench", Json::of(r.bench));
  tree.set("length", Json::of(r.length));
  tree.set("batch", Json::of(r.batch));
  tree.set("cached", Json::of(r.cached));
  tree.set("drafts", Json::of(r.drafts));
  tree.set("replay", Json::of(r.replay));
  tree.set("numerics", Json::of(r.numerics));
  tree.set("backend", Json::of(r.backend));
  tree.set("threads", Json::of(r.threads));
  tree.set("tokens_per_s", Json::of(r.tokens_per_s));
  tree.set("ms", Json::of(r.ms));
  tree.set("repeat", Json::of(r.repeat));
  tree.set("spread", Json::of(r.spread));
  tree.set("accepted_per_step", Json::of(r.accepted_per_step));
  tree.set("model", Json::of(r.model));
  tree.set("machine", Json::of(r.machine));
  tree.set("commit", Json::of(r.commit));
  tree.set("command", Json::of(r.command));
  return tree;
}

Json operations_of(const BenchRow& r) {
  Json list = Json::array();
  for (const OperationTime& operation : r.operations) {
    Json entry = Json::object();
    entry.set("name", Json::of(std::string(operation.name)));
    if (!operation.shape.empty()) entry.set("shape", Json::of(operation.shape));
    entry.set("calls", Json::of(operation.calls));
    entry.set("ms", Json::of(1000 * operation.seconds));
    entry.set("share", Json::of(1000 * operation.seconds / r.ms));
    entry.set("memory_bytes", Json::of(operation.memory_bytes));
    entry.set("cache_bytes", Json::of(operation.cache_bytes));
    entry.set("flop", Json::of(operation.operations));
    entry.set("bound_ms", Json::of(1000 * operation.bound_seconds));
    list.push(std::move(entry));
  }
  return list;
}

Json whole_of(const BenchRow& r) {
  const WholeWork whole = whole_work(r);
  Json sum = Json::object();
  sum.set("memory_bytes", Json::of(whole.memory_bytes));
  sum.set("flop", Json::of(whole.operations));
  sum.set("bound_ms", Json::of(whole.bound_ms));
  sum.set("share_of_bound", Json::of(whole.share_of_bound));
  sum.set("share_of_memory", Json::of(whole.share_of_memory));
  sum.set("in_operations_ms", Json::of(whole.in_operations_ms));
  sum.set("idle_share", Json::of(whole.idle_share));
  return sum;
}

Json peaks_of(const MachinePeaks& p) {
  Json peaks = Json::object();
  peaks.set("memory_gbps", Json::of(1e-9 * p.memory));
  peaks.set("cache_gbps", Json::of(1e-9 * p.l3));
  peaks.set("bf16_gflops", Json::of(1e-9 * p.bf16));
  peaks.set("int8_gops", Json::of(1e-9 * p.int8));
  peaks.set("f32_gflops", Json::of(1e-9 * p.f32));
  return peaks;
}

}  // namespace

Json to_json(const BenchRow& r) {
  Json tree = columns_of(r);
  if (r.stream) tree.set("expert_stream", to_json(*r.stream));
  if (r.launch_ms) tree.set("launch_ms", Json::of(*r.launch_ms));
  if (r.copied) tree.set("past", Json::of("copied"));
  tree.set("batch_invariant", Json::of(r.batch_invariant));
  if (r.operations.empty()) return tree;
  tree.set("operations", operations_of(r));
  tree.set("whole", whole_of(r));
  if (r.peaks) tree.set("peaks", peaks_of(*r.peaks));
  return tree;
}

std::string csv_of(std::span<const Json> rows) {
  std::string out;
  const auto write = [&](const Json& tree, bool head) {
    for (size_t i = 0; i < tree.fields.size(); ++i) {
      if (i > 0) out += ',';
      out += csv_cell(head ? tree.fields[i].first : tree.fields[i].second.text);
    }
    out += '\n';
  };
  if (!rows.empty()) write(rows[0], true);
  for (const Json& row : rows) write(row, false);
  return out;
}

std::string to_csv(std::span<const BenchRow> rows) {
  std::vector<Json> trees;
  for (const BenchRow& row : rows) trees.push_back(columns_of(row));
  return csv_of(trees);
}

Result<std::vector<std::map<std::string, std::string>>> read_csv(std::string_view text, const std::string& where,
                                                                 std::initializer_list<const char*> wanted) {
  std::vector<std::map<std::string, std::string>> rows;
  std::vector<std::string> columns;
  int64_t number = 0;
  for (const std::string& line : split(text, '\n')) {
    ++number;
    if (line.empty()) continue;
    auto cells = csv_cells(line);
    if (columns.empty()) {
      columns = std::move(cells);
      for (const char* name : wanted) {
        if (std::find(columns.begin(), columns.end(), name) == columns.end()) {
          return Error{ErrorCode::bad_input, "no column \"" + std::string(name) + "\"", where,
                       "name a file that fathom bench --out wrote"};
        }
      }
      continue;
    }
    if (cells.size() < columns.size()) {
      return Error{ErrorCode::bad_input,
                   "a row with " + std::to_string(cells.size()) + " of " + std::to_string(columns.size()) + " cells",
                   where + ", line " + std::to_string(number), "mend or remove this line"};
    }
    auto& row = rows.emplace_back();
    for (size_t i = 0; i < columns.size(); ++i) row[columns[i]] = std::move(cells[i]);
  }
  return rows;
}

Result<std::vector<BenchRow>> read_bench_csv(std::string_view text, const std::string& where) {
  const auto table = read_csv(
      text, where,
      {"bench", "length", "batch", "cached", "drafts", "replay", "numerics", "backend", "threads", "tokens_per_s"});
  if (!table) return table.error();
  std::vector<BenchRow> rows;
  for (const auto& row : *table) {
    BenchRow r;
    r.bench = row.at("bench");
    r.length = parse_integer(row.at("length")).value_or(-1);
    r.batch = parse_integer(row.at("batch")).value_or(-1);
    r.cached = parse_integer(row.at("cached")).value_or(-1);
    r.drafts = int(parse_integer(row.at("drafts")).value_or(-1));
    r.replay = row.at("replay");
    r.numerics = row.at("numerics");
    r.backend = row.at("backend");
    r.threads = int(parse_integer(row.at("threads")).value_or(-1));
    r.tokens_per_s = parse_number(row.at("tokens_per_s")).value_or(0);
    rows.push_back(std::move(r));
  }
  return rows;
}

std::string to_table(std::span<const BenchRow> rows) {
  using Side = Table::Side;
  Table table({{"bench"},
               {"length", Side::right},
               {"batch", Side::right},
               {"cached", Side::right},
               {"drafts", Side::right},
               {"ms", Side::right},
               {"tokens/s", Side::right},
               {"spread", Side::right},
               {"accepted", Side::right},
               {"replay"}});
  for (const BenchRow& r : rows) {
    table.add({r.bench, with_commas(r.length), with_commas(r.batch), with_commas(r.cached), std::to_string(r.drafts),
               brief(r.ms), brief(r.tokens_per_s), fixed(100 * r.spread, 1) + " %",
               r.drafts > 0 ? fixed(r.accepted_per_step, 2) : "-", r.replay});
  }
  return table.text();
}

std::string to_operation_table(const BenchRow& row) {
  using Side = Table::Side;
  Table table({{"operation"},
               {"weight"},
               {"calls", Side::right},
               {"ms", Side::right},
               {"share", Side::right},
               {"MB needed", Side::right},
               {"GFLOP", Side::right},
               {"bound ms", Side::right},
               {"of bound", Side::right}});
  const auto percent = [](double share) { return fixed(100 * share, 1) + " %"; };
  for (const OperationTime& o : row.operations) {
    const double ms = 1000 * o.seconds;
    table.add({std::string(o.name), o.shape, with_commas(o.calls), fixed(ms, 3), percent(ms / row.ms),
               brief(1e-6 * double(o.memory_bytes + o.cache_bytes)), brief(1e-9 * o.operations),
               fixed(1000 * o.bound_seconds, 3), ms > 0 ? percent(1000 * o.bound_seconds / ms) : "-"});
  }
  const WholeWork whole = whole_work(row);
  table.add({"between them", "", "-", fixed(row.ms * whole.idle_share, 3), percent(whole.idle_share), "", "", "", ""});
  std::string text = row.bench + ", length " + with_commas(row.length) + ", batch " + with_commas(row.batch) +
                     ", cached " + with_commas(row.cached) + ": " + brief(row.ms) + " ms\n" + table.text();
  text += "the whole: " + brief(1e-9 * double(whole.memory_bytes)) + " GB of weights and caches, " +
          percent(whole.share_of_memory) + " of the peak of reading; all bounds " + fixed(whole.bound_ms, 3) + " ms, " +
          percent(whole.share_of_bound) + " of the time\n";
  if (row.launch_ms) text += "the processor: " + fixed(*row.launch_ms, 3) + " ms until everything is queued\n";
  if (row.peaks) {
    text += "peaks: reading " + brief(1e-9 * row.peaks->memory) + " GB/s, cache " + brief(1e-9 * row.peaks->l3) +
            " GB/s, bf16 " + brief(1e-9 * row.peaks->bf16) + ", int8 " + brief(1e-9 * row.peaks->int8) + ", f32 " +
            brief(1e-9 * row.peaks->f32) + " GFLOP/s\n";
  }
  return text;
}

std::string to_svg(std::span<const BenchRow> rows) {
  std::map<std::string, std::vector<const BenchRow*>> curves;
  for (const BenchRow& r : rows) {
    if (r.tokens_per_s > 0 && r.batch > 0) curves[curve_of(r)].push_back(&r);
  }
  Plot plot{"", "tokens/s for one sequence", "tokens/s of all", {}};
  if (!rows.empty()) plot.title = rows[0].model + " on " + rows[0].machine + ", " + rows[0].commit;
  for (auto& [name, points] : curves) {
    std::sort(points.begin(), points.end(), [](const BenchRow* a, const BenchRow* b) { return a->batch < b->batch; });
    PlotCurve& curve = plot.curves.emplace_back(PlotCurve{name, {}});
    for (const BenchRow* r : points) {
      curve.points.push_back({r->tokens_per_s / double(r->batch), r->tokens_per_s, "batch " + with_commas(r->batch)});
    }
  }
  return to_svg(plot);
}

std::vector<BenchComparison> compare_rows(std::span<const BenchRow> now, std::span<const BenchRow> before) {
  const auto key = [](const BenchRow& r) {
    return std::tuple(r.bench, r.length, r.batch, r.cached, r.drafts, r.replay, r.numerics, r.backend, r.threads);
  };
  std::vector<BenchComparison> pairs;
  for (const BenchRow& row : now) {
    const auto same = std::find_if(before.begin(), before.end(), [&](const BenchRow& b) { return key(b) == key(row); });
    if (same != before.end()) pairs.push_back({&row, &*same});
  }
  return pairs;
}

}  // namespace fathom::cli
