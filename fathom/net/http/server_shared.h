// fathom/net/http/server_shared.h
// What all io threads of one server share. Connections and responders may outlive the server, so it is held by all.
#pragma once
#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>

#include "fathom/net/http_server.h"

namespace boost::asio::ssl {
class context;
}

namespace fathom::net {

struct ServerShared {
  HttpServerOptions options;
  HttpHandler handler;  // emptied by stop(), when no io thread is left

  std::atomic<int64_t> connections{0}, requests_running{0};
  std::atomic<int64_t> connections_accepted{0}, connections_refused{0}, requests{0}, requests_refused{0},
      clients_gone{0}, slow_readers_cut{0}, deadlines_missed{0}, tls_handshakes_failed{0};
  std::atomic<bool> draining{false};
  std::atomic<int64_t> body_bytes{0};  // that BodyShares count

  std::mutex mutex;  // of what follows
  std::condition_variable connection_closed;
  std::shared_ptr<boost::asio::ssl::context> tls;  // of new connections
};

/// What one request's body takes of HttpServerOptions::bodies_bytes, while it is read and until its receiver drops it.
struct BodyShare {
  std::shared_ptr<ServerShared> shared;
  int64_t bytes = 0;

  explicit BodyShare(std::shared_ptr<ServerShared> all) : shared(std::move(all)) {}
  BodyShare(const BodyShare&) = delete;
  BodyShare& operator=(const BodyShare&) = delete;
  ~BodyShare() { shared->body_bytes -= bytes; }
};

/// The body of an answer that the room gives by itself.
HttpAnswer error_answer(const ServerShared& shared, int status, std::string_view message);

/// A context for a server with this certificate and key. Errors: bad_input names the file and what OpenSSL says.
Result<std::shared_ptr<boost::asio::ssl::context>> open_tls(const std::string& certificate_file,
                                                            const std::string& key_file);

}  // namespace fathom::net
