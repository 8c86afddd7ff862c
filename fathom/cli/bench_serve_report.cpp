#include "fathom/cli/bench_serve_report.h"

#include <algorithm>

#include "fathom/cli/bench_report.h"
#include "fathom/cli/load_fields.h"
#include "fathom/cli/terminal.h"

namespace fathom::cli {
namespace {

std::string load_text(const ServeRow& row) {
  std::string text = row.trace;
  if (row.rate) text += " " + brief(*row.rate) + "/s";
  if (row.concurrency) text += ", " + with_commas(*row.concurrency) + " streams";
  return text;
}

void add_quantiles(Table& table, const char* name, const Quantiles& q) {
  table.add({name, time_text(q.mean), time_text(q.p50), time_text(q.p90), time_text(q.p99), time_text(q.most)});
}

constexpr auto kRight = Table::Side::right;

/// Tokens a second that the user at the median reads.
double reading_speed(const LoadReport& load) { return load.per_token.p50 > 0 ? 1 / load.per_token.p50 : 0; }

}  // namespace

Json to_json(const ServeRow& r) {
  const LoadReport& load = r.result.load;
  Json tree = Json::object();
  tree.set("bench", Json::of("serve"));
  tree.set("endpoint", Json::of(r.endpoint));
  tree.set("api", Json::of(r.api));
  tree.set("trace", Json::of(r.trace));
  tree.set("rate", r.rate ? Json::of(*r.rate) : Json());
  tree.set("concurrency", r.concurrency ? Json::of(*r.concurrency) : Json());
  set_load(tree, load, {{"most_running", r.result.most_running}});
  std::string failures;
  for (const auto& [kind, one] : r.result.failures) {
    failures += (failures.empty() ? "" : "; ") + kind + ": " + std::to_string(one.count);
  }
  tree.set("failures", Json::of(failures));
  set_origin(tree, r.model, r.machine, r.commit, r.command);
  return tree;
}

std::string to_csv(std::span<const ServeRow> rows) {
  std::vector<Json> trees;
  for (const ServeRow& row : rows) trees.push_back(to_json(row));
  return csv_of(trees);
}

std::string to_table(std::span<const ServeRow> rows) {
  Table table({{"load"},
               {"answers", kRight},
               {"refused", kRight},
               {"failed", kRight},
               {"requests/s", kRight},
               {"tokens/s", kRight},
               {"first token p50", kRight},
               {"p99", kRight},
               {"a token p50", kRight},
               {"p99", kRight},
               {"found", kRight}});
  for (const ServeRow& row : rows) {
    const LoadReport& load = row.result.load;
    table.add({load_text(row), with_commas(load.finished), with_commas(load.rejected), with_commas(load.failed),
               brief(load.requests_per_second()), brief(load.tokens_per_second()), time_text(load.first_token.p50),
               time_text(load.first_token.p99), time_text(load.per_token.p50), time_text(load.per_token.p99),
               fixed(100 * load.hit_rate(), 1) + " %"});
  }
  return table.text();
}

std::string to_details(const ServeRow& row) {
  const LoadReport& load = row.result.load;
  Table table({{""}, {"mean", kRight}, {"p50", kRight}, {"p90", kRight}, {"p99", kRight}, {"longest", kRight}});
  add_quantiles(table, "first token", load.first_token);
  add_quantiles(table, "between events", load.gap);
  add_quantiles(table, "a token, by answer", load.per_token);
  add_quantiles(table, "whole answer", load.total);
  if (load.queue.most > 0.001) add_quantiles(table, "waited for a stream", load.queue);
  std::string text = table.text();
  text += "\ntokens         " + with_commas(load.prompt_tokens) + " of prompts, of these " +
          with_commas(load.cached_tokens) + " found in the cache; " + with_commas(load.output_tokens) +
          " of answers in " + duration_text(load.seconds) + "\n";
  text += "streams        at most " + with_commas(row.result.most_running) + " at once";
  if (load.cancelled > 0) text += "; " + with_commas(load.cancelled) + " cancelled by us";
  text += "\n";
  for (const auto& [kind, one] : row.result.failures) {
    const bool refused = kind == "HTTP 429" || kind == "HTTP 503";
    text +=
        (refused ? "refused        " : "failed         ") + with_commas(one.count) + " x " + kind + ": " + one.first;
    text += "\n";
  }
  return text;
}

Plot plot_of(std::span<const ServeRow> rows) {
  Plot plot{"fathom bench serve", "tokens/s that one user reads (median)", "tokens/s of all users", {}};
  PlotCurve curve;
  for (const ServeRow& row : rows) {
    curve.name = row.model;
    curve.points.push_back({reading_speed(row.result.load), row.result.load.tokens_per_second(),
                            row.rate ? brief(*row.rate) + "/s" : with_commas(row.concurrency.value_or(0))});
  }
  plot.curves.push_back(std::move(curve));
  return plot;
}

std::string live_text(const EndpointProgress& p, int columns) {
  Table counts({{"time", kRight},
                {"sent", kRight},
                {"running", kRight},
                {"ended", kRight},
                {"failed", kRight},
                {"requests/s", kRight},
                {"events/s", kRight}});
  const std::string of = p.total > 0 ? " of " + with_commas(p.total) : "";
  counts.add({duration_text(p.seconds), with_commas(p.sent) + of, with_commas(p.running), with_commas(p.ended),
              with_commas(p.failed), brief(p.requests_per_s), brief(p.events_per_s)});
  Table times({{"lately"}, {"p50", kRight}, {"p90", kRight}, {"p99", kRight}, {"longest", kRight}});
  for (const auto& [name, q] :
       {std::pair("first token", &p.first_token), {"between events", &p.gap}, {"whole answer", &p.total_time}}) {
    times.add({name, time_text(q->p50), time_text(q->p90), time_text(q->p99), time_text(q->most)});
  }
  // A line that wraps would spoil the redraw.
  std::string out, line;
  for (const char letter : counts.text() + times.text()) {
    if (letter == '\n') {
      out += line.substr(0, size_t(std::max(columns - 1, 1))) + "\n";
      line.clear();
    } else {
      line += letter;
    }
  }
  return out;
}

}  // namespace fathom::cli
