#include "fathom/cli/serve_until_end.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <stdexcept>
#include <thread>

#include "fathom/cli/program.h"
#include "fathom/net/http_client.h"
#include "fathom/server/fake_engine.h"
#include "fathom/tokenizer/tokenizer.h"

namespace fathom::cli {
namespace {

using namespace std::chrono_literals;

/// A server that is ready, with a made-up engine.
struct Served {
  ServeSignals signals;  // first: other threads inherit its mask
  Log log{{.level = LogLevel::error}};
  Metrics metrics;
  FakeEngine fake;
  Tokenizer tokenizer = *Tokenizer::open(FATHOM_SOURCE_DIR "/models/mini/tokenizer.json");
  std::unique_ptr<EngineService> engine;
  std::unique_ptr<Service> service;
  std::unique_ptr<ApiServer> server;
  std::atomic<int> reloads = 0;

  void open() {
    if (!fake.answer) fake.answer = [](const Request&) { return FakeEngine::Script{{10, 11, 1}, 0, 0, {}}; };
    EngineServiceOptions options;
    options.longest_step = 50ms;
    options.on_death = [this](const Error&) { signals.engine_ended(); };
    engine = std::make_unique<EngineService>(fake.port(), options);
    service = std::move(*Service::open(tokenizer, *engine, metrics, log, {}));
    net::HttpServerOptions http;
    http.port = 0;
    server = std::move(*ApiServer::listen(http, log));
    server->serve(*service);
    signals.loaded();
  }
  Result<int> run(std::chrono::milliseconds drain = 5s) {
    return serve_until_end(signals, {*server, *service, *engine, log, drain, [this] { ++reloads; }});
  }
  net::EndpointAnswer ask(const std::string& path, const std::string& body = "") {
    net::HttpClient client;
    net::EndpointRequest request;
    request.method = body.empty() ? "GET" : "POST";
    request.url = "http://127.0.0.1:" + std::to_string(server->port()) + path;
    request.body = body;
    const auto answer = client.send(request);
    return answer ? *answer : net::EndpointAnswer();
  }
  net::EndpointAnswer complete() {
    return ask("/v1/completions", R"({"model":"deepseek-flash","prompt":"hi","max_tokens":8})");
  }
};

TEST(ServeUntilEndTest, ASignalReloadsAndAnotherDrainsAndEndsWell) {
  Served served;
  served.open();
  std::thread operator_([&] {
    EXPECT_EQ(served.complete().status, 200);
    ::kill(::getpid(), SIGHUP);
    for (int i = 0; i < 2000 && served.reloads == 0; ++i) std::this_thread::sleep_for(1ms);
    ::kill(::getpid(), SIGTERM);
  });
  const auto ended = served.run();
  operator_.join();
  ASSERT_TRUE(ended) << to_string(ended.error());
  EXPECT_EQ(*ended, kDone);
  EXPECT_EQ(served.reloads, 1);
}

// A server whose device is gone must not stay: its process ends, and whoever watches over it starts another.
TEST(ServeUntilEndTest, AnEngineThatEndsIsToldAtHealthAndEndsTheProgramWithOne) {
  for (const bool throws : {false, true}) {
    Served served;
    if (throws) {
      served.fake.before_step = [] { throw std::runtime_error("device 0 fell off the bus"); };
    } else {
      served.fake.lost = Error{ErrorCode::failed, "device 0 fell off the bus", "", ""};
    }
    served.open();
    net::EndpointAnswer asked, health;
    std::thread client([&] {
      asked = served.complete();
      health = served.ask("/health");
    });
    const auto ended = served.run();
    client.join();
    EXPECT_EQ(asked.status, 503) << asked.body;
    EXPECT_NE(asked.body.find("device 0 fell off the bus"), std::string::npos) << asked.body;
    EXPECT_EQ(health.status, 503);
    EXPECT_NE(health.body.find("device 0 fell off the bus"), std::string::npos) << health.body;
    ASSERT_FALSE(ended);
    EXPECT_EQ(exit_code_of(ended.error().code), kFailed);
    EXPECT_NE(ended.error().message.find("device 0 fell off the bus"), std::string::npos);
  }
}

// It stayed once, because the drain hid that no step ended: the process then waited for ever.
TEST(ServeUntilEndDeathTest, AStepThatNeverEndsDoesNotKeepTheProcess) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        Served served;
        served.fake.before_step = [] { std::this_thread::sleep_for(1h); };
        served.open();
        std::thread client([&] { served.complete(); });
        while (served.engine->health().open == 0) std::this_thread::sleep_for(1ms);
        ::kill(::getpid(), SIGTERM);
        (void)served.run(200ms);
      },
      testing::ExitedWithCode(kFailed), "");
}

}  // namespace
}  // namespace fathom::cli
