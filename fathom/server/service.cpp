#include "fathom/server/service.h"

#include <algorithm>
#include <random>

#include "fathom/base/system_memory.h"
#include "fathom/net/content_encoding.h"
#include "fathom/server/request_spans.h"
#include "fathom/server/route.h"

namespace fathom {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int64_t kLargeBody = int64_t(4) << 20;

double seconds_since(Clock::time_point begun) { return std::chrono::duration<double>(Clock::now() - begun).count(); }

int64_t unix_seconds() { return int64_t(::time(nullptr)); }

bool is_request_id(std::string_view text) {
  const auto plain = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-' ||
           c == '.' || c == ':';
  };
  return !text.empty() && text.size() <= 128 && std::all_of(text.begin(), text.end(), plain);
}

}  // namespace

Service::Service(const Tokenizer& tokenizer, EngineService& engine, Metrics& metrics, Log& log, ServiceOptions options)
    : tokenizer_(tokenizer),
      engine_(engine),
      metrics_(metrics),
      log_(log),
      options_(std::move(options)),
      started_(unix_seconds()),
      counted_(metrics),
      keys_(std::make_shared<const ApiKeys>()),
      workers_(options_.workers, options_.most_jobs),
      images_(options_.images, log) {}

Service::~Service() { stop(); }

Result<std::unique_ptr<Service>> Service::open(const Tokenizer& tokenizer, EngineService& engine, Metrics& metrics,
                                               Log& log, ServiceOptions options) {
  std::unique_ptr<ResponseStore> store;
  if (options.store) {
    auto opened = ResponseStore::open(*options.store);
    if (!opened) return opened.error();
    store = std::move(*opened);
  }
  std::unique_ptr<Service> service(new Service(tokenizer, engine, metrics, log, std::move(options)));
  service->store_ = std::move(store);
  if (service->options_.traces) {
    auto traces = TraceExport::open(*service->options_.traces, log);
    if (!traces) return traces.error();
    service->traces_ = std::move(*traces);
  }
  return service;
}

void Service::stop() {
  images_.stop();
  workers_.stop();
}
void Service::set_keys(ApiKeys keys) {
  std::atomic_store(&keys_, std::shared_ptr<const ApiKeys>(std::make_shared<ApiKeys>(std::move(keys))));
}
void Service::set_counts(std::function<net::HttpServerCounts()> counts) { counts_ = std::move(counts); }
int64_t Service::now() const { return unix_seconds(); }

std::string Service::new_id(const char* prefix) {
  static constexpr std::string_view kLetters = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
  thread_local std::mt19937_64 random = [] {
    std::random_device device;
    std::seed_seq seed{device(), device(), device(), device()};
    return std::mt19937_64(seed);
  }();
  std::string id = prefix;
  for (int word = 0; word < 3; ++word) {
    uint64_t bits = random();
    for (int i = 0; i < 8; ++i) {
      id += kLetters[size_t(bits % kLetters.size())];
      bits /= kLetters.size();
    }
  }
  return id;
}

std::string Service::request_id_of(const net::HttpRequest& request) const {
  const std::string* given = request.find("x-request-id");
  return given != nullptr && is_request_id(*given) ? *given : new_id("req_");
}

void Service::begin_trace(Exchange& exchange) const {
  exchange.begun_at = std::chrono::system_clock::now();
  if (const std::string* trace = exchange.request.find("traceparent")) exchange.parent = read_traceparent(*trace);
  // Neither probes and the page nor paths that do not exist are work that anybody looks for.
  const bool work = exchange.route != nullptr && exchange.route->needs_key;
  if (traces_ && work) exchange.span = new_span(exchange.parent);
}

std::string Service::trace_of(const Exchange& exchange) {
  if (exchange.span) return traceparent_of(*exchange.span);
  return exchange.parent ? traceparent_of(*exchange.parent) : std::string();
}

void Service::export_spans(const Exchange& exchange, int status, const AnswerOutcome* outcome) {
  if (!traces_ || !exchange.span || !exchange.span->sampled) return;
  traces_->add(spans_of(exchange, status, outcome, std::chrono::system_clock::now()));
}

void Service::add_cors(const net::HttpRequest& request, net::HttpFields& fields) const {
  if (options_.cors_origins.empty()) return;
  const std::string* origin = request.find("origin");
  if (origin == nullptr) return;
  const auto& allowed = options_.cors_origins;
  const bool known =
      std::any_of(allowed.begin(), allowed.end(), [&](const auto& o) { return o == "*" || o == *origin; });
  if (!known) return;
  fields.add("Access-Control-Allow-Origin", *origin).add("Vary", "Origin");
  fields.add("Access-Control-Expose-Headers", "x-request-id, request-id, retry-after");
}

net::HttpFields Service::common_fields(const Exchange& exchange) const {
  net::HttpFields fields;
  fields.add("x-request-id", exchange.id).add("request-id", exchange.id);
  if (const std::string trace = trace_of(exchange); !trace.empty()) fields.add("traceparent", trace);
  add_cors(exchange.request, fields);
  return fields;
}

// A browser asks before it sends a request with a key. OPTIONS itself needs none.
std::optional<net::HttpAnswer> Service::preflight(const net::HttpRequest& request) const {
  if (request.method != "OPTIONS") return {};
  net::HttpAnswer answer;
  answer.status = 204;
  const std::string methods = allowed_methods(request);
  answer.fields.add("Allow", methods);
  add_cors(request, answer.fields);
  if (answer.fields.find("Access-Control-Allow-Origin") != nullptr) {
    answer.fields.add("Access-Control-Allow-Methods", methods);
    const std::string* asked = request.find("access-control-request-headers");
    answer.fields.add("Access-Control-Allow-Headers", asked != nullptr ? *asked : "authorization, content-type");
    answer.fields.add("Access-Control-Max-Age", "600");
  }
  return answer;
}

bool Service::is_page(const net::HttpRequest& request) const {
  return options_.page && options_.page(request).has_value();
}

std::string Service::listed_routes() const {
  std::string list = options_.page ? "GET /" : "";
  for (const Route& route : routes()) {
    if (route.debug && !options_.debug_routes) continue;
    list += std::string(list.empty() ? "" : ", ") + route.method + " " + route.path;
  }
  return list;
}

std::string Service::allowed_methods(const net::HttpRequest& request) const {
  std::string list = "OPTIONS";
  for (const char* method : {"GET", "POST", "DELETE"}) {
    bool other = false;
    if (find_route(method, request.path, options_.debug_routes, &other) != nullptr) list += std::string(", ") + method;
    if (method == std::string_view("GET") && list.ends_with("GET")) list += ", HEAD";
  }
  return list == "OPTIONS" && is_page(request) ? list + ", GET, HEAD" : list;
}

std::optional<Refusal> Service::refuse_early(const net::HttpRequest& request, const Route*& route, ApiKey& key) const {
  bool other_method = false;
  route = find_route(request.method, request.path, options_.debug_routes, &other_method);
  if (route == nullptr) {
    // Without a key nobody learns which paths exist, but a page needs none.
    const bool reads = request.method == "GET" || request.method == "HEAD";
    if (!other_method && reads && options_.page) return {};
    const std::string what = request.method + " " + request.path;
    if (other_method || is_page(request)) {
      return Refusal{
          405, {ErrorCode::usage, what + " is not served: this path takes " + allowed_methods(request), "", ""}, 0};
    }
    return Refusal{404, {ErrorCode::not_found, what + " is not served: the routes are " + listed_routes(), "", ""}, 0};
  }
  if (!route->needs_key) return {};
  const auto keys = std::atomic_load(&keys_);
  const std::string_view presented = presented_key(request);
  if (const ApiKey* found = keys->find(presented)) {
    key = *found;
    return {};
  }
  const std::string what = presented.empty() ? "this server asks for an API key and the request has none"
                                             : "the API key of this request is not known";
  return Refusal{401, {ErrorCode::usage, what + ": send Authorization: Bearer KEY, or x-api-key: KEY", "", ""}, 0};
}

std::optional<net::HttpAnswer> Service::admit(const net::HttpRequest& header) {
  if (header.method == "OPTIONS") return {};
  const Route* route = nullptr;
  ApiKey key;
  const auto refused = refuse_early(header, route, key);
  if (!refused) return {};
  Exchange exchange;
  exchange.id = request_id_of(header);
  exchange.request.fields = header.fields;
  exchange.request.method = header.method;
  exchange.request.path = header.path;
  exchange.request.peer = header.peer;
  exchange.route = route;
  begin_trace(exchange);
  net::HttpAnswer answer = error_answer(*refused, dialect_of(header), options_.conversion.policy, exchange.id);
  for (const net::HttpField& field : common_fields(exchange).fields) answer.fields.add(field.name, field.value);
  if (refused->status == 405) answer.fields.add("Allow", allowed_methods(header));
  export_spans(exchange, refused->status, nullptr);
  if (refused->status == 401) counted_.count_refusal(401);
  counted_.count_request(route != nullptr ? route->path : "other", refused->status, 0);
  log_.write(LogLevel::info, "",
             {{"request", exchange.id},
              {"peer", header.peer},
              {"method", header.method},
              {"path", header.path},
              {"status", refused->status}});
  return answer;
}

void Service::handle(net::HttpRequest request, std::shared_ptr<net::HttpResponder> responder) {
  auto exchange = std::make_shared<Exchange>();
  exchange->begun = Clock::now();
  exchange->request = std::move(request);
  exchange->responder = std::move(responder);
  exchange->id = request_id_of(exchange->request);
  exchange->dialect = dialect_of(exchange->request);
  auto preflighted = preflight(exchange->request);
  std::optional<Refusal> refused;
  if (!preflighted) refused = refuse_early(exchange->request, exchange->route, exchange->key);
  begin_trace(*exchange);
  if (preflighted) return reply(*exchange, std::move(*preflighted));
  if (refused) return refuse(*exchange, std::move(*refused));
  if (exchange->route == nullptr) {
    auto page = options_.page(exchange->request);
    if (page) return reply(*exchange, std::move(*page));
    return refuse(*exchange, {404,
                              {ErrorCode::not_found,
                               exchange->request.path + " is not served: the routes are " + listed_routes(), "", ""},
                              0});
  }
  if (exchange->route->limited) {
    auto admission = limits_.admit(exchange->key, Clock::now());
    if (admission.refused) return refuse(*exchange, std::move(*admission.refused));
    exchange->place = std::move(admission.place);
  }
  if (exchange->route->where == Route::Where::io_thread) return exchange->route->run(*this, exchange);
  if (!workers_.add([this, exchange] { run(exchange); })) {
    refuse(*exchange,
           {503, {ErrorCode::interrupted, "the server has no time for this request: try again later", "", ""}, 1});
  }
}

void Service::run(const SharedExchange& exchange) {
  net::HttpRequest& request = exchange->request;
  if (const std::string* encoding = request.find("content-encoding")) {
    auto unpacked = net::unpacked_body(*encoding, std::move(request.body), options_.max_body_bytes);
    if (!unpacked) {
      const ErrorCode code = unpacked.error().code;
      const int status = code == ErrorCode::unsupported ? 415 : code == ErrorCode::out_of_range ? 413 : 400;
      return refuse(*exchange, {status, told_to_client(unpacked.error()), 0});
    }
    request.body = std::move(*unpacked);
  }
  if (options_.log_prompts && !request.body.empty()) {
    log_.write(LogLevel::info, "", {{"request", exchange->id}, {"body", request.body}});
  }
  const bool large = int64_t(request.body.size()) >= kLargeBody;
  exchange->route->run(*this, exchange);
  if (!large) return;
  // Its tree, its prompt and its tokens were many small pieces, ten times the body together.
  request.drop_body();
  return_free_memory();
}

void Service::refresh_metrics() {
  counted_.set(engine_.health(), counts_ ? counts_() : net::HttpServerCounts{}, store_ ? store_->failures() : 0);
}

void Service::refuse(Exchange& exchange, Refusal refusal) {
  if (refusal.status == 401 || refusal.status == 429) counted_.count_refusal(refusal.status);
  reply(exchange, error_answer(refusal, exchange.dialect, options_.conversion.policy, exchange.id));
}

void Service::refuse(Exchange& exchange, const Error& error) {
  refuse(exchange, refusal_of(error, engine_.retry_after_seconds()));
}

void Service::forget(Exchange& exchange) {
  net::HttpAnswer nobody_reads;
  nobody_reads.status = kClientGone;
  reply(exchange, std::move(nobody_reads));
}

void Service::reply(Exchange& exchange, net::HttpAnswer answer) {
  exchange.place = {};  // who has the answer may ask again at once
  for (const net::HttpField& field : common_fields(exchange).fields) answer.fields.add(field.name, field.value);
  const net::HttpRequest& request = exchange.request;
  const double seconds = seconds_since(exchange.begun);
  counted_.count_request(exchange.route != nullptr ? exchange.route->path : "other", answer.status, seconds);
  // Probes come every few seconds: they are news only when they fail.
  const bool probe = exchange.route != nullptr && !exchange.route->needs_key && answer.status == 200;
  log_.write(probe ? LogLevel::debug : LogLevel::info, "",
             {{"request", exchange.id},
              {"peer", request.peer},
              {"tenant", exchange.key.tenant},
              {"method", request.method},
              {"path", request.path},
              {"status", answer.status},
              {"ms", 1000 * seconds}});
  export_spans(exchange, answer.status, nullptr);
  exchange.responder->respond(std::move(answer));
  exchange.responder.reset();
}

void Service::finished(Exchange& exchange, const AnswerOutcome& outcome, bool stream) {
  const double seconds = seconds_since(exchange.begun);
  counted_.count_request(exchange.route->path, outcome.status, seconds);
  counted_.count_answer(outcome);
  const Usage& usage = outcome.usage;
  int64_t offered = 0, accepted = 0;
  for (size_t i = 0; i < usage.offered.size(); ++i) offered += usage.offered[i], accepted += usage.accepted[i];
  const double decode_seconds = usage.total_seconds - usage.first_token_seconds;
  const double rate =
      usage.generated_tokens > 1 && decode_seconds > 0 ? double(usage.generated_tokens - 1) / decode_seconds : 0;
  export_spans(exchange, outcome.status, &outcome);
  log_.write(outcome.status >= 500 ? LogLevel::warn : LogLevel::info, "",
             {{"request", exchange.id},
              {"peer", exchange.request.peer},
              {"tenant", exchange.key.tenant},
              {"method", exchange.request.method},
              {"path", exchange.request.path},
              {"status", outcome.status},
              {"stream", stream},
              {"finish", outcome.finish_reason},
              {"queue_ms", 1000 * usage.queue_seconds},
              {"prompt_tokens", usage.prompt_tokens},
              {"cached_tokens", usage.cached_tokens},
              {"first_token_ms", 1000 * usage.first_token_seconds},
              {"answer_tokens", outcome.told.completion_tokens},
              {"tokens_per_s", rate},
              {"drafts", offered},
              {"drafts_accepted", accepted},
              {"ms", 1000 * seconds},
              {"error", outcome.error ? outcome.error->message : std::string()},
              {"trace", trace_of(exchange)}});
}

}  // namespace fathom
