// fathom/cli/bench.cpp
// `fathom bench prefill|decode`: steps of the model without scheduler (design/cli.md 4). What is timed: step_timing.h.
// `codec`, `engine`, `kernels` and `serve` have files of their own (bench_codec.h, bench_engine.h, ...).
#include <algorithm>
#include <filesystem>
#include <memory>

#include "fathom/base/mapped_file.h"
#include "fathom/cli/answering.h"
#include "fathom/cli/bench_codec.h"
#include "fathom/cli/bench_engine.h"
#include "fathom/cli/bench_kernels.h"
#include "fathom/cli/bench_report.h"
#include "fathom/cli/bench_serve.h"
#include "fathom/cli/interrupt.h"
#include "fathom/cli/log.h"
#include "fathom/cli/machine.h"
#include "fathom/cli/option_value.h"
#include "fathom/cli/program.h"
#include "fathom/cli/step_timing.h"
#include "fathom/cli/terminal.h"
#include "fathom/cli/version.h"

namespace fathom::cli {
namespace {

struct Settings {
  std::vector<std::string> words;
  std::vector<int64_t> lengths, batch, cached;
  int64_t repeat = 5, warmup = 1;
  std::string tokens = "own", past = "computed", launch = "recorded";
  std::string out, compare, max_slowdown = "5%";
  bool sweep = false, per_operation = false;
  std::string api, policy = "default", tokenizer;  // codec
  EngineBenchSettings load;                        // engine, serve
  ServeBenchSettings serve;
  KernelBenchSettings kernels;
  EngineSettings engine;
};

Error usage(std::string what, std::string where, std::string remedy) {
  return Error{ErrorCode::usage, std::move(what), std::move(where), std::move(remedy)};
}

/// "5%" or "0.05" -> 0.05.
std::optional<double> parse_share(std::string_view text) {
  const bool percent = text.ends_with('%');
  if (percent) text.remove_suffix(1);
  const auto value = parse_number(text);
  if (!value || *value < 0) return {};
  return percent ? *value / 100 : *value;
}

std::vector<int64_t> or_default(const std::vector<int64_t>& values, const std::vector<int64_t>& fallback) {
  return values.empty() ? fallback : values;
}

std::vector<StepCase> cases_of(const Settings& s, bool decode, int drafts) {
  std::vector<StepCase> cases;
  const auto lengths = or_default(s.lengths, decode    ? std::vector<int64_t>{64}
                                             : s.sweep ? std::vector<int64_t>{128, 512, 2048}
                                                       : std::vector<int64_t>{512});
  const auto cached = or_default(s.cached, {decode ? 512 : 0});
  const auto batches = or_default(s.batch, s.sweep ? std::vector<int64_t>{1, 2, 4, 8, 16} : std::vector<int64_t>{1});
  for (int64_t length : lengths) {
    for (int64_t before : cached) {
      for (int64_t batch : batches) {
        cases.push_back({decode, length, batch, before, drafts, s.tokens == "random", s.past == "copied",
                         replay_mode_of(s.engine.replay).value_or(ReplayMode::compact), s.launch == "recorded"});
      }
    }
  }
  return cases;
}

BenchRow row_of(const StepCase& c, const StepTimes& times, const StepBench& bench) {
  BenchRow row;
  row.bench = c.decode ? "decode" : "prefill";
  row.length = c.length;
  row.batch = c.batch;
  row.cached = c.cached;
  row.drafts = c.drafts;
  row.replay = name_of(c.replay);
  row.numerics = bench.numerics().name;
  row.backend = bench.backend_name();
  row.batch_invariant = bench.batch_invariant();
  row.threads = bench.threads();
  std::vector<double> sorted = times.seconds;
  std::sort(sorted.begin(), sorted.end());
  const double middle = times.seconds_all / (c.decode ? double(c.length) : 1);
  row.ms = 1000 * middle;
  row.tokens_per_s = double(times.tokens) / times.seconds_all;
  row.repeat = int64_t(sorted.size());
  row.spread = (sorted.back() - sorted.front()) / middle;
  row.accepted_per_step = times.accepted_per_step;
  row.operations = times.operations;
  row.peaks = bench.peaks();
  row.copied = c.copied;
  if (times.launch_seconds) row.launch_ms = 1000 * *times.launch_seconds;
  row.stream = times.stream;
  return row;
}

/// The words of the command without what only concerns where results go.
std::string command_of(const Settings& s, const Common& common) {
  std::string text = "fathom bench " + s.words[0];
  const auto list = [&](const char* name, const std::vector<int64_t>& values) {
    if (values.empty()) return;
    text += std::string(" --") + name + " ";
    for (size_t i = 0; i < values.size(); ++i) text += (i > 0 ? "," : "") + std::to_string(values[i]);
  };
  list("lengths", s.lengths);
  list("batch", s.batch);
  list("cached", s.cached);
  if (s.per_operation) text += " --per-operation";
  if (s.tokens != "own") text += " --tokens " + s.tokens;
  if (s.past != "computed") text += " --past " + s.past;
  if (s.launch != "recorded") text += " --launch " + s.launch;
  if (s.engine.experts != "device") text += " --experts " + s.engine.experts;
  if (s.engine.resident_limit) text += " --resident-limit " + std::to_string(s.engine.resident_limit->count);
  if (s.engine.drop_behind) text += " --drop-behind";
  if (s.engine.numerics) text += " --numerics " + *s.engine.numerics;
  if (s.engine.batch_invariant) text += " --batch-invariant";
  if (s.engine.step_rows != EngineSettings{}.step_rows) text += " --step-rows " + std::to_string(s.engine.step_rows);
  text += " --replay " + s.engine.replay + " --drafts " + s.engine.drafts + " --repeat " + std::to_string(s.repeat);
  if (!common.model.empty()) text += " --model " + common.model;
  if (!common.backend.empty()) text += " --backend " + common.backend;
  if (common.threads) text += " --threads " + std::to_string(*common.threads);
  return text;
}

Result<int> compare_with(const Settings& s, const std::vector<BenchRow>& rows, double most, bool json) {
  const auto text = read_file(s.compare, int64_t(64) << 20);
  if (!text) return text.error();
  const auto before = read_bench_csv(*text, s.compare);
  if (!before) return before.error();
  const auto pairs = compare_rows(rows, *before);
  if (pairs.empty()) {
    return Error{ErrorCode::bad_input, "none of these cases is in the file", s.compare,
                 "record them with the same options and --out FILE.csv"};
  }
  Table table({{"bench"},
               {"case"},
               {"before", Table::Side::right},
               {"now", Table::Side::right},
               {"change", Table::Side::right}});
  std::string slow;
  int64_t slow_count = 0;
  for (const BenchComparison& pair : pairs) {
    const BenchRow& r = *pair.now;
    const std::string name = "length " + with_commas(r.length) + ", batch " + with_commas(r.batch) + ", cached " +
                             with_commas(r.cached) + ", drafts " + std::to_string(r.drafts);
    const double change = r.tokens_per_s / pair.before->tokens_per_s - 1;
    table.add({r.bench, name, brief(pair.before->tokens_per_s), brief(r.tokens_per_s),
               (change >= 0 ? "+" : "") + fixed(100 * change, 1) + " %"});
    if (pair.slowdown() <= most) continue;
    ++slow_count;
    if (slow.empty()) slow = r.bench + ", " + name + ": " + fixed(100 * pair.slowdown(), 1) + " % slower";
  }
  if (!json) {
    if (auto printed = print("\ntokens/s against " + s.compare + "\n" + table.text()); !printed) return printed.error();
  }
  if (slow_count == 0) return kDone;
  return Error{ErrorCode::failed,
               with_commas(slow_count) + " of " + with_commas(int64_t(pairs.size())) + " cases are slower than " +
                   s.max_slowdown + " (" + slow + ")",
               "--max-slowdown", "measure again on a quiet machine before looking for the cause"};
}

Result<void> write_results(const Settings& s, const std::vector<BenchRow>& rows) {
  if (s.out.empty()) return {};
  if (!s.sweep) return write_file(s.out, to_csv(rows));
  std::error_code error;
  std::filesystem::create_directories(s.out, error);
  if (error) return Error{ErrorCode::failed, "cannot make the folder: " + error.message(), s.out, "name another --out"};
  const std::string stem = s.out + "/" + rows[0].bench;
  if (auto written = write_file(stem + ".csv", to_csv(rows)); !written) return written;
  std::string lines;
  for (const BenchRow& row : rows) lines += to_string(to_json(row)) + "\n";
  if (auto written = write_file(stem + ".jsonl", lines); !written) return written;
  return write_file(stem + ".svg", to_svg(rows));
}

/// Refuses what says something about steps of a model, for benches that have none.
Result<void> refuse_step_options(const Settings& s, const char* why, const char* remedy) {
  for (const auto& [given, name] :
       {std::pair(!s.lengths.empty(), "--lengths"), std::pair(!s.batch.empty(), "--batch"),
        std::pair(!s.cached.empty(), "--cached"), std::pair(s.per_operation, "--per-operation"),
        std::pair(s.tokens != "own", "--tokens"), std::pair(s.past != "computed", "--past"),
        std::pair(s.launch != "recorded", "--launch")}) {
    if (given) return usage(why, name, remedy);
  }
  return {};
}

Result<int> run_codec(const Settings& s, const Common& common) {
  constexpr const char* kWhy = "the codec takes no steps";
  constexpr const char* kRemedy = "use it with fathom bench prefill or fathom bench decode";
  if (auto right = refuse_step_options(s, kWhy, kRemedy); !right) return right.error();
  if (s.sweep) return usage(kWhy, "--sweep", kRemedy);
  const auto most_slowdown = parse_share(s.max_slowdown);
  if (!most_slowdown) return usage("\"" + s.max_slowdown + "\" is no share", "--max-slowdown", "pass 5% or 0.05");
  if (s.api == "completions") return usage("the codec has no completions", "--api", "use chat, responses or messages");
  CodecBenchSettings settings{s.api, s.policy, s.tokenizer, s.repeat, s.warmup, s.out, s.compare, s.max_slowdown};
  settings.most_slowdown = *most_slowdown;
  return run_bench_codec(settings, common);
}

Result<int> run_engine(const Settings& s, const Common& common) {
  constexpr const char* kWhy = "the engine takes requests, not cases";
  constexpr const char* kRemedy = "say what comes with --trace or --arrivals";
  if (auto right = refuse_step_options(s, kWhy, kRemedy); !right) return right.error();
  for (const auto& [given, name] : {std::pair(!s.api.empty(), "--api"), std::pair(!s.compare.empty(), "--compare")}) {
    if (given) return usage(kWhy, name, kRemedy);
  }
  EngineBenchSettings load = s.load;
  load.sweep = s.sweep;
  load.out = s.out;
  return run_bench_engine(load, s.engine, common);
}

/// The name of an engine option that is not at its default; empty: all are.
std::string changed_engine_option(EngineSettings given) {
  EngineSettings fresh;
  const std::vector<Option> now = engine_options(given), defaults = engine_options(fresh);
  for (size_t i = 0; i < now.size(); ++i) {
    if (!now[i].planned && printed(now[i]) != printed(defaults[i])) return "--" + now[i].name;
  }
  return {};
}

Result<int> run_serve(const Settings& s, const Common& common) {
  if (const std::string changed = changed_engine_option(s.engine); !changed.empty()) {
    return usage("the endpoint has an engine of its own", changed, "give the option to the server that runs there");
  }
  constexpr const char* kWhy = "an endpoint takes requests, not cases";
  constexpr const char* kRemedy = "say what comes with --rate or --trace";
  if (auto right = refuse_step_options(s, kWhy, kRemedy); !right) return right.error();
  for (const auto& [given, name] :
       {std::pair(s.repeat != 5, "--repeat"), std::pair(s.warmup != 1, "--warmup"),
        std::pair(s.policy != "default", "--codec-policy"), std::pair(!s.tokenizer.empty(), "--tokenizer")}) {
    if (given) return usage(kWhy, name, kRemedy);
  }
  const auto most_slowdown = parse_share(s.max_slowdown);
  if (!most_slowdown) return usage("\"" + s.max_slowdown + "\" is no share", "--max-slowdown", "pass 5% or 0.05");
  ServeBenchSettings serve = s.serve;
  serve.api = s.api;
  serve.load = s.load;
  serve.load.sweep = s.sweep;
  serve.load.out = s.out;
  serve.compare = s.compare;
  serve.max_slowdown = s.max_slowdown;
  serve.most_slowdown = *most_slowdown;
  return run_bench_serve(serve, common);
}

Result<int> run_kernels(const Settings& s, const Common& common) {
  constexpr const char* kWhy = "kernels are no steps of a model";
  constexpr const char* kRemedy = "say what to time with --kernel and --rows";
  if (auto right = refuse_step_options(s, kWhy, kRemedy); !right) return right.error();
  for (const auto& [given, name] : {std::pair(s.sweep, "--sweep"), std::pair(!s.api.empty(), "--api"),
                                    std::pair(!s.compare.empty(), "--compare")}) {
    if (given) return usage(kWhy, name, kRemedy);
  }
  KernelBenchSettings kernels = s.kernels;
  kernels.repeat = s.repeat;
  kernels.warmup = s.warmup;
  kernels.out = s.out;
  kernels.batch_invariant = s.engine.batch_invariant;
  return run_bench_kernels(kernels, common);
}

/// Options of prefill and decode that contradict one another.
Result<void> check_step_settings(const Settings& s, bool decode) {
  if (!s.api.empty()) return usage("steps of the model have no API", "--api", "use it with fathom bench codec");
  if (auto right = check_stream_options(s.engine); !right) return right;
  if (!decode && s.tokens != "own") return usage("a prompt's tokens are random as it is", "--tokens", "leave it out");
  if (!decode && s.launch != "recorded") {
    return usage("the operations of a prompt are launched each by itself as it is", "--launch", "leave it out");
  }
  if (s.past != "computed" && (!decode || s.tokens != "random")) {
    return usage("a copied past says nothing that tokens could follow", "--past",
                 "use it with fathom bench decode --tokens random");
  }
  if (decode && s.tokens == "random" && s.engine.drafts != "auto" && s.engine.drafts != "0") {
    return usage("no draft foresees random tokens", "--drafts", "leave it out, or pass --tokens own");
  }
  if (s.sweep && s.out.empty()) return usage("--sweep needs a folder", "--sweep", "add --out DIR");
  for (int64_t cached : or_default(s.cached, {1})) {
    if (decode && cached < 1) return usage("decode starts behind a prompt", "--cached", "pass at least 1");
  }
  return {};
}

/// Drafts that are verified a step and sequence.
Result<int> drafts_of(const Settings& s, bool decode, const ModelConfig& config) {
  const int block = config.num_nextn_predict_layers > 0 ? config.dspark_block_size : 0;
  if (!decode || s.tokens == "random") return 0;
  const int drafts = s.engine.drafts == "auto" ? block : int(*parse_integer(s.engine.drafts));
  if (drafts <= block) return drafts;
  return usage(s.engine.drafts + " drafts a step", "--drafts", "this model proposes 0 to " + std::to_string(block));
}

/// With room for the largest of `cases`.
Result<StepBench> open_bench(const Settings& s, const Common& common, const LoadedModel& model,
                             const std::vector<StepCase>& cases) {
  StepBenchOptions options;
  if (s.engine.numerics) options.numerics = numerics_of(*s.engine.numerics);
  options.batch_invariant = s.engine.batch_invariant;
  options.step_rows = s.engine.step_rows;
  options.per_operation = s.per_operation;
  const auto placement = placement_of(s.engine, model, common);
  if (!placement) return placement.error();
  options.placement = *placement;
  for (const StepCase& c : cases) {
    const int64_t most = c.cached + (c.decode ? (c.length + 1) * (1 + c.drafts) + 1 : c.length);
    options.context = std::max(options.context, most);
    options.sequences = std::max(options.sequences, c.batch);
  }
  if (s.engine.context && options.context > *s.engine.context) {
    return usage("a case takes " + with_commas(options.context) + " tokens", "--context",
                 "it allows " + with_commas(*s.engine.context) + "; pass smaller --lengths or --cached");
  }
  auto bench = StepBench::open(model, common, options);
  if (!bench) return bench.error();
  if (s.engine.memory_limit && bench->cache_bytes() > s.engine.memory_limit->count) {
    return Error{ErrorCode::out_of_memory,
                 "the caches of these cases take " + with_commas(bench->cache_bytes()) + " bytes", "--memory-limit",
                 "it allows " + with_commas(s.engine.memory_limit->count) + "; pass smaller --batch or --cached"};
  }
  log(common, LogLevel::info,
      "backend=" + bench->backend_name() + " threads=" + std::to_string(bench->threads()) +
          " cache_bytes=" + std::to_string(bench->cache_bytes()));
  return bench;
}

/// Runs the cases; with --json prints each as it is done.
Result<std::vector<BenchRow>> measure(StepBench& bench, const Settings& s, const Common& common,
                                      const std::string& model, const std::vector<StepCase>& cases) {
  const std::string machine = machine_name(bench.backend_name());
  std::vector<BenchRow> rows;
  Progress progress("measuring", "cases", int64_t(cases.size()));
  for (const StepCase& c : cases) {
    progress.update(int64_t(rows.size()));
    const auto times = bench.run(c, s.warmup, s.repeat);
    if (!times) return times.error();
    BenchRow row = row_of(c, *times, bench);
    row.model = model;
    row.machine = machine;
    row.commit = commit();
    row.command = command_of(s, common);
    if (common.json) {
      progress.finish();
      if (auto printed = print(to_string(to_json(row)) + "\n"); !printed) return printed.error();
    }
    rows.push_back(std::move(row));
  }
  progress.finish();
  return rows;
}

std::string text_of(const std::vector<BenchRow>& rows, const Settings& s, const StepBench& bench) {
  std::string text = rows[0].model + ", " + bench.backend_name() + " with " + std::to_string(bench.threads()) +
                     (bench.threads() == 1 ? " thread" : " threads") + ", numerics " + bench.numerics().name +
                     ", median of " + std::to_string(s.repeat) + "\n" + to_table(rows);
  for (const BenchRow& row : rows) text += row.stream ? stats_text(*row.stream) : "";
  for (const BenchRow& row : rows) text += s.per_operation ? "\n" + to_operation_table(row) : "";
  return text;
}

/// prefill and decode.
Result<int> run_steps(const Settings& s, const Common& common) {
  const bool decode = s.words[0] == "decode";
  if (auto right = check_step_settings(s, decode); !right) return right.error();
  const auto most_slowdown = parse_share(s.max_slowdown);
  if (!most_slowdown) return usage("\"" + s.max_slowdown + "\" is no share", "--max-slowdown", "pass 5% or 0.05");
  const auto model = load_model(common, WeightData::to_measure);
  if (!model) return model.error();
  const auto drafts = drafts_of(s, decode, model->opened.config);
  if (!drafts) return drafts.error();
  const std::vector<StepCase> cases = cases_of(s, decode, *drafts);
  const InterruptScope scope;
  auto bench = open_bench(s, common, *model, cases);
  if (!bench) return bench.error();
  const auto rows = measure(*bench, s, common, model->name, cases);
  if (!rows) return rows.error();
  if (!common.json) {
    if (auto printed = print(text_of(*rows, s, *bench)); !printed) return printed.error();
  }
  if (auto written = write_results(s, *rows); !written) return written.error();
  return s.compare.empty() ? kDone : compare_with(s, *rows, *most_slowdown, common.json);
}

Result<int> run_bench(const Settings& s, const Common& common) {
  if (s.words.size() != 1) {
    return usage(s.words.empty() ? "nothing named to measure" : "unexpected argument \"" + s.words[1] + "\"",
                 "fathom bench", "use fathom bench kernels, engine, serve, prefill, decode or codec");
  }
  if (s.words[0] == "kernels") {
    if (auto known = refuse_serve_options(s.serve); !known) return known.error();
    if (auto known = refuse_engine_options(s.load); !known) return known.error();
    return run_kernels(s, common);
  }
  if (auto known = refuse_kernel_options(s.kernels); !known) return known.error();
  if (s.words[0] == "serve") return run_serve(s, common);
  if (auto known = refuse_serve_options(s.serve); !known) return known.error();
  if (s.words[0] == "engine") return run_engine(s, common);
  if (auto known = refuse_engine_options(s.load); !known) return known.error();
  if (s.engine.sequences) return usage("the cases say how many sequences run", "--sequences", "use --batch");
  if (s.words[0] == "codec") return run_codec(s, common);
  return run_steps(s, common);
}

}  // namespace

Command bench_command() {
  const auto s = std::make_shared<Settings>();
  const std::string what = "What to measure", how = "How often", where = "Where results go";
  std::vector<Option> options = {
      {.name = "lengths",
       .value = "N,N,...",
       .help = "prefill: new prompt tokens; decode: steps",
       .fallback = "512; 64",
       .group = what,
       .target = &s->lengths,
       .least = 1,
       .most = 1e7},
      {.name = "batch",
       .value = "N,N,...",
       .help = "sequences in one step",
       .fallback = "1",
       .group = what,
       .target = &s->batch,
       .least = 1,
       .most = 65536},
      {.name = "cached",
       .value = "N,N,...",
       .help = "tokens of a sequence that are there before",
       .fallback = "prefill 0, decode 512",
       .group = what,
       .target = &s->cached,
       .least = 0,
       .most = 1e7},
      {.name = "sweep",
       .help = "batches 1 to 16 (prefill: lengths 128 to 2048; engine, serve: an eighth to eight times --rate); CSV, "
               "JSON and "
               "an SVG plot in the folder --out",
       .group = what,
       .target = &s->sweep},
      {.name = "tokens",
       .value = "WHOSE",
       .help = "decode: follow the model's own tokens, or random ones, for weights whose own repeat themselves",
       .fallback = "own",
       .group = what,
       .target = &s->tokens,
       .choices = {"own", "random"}},
      {.name = "past",
       .value = "HOW",
       .help = "decode with --tokens random: how --cached tokens come about; copied = 4,096 of one sequence are "
               "computed, all else are copies of their cache",
       .fallback = "computed",
       .group = what,
       .target = &s->past,
       .choices = {"computed", "copied"}},
      {.name = "launch",
       .value = "HOW",
       .help = "decode on a device: a step's operations as one launch, once it has been recorded, or each by itself",
       .fallback = "recorded",
       .group = what,
       .target = &s->launch,
       .choices = {"recorded", "each"}},
      {.name = "per-operation",
       .help =
           "also where the time goes: of each operation calls, ms, share, bytes and arithmetic that are needed, and "
           "what they would take at the machine's peaks",
       .group = what,
       .target = &s->per_operation},
      {.name = "api",
       .value = "API",
       .help = "codec: one of them; serve: chat or completions",
       .fallback = "codec: all three; serve: chat",
       .group = what,
       .target = &s->api,
       .choices = {"chat", "responses", "messages", "completions"}},
      {.name = "codec-policy",
       .value = "POLICY",
       .help = "codec: default, or strict: as deepseek-recipe 0.2.0",
       .fallback = "default",
       .group = what,
       .target = &s->policy,
       .choices = {"default", "strict"}},
      {.name = "tokenizer",
       .value = "FILE",
       .help = "codec: a tokenizer.json",
       .fallback = "that of --model",
       .group = what,
       .target = &s->tokenizer},
      {.name = "repeat",
       .value = "N",
       .help = "measured runs: median and spread",
       .fallback = "5",
       .group = how,
       .target = &s->repeat,
       .least = 1,
       .most = 10000},
      {.name = "warmup",
       .value = "N",
       .help = "runs before them",
       .fallback = "1",
       .group = how,
       .target = &s->warmup,
       .least = 0,
       .most = 10000},
      {.name = "out",
       .value = "FILE.csv",
       .help = "write the rows; with --sweep, and for engine, a folder",
       .fallback = "none",
       .group = where,
       .target = &s->out},
      {.name = "compare",
       .value = "FILE.csv",
       .help = "compare with rows that --out wrote",
       .fallback = "none",
       .group = where,
       .target = &s->compare},
      {.name = "max-slowdown",
       .value = "SHARE",
       .help = "with --compare: exit 1 when a case is slower by more",
       .fallback = "5%",
       .group = where,
       .target = &s->max_slowdown},
  };
  for (Option& option : engine_bench_options(s->load)) options.push_back(std::move(option));
  for (Option& option : serve_bench_options(s->serve)) options.push_back(std::move(option));
  for (Option& option : kernel_bench_options(s->kernels)) options.push_back(std::move(option));
  // Of the engine's options those that steps know; the others belong to its loop.
  const std::vector<std::string> used = {
      "context", "memory-limit", "experts", "engram",          "resident-limit", "drop-behind",     "step-rows",
      "replay",  "numerics",     "drafts",  "batch-invariant", "sequences",      "no-prefix-cache", "sampling"};
  for (Option& option : engine_options(s->engine)) {
    if (option.name == "context") {
      option.help = "longest sequence that may be measured";
      option.fallback = "what the cases need; engine: what fits";
    } else if (option.name == "sequences") {
      option.help = "engine: answers that run at once (simulated: a device)";
      option.fallback = "256 on cuda and simulated, 16 else";
    }
    if (option.planned || std::count(used.begin(), used.end(), option.name)) options.push_back(std::move(option));
  }
  return {.name = "bench",
          .summary = "time the model, the codec, the engine or a server under load",
          .example = "fathom bench engine --simulate --arrivals agent --rate 40",
          .note = "eight H200 by formula",
          .arguments = "engine|serve|prefill|decode|kernels|codec",
          .options = std::move(options),
          .positional = &s->words,
          .words = {"engine", "serve", "prefill", "decode", "kernels", "codec"},
          .run = [s](const Common& common) { return run_bench(*s, common); }};
}

}  // namespace fathom::cli
