// fathom/net/http/server_fixture.h
// A server on a free port whose handler offers what tests of the server need, and what it saw.
#pragma once
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "fathom/net/http/raw_client.h"
#include "fathom/net/http_server.h"

namespace fathom::net {

using namespace std::chrono_literals;

/// GET /hello answers at once; POST /echo with the body; /hold keeps the responder for the test; /drop lets it go.
struct ServerFixture {
  HttpServerOptions options;
  std::unique_ptr<HttpServer> server;
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<std::shared_ptr<HttpResponder>> held;
  std::vector<HttpRequest> requests;
  int gone = 0;

  ServerFixture() { options.port = 0; }
  ~ServerFixture() {
    if (server) server->stop();
  }

  int start() {
    server =
        std::make_unique<HttpServer>(options, [this](HttpRequest request, std::shared_ptr<HttpResponder> responder) {
          handle(std::move(request), std::move(responder));
        });
    const auto started = server->start();
    EXPECT_TRUE(started.ok()) << (started.ok() ? "" : to_string(started.error()));
    return server->port();
  }

  void handle(HttpRequest request, std::shared_ptr<HttpResponder> responder) {
    const std::string path = request.path;
    if (path == "/hello") responder->respond(200, {{"Content-Type", "text/plain"}}, "hello");
    if (path == "/echo") responder->respond(200, {}, request.body);
    if (path == "/large") responder->respond(200, {}, std::string(20'000'000, 'x'));
    const std::lock_guard lock(mutex);
    requests.push_back(std::move(request));
    if (path == "/hold") {
      responder->on_gone([this] {
        const std::lock_guard inner(mutex);
        ++gone;
        changed.notify_all();
      });
      held.push_back(std::move(responder));
    }
    changed.notify_all();
  }

  /// The n-th responder of /hold, counted from 0; waits for it.
  std::shared_ptr<HttpResponder> responder(size_t n = 0) {
    std::unique_lock lock(mutex);
    EXPECT_TRUE(changed.wait_for(lock, 10s, [&] { return held.size() > n; }));
    return held.at(n);
  }

  bool wait_gone(int number = 1, std::chrono::milliseconds longest = 10s) {
    std::unique_lock lock(mutex);
    return changed.wait_for(lock, longest, [&] { return gone >= number; });
  }
};

/// Until `condition` holds or ten seconds are over.
template <class Condition>
bool eventually(Condition condition) {
  for (int i = 0; i < 2000; ++i) {
    if (condition()) return true;
    std::this_thread::sleep_for(5ms);
  }
  return condition();
}

}  // namespace fathom::net
