#include "fathom/cli/bench_report.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <tuple>

#include "fathom/cli/option_value.h"
#include "fathom/cli/terminal.h"

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

std::string xml_text(const std::string& text) {
  std::string out;
  for (char c : text) out += c == '<' ? "&lt;" : c == '&' ? "&amp;" : c == '>' ? "&gt;" : std::string(1, c);
  return out;
}

}  // namespace

Json to_json(const BenchRow& r) {
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
  if (r.operations.empty()) return tree;
  Json list = Json::array();
  for (const OperationTime& operation : r.operations) {
    Json entry = Json::object();
    entry.set("name", Json::of(std::string(operation.name)));
    entry.set("calls", Json::of(operation.calls));
    entry.set("ms", Json::of(1000 * operation.seconds));
    entry.set("share", Json::of(1000 * operation.seconds / r.ms));
    list.push(std::move(entry));
  }
  tree.set("operations", std::move(list));
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
  for (BenchRow row : rows) {
    row.operations.clear();  // no column holds a list
    trees.push_back(to_json(row));
  }
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
  Table table({{"operation"}, {"calls", Side::right}, {"ms", Side::right}, {"share", Side::right}});
  const auto add = [&](std::string name, const std::string& calls, double ms) {
    table.add({std::move(name), calls, fixed(ms, 3), fixed(100 * ms / row.ms, 1) + " %"});
  };
  double between = row.ms;
  for (const OperationTime& operation : row.operations) {
    add(std::string(operation.name), with_commas(operation.calls), 1000 * operation.seconds);
    between -= 1000 * operation.seconds;
  }
  add("between them", "-", std::max(between, 0.0));
  return row.bench + ", length " + with_commas(row.length) + ", batch " + with_commas(row.batch) + ", cached " +
         with_commas(row.cached) + ": " + brief(row.ms) + " ms\n" + table.text();
}

std::string to_svg(std::span<const BenchRow> rows) {
  constexpr double kWidth = 720, kHeight = 480, kLeft = 90, kRight = 30, kTop = 40, kBottom = 60;
  // Both axes are logarithmic: a batch of 64 is to be seen beside a batch of 1.
  double least_x = 1e300, most_x = 0, least_y = 1e300, most_y = 0;
  std::map<std::string, std::vector<const BenchRow*>> curves;
  for (const BenchRow& r : rows) {
    if (r.tokens_per_s <= 0 || r.batch <= 0) continue;
    const double x = r.tokens_per_s / double(r.batch);
    least_x = std::min(least_x, x), most_x = std::max(most_x, x);
    least_y = std::min(least_y, r.tokens_per_s), most_y = std::max(most_y, r.tokens_per_s);
    curves[curve_of(r)].push_back(&r);
  }
  std::string out = "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 " + fixed(kWidth, 0) + " " +
                    fixed(kHeight, 0) + "\" font-family=\"sans-serif\" font-size=\"12\">\n" +
                    "<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n";
  if (curves.empty()) return out + "</svg>\n";
  least_x /= 1.2, most_x *= 1.2, least_y /= 1.2, most_y *= 1.2;
  const auto at_x = [&](double x) {
    return kLeft + (kWidth - kLeft - kRight) * std::log(x / least_x) / std::log(most_x / least_x);
  };
  const auto at_y = [&](double y) {
    return kHeight - kBottom - (kHeight - kTop - kBottom) * std::log(y / least_y) / std::log(most_y / least_y);
  };
  const auto text = [&](double x, double y, const std::string& anchor, const std::string& what,
                        const std::string& more) {
    out += "<text x=\"" + fixed(x, 1) + "\" y=\"" + fixed(y, 1) + "\" text-anchor=\"" + anchor + "\"" + more + ">" +
           xml_text(what) + "</text>\n";
  };
  const auto line = [&](double x1, double y1, double x2, double y2) {
    out += "<line x1=\"" + fixed(x1, 1) + "\" y1=\"" + fixed(y1, 1) + "\" x2=\"" + fixed(x2, 1) + "\" y2=\"" +
           fixed(y2, 1) + "\" stroke=\"#ddd\"/>\n";
  };
  const int first_power = int(std::floor(std::log10(std::min(least_x, least_y))));
  const int last_power = int(std::floor(std::log10(std::max(most_x, most_y))));
  for (int power = first_power; power <= last_power; ++power) {
    const double decade = std::pow(10, power);
    for (const double tick : {decade, 2 * decade, 5 * decade}) {
      if (tick > least_x && tick < most_x) {
        line(at_x(tick), kTop, at_x(tick), kHeight - kBottom);
        text(at_x(tick), kHeight - kBottom + 16, "middle", brief(tick), "");
      }
      if (tick > least_y && tick < most_y) {
        line(kLeft, at_y(tick), kWidth - kRight, at_y(tick));
        text(kLeft - 6, at_y(tick) + 4, "end", brief(tick), "");
      }
    }
  }
  text((kLeft + kWidth - kRight) / 2, kHeight - 18, "middle", "tokens/s for one sequence", "");
  text(20, (kTop + kHeight - kBottom) / 2, "middle", "tokens/s of all",
       " transform=\"rotate(-90 20 " + fixed((kTop + kHeight - kBottom) / 2, 1) + ")\"");
  text(kLeft, 22, "start", rows[0].model + " on " + rows[0].machine + ", " + rows[0].commit, "");
  constexpr std::array<const char*, 6> kColours = {"#0b6e99", "#d9480f", "#2b8a3e", "#862e9c", "#5c5f66", "#c2255c"};
  size_t number = 0;
  for (auto& [name, points] : curves) {
    const std::string colour = kColours[number % kColours.size()];
    std::sort(points.begin(), points.end(), [](const BenchRow* a, const BenchRow* b) { return a->batch < b->batch; });
    std::string path;
    for (const BenchRow* r : points) {
      path += fixed(at_x(r->tokens_per_s / double(r->batch)), 1) + "," + fixed(at_y(r->tokens_per_s), 1) + " ";
    }
    out += "<polyline points=\"" + path + "\" fill=\"none\" stroke=\"" + colour + "\" stroke-width=\"2\"/>\n";
    for (const BenchRow* r : points) {
      const double x = at_x(r->tokens_per_s / double(r->batch)), y = at_y(r->tokens_per_s);
      out += "<circle cx=\"" + fixed(x, 1) + "\" cy=\"" + fixed(y, 1) + "\" r=\"3.5\" fill=\"" + colour + "\"/>\n";
      text(x + 6, y - 6, "start", "batch " + with_commas(r->batch), "");
    }
    text(kWidth - kRight, kTop + 16 * double(number), "end", name, " fill=\"" + colour + "\"");
    ++number;
  }
  return out + "</svg>\n";
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
