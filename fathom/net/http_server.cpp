#include "fathom/net/http_server.h"

#include <sys/socket.h>

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/dispatch.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <future>

#include "fathom/base/json.h"
#include "fathom/net/http/connection.h"

namespace fathom::net {

namespace asio = boost::asio;
using asio::ip::tcp;

HttpAnswer error_answer(const ServerShared& shared, int status, std::string_view message) {
  HttpAnswer answer{status, {{"Content-Type", shared.options.error_content_type}}, {}};
  if (shared.options.error_body) {
    answer.body = shared.options.error_body(status, message);
    return answer;
  }
  answer.body = R"({"error":{"message":)";
  append_json_string(answer.body, message);
  answer.body += status < 500 ? R"(,"type":"invalid_request_error","param":null,"code":null}})"
                              : R"(,"type":"server_error","param":null,"code":null}})";
  return answer;
}

struct HttpServerState {
  std::shared_ptr<ServerShared> shared = std::make_shared<ServerShared>();
  std::vector<std::shared_ptr<Worker>> workers;
  std::optional<tcp::acceptor> acceptor;  // on the first worker's thread once it runs
  size_t next_worker = 0;
  int port = 0;

  Result<void> listen();
  asio::awaitable<void> accept();
  void refuse(tcp::socket socket);
  void close_acceptor();
};

Result<void> HttpServerState::listen() {
  const HttpServerOptions& options = shared->options;
  const std::string where = options.host + ":" + std::to_string(options.port);
  boost::system::error_code error;
  tcp::resolver resolver(workers[0]->io);
  const auto found = resolver.resolve(options.host, std::to_string(options.port), tcp::resolver::passive, error);
  if (error || found.empty()) {
    return Error{ErrorCode::bad_input, "host " + options.host + " is not known: " + error.message(), where,
                 "pass an address of this machine, 127.0.0.1 or 0.0.0.0"};
  }
  const tcp::endpoint endpoint = found.begin()->endpoint();
  acceptor.emplace(workers[0]->io);
  acceptor->open(endpoint.protocol(), error);
  if (!error) acceptor->set_option(tcp::acceptor::reuse_address(true), error);
  if (!error) acceptor->bind(endpoint, error);
  if (!error) acceptor->listen(options.backlog, error);
  if (!error) port = acceptor->local_endpoint(error).port();
  if (error) {
    acceptor.reset();
    return Error{ErrorCode::failed, "cannot listen: " + error.message(), where,
                 "choose another port or stop what uses it"};
  }
  return {};
}

asio::awaitable<void> HttpServerState::accept() {
  constexpr auto quietly = asio::as_tuple(asio::use_awaitable);
  asio::steady_timer pause(workers[0]->io);
  while (true) {
    Worker& worker = *workers[next_worker++ % workers.size()];
    auto [error, socket] = co_await acceptor->async_accept(worker.io, quietly);
    if (!acceptor->is_open()) co_return;
    if (error == asio::error::connection_aborted) continue;
    if (error) {  // no file descriptor or no memory left: others close some time
      pause.expires_after(std::chrono::milliseconds(50));
      co_await pause.async_wait(quietly);
      if (!acceptor->is_open()) co_return;
      continue;
    }
    ++shared->connections_accepted;
    if (shared->connections >= shared->options.connections) {
      refuse(std::move(socket));
      continue;
    }
    ++shared->connections;
    worker.adopt(std::move(socket));
  }
}

/// Says once, without waiting, that there are too many.
void HttpServerState::refuse(tcp::socket socket) {
  ++shared->connections_refused;
  if (!shared->options.tls_certificate_file.empty()) return;
  HttpAnswer answer = error_answer(*shared, 503, "too many connections; try again later");
  answer.fields.add("Retry-After", "1");
  std::string text;
  append_head(text, {.status = 503,
                     .fields = &answer.fields,
                     .content_length = int64_t(answer.body.size()),
                     .keep_alive = false,
                     .server_name = shared->options.server_name});
  text += answer.body;
  // Read what the client may have sent, or closing would reset the connection before it sees the answer.
  char dropped[4096];
  (void)!::recv(socket.native_handle(), dropped, sizeof dropped, MSG_DONTWAIT);
  (void)!::send(socket.native_handle(), text.data(), text.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
}

/// On its own thread, and waits: afterwards the port is free.
void HttpServerState::close_acceptor() {
  if (!acceptor) return;
  std::promise<void> closed;
  asio::post(workers[0]->io, [&] {
    boost::system::error_code ignored;
    acceptor->close(ignored);
    closed.set_value();
  });
  closed.get_future().wait();
}

HttpServer::HttpServer(HttpServerOptions options, HttpHandler handler) : state_(std::make_unique<HttpServerState>()) {
  state_->shared->options = std::move(options);
  state_->shared->handler = std::move(handler);
}

HttpServer::~HttpServer() { stop(); }

Result<void> HttpServer::start() {
  check(state_->workers.empty(), "a server starts once");
  const HttpServerOptions& options = state_->shared->options;
  if (options.tls_certificate_file.empty() != options.tls_key_file.empty()) {
    return Error{ErrorCode::bad_input, "TLS needs a certificate and its key",
                 options.tls_certificate_file + options.tls_key_file, "pass both files or neither"};
  }
  if (const auto loaded = reload(); !loaded) return loaded;
  for (int i = 0; i < std::max(1, options.threads); ++i)
    state_->workers.push_back(std::make_shared<Worker>(state_->shared));
  if (const auto listening = state_->listen(); !listening) {
    state_->workers.clear();
    return listening;
  }
  asio::co_spawn(
      state_->workers[0]->io, [state = state_.get()] { return state->accept(); }, asio::detached);
  for (const auto& worker : state_->workers) worker->start();
  return {};
}

int HttpServer::port() const { return state_->port; }

Result<void> HttpServer::reload() {
  const HttpServerOptions& options = state_->shared->options;
  if (options.tls_certificate_file.empty()) return {};
  auto context = open_tls(options.tls_certificate_file, options.tls_key_file);
  if (!context) return context.error();
  const std::lock_guard lock(state_->shared->mutex);
  state_->shared->tls = std::move(*context);
  return {};
}

void HttpServer::stop_accepting() {
  if (!state_->acceptor) return;
  state_->close_acceptor();
}

bool HttpServer::drain(std::chrono::milliseconds longest) {
  stop_accepting();
  ServerShared& shared = *state_->shared;
  shared.draining = true;
  for (const auto& worker : state_->workers) worker->close_idle();
  std::unique_lock lock(shared.mutex);
  return shared.connection_closed.wait_for(lock, longest, [&] { return shared.connections == 0; });
}

void HttpServer::stop() {
  if (state_->workers.empty()) return;
  stop_accepting();
  for (const auto& worker : state_->workers) worker->stop();
  state_->acceptor.reset();
  state_->workers.clear();
  // A responder that outlives us keeps the rest; not what the handler holds.
  state_->shared->handler = nullptr;
  state_->shared->options.admit = nullptr;
  state_->shared->options.refused = nullptr;
}

HttpServerCounts HttpServer::counts() const {
  const ServerShared& shared = *state_->shared;
  return {shared.connections,      shared.requests_running,     shared.connections_accepted, shared.connections_refused,
          shared.requests,         shared.requests_refused,     shared.clients_gone,         shared.slow_readers_cut,
          shared.deadlines_missed, shared.tls_handshakes_failed};
}

}  // namespace fathom::net
