// fathom/server/service.h
// The HTTP API: from a request's bytes to its answer. Knows no socket: a server of the room net calls it, or anybody
// else in the same process (a test, `eval --model`). Routes: route.h; each stands in the file of its name.
//
// Threads: handle() is called on io threads and never blocks; what takes longer than a glance goes to a few workers;
// answers are written on the thread of the answers (engine_service.h).
#pragma once
#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "fathom/base/log.h"
#include "fathom/base/metrics.h"
#include "fathom/net/http_server.h"
#include "fathom/recipe/codec.h"
#include "fathom/server/api_keys.h"
#include "fathom/server/engine_service.h"
#include "fathom/server/http_error.h"
#include "fathom/server/image_fetcher.h"
#include "fathom/server/key_limits.h"
#include "fathom/server/question.h"
#include "fathom/server/response_store.h"
#include "fathom/server/service_metrics.h"
#include "fathom/server/trace_export.h"
#include "fathom/server/work_queue.h"
#include "fathom/tokenizer/tokenizer.h"

namespace fathom {

struct Route;

/// What a browser gets at a path; nothing: there is no such page. Any method may be asked.
using PageOf = std::function<std::optional<net::HttpAnswer>(const net::HttpRequest&)>;

struct ServiceOptions {
  recipe::ConversionOptions conversion;
  std::string version = "0", commit, backend;    // of /version
  std::string model_id = "DeepSeek-V4.1-Flash";  // first of /v1/models
  int64_t max_body_bytes = int64_t(128) << 20;   // also after unpacking
  int workers = 2;
  int64_t most_jobs = 1024;  // that wait for a worker; then 503
  bool log_prompts = false;
  bool debug_routes = false;
  std::vector<std::string> cors_origins;      // "*" is everybody; empty: no CORS
  std::optional<ResponseStoreOptions> store;  // none: previous_response_id is refused
  std::optional<TraceExportOptions> traces;   // none: a traceparent only comes back and stands in the log
  PageOf page;                                // of GET paths that are no route; may be empty
  See see;  // question.h; called on workers. Empty: images are refused at once, `blind` says why
  std::string blind = "the model takes no images";
  ImageFetcherOptions images;
  std::chrono::milliseconds header_delay{500}, silence{10'000};  // answer.h
};

/// One request and all that is known of it. Shared by those who still have to do with it.
struct Exchange {
  net::HttpRequest request;
  std::shared_ptr<net::HttpResponder> responder;
  const Route* route = nullptr;
  std::string id;  // x-request-id, of the client or ours
  Dialect dialect = Dialect::openai;
  ApiKey key;
  KeyLimits::Place place;
  std::chrono::steady_clock::time_point begun;
  std::chrono::system_clock::time_point begun_at, submitted_at;  // for spans; submitted_at: to the engine
  std::optional<TraceContext> parent, span;                      // as the client said; ours, when spans are exported
};
using SharedExchange = std::shared_ptr<Exchange>;

class Service {
 public:
  /// All must outlive it. Errors: those of ResponseStore::open and TraceExport::open.
  static Result<std::unique_ptr<Service>> open(const Tokenizer& tokenizer, EngineService& engine, Metrics& metrics,
                                               Log& log, ServiceOptions options);
  ~Service();

  /// For HttpServerOptions::admit and the handler.
  std::optional<net::HttpAnswer> admit(const net::HttpRequest& header);
  void handle(net::HttpRequest request, std::shared_ptr<net::HttpResponder> responder);

  /// Any time: other keys hold from the next request on. Without a call nobody needs a key.
  void set_keys(ApiKeys keys);
  /// What /metrics asks of the HTTP server; may be empty.
  void set_counts(std::function<net::HttpServerCounts()> counts);
  /// Waits for the workers; later requests get 503.
  void stop();

  // For routes.
  const ServiceOptions& options() const { return options_; }
  const Tokenizer& tokenizer() const { return tokenizer_; }
  EngineService& engine() { return engine_; }
  Metrics& metrics() { return metrics_; }
  Log& log() { return log_; }
  ResponseStore* store() { return store_.get(); }
  ImageFetcher& images() { return images_; }
  /// Why images are refused; empty: they are not.
  std::string_view blind() const { return options_.see ? std::string_view() : options_.blind; }
  /// Runs a job on a worker; false: too many wait.
  bool work(std::function<void()> job) { return workers_.add(std::move(job)); }
  int64_t now() const;  // Unix seconds
  int64_t started() const { return started_; }
  /// Values of gauges, before they are shown.
  void refresh_metrics();
  /// The trace that a request belongs to, as a log line names it; empty: none.
  static std::string trace_of(const Exchange& exchange);
  /// x-request-id, traceparent and CORS: what every answer to this request has.
  net::HttpFields common_fields(const Exchange& exchange) const;
  /// A whole answer that was not generated; logged and counted.
  void reply(Exchange& exchange, net::HttpAnswer answer);
  void refuse(Exchange& exchange, Refusal refusal);
  /// The same for an error, with the time until the engine may have room for another.
  void refuse(Exchange& exchange, const Error& error);
  /// Of a client that went away before anything was generated.
  void forget(Exchange& exchange);
  /// The log line and the counts of a generated answer.
  void finished(Exchange& exchange, const AnswerOutcome& outcome, bool stream);
  /// "chatcmpl-" and 24 random letters and digits.
  static std::string new_id(const char* prefix);

 private:
  Service(const Tokenizer& tokenizer, EngineService& engine, Metrics& metrics, Log& log, ServiceOptions options);
  std::optional<Refusal> refuse_early(const net::HttpRequest& request, const Route*& route, ApiKey& key) const;
  std::optional<net::HttpAnswer> preflight(const net::HttpRequest& request) const;
  bool is_page(const net::HttpRequest& request) const;
  std::string listed_routes() const;
  std::string allowed_methods(const net::HttpRequest& request) const;
  std::string request_id_of(const net::HttpRequest& request) const;
  void begin_trace(Exchange& exchange) const;  // once its route is known
  void export_spans(const Exchange& exchange, int status, const AnswerOutcome* outcome);
  void add_cors(const net::HttpRequest& request, net::HttpFields& fields) const;
  void run(const SharedExchange& exchange);

  const Tokenizer& tokenizer_;
  EngineService& engine_;
  Metrics& metrics_;
  Log& log_;
  const ServiceOptions options_;
  const int64_t started_;
  ServiceMetrics counted_;
  std::unique_ptr<ResponseStore> store_;
  std::unique_ptr<TraceExport> traces_;
  std::shared_ptr<const ApiKeys> keys_;  // std::atomic_load and std::atomic_store
  KeyLimits limits_;
  std::function<net::HttpServerCounts()> counts_;
  WorkQueue workers_;    // its threads end before what they use
  ImageFetcher images_;  // last: what it got goes to workers
};

}  // namespace fathom
