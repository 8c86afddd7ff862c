// One server, real sockets: requests, answers, limits. Streams and vanishing clients: http_server_stream_test.cpp.
#include "fathom/net/http_server.h"

#include "fathom/net/http/server_fixture.h"

namespace fathom::net {
namespace {

TEST(HttpServerTest, AConnectionAsksManyTimes) {
  ServerFixture fixture;
  RawClient client(fixture.start());
  for (int i = 0; i < 100; ++i) {
    ASSERT_TRUE(client.request("GET", "/hello"));
    const RawAnswer answer = client.read_answer();
    ASSERT_EQ(answer.status, 200);
    EXPECT_EQ(answer.body, "hello");
    EXPECT_EQ(*answer.fields.find("Server"), "fathom");
    EXPECT_NE(answer.fields.find("Date"), nullptr);
    EXPECT_EQ(answer.fields.find("Connection"), nullptr);
  }
  EXPECT_EQ(fixture.server->counts().connections, 1);
  EXPECT_EQ(fixture.server->counts().connections_accepted, 1);
  EXPECT_EQ(fixture.server->counts().requests, 100);
  EXPECT_EQ(fixture.requests.front().peer, "127.0.0.1");
  EXPECT_FALSE(fixture.requests.front().secure);
}

TEST(HttpServerTest, PipelinedRequestsAreAnsweredInOrder) {
  ServerFixture fixture;
  RawClient client(fixture.start());
  std::string requests;
  constexpr int count = 500;
  for (int i = 0; i < count; ++i) {
    requests += "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\n" + std::to_string(1000 + i);
  }
  std::thread sender([&] { client.send(requests); });
  for (int i = 0; i < count; ++i) ASSERT_EQ(client.read_answer().body, std::to_string(1000 + i));
  sender.join();
}

TEST(HttpServerTest, ARequestWaitsForTheAnswerBeforeIt) {
  ServerFixture fixture;
  RawClient client(fixture.start());
  // Far more in advance than the server keeps in memory.
  std::string requests = "GET /hold HTTP/1.1\r\nHost: x\r\n\r\n";
  constexpr int count = 3000;
  for (int i = 0; i < count; ++i)
    requests += "GET /hello HTTP/1.1\r\nHost: x\r\nX-Filler: " + std::string(50, 'f') + "\r\n\r\n";
  std::thread sender([&] { client.send(requests); });
  fixture.responder()->respond(200, {}, "first");
  EXPECT_EQ(client.read_answer().body, "first");
  for (int i = 0; i < count; ++i) ASSERT_EQ(client.read_answer().body, "hello");
  sender.join();
}

TEST(HttpServerTest, BodiesTogetherHaveALimitAndSmallOnesPass) {
  ServerFixture fixture;
  fixture.options.body_bytes = fixture.options.bodies_bytes = 1'000'000;
  const int port = fixture.start();
  RawClient first(port);
  first.request("POST", "/hold", std::string(700'000, 'a'));
  fixture.responder();
  {
    RawClient second(port);
    second.request("POST", "/echo", std::string(400'000, 'b'));
    const RawAnswer refused = second.read_answer();
    EXPECT_EQ(refused.status, 503);
    EXPECT_EQ(*refused.fields.find("Retry-After"), "5");
    EXPECT_EQ(*refused.fields.find("Connection"), "close");
  }
  RawClient third(port);
  third.request("POST", "/echo", std::string(50'000, 'c'));
  EXPECT_EQ(third.read_answer().status, 200);
  {
    const std::lock_guard lock(fixture.mutex);
    for (HttpRequest& request : fixture.requests) request.drop_body();
  }
  RawClient fourth(port);
  fourth.request("POST", "/echo", std::string(900'000, 'd'));
  EXPECT_EQ(fourth.read_answer().status, 200);
}

TEST(HttpServerTest, AnAnswerMayComeFromAnyThread) {
  ServerFixture fixture;
  RawClient client(fixture.start());
  for (size_t i = 0; i < 20; ++i) {
    client.request("GET", "/hold");
    std::thread([responder = fixture.responder(i)] { responder->respond(200, {}, "later"); }).join();
    ASSERT_EQ(client.read_answer().body, "later");
  }
  EXPECT_EQ(fixture.gone, 0);
  EXPECT_TRUE(eventually([&] { return fixture.server->counts().requests_running == 0; }));
}

TEST(HttpServerTest, ABodyInChunksIsWholeAndLongOnesArrive) {
  ServerFixture fixture;
  RawClient client(fixture.start());
  client.send("POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n");
  std::this_thread::sleep_for(20ms);
  client.send("6\r\n world\r\n0\r\n\r\n");
  EXPECT_EQ(client.read_answer().body, "hello world");
  const std::string body(5'000'000, 'b');
  std::thread sender([&] { client.request("POST", "/echo", body); });
  EXPECT_EQ(client.read_answer().body, body);
  sender.join();
  client.request("GET", "/large");
  EXPECT_EQ(client.read_answer().body.size(), 20'000'000u);
  client.request("GET", "/hello");
  EXPECT_EQ(client.read_answer().body, "hello");
}

TEST(HttpServerTest, HeadHasTheHeaderOfGetAndNoBody) {
  ServerFixture fixture;
  RawClient client(fixture.start());
  client.request("HEAD", "/hello");
  const RawAnswer answer = client.read_answer(10s, true);
  EXPECT_EQ(answer.status, 200);
  EXPECT_EQ(*answer.fields.find("Content-Length"), "5");
  client.request("GET", "/hello");
  EXPECT_EQ(client.read_answer().body, "hello") << "nothing of a body stood between";
}

TEST(HttpServerTest, OldClientsAndPoliteOnesCloseAfterTheAnswer) {
  ServerFixture fixture;
  const int port = fixture.start();
  RawClient old(port), polite(port), keeping(port);
  old.send("GET /hello HTTP/1.0\r\n\r\n");
  EXPECT_EQ(old.read_answer().body, "hello");
  EXPECT_TRUE(old.closed_by_server());
  polite.request("GET", "/hello", {}, "Connection: close\r\n");
  const RawAnswer answer = polite.read_answer();
  EXPECT_EQ(*answer.fields.find("Connection"), "close");
  EXPECT_TRUE(polite.closed_by_server());
  keeping.send("GET /hello HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
  EXPECT_EQ(*keeping.read_answer().fields.find("Connection"), "keep-alive");
  keeping.send("GET /hello HTTP/1.0\r\n\r\n");
  EXPECT_EQ(keeping.read_answer().body, "hello");
  // Asked and half-closed at once: the answer that was given at once arrives.
  RawClient brief(port);
  brief.send("GET /hello HTTP/1.0\r\n\r\n");
  brief.end_sending();
  EXPECT_EQ(brief.read_answer().body, "hello");
}

TEST(HttpServerTest, AClientThatExpects100ContinueIsTold) {
  ServerFixture fixture;
  RawClient client(fixture.start());
  client.send("POST /echo HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\n");
  EXPECT_EQ(client.read_answer().status, 100);
  client.send("abc");
  EXPECT_EQ(client.read_answer().body, "abc");
  client.send("POST /echo HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\ndef");
  EXPECT_EQ(client.read_answer().body, "def") << "who does not wait is not told";
}

TEST(HttpServerTest, MistakesAreAnsweredInJsonAndClose) {
  ServerFixture fixture;
  fixture.options.header_bytes = 2000;
  fixture.options.body_bytes = 100;
  const int port = fixture.start();
  const std::pair<std::string, int> mistakes[] = {
      {"GET /hello HTTP/1.1\r\n\r\n", 400},
      {"GET /hello HTTP/2.0\r\nHost: x\r\n\r\n", 505},
      {"BREW /pot HTTP/1.1\r\nHost: x\r\n\r\n", 501},
      {"GET /" + std::string(3000, 'a') + " HTTP/1.1\r\nHost: x\r\n\r\n", 414},
      {"GET / HTTP/1.1\r\nHost: x\r\nA: " + std::string(3000, 'a') + "\r\n\r\n", 431},
      {"POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 101\r\n\r\n" + std::string(101, 'a'), 413},
      {"POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n65\r\n" + std::string(101, 'a') +
           "\r\n0\r\n\r\n",
       413},
      {"POST /echo HTTP/1.1\r\nHost: x\r\nExpect: cake\r\n\r\n", 417},
  };
  for (const auto& [bytes, status] : mistakes) {
    RawClient client(port);
    client.send(bytes);
    const RawAnswer answer = client.read_answer();
    EXPECT_EQ(answer.status, status) << bytes.substr(0, 60);
    EXPECT_TRUE(answer.whole);
    EXPECT_EQ(*answer.fields.find("Content-Type"), "application/json");
    EXPECT_EQ(*answer.fields.find("Connection"), "close");
    EXPECT_TRUE(answer.body.starts_with(R"({"error":{"message":")")) << answer.body;
    EXPECT_TRUE(client.closed_by_server());
  }
  EXPECT_EQ(fixture.server->counts().requests, 0);
  EXPECT_EQ(fixture.server->counts().requests_refused, 8);
}

TEST(HttpServerTest, TheAnswerToATooLongBodyArrivesWhileTheBodyIsStillSent) {
  ServerFixture fixture;
  fixture.options.body_bytes = 1000;
  RawClient client(fixture.start());
  std::thread sender([&] { client.request("POST", "/echo", std::string(8'000'000, 'x')); });
  EXPECT_EQ(client.read_answer().status, 413);
  sender.join();
}

TEST(HttpServerTest, ErrorsHaveTheBodyThatTheCallerWants) {
  ServerFixture fixture;
  fixture.options.error_body = [](int status, std::string_view message) {
    return std::to_string(status) + "|" + std::string(message);
  };
  fixture.options.error_content_type = "text/plain";
  RawClient client(fixture.start());
  client.send("GET nothing HTTP/1.1\r\n\r\n");
  const RawAnswer answer = client.read_answer();
  EXPECT_EQ(answer.body, "400|the request's target is no path");
  EXPECT_EQ(*answer.fields.find("Content-Type"), "text/plain");
}

TEST(HttpServerTest, ADroppedResponderIs500) {
  ServerFixture fixture;
  RawClient client(fixture.start());
  client.request("GET", "/drop");
  EXPECT_EQ(client.read_answer().status, 500);
  client.request("GET", "/hold");
  {
    const auto responder = fixture.responder();
    const std::lock_guard lock(fixture.mutex);
    fixture.held.clear();
  }
  EXPECT_EQ(client.read_answer().status, 500);
  client.request("GET", "/hello");
  EXPECT_EQ(client.read_answer().status, 200) << "the connection is still good";
}

TEST(HttpServerTest, AdmitRefusesBeforeTheBodyIsRead) {
  ServerFixture fixture;
  std::vector<int> refused;
  fixture.options.admit = [](const HttpRequest& request) -> std::optional<HttpAnswer> {
    EXPECT_TRUE(request.body.empty());
    if (request.find("Authorization")) return std::nullopt;
    return HttpAnswer{401, {{"WWW-Authenticate", "Bearer"}}, "key?"};
  };
  fixture.options.refused = [&](const HttpRequest& request, int status) {
    EXPECT_EQ(request.path, "/echo");
    EXPECT_EQ(request.peer, "127.0.0.1");
    refused.push_back(status);
  };
  const int port = fixture.start();
  RawClient client(port);
  // A short body is read and dropped, and the client may try again.
  client.request("POST", "/echo", "short");
  RawAnswer answer = client.read_answer();
  EXPECT_EQ(answer.status, 401);
  EXPECT_EQ(answer.body, "key?");
  client.request("POST", "/echo", "short", "Authorization: Bearer x\r\n");
  EXPECT_EQ(client.read_answer().body, "short");
  // A long one is not waited for, nor one that the client holds back.
  client.send("POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 100000000\r\n\r\n");
  EXPECT_EQ(client.read_answer().status, 401);
  EXPECT_TRUE(client.closed_by_server());
  RawClient waiting(port);
  waiting.send("POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n");
  EXPECT_EQ(waiting.read_answer().status, 401);
  fixture.server->stop();
  EXPECT_EQ(refused, std::vector<int>(3, 401));
}

TEST(HttpServerTest, SlowSendersMeetTheirDeadline) {
  ServerFixture fixture;
  fixture.options.header_deadline = 150ms;
  fixture.options.body_deadline = 150ms;
  fixture.options.idle_deadline = 150ms;
  const int port = fixture.start();
  RawClient silent(port), header(port), body(port), idle(port), trickle(port);
  header.send("GET /hello HTTP/1.1\r\nHo");
  body.send("POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\nabc");
  idle.request("GET", "/hello");
  EXPECT_EQ(idle.read_answer().status, 200);
  // Slowloris: bytes keep coming, the request never ends.
  std::thread sender([&] {
    trickle.send("GET / HTTP/1.1\r\n");
    for (int i = 0; i < 100 && trickle.send("A: b\r\n"); ++i) std::this_thread::sleep_for(10ms);
  });
  EXPECT_EQ(header.read_answer().status, 408);
  EXPECT_EQ(body.read_answer().status, 408);
  EXPECT_TRUE(silent.closed_by_server());
  EXPECT_TRUE(idle.closed_by_server());
  EXPECT_EQ(trickle.read_answer(5s).status, 408);
  sender.join();
  EXPECT_EQ(fixture.server->counts().deadlines_missed, 3);
  EXPECT_TRUE(eventually([&] { return fixture.server->counts().connections == 0; }));
}

TEST(HttpServerTest, ABodyMayTakeTheTimeThatItsBytesEarn) {
  ServerFixture fixture;
  fixture.options.body_deadline = 100ms;
  fixture.options.body_bytes_per_second = 10'000;
  RawClient client(fixture.start());
  client.send("POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 12000\r\n\r\n");
  for (int i = 0; i < 6; ++i) {  // 40,000 bytes a second for three times the deadline
    client.send(std::string(2000, 'x'));
    std::this_thread::sleep_for(50ms);
  }
  EXPECT_EQ(client.read_answer().status, 200);
}

TEST(HttpServerTest, TooManyConnectionsAreTold) {
  ServerFixture fixture;
  fixture.options.connections = 3;
  const int port = fixture.start();
  std::vector<RawClient> kept;
  for (int i = 0; i < 3; ++i) {
    kept.emplace_back(port);
    kept.back().request("GET", "/hello");
    EXPECT_EQ(kept.back().read_answer().status, 200);
  }
  RawClient refused(port);
  const RawAnswer answer = refused.read_answer();
  EXPECT_EQ(answer.status, 503);
  EXPECT_NE(answer.fields.find("Retry-After"), nullptr);
  kept.pop_back();
  EXPECT_TRUE(eventually([&] { return fixture.server->counts().connections == 2; }));
  RawClient next(port);
  next.request("GET", "/hello");
  EXPECT_EQ(next.read_answer().status, 200);
}

TEST(HttpServerTest, SeveralIoThreadsShareTheConnections) {
  ServerFixture fixture;
  fixture.options.threads = 3;
  const int port = fixture.start();
  std::vector<std::thread> clients;
  for (int c = 0; c < 6; ++c) {
    clients.emplace_back([port] {
      RawClient client(port);
      for (int i = 0; i < 200; ++i) {
        client.request("POST", "/echo", std::to_string(i));
        ASSERT_EQ(client.read_answer().body, std::to_string(i));
      }
    });
  }
  for (std::thread& client : clients) client.join();
  EXPECT_EQ(fixture.server->counts().requests, 1200);
}

TEST(HttpServerTest, APortThatIsTakenIsAnError) {
  ServerFixture first, second;
  const int port = first.start();
  second.options.port = port;
  HttpServer server(second.options, {});
  const auto started = server.start();
  ASSERT_FALSE(started.ok());
  EXPECT_EQ(started.error().code, ErrorCode::failed);
  EXPECT_NE(to_string(started.error()).find(std::to_string(port)), std::string::npos);
  HttpServerOptions nowhere;
  nowhere.host = "no.such.host.invalid";
  EXPECT_EQ(HttpServer(nowhere, {}).start().error().code, ErrorCode::bad_input);
}

TEST(HttpServerTest, DrainLetsRunningRequestsFinish) {
  ServerFixture fixture;
  const int port = fixture.start();
  RawClient idle(port), busy(port);
  idle.request("GET", "/hello");
  EXPECT_EQ(idle.read_answer().status, 200);
  busy.request("GET", "/hold");
  const auto responder = fixture.responder();
  EXPECT_FALSE(fixture.server->drain(50ms)) << "one still runs";
  EXPECT_TRUE(idle.closed_by_server());
  EXPECT_FALSE(RawClient(port).connected());
  responder->respond(200, {}, "done");
  const RawAnswer answer = busy.read_answer();
  EXPECT_EQ(answer.body, "done");
  EXPECT_EQ(*answer.fields.find("Connection"), "close");
  busy.close();
  EXPECT_TRUE(fixture.server->drain(10s));
}

TEST(HttpServerTest, StopCutsWhatIsLeftAndRespondersMayOutliveIt) {
  ServerFixture fixture;
  RawClient client(fixture.start());
  client.request("GET", "/hold");
  const auto responder = fixture.responder();
  fixture.server->stop();
  EXPECT_EQ(fixture.gone, 1);
  EXPECT_TRUE(responder->gone());
  fixture.server.reset();
  responder->respond(200, {}, "too late");
  EXPECT_FALSE(responder->write("x"));
  int called = 0;
  responder->on_gone([&] { ++called; });
  EXPECT_EQ(called, 1) << "at once, by the caller";
  EXPECT_FALSE(client.read_answer().whole);
}

TEST(HttpServerTest, ManyIdleConnectionsAreKept) {
  ServerFixture fixture;
  const int port = fixture.start();
  std::vector<RawClient> clients;
  for (int i = 0; i < 400; ++i) {  // 10,000 of them: http_server_bench
    clients.emplace_back(port);
    ASSERT_TRUE(clients.back().connected());
    clients.back().request("GET", "/hello");
  }
  for (RawClient& client : clients) ASSERT_EQ(client.read_answer().status, 200);
  EXPECT_EQ(fixture.server->counts().connections, 400);
  clients.clear();
  EXPECT_TRUE(eventually([&] { return fixture.server->counts().connections == 0; }));
}

}  // namespace
}  // namespace fathom::net
