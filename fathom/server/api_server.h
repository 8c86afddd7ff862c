// fathom/server/api_server.h
// The service on a socket: listens at once, so that a port that is taken is told before minutes of loading. While the
// model loads it answers /health and the page, which then says so, and 503 to everything else. Then it serves until it
// is drained.
//
//   auto server = ApiServer::listen(http, log);       // before the model is loaded
//   … load the model, open the engine and the service …
//   (*server)->serve(*service);
//   … SIGTERM …
//   engine.drain();                                   // new requests get 503, running ones go on
//   engine.wait_until_idle(deadline);
//   engine.stop();                                    // tells what is still open
//   (*server)->stop();                                // before the service and the engine go
#pragma once
#include <atomic>
#include <chrono>
#include <memory>

#include "fathom/base/log.h"
#include "fathom/net/http_server.h"
#include "fathom/server/service.h"

namespace fathom {

class ApiServer {
 public:
  /// `log` must outlive it. handler, admit and refused of `http` are ours. Errors: those of HttpServer::start.
  static Result<std::unique_ptr<ApiServer>> listen(net::HttpServerOptions http, Log& log, PageOf page = {});
  ~ApiServer();  // stop()

  /// From now on requests go to `service`, which must outlive stop().
  void serve(Service& service);
  int port() const { return http_->port(); }
  /// Certificate and key are read again. Errors: as net::HttpServer::reload.
  Result<void> reload() { return http_->reload(); }
  net::HttpServerCounts counts() const { return http_->counts(); }
  /// Sends what is on its way for at most `longest`, then cuts all connections.
  void stop(std::chrono::milliseconds longest = std::chrono::milliseconds(0));

 private:
  ApiServer(Log& log, PageOf page) : log_(log), page_(std::move(page)) {}
  net::HttpAnswer answer_loading(const net::HttpRequest& request) const;
  void handle(net::HttpRequest request, std::shared_ptr<net::HttpResponder> responder);

  Log& log_;
  const PageOf page_;
  std::atomic<Service*> service_ = nullptr;
  std::unique_ptr<net::HttpServer> http_;
};

}  // namespace fathom
