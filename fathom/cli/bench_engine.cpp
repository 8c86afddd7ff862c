#include "fathom/cli/bench_engine.h"

#include <algorithm>
#include <filesystem>

#include "fathom/base/mapped_file.h"
#include "fathom/cli/bench_engine_report.h"
#include "fathom/cli/engine_load.h"
#include "fathom/cli/hardware.h"
#include "fathom/cli/interrupt.h"
#include "fathom/cli/machine.h"
#include "fathom/cli/model_config.h"
#include "fathom/cli/option_value.h"
#include "fathom/cli/program.h"
#include "fathom/cli/terminal.h"
#include "fathom/cli/version.h"
#include "fathom/engine/schedule_replay.h"
#include "fathom/engine/trace_generator.h"
#include "fathom/model/memory_plan.h"

namespace fathom::cli {
namespace {

constexpr double kDefaultRate = 10;
constexpr int64_t kTraceBytes = int64_t(4) << 30;

Error usage(std::string what, std::string where, std::string remedy) {
  return Error{ErrorCode::usage, std::move(what), std::move(where), std::move(remedy)};
}

std::string kind_of(const EngineBenchSettings& s) { return s.arrivals.empty() ? "poisson" : s.arrivals; }

// ------------------------------------------------------------------------------------------------------------ the load

/// Rates of a sweep around the middle one: from a nearly idle machine to one that cannot keep up.
std::vector<double> rates_of(const EngineBenchSettings& s) {
  const double middle = s.rate.value_or(kDefaultRate);
  if (!s.sweep) return {middle};
  std::vector<double> rates;
  for (const double factor : {0.125, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0}) rates.push_back(middle * factor);
  return rates;
}

Result<std::vector<TraceRequest>> trace_of(const EngineBenchSettings& s, double rate, int64_t context) {
  if (!s.trace.empty()) {
    const auto text = read_file(s.trace, kTraceBytes);
    if (!text) return text.error();
    return read_trace(*text, s.trace);
  }
  TraceShape shape;
  shape.requests = s.requests.value_or(1000);
  shape.rate = rate;
  shape.most_tokens = std::min<int64_t>(context, 131'072);
  if (shape.most_tokens < 16) return usage("a context of so few tokens has no room", "--context", "allow at least 16");
  // On a small context the usual lengths would only be cut off.
  const double room = double(shape.most_tokens);
  shape.prompt.mean = s.prompt_tokens ? double(*s.prompt_tokens) : std::min(2000.0, room / 4);
  shape.output.mean = s.output_tokens ? double(*s.output_tokens) : std::min(300.0, room / 16);
  shape.seed = uint64_t(s.seed);
  return make_trace(kind_of(s), shape);
}

Result<void> check_settings(const EngineBenchSettings& s) {
  if (!s.trace.empty()) {
    for (const auto& [given, name] :
         {std::pair(!s.arrivals.empty(), "--arrivals"), std::pair(s.rate.has_value(), "--rate"),
          std::pair(s.requests.has_value(), "--requests"), std::pair(s.prompt_tokens.has_value(), "--prompt-tokens"),
          std::pair(s.output_tokens.has_value(), "--output-tokens"), std::pair(s.sweep, "--sweep")}) {
      if (given) return usage("a trace says itself what comes when", name, "leave it or --trace out");
    }
  }
  if (s.sweep && s.out.empty()) return usage("--sweep needs a folder", "--sweep", "add --out DIR");
  if (s.sweep && s.rate == 0.0) return usage("no rates lie around 0", "--rate", "pass the middle one, such as 10");
  if (!s.record.empty() && (s.simulate || s.sweep)) {
    return usage("a record is of one run of the real engine", "--record", "leave --simulate and --sweep out");
  }
  if (s.simulate) return {};
  for (const auto& [given, name] :
       {std::pair(s.hardware != "8xH200", "--hardware"), std::pair(s.policy != "all", "--policy"),
        std::pair(s.acceptance != "3", "--acceptance"), std::pair(s.bias != 0, "--bias")}) {
    if (given) return usage("the real engine runs on this machine with its own model", name, "use it with --simulate");
  }
  return {};
}

// -------------------------------------------------------------------------------------------------------------
// simulated

Result<MachineCost> machine_named(const std::string& name, const ModelConfig& config) {
  if (name.ends_with(".json")) {
    const auto text = read_file(name, int64_t(64) << 20);
    if (!text) return text.error();
    return parse_machine_cost(*text, name);
  }
  Result<Hardware> hardware = Hardware{};
  if (name.ends_with(".toml")) {
    const auto text = read_file(name, int64_t(1) << 20);
    if (!text) return text.error();
    hardware = parse_hardware(*text, name);
  } else {
    hardware = named_hardware(name);
    if (!hardware) {
      Error error = hardware.error();
      error.where = "--hardware";
      const size_t others = error.remedy.find("; others");
      error.remedy =
          error.remedy.substr(0, others) + "; or name a .toml file of such a machine, or a .json of step times";
      return error;
    }
  }
  if (!hardware) return hardware.error();
  return machine_cost(config, *hardware);
}

/// "3": tokens of a round of all drafts; "0.8,0.7,0.6": rates by position.
Result<std::vector<double>> acceptance_of(const std::string& text, int drafts) {
  std::vector<double> rates;
  for (const std::string& item : split(text, ',')) {
    const auto number = parse_number(item);
    if (!number) return usage("\"" + text + "\" is no acceptance", "--acceptance", "pass 3, or 0.8,0.7,0.6,0.5,0.5");
    rates.push_back(*number);
  }
  if (rates.size() == 1) return rates_for(rates[0], std::max(drafts, 1));
  for (const double rate : rates) {
    if (rate < 0 || rate > 1) return usage("rate " + brief(rate), "--acceptance", "rates lie between 0 and 1");
  }
  return rates;
}

std::vector<SpeculationPolicy> policies_of(const std::string& name) {
  if (const auto one = speculation_policy_of(name)) return {*one};
  return {SpeculationPolicy::none, SpeculationPolicy::fixed, SpeculationPolicy::scheduled, SpeculationPolicy::guarded};
}

Result<SimulationOptions> simulation_of(const EngineBenchSettings& s, const EngineSettings& engine,
                                        const ModelConfig& config) {
  auto machine = machine_named(s.hardware, config);
  if (!machine) return machine.error();
  SimulationOptions options;
  options.machine = std::move(*machine);
  const int block = config.num_nextn_predict_layers > 0 ? std::min<int>(int(config.dspark_block_size), kMaxDrafts) : 0;
  options.drafts = engine.drafts == "auto" ? block : int(parse_integer(engine.drafts).value_or(0));
  if (options.drafts > block) {
    return usage(engine.drafts + " drafts a round", "--drafts", "this model proposes 0 to " + std::to_string(block));
  }
  auto rates = acceptance_of(s.acceptance, options.drafts);
  if (!rates) return rates.error();
  options.acceptance.rates = std::move(*rates);
  options.acceptance.bias = s.bias;
  options.acceptance.seed = options.seed = uint64_t(s.seed);
  options.ahead = !s.synchronous;
  options.prefix_cache = !engine.no_prefix_cache;
  options.replay = replay_mode_of(engine.replay).value_or(ReplayMode::compact);
  const int devices = options.machine.devices;
  SchedulerLimits& limits = options.limits;
  limits.context = engine.context.value_or(config.max_position_embeddings);
  limits.sequences = engine.sequences ? int(*engine.sequences) * devices : options.machine.sequences;
  limits.step_rows = engine.step_rows * devices;
  limits.shape = {int(config.sliding_window), longest_backtrack(config), encoder_layers(config),
                  decoder_layers(config)};
  return options;
}

std::string command_of(const EngineBenchSettings& s, const EngineSettings& engine, const Common& common) {
  std::string text = "fathom bench engine";
  const auto number = [&](const char* name, const auto& value) {
    if (value) text += std::string(" --") + name + " " + to_string(Json::of(double(*value)));
  };
  if (s.simulate)
    text += " --simulate --hardware " + s.hardware + " --policy " + s.policy + " --acceptance " + s.acceptance;
  if (s.bias != 0) text += " --bias " + to_string(Json::of(s.bias));
  if (s.synchronous) text += " --synchronous";
  text += s.trace.empty() ? " --arrivals " + kind_of(s) : " --trace " + s.trace;
  number("rate", s.rate);
  number("requests", s.requests);
  number("prompt-tokens", s.prompt_tokens);
  number("output-tokens", s.output_tokens);
  number("sequences", engine.sequences);
  number("context", engine.context);
  text += " --step-rows " + std::to_string(engine.step_rows) + " --drafts " + engine.drafts + " --replay " +
          engine.replay + " --seed " + std::to_string(s.seed);
  if (engine.numerics) text += " --numerics " + *engine.numerics;
  if (engine.batch_invariant) text += " --batch-invariant";
  if (engine.no_prefix_cache) text += " --no-prefix-cache";
  if (s.sweep) text += " --sweep";
  if (!common.model.empty()) text += " --model " + common.model;
  if (!common.backend.empty()) text += " --backend " + common.backend;
  if (common.threads) text += " --threads " + std::to_string(*common.threads);
  return text;
}

EngineRow base_row(const EngineBenchSettings& s, const EngineSettings& engine, const Common& common, double rate) {
  EngineRow row;
  row.bench = s.simulate ? "simulate" : "engine";
  row.trace = s.trace.empty() ? kind_of(s) : std::filesystem::path(s.trace).filename().string();
  if (s.trace.empty()) row.rate = rate;
  row.machine = machine_name("cpu");
  row.commit = commit();
  row.command = command_of(s, engine, common);
  return row;
}

Result<std::vector<EngineRow>> simulate_all(const EngineBenchSettings& s, const EngineSettings& engine,
                                            const Common& common) {
  const auto config = common.model.empty() ? Result<ModelConfig>(ModelConfig{}) : config_of(common.model);
  if (!config) return config.error();
  auto options = simulation_of(s, engine, *config);
  if (!options) return options.error();
  const std::vector<double> rates = rates_of(s);
  const auto policies = policies_of(s.policy);
  const InterruptScope scope;
  std::vector<EngineRow> rows;
  std::optional<Progress> progress;
  int64_t before = 0;
  options->keep_going = [&](int64_t ended) {
    progress->update(before + ended);
    return !interrupted();
  };
  for (const double rate : rates) {
    const auto trace = trace_of(s, rate, options->limits.context);
    if (!trace) return trace.error();
    int64_t answers = 0;
    for (const TraceRequest& one : *trace) answers += one.answers;
    if (!progress) progress.emplace("simulating", "answers", answers * int64_t(policies.size() * rates.size()));
    for (const SpeculationPolicy policy : policies) {
      options->policy = policy;
      auto report = simulate(*trace, *options);
      if (!report) {
        progress->finish();
        if (report.error().code == ErrorCode::interrupted) {
          return interrupted_error("fathom bench engine", "nothing was written");
        }
        return report.error();
      }
      before += answers;
      EngineRow row = base_row(s, engine, common, rate);
      row.policy = report->policy;
      row.planning = options->ahead ? "ahead" : "synchronous";
      row.drafts = policy == SpeculationPolicy::none ? 0 : options->drafts;
      row.acceptance = tokens_of(options->acceptance.rates);
      row.bias = s.bias;
      row.hardware = options->machine.name;
      row.hardware_from = options->machine.from;
      row.sequences = options->limits.sequences;
      row.step_rows = options->limits.step_rows;
      row.model = common.model.empty() ? "DeepSeek V4.1 Flash" : common.model;
      row.tokens_per_round = report->tokens_per_round();
      row.verified_per_round = report->verified_per_round();
      row.load = std::move(report->load);
      report->load = {};
      row.simulated = std::move(*report);
      rows.push_back(std::move(row));
    }
  }
  return rows;
}

// ------------------------------------------------------------------------------------------------------------------
// real

Result<std::vector<EngineRow>> run_all(const EngineBenchSettings& s, const EngineSettings& settings,
                                       const Common& common) {
  const InterruptScope scope;
  const auto model = load_model(common, WeightData::to_measure);
  if (!model) return model.error();
  std::vector<EngineRow> rows;
  std::optional<Progress> progress;
  const std::vector<double> rates = rates_of(s);
  int64_t before = 0;
  EngineSettings used = settings;
  used.record = s.record;
  used.schedule_drafts = true;
  used.synchronous = s.synchronous;
  for (const double rate : rates) {
    auto engine = open_engine(*model, used, common);  // a cache of its own for each rate
    if (!engine) return engine.error();
    const auto trace = trace_of(s, rate, engine->options().context);
    if (!trace) return trace.error();
    int64_t answers = 0;
    for (const TraceRequest& one : *trace) answers += one.answers;
    if (!progress) progress.emplace("answering", "answers", answers * int64_t(rates.size()));
    auto run = run_load(*engine, *trace, [&](int64_t ended) {
      progress->update(before + ended);
      return !interrupted();
    });
    if (!run) {
      progress->finish();
      return interrupted_error("fathom bench engine", "nothing was written");
    }
    before += answers;
    EngineRow row = base_row(s, settings, common, rate);
    row.drafts = engine->options().drafts;
    row.policy = row.drafts > 0 ? "engine" : "none";
    row.planning = "engine";
    row.backend = engine->backend_name();
    row.machine = machine_name(row.backend);
    row.threads = engine->options().threads;
    row.sequences = engine->options().sequences;
    row.step_rows = engine->options().step_rows;
    row.model = model->name;
    row.load = std::move(run->load);
    if (run->rounds > 0) {
      row.tokens_per_round = 1 + double(run->accepted) / double(run->rounds);
      row.verified_per_round = double(run->offered) / double(run->rounds);
    }
    rows.push_back(std::move(row));
  }
  return rows;
}

// ---------------------------------------------------------------------------------------------------------------
// results

Result<void> write_results(const EngineBenchSettings& s, const std::vector<EngineRow>& rows) {
  if (s.out.empty()) return {};
  std::error_code error;
  std::filesystem::create_directories(s.out, error);
  if (error) return Error{ErrorCode::failed, "cannot make the folder: " + error.message(), s.out, "name another --out"};
  const std::string stem = s.out + "/" + (s.simulate ? "simulator" : "engine");
  if (auto written = write_file(stem + ".csv", to_csv(rows)); !written) return written;
  std::string json = "[\n";
  for (size_t i = 0; i < rows.size(); ++i)
    json += to_string(to_json(rows[i], true)) + (i + 1 < rows.size() ? ",\n" : "\n");
  if (auto written = write_file(stem + ".json", json + "]\n"); !written) return written;
  return write_file(stem + ".svg", to_svg(plot_of(rows)));
}

std::string head_of(const EngineRow& row) {
  std::string text = row.model + " on ";
  if (row.simulated) {
    text += row.hardware + ", simulated; times are ";
    text += row.hardware_from == "measured" ? "measured ones" : row.hardware_from == "scaled" ? "scaled" : "bounds";
    text += ", planned " + std::string(row.planning == "ahead" ? "one step ahead" : "step by step");
  } else {
    text += row.backend + " with " + std::to_string(row.threads) + " threads";
  }
  text += "; " + with_commas(row.load.answers) + " answers, " + row.trace;
  if (row.rate) text += *row.rate > 0 ? " at " + brief(*row.rate) + " a second" : ", all at once";
  return text + ", " + with_commas(row.sequences) + " sequences\n\n";
}

}  // namespace

std::vector<Option> engine_bench_options(EngineBenchSettings& s) {
  const std::string load = "What comes (engine, serve)", simulated = "On what it runs (engine --simulate)";
  return {
      {.name = "trace",
       .value = "FILE.jsonl",
       .help = "a recorded load: docs/formats/request-trace.md",
       .fallback = "made up",
       .group = load,
       .target = &s.trace},
      {.name = "arrivals",
       .value = "KIND",
       .help = "a made-up load: random times, bursts, agents whose prompts grow, three tenants",
       .fallback = "poisson",
       .group = load,
       .target = &s.arrivals,
       .choices = {"poisson", "burst", "agent", "tenants"}},
      {.name = "rate",
       .value = "R",
       .help = "requests a second; 0: all at once; the middle one of --sweep",
       .fallback = "10; serve: back to back",
       .group = load,
       .target = &s.rate,
       .least = 0,
       .most = 1e6},
      {.name = "requests",
       .value = "N",
       .help = "how many",
       .fallback = "1000; serve: 100",
       .group = load,
       .target = &s.requests,
       .least = 1,
       .most = 1e7},
      {.name = "prompt-tokens",
       .value = "N",
       .help = "mean length of a prompt (of an agent's task)",
       .fallback = "2000, serve 512; at most a quarter of the context",
       .group = load,
       .target = &s.prompt_tokens,
       .least = 1,
       .most = 1e6},
      {.name = "output-tokens",
       .value = "N",
       .help = "mean length of an answer",
       .fallback = "300, serve 128; at most a sixteenth of the context",
       .group = load,
       .target = &s.output_tokens,
       .least = 1,
       .most = 1e6},
      {.name = "seed",
       .value = "N",
       .help = "of what is made up",
       .fallback = "1",
       .group = load,
       .target = &s.seed,
       .least = 0,
       .most = 9e15},
      {.name = "simulate",
       .help = "the real scheduler over a timed model, in simulated time",
       .group = simulated,
       .target = &s.simulate},
      {.name = "hardware",
       .value = "NAME|FILE",
       .help = "8xH200; a .toml as plan reads it; a .json of step times",
       .fallback = "8xH200",
       .group = simulated,
       .target = &s.hardware},
      {.name = "policy",
       .value = "POLICY",
       .help = "verified drafts: none, fixed (all), scheduled by confidence and step time, guarded by what steps bring",
       .fallback = "all of them",
       .group = simulated,
       .target = &s.policy,
       .choices = {"none", "fixed", "scheduled", "guarded", "all"}},
      {.name = "acceptance",
       .value = "TOKENS|R,R,...",
       .help = "tokens of a round of all drafts, or rates by position",
       .fallback = "3",
       .group = simulated,
       .target = &s.acceptance},
      {.name = "bias",
       .value = "B",
       .help = "of confidences, in log-odds; above 0 they are too sure",
       .fallback = "0",
       .group = simulated,
       .target = &s.bias,
       .least = -20,
       .most = 20},
      {.name = "synchronous",
       .help = "a step is planned when the one before is over, as the engine does it on a CPU",
       .group = load,
       .target = &s.synchronous},
      {.name = "record",
       .value = "FILE",
       .help = "write every decision of the scheduler: docs/formats/step-record.md",
       .fallback = "none",
       .group = load,
       .target = &s.record},
      {.name = "replay-record",
       .value = "FILE",
       .help = "instead: make the decisions of a record again and compare them; 1 when one differs",
       .fallback = "none",
       .group = load,
       .target = &s.replay_record},
  };
}

Result<void> refuse_engine_options(const EngineBenchSettings& s) {
  for (const auto& [given, name] :
       {std::pair(!s.trace.empty(), "--trace"), std::pair(!s.arrivals.empty(), "--arrivals"),
        std::pair(s.rate.has_value(), "--rate"), std::pair(s.requests.has_value(), "--requests"),
        std::pair(s.prompt_tokens.has_value(), "--prompt-tokens"),
        std::pair(s.output_tokens.has_value(), "--output-tokens"), std::pair(s.simulate, "--simulate"),
        std::pair(s.hardware != "8xH200", "--hardware"), std::pair(s.policy != "all", "--policy"),
        std::pair(s.acceptance != "3", "--acceptance"), std::pair(s.bias != 0, "--bias"),
        std::pair(s.synchronous, "--synchronous"), std::pair(!s.record.empty(), "--record"),
        std::pair(!s.replay_record.empty(), "--replay-record")}) {
    if (given) return usage("only the engine takes a load of requests", name, "use it with fathom bench engine");
  }
  return {};
}

namespace {

Result<int> replay_record(const std::string& path, const Common& common) {
  const auto report = replay_schedule(path);
  if (!report) return report.error();
  std::string text = to_string(*report) + "\n";
  if (common.json) {
    Json json = Json::object();
    json.set("steps", Json::of(report->steps)).set("requests", Json::of(report->requests));
    json.set("preempted", Json::of(report->preempted)).set("equal", Json::of(!report->difference.has_value()));
    if (report->difference) json.set("difference", Json::of(to_string(*report)));
    text = to_string(json) + "\n";
  }
  if (auto printed = print(text); !printed) return printed.error();
  return report->difference ? 1 : kDone;
}

}  // namespace

Result<int> run_bench_engine(const EngineBenchSettings& s, const EngineSettings& engine, const Common& common) {
  if (!s.replay_record.empty()) return replay_record(s.replay_record, common);
  if (auto checked = check_settings(s); !checked) return checked.error();
  const auto rows = s.simulate ? simulate_all(s, engine, common) : run_all(s, engine, common);
  if (!rows) return rows.error();
  std::string text;
  if (common.json) {
    for (const EngineRow& row : *rows) text += to_string(to_json(row, true)) + "\n";
  } else {
    text = head_of((*rows)[0]) + to_table(*rows);
    if (rows->size() == 1) text += "\n" + to_details((*rows)[0]);
  }
  if (auto printed = print(text); !printed) return printed.error();
  if (auto written = write_results(s, *rows); !written) return written.error();
  return kDone;
}

}  // namespace fathom::cli
