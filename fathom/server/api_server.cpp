#include "fathom/server/api_server.h"

#include <utility>

#include "fathom/server/http_error.h"
#include "fathom/server/route.h"

namespace fathom {
namespace {

constexpr int kLoadingRetrySeconds = 5;

}  // namespace

net::HttpAnswer ApiServer::answer_loading(const net::HttpRequest& request) const {
  if (page_ && (request.method == "GET" || request.method == "HEAD")) {
    if (auto page = page_(request)) return std::move(*page);
  }
  if (request.path == "/health") return json_answer(R"({"status":"ok"})");
  if (request.path == "/ready") {
    net::HttpAnswer answer = json_answer(
        R"({"status":"not ready","reason":"the model is loading","open_requests":0,"waiting_requests":0,"steps":0,"step_age_seconds":null})");
    answer.status = 503;
    answer.fields.add("Retry-After", std::to_string(kLoadingRetrySeconds));
    return answer;
  }
  return error_answer(
      {503, {ErrorCode::interrupted, "the model is loading: try again later", "", ""}, kLoadingRetrySeconds},
      dialect_of(request), recipe::Policy::lenient, Service::new_id("req_"));
}

Result<std::unique_ptr<ApiServer>> ApiServer::listen(net::HttpServerOptions http, Log& log, PageOf page) {
  std::unique_ptr<ApiServer> server(new ApiServer(log, std::move(page)));
  ApiServer* self = server.get();
  http.admit = [self](const net::HttpRequest& header) -> std::optional<net::HttpAnswer> {
    Service* service = self->service_.load(std::memory_order_acquire);
    if (service == nullptr) return self->answer_loading(header);
    return service->admit(header);
  };
  http.refused = [&log](const net::HttpRequest& header, int status) {
    // What admit refuses is logged there, with its request id.
    if (status == 408 || status == 413 || status == 431 || status >= 500) {
      log.write(LogLevel::info, "",
                {{"peer", header.peer}, {"method", header.method}, {"path", header.path}, {"status", status}});
    }
  };
  server->http_ = std::make_unique<net::HttpServer>(
      std::move(http), [self](net::HttpRequest request, std::shared_ptr<net::HttpResponder> responder) {
        self->handle(std::move(request), std::move(responder));
      });
  if (auto started = server->http_->start(); !started) return started.error();
  return server;
}

ApiServer::~ApiServer() { stop(); }

void ApiServer::serve(Service& service) {
  service.set_counts([this] { return counts(); });
  service_.store(&service, std::memory_order_release);
}

void ApiServer::handle(net::HttpRequest request, std::shared_ptr<net::HttpResponder> responder) {
  Service* service = service_.load(std::memory_order_acquire);
  if (service == nullptr) return responder->respond(answer_loading(request));
  service->handle(std::move(request), std::move(responder));
}

void ApiServer::stop(std::chrono::milliseconds longest) {
  if (longest.count() > 0) http_->drain(longest);
  http_->stop();
}

}  // namespace fathom
