#include "fathom/cli/bench_serve_compare.h"

#include "fathom/cli/bench_report.h"
#include "fathom/cli/option_value.h"
#include "fathom/cli/terminal.h"

namespace fathom::cli {
namespace {

using Columns = std::map<std::string, std::string>;

constexpr const char* kCase[] = {"api", "trace", "rate", "concurrency"};
struct Figure {
  const char* column;
  const char* name;
  bool more_is_better;
};
// No 99th percentiles: of a hundred answers that is one answer.
constexpr Figure kFigures[] = {{"tokens_per_s", "tokens/s", true},
                               {"first_token_p50_s", "first token p50, s", false},
                               {"per_token_p50_s", "a token p50, s", false}};

bool same_case(const Columns& a, const Columns& b) {
  for (const char* key : kCase) {
    if (a.at(key) != b.at(key)) return false;
  }
  return true;
}

std::string name_of(const Columns& row) {
  std::string text = row.at("api") + ", " + row.at("trace");
  if (parse_number(row.at("rate"))) text += " " + row.at("rate") + "/s";
  if (parse_number(row.at("concurrency"))) text += ", " + row.at("concurrency") + " streams";
  return text;
}

}  // namespace

Result<ServeComparison> compare_loads(std::span<const ServeRow> rows, std::string_view before, const std::string& where,
                                      double most) {
  const auto wanted = {"api", "trace", "rate", "concurrency", "tokens_per_s", "first_token_p50_s", "per_token_p50_s"};
  const auto old = read_csv(before, where, wanted);
  if (!old) return old.error();
  // Through the same text, so that a rate is spelt alike on both sides.
  const auto now = read_csv(to_csv(rows), "this run", wanted);
  if (!now) return now.error();
  Table table({{"load"},
               {"figure"},
               {"before", Table::Side::right},
               {"now", Table::Side::right},
               {"change", Table::Side::right}});
  ServeComparison out;
  double worst = most;
  for (const Columns& row : *now) {
    for (const Columns& was : *old) {
      if (!same_case(row, was)) continue;
      for (const Figure& figure : kFigures) {
        const double a = parse_number(was.at(figure.column)).value_or(0);
        const double b = parse_number(row.at(figure.column)).value_or(0);
        if (a <= 0 || b <= 0) continue;
        ++out.figures;
        const double change = b / a - 1, slowdown = figure.more_is_better ? a / b - 1 : change;
        table.add(
            {name_of(row), figure.name, brief(a), brief(b), (change >= 0 ? "+" : "") + fixed(100 * change, 1) + " %"});
        if (slowdown <= most) continue;
        ++out.slower;
        if (slowdown <= worst) continue;
        worst = slowdown;
        out.slowest = name_of(row) + ", " + figure.name + ": " + fixed(100 * slowdown, 1) + " % slower";
      }
    }
  }
  if (out.figures == 0) {
    return Error{ErrorCode::bad_input, "none of these loads is in the file", where,
                 "record them with the same options and --out FILE.csv"};
  }
  out.table = table.text();
  return out;
}

}  // namespace fathom::cli
