#include "fathom/cli/bench_codec.h"

#include <algorithm>

#include "fathom/base/mapped_file.h"
#include "fathom/cli/bench_report.h"
#include "fathom/cli/interrupt.h"
#include "fathom/cli/loaded_model.h"
#include "fathom/cli/machine.h"
#include "fathom/cli/median.h"
#include "fathom/cli/option_value.h"
#include "fathom/cli/program.h"
#include "fathom/cli/terminal.h"
#include "fathom/cli/version.h"

namespace fathom::cli {
namespace {

constexpr int kRequests = 8;
constexpr double kSeconds = 0.05;  // of each of the four measurements in a repeat

double request_seconds(const recipe::CodecCost& cost) { return cost.convert + cost.render + cost.encode; }

/// Every figure is the median of its own.
recipe::CodecCost medians(const std::vector<recipe::CodecCost>& costs) {
  recipe::CodecCost out = costs[0];  // sizes are the same in all
  const auto of = [&](auto value) {
    std::vector<double> values;
    for (const auto& cost : costs) values.push_back(value(cost));
    return median(std::move(values));
  };
  out.convert = of([](const auto& c) { return c.convert; });
  out.render = of([](const auto& c) { return c.render; });
  out.encode = of([](const auto& c) { return c.encode; });
  out.answer = of([](const auto& c) { return c.answer; });
  for (size_t i = 0; i < out.chunks.size(); ++i) out.chunks[i] = of([i](const auto& c) { return c.chunks[i]; });
  return out;
}

Result<CodecBenchRow> measure(recipe::Api api, const CodecBenchSettings& s, const Tokenizer& tokenizer) {
  const recipe::CodecWork work = recipe::make_codec_work(api, tokenizer, kRequests);
  const recipe::Policy policy = *recipe::policy_of(s.policy);
  std::vector<recipe::CodecCost> costs;
  for (int64_t i = 0; i < s.warmup + s.repeat; ++i) {
    if (interrupted()) return interrupted_error("fathom bench codec", "run it again");
    const auto cost = recipe::measure_codec(work, policy, tokenizer, kSeconds);
    if (!cost) return cost.error();
    if (i >= s.warmup) costs.push_back(*cost);
  }
  CodecBenchRow row;
  row.api = name_of(api);
  row.policy = s.policy;
  row.cost = medians(costs);
  row.requests_per_s = 1 / request_seconds(row.cost);
  row.output_bytes_per_s = row.cost.event_bytes / row.cost.answer;
  row.repeat = s.repeat;
  const auto [least, most] = std::minmax_element(
      costs.begin(), costs.end(), [](const auto& a, const auto& b) { return request_seconds(a) < request_seconds(b); });
  row.spread = (request_seconds(*most) - request_seconds(*least)) / request_seconds(row.cost);
  return row;
}

std::string command_of(const CodecBenchSettings& s) {
  std::string text = "fathom bench codec";
  if (!s.api.empty()) text += " --api " + s.api;
  return text + " --codec-policy " + s.policy + " --repeat " + std::to_string(s.repeat);
}

std::string table_of(const std::vector<CodecBenchRow>& rows) {
  using Side = Table::Side;
  Table table({{"API"},
               {"requests/s", Side::right},
               {"output MB/s", Side::right},
               {"convert ms", Side::right},
               {"render ms", Side::right},
               {"encode ms", Side::right},
               {"reasoning us", Side::right},
               {"content us", Side::right},
               {"calls us", Side::right},
               {"spread", Side::right}});
  for (const CodecBenchRow& r : rows) {
    table.add({r.api, brief(r.requests_per_s), brief(1e-6 * r.output_bytes_per_s), brief(1e3 * r.cost.convert),
               brief(1e3 * r.cost.render), brief(1e3 * r.cost.encode), brief(1e6 * r.cost.chunks[0]),
               brief(1e6 * r.cost.chunks[1]), brief(1e6 * r.cost.chunks[2]), fixed(100 * r.spread, 1) + " %"});
  }
  const recipe::CodecCost& cost = rows[0].cost;
  return "codec alone, policy " + rows[0].policy + ", one thread, processor time, median of " +
         std::to_string(rows[0].repeat) + "\nrequests of " + with_commas(int64_t(cost.request_bytes)) + " bytes and " +
         with_commas(int64_t(cost.prompt_tokens)) + " tokens; answers of " + with_commas(int64_t(cost.answer_tokens)) +
         " texts of one token, us a text\n" + table.text();
}

Result<void> write_rows(const std::string& path, const std::vector<CodecBenchRow>& rows) {
  std::vector<Json> trees;
  for (const CodecBenchRow& row : rows) trees.push_back(to_json(row));
  return write_file(path, csv_of(trees));
}

struct Slow {
  std::string what;  // "chat, requests/s"
  double share = 0;
};

Result<int> compare_with(const CodecBenchSettings& s, const std::vector<CodecBenchRow>& rows, bool json) {
  const auto text = read_file(s.compare, int64_t(64) << 20);
  if (!text) return text.error();
  const auto before = read_csv(*text, s.compare, {"api", "codec_policy", "requests_per_s", "output_bytes_per_s"});
  if (!before) return before.error();
  Table table(
      {{"API"}, {"rate"}, {"before", Table::Side::right}, {"now", Table::Side::right}, {"change", Table::Side::right}});
  std::vector<Slow> slow;
  for (const CodecBenchRow& row : rows) {
    for (const auto& old : *before) {
      if (old.at("api") != row.api || old.at("codec_policy") != row.policy) continue;
      for (const auto& [key, now] :
           {std::pair("requests_per_s", row.requests_per_s), std::pair("output_bytes_per_s", row.output_bytes_per_s)}) {
        const double was = parse_number(old.at(key)).value_or(0);
        const double change = now / was - 1;
        table.add({row.api, key, brief(was), brief(now), (change >= 0 ? "+" : "") + fixed(100 * change, 1) + " %"});
        if (was / now - 1 > s.most_slowdown) slow.push_back({row.api + ", " + key, was / now - 1});
      }
    }
  }
  if (table.empty()) {
    return Error{ErrorCode::bad_input, "none of these cases is in the file", s.compare,
                 "record them with the same options and --out FILE.csv"};
  }
  if (!json) {
    if (auto printed = print("\nagainst " + s.compare + "\n" + table.text()); !printed) return printed.error();
  }
  if (slow.empty()) return kDone;
  return Error{ErrorCode::failed,
               with_commas(int64_t(slow.size())) + " rates are slower than " + s.max_slowdown + " (" + slow[0].what +
                   ": " + fixed(100 * slow[0].share, 1) + " % slower)",
               "--max-slowdown", "measure again on a quiet machine before looking for the cause"};
}

}  // namespace

Json to_json(const CodecBenchRow& r) {
  Json tree = Json::object();
  tree.set("bench", Json::of("codec"));
  tree.set("api", Json::of(r.api));
  tree.set("codec_policy", Json::of(r.policy));
  tree.set("requests_per_s", Json::of(r.requests_per_s));
  tree.set("output_bytes_per_s", Json::of(r.output_bytes_per_s));
  tree.set("convert_ms", Json::of(1e3 * r.cost.convert));
  tree.set("render_ms", Json::of(1e3 * r.cost.render));
  tree.set("encode_ms", Json::of(1e3 * r.cost.encode));
  for (size_t i = 0; i < recipe::kAnswerPhases.size(); ++i) {
    tree.set(std::string(recipe::kAnswerPhases[i]) + "_us", Json::of(1e6 * r.cost.chunks[i]));
  }
  tree.set("request_bytes", Json::of(r.cost.request_bytes));
  tree.set("prompt_tokens", Json::of(r.cost.prompt_tokens));
  tree.set("answer_tokens", Json::of(r.cost.answer_tokens));
  tree.set("event_bytes", Json::of(r.cost.event_bytes));
  tree.set("threads", Json::of(1));
  tree.set("repeat", Json::of(r.repeat));
  tree.set("spread", Json::of(r.spread));
  tree.set("tokenizer", Json::of(r.tokenizer));
  tree.set("machine", Json::of(r.machine));
  tree.set("commit", Json::of(r.commit));
  tree.set("command", Json::of(r.command));
  return tree;
}

Result<int> run_bench_codec(const CodecBenchSettings& s, const Common& common) {
  const auto tokenizer = load_tokenizer(s.tokenizer, common);
  if (!tokenizer) return tokenizer.error();
  const InterruptScope scope;
  const Machine machine = read_machine();
  std::vector<CodecBenchRow> rows;
  for (recipe::Api api : {recipe::Api::chat_completions, recipe::Api::responses, recipe::Api::messages}) {
    if (!s.api.empty() && s.api != name_of(api)) continue;
    auto row = measure(api, s, *tokenizer);
    if (!row) return row.error();
    row->tokenizer = !s.tokenizer.empty()    ? s.tokenizer
                     : !common.model.empty() ? common.model
                                             : "the embedded miniature";
    row->machine = machine.processor.empty() ? "unknown processor" : machine.processor;
    row->commit = commit();
    row->command = command_of(s);
    if (common.json) {
      if (auto printed = print(to_string(to_json(*row)) + "\n"); !printed) return printed.error();
    }
    rows.push_back(std::move(*row));
  }
  if (!common.json) {
    if (auto printed = print(table_of(rows)); !printed) return printed.error();
  }
  if (!s.out.empty()) {
    if (auto written = write_rows(s.out, rows); !written) return written.error();
  }
  return s.compare.empty() ? Result<int>(kDone) : compare_with(s, rows, common.json);
}

}  // namespace fathom::cli
