#include "fathom/cli/bench_serve.h"

#include <unistd.h>
#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include "fathom/base/mapped_file.h"
#include "fathom/cli/bench_serve_compare.h"
#include "fathom/cli/bench_serve_report.h"
#include "fathom/cli/endpoint_load.h"
#include "fathom/cli/interrupt.h"
#include "fathom/cli/log.h"
#include "fathom/cli/machine.h"
#include "fathom/cli/option_value.h"
#include "fathom/cli/program.h"
#include "fathom/cli/terminal.h"
#include "fathom/cli/version.h"
#include "fathom/engine/trace_generator.h"

namespace fathom::cli {
namespace {

constexpr int64_t kDefaultStreams = 8, kDefaultRequests = 100, kEndless = 100'000;
constexpr int64_t kPromptTokens = 512, kOutputTokens = 128;
constexpr int64_t kFileBytes = int64_t(4) << 30;

Error usage(std::string what, std::string where, std::string remedy) {
  return Error{ErrorCode::usage, std::move(what), std::move(where), std::move(remedy)};
}

/// One load of a sweep, or the only one.
struct Case {
  std::optional<double> rate;  // open loop
  std::optional<int64_t> streams;
};

std::vector<Case> cases_of(const ServeBenchSettings& s) {
  const bool open = s.load.rate || !s.load.trace.empty();
  const std::optional<int64_t> streams = open ? s.concurrency : s.concurrency.value_or(kDefaultStreams);
  if (!s.load.sweep) return {{s.load.rate, streams}};
  std::vector<Case> cases;
  if (s.load.rate) {
    for (const double factor : {0.125, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0})
      cases.push_back({*s.load.rate * factor, streams});
  } else {
    for (int64_t n = 1; n < *streams; n *= 2) cases.push_back({{}, n});
    cases.push_back({{}, streams});
  }
  return cases;
}

Result<void> check_settings(const ServeBenchSettings& s) {
  if (s.endpoint.empty()) {
    return usage("no endpoint named", "fathom bench serve", "pass --endpoint URL, such as http://127.0.0.1:8000");
  }
  if (!s.endpoint.starts_with("http://") && !s.endpoint.starts_with("https://")) {
    return usage("\"" + s.endpoint + "\" is no URL", "--endpoint", "begin it with http:// or https://");
  }
  if (s.api == "responses" || s.api == "messages") {
    return usage("the load speaks no " + s.api, "--api", "use chat or completions");
  }
  for (const auto& [given, name] :
       {std::pair(s.load.simulate, "--simulate"), std::pair(s.load.hardware != "8xH200", "--hardware"),
        std::pair(s.load.policy != "all", "--policy"), std::pair(s.load.acceptance != "3", "--acceptance"),
        std::pair(s.load.bias != 0, "--bias"), std::pair(s.load.synchronous, "--synchronous"),
        std::pair(!s.load.record.empty(), "--record"), std::pair(!s.load.replay_record.empty(), "--replay-record")}) {
    if (given) return usage("an endpoint is no simulator", name, "use it with fathom bench engine");
  }
  if (!s.load.trace.empty()) {
    for (const auto& [given, name] :
         {std::pair(!s.load.arrivals.empty(), "--arrivals"), std::pair(s.load.requests.has_value(), "--requests"),
          std::pair(s.load.prompt_tokens.has_value(), "--prompt-tokens"),
          std::pair(s.load.output_tokens.has_value(), "--output-tokens"), std::pair(!s.prompts.empty(), "--prompts"),
          std::pair(s.load.sweep && !s.load.rate, "--sweep")}) {
      if (given) return usage("a trace says itself what comes when", name, "leave it or --trace out");
    }
  }
  if (!s.prompts.empty() && s.load.prompt_tokens) {
    return usage("the file says how long prompts are", "--prompt-tokens", "leave it or --prompts out");
  }
  if (s.load.rate && *s.load.rate <= 0) {
    return usage("no request comes at rate 0", "--rate", "pass more, or leave it out for a closed loop");
  }
  if (s.load.sweep && s.load.out.empty()) return usage("--sweep needs a folder", "--sweep", "add --out DIR");
  return {};
}

/// The same load, faster or slower: arrivals are stretched so that `rate` requests a second come on average. Pauses
/// and cancellations stay: they are of people and tools.
void stretch(std::vector<TraceRequest>& trace, double rate, uint64_t seed) {
  const auto [first, last] = std::minmax_element(trace.begin(), trace.end(),
                                                 [](const auto& a, const auto& b) { return a.arrival < b.arrival; });
  const double begin = first->arrival, span = last->arrival - first->arrival;
  if (span > 0) {
    const double factor = double(trace.size() - 1) / rate / span;
    for (TraceRequest& one : trace) one.arrival = (one.arrival - begin) * factor;
    return;
  }
  // All at once has no shape to keep.
  TraceShape shape;
  shape.requests = int64_t(trace.size());
  shape.rate = rate;
  shape.seed = seed;
  const std::vector<TraceRequest> times = poisson_trace(shape);
  for (size_t i = 0; i < trace.size(); ++i) trace[i].arrival = times[i].arrival;
}

Result<std::vector<TraceRequest>> trace_of(const ServeBenchSettings& s, const Case& one, int64_t context,
                                           size_t prompts, uint64_t run) {
  if (!s.load.trace.empty()) {
    const auto text = read_file(s.load.trace, kFileBytes);
    if (!text) return text.error();
    auto trace = read_trace(*text, s.load.trace);
    if (trace.ok() && one.rate) stretch(*trace, *one.rate, uint64_t(s.load.seed));
    return trace;
  }
  TraceShape shape;
  shape.rate = one.rate.value_or(0);
  shape.requests = s.load.requests.value_or(prompts > 0 ? int64_t(prompts) : kDefaultRequests);
  if (s.duration && !s.load.requests) {
    // Half as many again as will come on average: the time ends it, not their number.
    const double seconds = double(s.duration->count()) / 1000;
    shape.requests = one.rate ? int64_t(1.5 * *one.rate * seconds) + 100 : kEndless;
  }
  // A tenth is left: lengths in words are only nearly right.
  if (context > 0) shape.most_tokens = std::min(shape.most_tokens, std::max<int64_t>(context * 9 / 10, 16));
  const double room = double(shape.most_tokens);
  shape.prompt.mean = s.load.prompt_tokens ? double(*s.load.prompt_tokens) : std::min<double>(kPromptTokens, room / 4);
  shape.output.mean = s.load.output_tokens ? double(*s.load.output_tokens) : std::min<double>(kOutputTokens, room / 16);
  // Each run of a sweep has texts of its own: what the run before left in the cache must not help it.
  shape.seed = uint64_t(s.load.seed) + run * 1'000'003;
  return make_trace(s.load.arrivals.empty() ? "poisson" : s.load.arrivals, shape);
}

std::string command_of(const ServeBenchSettings& s) {
  std::string text = "fathom bench serve --endpoint " + s.endpoint;
  const auto add = [&](const char* name, const std::string& value) {
    if (!value.empty()) text += std::string(" --") + name + " " + value;
  };
  const auto number = [&](const char* name, const auto& value) {
    if (value) add(name, to_string(Json::of(double(*value))));
  };
  add("model-name", s.model_name);
  add("api", s.api);
  add("trace", s.load.trace);
  add("arrivals", s.load.arrivals);
  add("prompts", s.prompts);
  number("rate", s.load.rate);
  number("concurrency", s.concurrency);
  number("requests", s.load.requests);
  if (s.duration) add("duration", std::to_string(s.duration->count()) + "ms");
  number("prompt-tokens", s.load.prompt_tokens);
  number("output-tokens", s.load.output_tokens);
  add("seed", std::to_string(s.load.seed));
  if (!s.body.empty()) add("body", "'" + s.body + "'");
  if (s.load.sweep) text += " --sweep";
  return text;
}

/// The table on stderr while it runs; nothing when that is no terminal.
class Live {
 public:
  ~Live() { clear(); }
  void show(const EndpointProgress& progress) {
    if (!stderr_is_terminal()) return;
    const std::string text = live_text(progress, terminal_columns(STDERR_FILENO));
    print_note(erased() + text);
    lines_ = std::count(text.begin(), text.end(), '\n');
  }
  void clear() {
    print_note(erased());
    lines_ = 0;
  }

 private:
  std::string erased() const { return lines_ > 0 ? "\x1b[" + std::to_string(lines_) + "A\r\x1b[J" : ""; }
  int64_t lines_ = 0;
};

Result<void> write_results(const ServeBenchSettings& s, const std::vector<ServeRow>& rows) {
  if (s.load.out.empty()) return {};
  if (!s.load.sweep) return write_file(s.load.out, to_csv(rows));
  std::error_code error;
  std::filesystem::create_directories(s.load.out, error);
  if (error) {
    return Error{ErrorCode::failed, "cannot make the folder: " + error.message(), s.load.out, "name another --out"};
  }
  const std::string stem = s.load.out + "/serve";
  if (auto written = write_file(stem + ".csv", to_csv(rows)); !written) return written;
  std::string lines;
  for (const ServeRow& row : rows) lines += to_string(to_json(row)) + "\n";
  if (auto written = write_file(stem + ".jsonl", lines); !written) return written;
  return write_file(stem + ".svg", to_svg(plot_of(rows)));
}

/// What the exit code says: nothing when every request that was let in was answered.
Result<int> verdict(const std::vector<ServeRow>& rows) {
  int64_t failed = 0, answers = 0, finished = 0;
  std::string first;
  for (const ServeRow& row : rows) {
    const LoadReport& load = row.result.load;
    if (row.result.interrupted) return interrupted_error("fathom bench serve", "what had ended is in the table");
    failed += load.failed, answers += load.answers, finished += load.finished;
    for (const auto& [kind, one] : row.result.failures) {
      if (first.empty()) first = kind + ": " + one.first;
    }
  }
  if (failed == 0 && (finished > 0 || answers == 0)) return kDone;
  const std::string count = failed > 0 ? with_commas(failed) + " of " + with_commas(answers) + " requests failed"
                                       : "none of " + with_commas(answers) + " requests was answered";
  return Error{ErrorCode::failed, count + (first.empty() ? "" : " (" + first + ")"), rows[0].endpoint,
               "look into the log of the server, or send less"};
}

Result<int> compare_with(const ServeBenchSettings& s, const std::vector<ServeRow>& rows, const Common& common) {
  const auto text = read_file(s.compare, int64_t(64) << 20);
  if (!text) return text.error();
  const auto compared = compare_loads(rows, *text, s.compare, s.most_slowdown);
  if (!compared) return compared.error();
  if (!common.json) {
    if (auto printed = print("\nagainst " + s.compare + "\n" + compared->table); !printed) return printed.error();
  }
  if (compared->slower == 0) return kDone;
  return Error{ErrorCode::failed,
               with_commas(compared->slower) + " of " + with_commas(compared->figures) + " figures are slower than " +
                   s.max_slowdown + " (" + compared->slowest + ")",
               "--max-slowdown", "measure again on a quiet machine before looking for the cause"};
}

Result<void> print_results(const std::vector<ServeRow>& rows, const Common& common) {
  std::string text;
  if (common.json) {
    for (const ServeRow& row : rows) text += to_string(to_json(row)) + "\n";
    return print(text);
  }
  text = rows[0].model + " at " + rows[0].endpoint + ", " + rows[0].api + "\n\n" + to_table(rows);
  if (rows.size() == 1) text += "\n" + to_details(rows[0]);
  return print(text);
}

// Options that every command has and that say nothing about an endpoint. Told, not refused: the environment may hold
// them for other commands.
void tell_unused(const Common& common) {
  for (const auto& [given, name] :
       {std::pair(!common.model.empty(), "--model"), std::pair(!common.backend.empty(), "--backend"),
        std::pair(common.threads.has_value(), "--threads")}) {
    if (!given) continue;
    log(common, LogLevel::warn,
        std::string(name) + " has no effect on bench serve: it is for the server behind --endpoint" +
            (name == std::string_view("--model") ? " (--model-name says which of its models to ask)" : ""));
  }
}

}  // namespace

std::vector<Option> serve_bench_options(ServeBenchSettings& s) {
  const std::string where = "Whom to ask (serve)";
  return {
      {.name = "endpoint",
       .value = "URL",
       .help = "an OpenAI-compatible server; FATHOM_API_KEY is sent as its key",
       .fallback = "none",
       .group = where,
       .target = &s.endpoint},
      {.name = "model-name",
       .value = "NAME",
       .help = "the model to ask for",
       .fallback = "the first that it lists",
       .group = where,
       .target = &s.model_name},
      {.name = "concurrency",
       .value = "N",
       .help = "streams at once; without --rate and --trace each ends before the next begins",
       .fallback = "8; with --rate or --trace 1024",
       .group = where,
       .target = &s.concurrency,
       .least = 1,
       .most = double(kMostStreams)},
      {.name = "duration",
       .value = "DURATION",
       .help = "send no request after it; running ones end",
       .fallback = "none",
       .group = where,
       .target = &s.duration},
      {.name = "prompts",
       .value = "FILE",
       .help = "ask these: a prompt a line, or .jsonl of \"prompt\" or \"messages\"",
       .fallback = "made up",
       .group = where,
       .target = &s.prompts},
      {.name = "body",
       .value = "JSON",
       .help = "further fields of every request, such as {\"temperature\":0}",
       .fallback = "none",
       .group = where,
       .target = &s.body},
  };
}

Result<void> refuse_serve_options(const ServeBenchSettings& s) {
  for (const auto& [given, name] :
       {std::pair(!s.endpoint.empty(), "--endpoint"), std::pair(!s.model_name.empty(), "--model-name"),
        std::pair(s.concurrency.has_value(), "--concurrency"), std::pair(s.duration.has_value(), "--duration"),
        std::pair(!s.prompts.empty(), "--prompts"), std::pair(!s.body.empty(), "--body")}) {
    if (given) return usage("only serve asks an endpoint", name, "use it with fathom bench serve");
  }
  return {};
}

Result<int> run_bench_serve(const ServeBenchSettings& s, const Common& common) {
  if (auto checked = check_settings(s); !checked) return checked.error();
  tell_unused(common);
  EndpointLoadOptions options;
  options.url = s.endpoint;
  options.api = s.api == "completions" ? EndpointApi::completions : EndpointApi::chat;
  if (const char* key = std::getenv("FATHOM_API_KEY"); key != nullptr) options.api_key = key;
  if (!s.body.empty()) {
    auto body = parse_json(s.body, "--body");
    if (!body || !body->is_object()) {
      return usage("no JSON object", "--body", "pass fields of a request, such as '{\"temperature\":0}'");
    }
    options.body = std::move(*body);
  }
  std::vector<Json> prompts;
  if (!s.prompts.empty()) {
    const auto text = read_file(s.prompts, kFileBytes);
    if (!text) return text.error();
    auto read = read_prompts(*text, s.prompts);
    if (!read) return read.error();
    prompts = std::move(*read);
    options.prompts = prompts;
  }
  const InterruptScope scope;
  const auto model = find_model(s.endpoint, options.api_key, s.model_name);
  if (!model) return model.error();
  options.model = model->name;
  if (s.duration) options.seconds = double(s.duration->count()) / 1000;
  const auto tokens_per_word = first_requests(options);
  if (!tokens_per_word) return tokens_per_word.error();
  options.tokens_per_word = *tokens_per_word;

  const Machine machine = read_machine();
  std::vector<ServeRow> rows;
  const bool endless = s.duration && !s.load.requests && s.load.trace.empty();
  for (const Case& one : cases_of(s)) {
    const auto trace = trace_of(s, one, model->context, prompts.size(), rows.size());
    if (!trace) return trace.error();
    options.streams = one.streams.value_or(kMostStreams);
    options.back_to_back = !one.rate && s.load.trace.empty();
    Live live;
    ServeRow row;
    row.result = run_endpoint_load(*trace, options, [&](EndpointProgress progress) {
      if (endless) progress.total = 0;
      live.show(progress);
      return !interrupted();
    });
    row.endpoint = s.endpoint;
    row.model = model->name;
    row.api = options.api == EndpointApi::chat ? "chat" : "completions";
    row.trace = !s.load.trace.empty()     ? std::filesystem::path(s.load.trace).filename().string()
                : options.back_to_back    ? "back to back"
                : s.load.arrivals.empty() ? "poisson"
                                          : s.load.arrivals;
    row.rate = one.rate;
    row.concurrency = one.streams;
    row.machine = machine.processor.empty() ? "unknown processor" : machine.processor;
    row.commit = commit();
    row.command = command_of(s);
    const bool stopped = row.result.interrupted;
    rows.push_back(std::move(row));
    if (stopped) break;
  }
  if (auto printed = print_results(rows, common); !printed) return printed.error();
  if (auto written = write_results(s, rows); !written) return written.error();
  const auto answered = verdict(rows);
  if (!answered || s.compare.empty()) return answered;
  return compare_with(s, rows, common);
}

}  // namespace fathom::cli
