#include "fathom/cli/bench_engine_report.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "fathom/cli/bench_report.h"
#include "fathom/cli/load_fields.h"
#include "fathom/cli/terminal.h"

namespace fathom::cli {
namespace {

std::string share_text(double share) { return fixed(100 * share, 1) + " %"; }

void set_simulated(Json& tree, const SimulationReport& s, const LoadReport& load, bool lists) {
  for (const auto& [key, value] : {std::pair("steps", s.steps),
                                   {"decode_steps", s.decode_steps},
                                   {"mixed_steps", s.mixed_steps},
                                   {"prompt_steps", s.prompt_steps},
                                   {"decode_rows", s.decode_rows},
                                   {"padding_rows", s.padding_rows},
                                   {"prompt_rows", s.prompt_rows},
                                   {"replayed_rows", s.replayed_rows},
                                   {"wasted_rows", s.wasted_rows},
                                   {"passed_over", s.passed_over},
                                   {"blocks", int64_t(s.blocks)},
                                   {"most_running", int64_t(s.most_running)},
                                   {"most_waiting", int64_t(s.most_waiting)}}) {
    tree.set(key, Json::of(value));
  }
  tree.set("mean_sequences", Json::of(s.mean_sequences));
  tree.set("longest_step_s", Json::of(s.longest_step_seconds));
  tree.set("busy", Json::of(load.seconds > 0 ? s.busy_seconds / load.seconds : 0.0));
  if (!lists) return;
  Json offered = Json::array(), accepted = Json::array();
  for (size_t k = 0; k < s.offered.size() && s.offered[k] > 0; ++k) {
    offered.push(Json::of(s.offered[k]));
    accepted.push(Json::of(s.accepted[k]));
  }
  tree.set("offered", std::move(offered));
  tree.set("accepted", std::move(accepted));
}

Json tenant_json(const TenantReport& one) {
  Json tree = Json::object();
  tree.set("tenant", Json::of(one.name));
  tree.set("answers", Json::of(one.answers));
  tree.set("output_tokens", Json::of(one.output_tokens));
  set_quantiles(tree, "queue", one.queue);
  set_quantiles(tree, "first_token", one.first_token);
  set_quantiles(tree, "gap", one.gap);
  return tree;
}

std::string steps_text(const EngineRow& row) {
  const SimulationReport& s = *row.simulated;
  std::string out = "steps          " + with_commas(s.steps) + ": " + with_commas(s.decode_steps) +
                    " of decode rows, " + with_commas(s.mixed_steps) + " mixed, " + with_commas(s.prompt_steps) +
                    " of prompt rows; " + fixed(s.mean_sequences, 1) + " sequences decode on average\n";
  out += "rows           " + with_commas(s.decode_rows) + " decode, " + with_commas(s.padding_rows) + " padding, " +
         with_commas(s.prompt_rows) + " prompt, of these " + with_commas(s.replayed_rows) + " replayed; " +
         with_commas(s.wasted_rows) + " for what had ended\n";
  if (s.rounds > 0) {
    out += "drafts         accepted by position";
    for (size_t k = 0; k < s.offered.size() && s.offered[k] > 0; ++k) {
      out += " " + fixed(double(s.accepted[k]) / double(s.offered[k]), 2);
    }
    out += "\n";
  }
  const double busy = row.load.seconds > 0 ? s.busy_seconds / row.load.seconds : 0;
  out += "device         busy " + share_text(busy) + " of " + duration_text(row.load.seconds) + ", longest step " +
         time_text(s.longest_step_seconds) + "\n";
  return out + "scheduler      " + with_commas(s.preempted) + " preemptions, " + with_commas(s.passed_over) +
         " passed over, at most " + with_commas(s.most_running) + " ran and " + with_commas(s.most_waiting) +
         " waited\n";
}

}  // namespace

Json to_json(const EngineRow& r, bool lists) {
  const LoadReport& load = r.load;
  Json tree = Json::object();
  tree.set("bench", Json::of(r.bench));
  tree.set("trace", Json::of(r.trace));
  tree.set("rate", r.rate ? Json::of(*r.rate) : Json());
  tree.set("policy", Json::of(r.policy));
  tree.set("planning", Json::of(r.planning));
  tree.set("drafts", Json::of(r.drafts));
  if (r.simulated) {
    tree.set("acceptance", Json::of(r.acceptance));
    tree.set("bias", Json::of(r.bias));
    tree.set("hardware", Json::of(r.hardware));
    tree.set("hardware_from", Json::of(r.hardware_from));
  } else {
    tree.set("backend", Json::of(r.backend));
    tree.set("threads", Json::of(r.threads));
  }
  tree.set("sequences", Json::of(r.sequences));
  tree.set("step_rows", Json::of(r.step_rows));
  set_load(tree, load,
           {{"preempted", load.preemptions},
            {"first_token_targets", load.first_token_targets},
            {"first_token_met", load.first_token_met},
            {"between_targets", load.between_targets},
            {"between_met", load.between_met}});
  tree.set("tokens_per_round", Json::of(r.tokens_per_round));
  tree.set("verified_per_round", Json::of(r.verified_per_round));
  if (r.simulated) set_simulated(tree, *r.simulated, load, lists);
  if (lists && !load.tenants.empty()) {
    Json tenants = Json::array();
    for (const TenantReport& one : load.tenants) tenants.push(tenant_json(one));
    tree.set("tenants", std::move(tenants));
  }
  set_origin(tree, r.model, r.machine, r.commit, r.command);
  return tree;
}

std::string to_csv(std::span<const EngineRow> rows) {
  std::vector<Json> trees;
  for (const EngineRow& row : rows) trees.push_back(to_json(row, false));
  return csv_of(trees);
}

std::string to_table(std::span<const EngineRow> rows) {
  using Side = Table::Side;
  const bool rates = std::any_of(rows.begin(), rows.end(), [&](const EngineRow& r) { return r.rate != rows[0].rate; });
  std::vector<Table::Column> columns{{"policy"}};
  if (rates) columns.push_back({"rate", Side::right});
  for (const char* title : {"tokens/s", "verified", "a round", "first p50", "p99", "a token p50", "p99", "total p50"}) {
    columns.push_back({title, Side::right});
  }
  Table table(columns);
  for (const EngineRow& r : rows) {
    std::vector<std::string> cells{r.policy};
    if (rates) cells.push_back(r.rate ? brief(*r.rate) : "-");
    cells.push_back(brief(r.load.tokens_per_second()));
    cells.push_back(fixed(r.verified_per_round, 2));
    cells.push_back(fixed(r.tokens_per_round, 2));
    for (const double value : {r.load.first_token.p50, r.load.first_token.p99, r.load.per_token.p50,
                               r.load.per_token.p99, r.load.total.p50}) {
      cells.push_back(time_text(value));
    }
    table.add(std::move(cells));
  }
  return table.text();
}

std::string to_details(const EngineRow& row) {
  using Side = Table::Side;
  const LoadReport& load = row.load;
  Table times({{"seconds of"},
               {"mean", Side::right},
               {"p50", Side::right},
               {"p90", Side::right},
               {"p99", Side::right},
               {"longest", Side::right}});
  for (const auto& [name, q] : {std::pair("waiting in the queue", &load.queue),
                                {"first token", &load.first_token},
                                {"between steps", &load.gap},
                                {"a token", &load.per_token},
                                {"whole answer", &load.total}}) {
    times.add({name, time_text(q->mean), time_text(q->p50), time_text(q->p90), time_text(q->p99), time_text(q->most)});
  }
  std::string out = times.text() + "\n";
  out += "throughput     " + brief(load.tokens_per_second()) + " tokens/s, " + brief(load.requests_per_second()) +
         " requests/s\n";
  out += "answers        " + with_commas(load.finished) + " finished, " + with_commas(load.cancelled) + " cancelled, " +
         with_commas(load.rejected) + " too long" +
         (load.failed > 0 ? ", " + with_commas(load.failed) + " failed" : std::string()) + "\n";
  out += "prompts        " + with_commas(load.prompt_tokens) + " tokens, " + share_text(load.hit_rate()) + " found\n";
  if (row.verified_per_round > 0) {
    out += "rounds         " + fixed(row.verified_per_round, 2) + " drafts verified, " +
           fixed(row.tokens_per_round, 2) + " tokens\n";
  }
  if (row.simulated) out += steps_text(row);
  if (load.first_token_targets + load.between_targets > 0) {
    const auto met = [](int64_t some, int64_t all) { return all > 0 ? share_text(double(some) / double(all)) : "-"; };
    out += "targets met    first token " + met(load.first_token_met, load.first_token_targets) + ", between tokens " +
           met(load.between_met, load.between_targets) + "\n";
  }
  if (load.tenants.empty()) return out;
  Table tenants({{"tenant"},
                 {"answers", Side::right},
                 {"tokens", Side::right},
                 {"queue p50", Side::right},
                 {"p99", Side::right},
                 {"first p50", Side::right},
                 {"p99", Side::right},
                 {"gap p99", Side::right}});
  for (const TenantReport& one : load.tenants) {
    tenants.add({one.name.empty() ? "(none)" : one.name, with_commas(one.answers), with_commas(one.output_tokens),
                 time_text(one.queue.p50), time_text(one.queue.p99), time_text(one.first_token.p50),
                 time_text(one.first_token.p99), time_text(one.gap.p99)});
  }
  return out + "\n" + tenants.text();
}

Plot plot_of(std::span<const EngineRow> rows) {
  Plot plot{"", "tokens/s for one user, median", "tokens/s of all", {}};
  if (!rows.empty()) {
    const EngineRow& first = rows[0];
    plot.title = first.model + " on " + (first.simulated ? first.hardware + " (simulated)" : first.machine) + ", " +
                 first.trace + ", " + first.commit;
  }
  for (const EngineRow& row : rows) {
    auto curve = std::find_if(plot.curves.begin(), plot.curves.end(),
                              [&](const PlotCurve& one) { return one.name == row.policy; });
    if (curve == plot.curves.end()) curve = plot.curves.insert(curve, {row.policy, {}});
    const double user = row.load.per_token.p50 > 0 ? 1 / row.load.per_token.p50 : 0;
    curve->points.push_back({user, row.load.tokens_per_second(), row.rate ? brief(*row.rate) + "/s" : ""});
  }
  return plot;
}

}  // namespace fathom::cli
