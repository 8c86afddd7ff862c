// fathom serve: the HTTP API. Contract: design/cli.md 3; what each part does: fathom/server/.
#include <sys/resource.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <memory>
#include <utility>

#include "fathom/base/log.h"
#include "fathom/base/mapped_file.h"
#include "fathom/base/metrics.h"
#include "fathom/base/system_memory.h"
#include "fathom/base/thread_pool.h"
#include "fathom/cli/loaded_model.h"
#include "fathom/cli/program.h"
#include "fathom/cli/serve_signals.h"
#include "fathom/cli/serve_until_end.h"
#include "fathom/cli/terminal.h"
#include "fathom/cli/version.h"
#include "fathom/server/api_server.h"
#include "fathom/server/web_page.h"

namespace fathom::cli {
namespace {

using std::chrono::milliseconds;

struct Settings {
  std::string listen = "127.0.0.1:8000";
  std::string api_key_file, tls_cert, tls_key;
  std::vector<std::string> model_names, cors_origins;
  std::string codec_policy = "default", reasoning_history = "fill", image_urls = "off", role = "normal";
  std::optional<Bytes> max_body, response_store_size;
  int64_t max_queue = 512;
  std::optional<milliseconds> drain, step_limit;
  std::string response_store = "off", trace_endpoint;
  bool debug_routes = false, log_prompts = false, no_web = false;
  std::optional<double> replay_sample;
  EngineSettings engine;
};

struct Address {
  std::string host;
  int port = 0;
};

/// "HOST:PORT", "[v6]:PORT", ":PORT" or "PORT".
Result<Address> parse_address(const std::string& text) {
  const size_t colon = text.rfind(':');
  Address address{colon == std::string::npos ? "" : text.substr(0, colon), 0};
  const std::string port = colon == std::string::npos ? text : text.substr(colon + 1);
  const auto read = std::from_chars(port.data(), port.data() + port.size(), address.port);
  const bool whole = read.ec == std::errc() && read.ptr == port.data() + port.size() && !port.empty();
  if (!whole || address.port < 0 || address.port > 65535) {
    return Error{ErrorCode::usage, "\"" + text + "\" names no address and port", "--listen",
                 "pass HOST:PORT, as in 127.0.0.1:8000 or 0.0.0.0:8000"};
  }
  std::string& host = address.host;
  if (host.empty()) host = "127.0.0.1";
  if (host.front() == '[' && host.back() == ']') host = host.substr(1, host.size() - 2);
  return address;
}

/// Of --api-key-file and FATHOM_API_KEYS (one or several, comma between) together.
Result<ApiKeys> read_keys(const Settings& s) {
  std::string text, where = "FATHOM_API_KEYS";
  if (!s.api_key_file.empty()) {
    auto file = read_file(s.api_key_file, int64_t(16) << 20);
    if (!file) return file.error();
    text = std::move(*file);
    where = s.api_key_file;
  }
  if (const char* variable = std::getenv("FATHOM_API_KEYS"); variable != nullptr && *variable != '\0') {
    std::string keys = variable;
    std::replace(keys.begin(), keys.end(), ',', '\n');
    text += "\n" + keys;
  }
  if (text.empty() && s.api_key_file.empty()) return ApiKeys();
  return ApiKeys::parse(text, where);
}

Result<void> check_settings(const Settings& s) {
  if (!s.trace_endpoint.empty()) {
    if (const auto url = traces_url(s.trace_endpoint); !url) return url.error();
  }
  if (s.step_limit && s.step_limit->count() == 0) {
    return Error{ErrorCode::usage, "every step takes longer than 0 s", "--step-limit",
                 "pass the time after which a step counts as lost, or leave it out for 25s"};
  }
  if (s.tls_cert.empty() != s.tls_key.empty()) {
    const bool has_cert = !s.tls_cert.empty();
    return Error{ErrorCode::usage, std::string(has_cert ? "--tls-cert" : "--tls-key") + " without its other half",
                 has_cert ? "--tls-key" : "--tls-cert", "pass both, or neither"};
  }
  return {};
}

net::HttpServerOptions http_options(const Settings& s, const Address& address) {
  net::HttpServerOptions http;
  http.host = address.host;
  http.port = address.port;
  http.tls_certificate_file = s.tls_cert;
  http.tls_key_file = s.tls_key;
  if (s.max_body) http.body_bytes = s.max_body->count;
  http.threads = std::clamp(usable_cpus() / 4, 1, 4);
  return http;
}

ServiceOptions service_options(const Settings& s, const Engine& engine, const net::HttpServerOptions& http) {
  ServiceOptions options;
  auto& conversion = options.conversion;
  conversion.policy = *recipe::policy_of(s.codec_policy);
  conversion.reject_missing_reasoning = s.reasoning_history == "reject";
  conversion.models = {{options.model_id, recipe::ModelVersion::v41}};
  for (const std::string& name : s.model_names) conversion.models.emplace_back(name, recipe::ModelVersion::v41);
  options.version = version();
  options.commit = commit();
  options.backend = engine.backend_name();
  options.max_body_bytes = http.body_bytes;
  options.workers = std::clamp(usable_cpus(), 2, 8);
  options.log_prompts = s.log_prompts;
  options.debug_routes = s.debug_routes;
  options.cors_origins = s.cors_origins;
  options.images.addresses = s.image_urls == "public";
  if (engine.config().vision) options.blind = "this build of fathom sees no images yet";
  if (!s.no_web) options.page = web_page;
  if (!s.trace_endpoint.empty()) {
    options.traces = TraceExportOptions{};
    options.traces->endpoint = s.trace_endpoint;
    options.traces->version = options.version;
  }
  if (s.response_store != "off") {
    ResponseStoreOptions store;
    if (s.response_store != "memory") store.folder = s.response_store;
    if (s.response_store_size) store.most_bytes = s.response_store_size->count;
    options.store = store;
  }
  return options;
}

/// The one line of a server that is ready.
std::string ready_line(const Settings& s, const Address& address, int port, const LoadedModel& model,
                       const Engine& engine, const ApiKeys& keys, bool json) {
  const std::string host = address.host.find(':') != std::string::npos ? "[" + address.host + "]" : address.host;
  const std::string url =
      std::string(s.tls_cert.empty() ? "http" : "https") + "://" + host + ":" + std::to_string(port);
  const EngineOptions& options = engine.options();
  if (json) {
    Json tree = Json::object();
    tree.set("url", Json::of(url));
    tree.set("model", Json::of(model.name));
    tree.set("backend", Json::of(engine.backend_name()));
    tree.set("context", Json::of(options.context));
    tree.set("sequences", Json::of(options.sequences));
    tree.set("cache_bytes", Json::of(engine.cache_bytes()));
    tree.set("keys", Json::of(int64_t(keys.size())));
    return to_string(tree) + "\n";
  }
  return "fathom serves " + model.name + " at " + url + ": context " + with_commas(options.context) + " tokens, " +
         with_commas(options.sequences) + " sequences, cache " + size_text(engine.cache_bytes()) +
         (options.prefix_cache ? "" : " without prefixes") + ", " + engine.backend_name() + ", " +
         (keys.required() ? with_commas(int64_t(keys.size())) + (keys.size() == 1 ? " key" : " keys")
                          : std::string("no key needed")) +
         "\n";
}

/// Ten thousand connections need ten thousand descriptors; the usual limit is 1,024. Where more cannot be had, more
/// connections than there is room for are told so, instead of waiting unanswered for a descriptor.
void fit_connections(int64_t& connections) {
  constexpr int64_t kOthers = 48;  // files, and a few connections on which to say no
  rlimit limit = {};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &limit);
  if (limit.rlim_max == RLIM_INFINITY) return;
  connections = std::min(connections, std::max<int64_t>(int64_t(limit.rlim_max) - kOthers, 1));
}

void reload(const Settings& s, ApiServer& server, Service& service, Log& log) {
  if (auto keys = read_keys(s); keys) {
    const size_t count = keys->size();
    service.set_keys(std::move(*keys));
    log.write(LogLevel::info, "keys were read again", {{"keys", count}});
  } else {
    log.write(LogLevel::error, to_string(keys.error()) + "; the old keys stay in use");
  }
  if (s.tls_cert.empty()) return;
  if (auto read = server.reload(); read) {
    log.write(LogLevel::info, "the certificate was read again");
  } else {
    log.write(LogLevel::error, to_string(read.error()) + "; the old certificate stays in use");
  }
}

Result<int> run_serve(const Settings& s, const Common& common) {
  if (auto checked = check_settings(s); !checked) return checked.error();
  const auto address = parse_address(s.listen);
  if (!address) return address.error();
  auto keys = read_keys(s);
  if (!keys) return keys.error();

  keep_little_free_memory();
  ServeSignals signals;
  Log log({.level = *log_level_of(common.log_level), .format = common.json ? LogFormat::json : LogFormat::human});
  net::HttpServerOptions http = http_options(s, *address);
  fit_connections(http.connections);
  auto server = ApiServer::listen(http, log, s.no_web ? PageOf() : PageOf(web_page));
  if (!server) return server.error();
  auto model = load_model(common);
  if (!model) return model.error();
  if (!model->tokenizer) {
    return Error{ErrorCode::bad_input, "this model has no tokenizer.json", model->name,
                 "copy it from the published checkpoint"};
  }
  Metrics metrics;
  EngineSettings engine_settings = s.engine;
  engine_settings.schedule_drafts = true;
  engine_settings.metrics = &metrics;
  // The service has a line of its own for each request; the engine's are for who looks closely.
  engine_settings.log = log.on(LogLevel::debug) ? &log : nullptr;
  engine_settings.step_log = s.debug_routes;
  engine_settings.replay_sample = s.replay_sample.value_or(0);
  auto engine = open_engine(*model, engine_settings, common);
  if (!engine) return engine.error();
  EngineServiceOptions service_limits;
  service_limits.most_waiting = s.max_queue;
  if (s.step_limit) service_limits.longest_step = *s.step_limit;
  service_limits.on_death = [&signals](const Error&) { signals.engine_ended(); };
  EngineService engine_service(port_of(*engine), service_limits);
  auto service = Service::open(*model->tokenizer, engine_service, metrics, log, service_options(s, *engine, http));
  if (!service) return service.error();
  if (s.image_urls != "off" && !(*service)->blind().empty()) {
    log.write(LogLevel::warn, "--image-urls " + s.image_urls + " has no effect: " + std::string((*service)->blind()));
  }
  const std::string line = ready_line(s, *address, (*server)->port(), *model, *engine, *keys, common.json);
  (*service)->set_keys(std::move(*keys));
  (*server)->serve(**service);
  signals.loaded();
  if (auto printed = print(line); !printed) log.write(LogLevel::warn, to_string(printed.error()));
  return serve_until_end(signals, {**server, **service, engine_service, log, s.drain.value_or(milliseconds(30'000)),
                                   [&] { reload(s, **server, **service, log); }});
}

std::vector<Option> network_options(const std::shared_ptr<Settings>& s) {
  const std::string network = "Network", who = "Who may ask";
  return {
      {.name = "listen",
       .value = "HOST:PORT",
       .help = "where to listen; 0.0.0.0 is every interface, port 0 any free one",
       .fallback = "127.0.0.1:8000",
       .group = network,
       .target = &s->listen},
      {.name = "tls-cert",
       .value = "FILE",
       .help = "certificate chain (PEM); read again on SIGHUP",
       .fallback = "no TLS",
       .group = network,
       .target = &s->tls_cert},
      {.name = "tls-key", .value = "FILE", .help = "its private key (PEM)", .group = network, .target = &s->tls_key},
      {.name = "max-body",
       .value = "SIZE",
       .help = "longest request body, also after unpacking",
       .fallback = "128MiB",
       .group = network,
       .target = &s->max_body},
      {.name = "cors-origin",
       .value = "URL",
       .help = "browsers of this origin may ask; * for all; may be repeated",
       .fallback = "none",
       .group = network,
       .target = &s->cors_origins},
      {.name = "api-key-file",
       .value = "FILE",
       .help = "one key a line with its limits; read again on SIGHUP; also FATHOM_API_KEYS",
       .fallback = "no key needed",
       .group = who,
       .target = &s->api_key_file},
      {.name = "max-queue",
       .value = "N",
       .help = "requests that may wait beside those that run; then 429",
       .fallback = "512",
       .group = who,
       .target = &s->max_queue,
       .least = 0,
       .most = 1e9},
      {.name = "drain",
       .value = "DURATION",
       .help = "after SIGTERM, time for running answers to end",
       .fallback = "30s",
       .group = who,
       .target = &s->drain},
      {.name = "step-limit",
       .value = "DURATION",
       .help = "no step for so long while requests are open: /ready says 503",
       .fallback = "25s",
       .group = who,
       .target = &s->step_limit},
  };
}

std::vector<Option> answer_options(const std::shared_ptr<Settings>& s) {
  const std::string how = "How it answers", see = "What operators see";
  return {
      {.name = "model-name",
       .value = "NAME",
       .help = "further name that requests may use; may be repeated",
       .fallback = "DeepSeek-V4.1-Flash, deepseek-flash",
       .group = how,
       .target = &s->model_names},
      {.name = "codec-policy",
       .value = "P",
       .help = "default, or strict: exactly as deepseek-recipe",
       .fallback = "default",
       .group = how,
       .target = &s->codec_policy,
       .choices = {"default", "strict"}},
      {.name = "reasoning-history",
       .value = "R",
       .help = "calls in the history without their reasoning: fill, reject",
       .fallback = "fill",
       .group = how,
       .target = &s->reasoning_history,
       .choices = {"fill", "reject"}},
      {.name = "image-urls",
       .value = "U",
       .help = "images by address: off refuses them, public downloads them over https",
       .fallback = "off",
       .group = how,
       .target = &s->image_urls,
       .choices = {"off", "public"}},
      {.name = "response-store",
       .value = "WHERE",
       .help = "off, memory or a folder: what previous_response_id may name",
       .fallback = "off",
       .group = how,
       .target = &s->response_store},
      {.name = "response-store-size",
       .value = "SIZE",
       .help = "the oldest responses go beyond this",
       .fallback = "256MiB",
       .group = how,
       .target = &s->response_store_size},
      {.name = "role",
       .value = "ROLE",
       .help = "normal: prompts and answers",
       .fallback = "normal",
       .group = how,
       .target = &s->role,
       .choices = {"normal"},
       .later = {"prefill", "decode", "vision"}},
      {.name = "no-web", .help = "no page at /", .group = how, .target = &s->no_web},
      {.name = "log-prompts", .help = "write request bodies to the log", .group = see, .target = &s->log_prompts},
      {.name = "replay-sample",
       .value = "SHARE",
       .help = "of answers that idle time scores again with --replay off, for /metrics",
       .fallback = "0",
       .group = see,
       .target = &s->replay_sample,
       .least = 0,
       .most = 1},
      {.name = "debug-routes",
       .help = "serve /debug/state: all that runs and waits",
       .group = see,
       .target = &s->debug_routes},
      {.name = "peer", .planned = true},
      {.name = "trace-endpoint",
       .value = "URL",
       .help = "send spans of requests to an OpenTelemetry collector (OTLP/HTTP, JSON)",
       .fallback = "none",
       .group = see,
       .target = &s->trace_endpoint},
  };
}

}  // namespace

Command serve_command() {
  const auto s = std::make_shared<Settings>();
  std::vector<Option> options = network_options(s);
  const std::vector<Option> answers = answer_options(s), engine = engine_options(s->engine);
  options.insert(options.end(), answers.begin(), answers.end());
  options.insert(options.end(), engine.begin(), engine.end());
  return {.name = "serve",
          .summary = "answer chat requests over HTTP",
          .example = "fathom serve --listen 127.0.0.1:8000",
          .note = "then open http://127.0.0.1:8000, or ask its /v1",
          .options = std::move(options),
          .run = [s](const Common& common) { return run_serve(*s, common); }};
}

}  // namespace fathom::cli
