// Streams: what the reader gets, and how one that went away or fell behind is noticed.
#include "fathom/net/http/server_fixture.h"
#include "fathom/net/server_sent_events.h"

namespace fathom::net {
namespace {

TEST(HttpServerStreamTest, PiecesArriveAsTheyAreWritten) {
  ServerFixture fixture;
  RawClient client(fixture.start());
  client.request("GET", "/hold");
  const auto responder = fixture.responder();
  responder->begin_stream(200, event_stream_fields());
  EXPECT_TRUE(client.read_until("X-Accel-Buffering: no"))
      << "the header does not wait for the first piece (cases http-04)";
  std::string event;
  append_sse_data(event, "one");
  EXPECT_TRUE(responder->write(event));
  EXPECT_TRUE(client.read_until("data: one\n\n"));
  EXPECT_TRUE(responder->write("data: two\n\n"));
  EXPECT_TRUE(responder->write(""));
  responder->end();
  const RawAnswer answer = client.read_answer();
  EXPECT_TRUE(answer.whole);
  EXPECT_EQ(answer.body, "data: one\n\ndata: two\n\n");
  EXPECT_EQ(*answer.fields.find("Transfer-Encoding"), "chunked");
  EXPECT_FALSE(responder->write("late"));
  client.request("GET", "/hello");
  EXPECT_EQ(client.read_answer().body, "hello") << "the connection goes on";
  EXPECT_EQ(fixture.gone, 0);
}

TEST(HttpServerStreamTest, ManyPiecesFromAnotherThreadKeepTheirOrder) {
  ServerFixture fixture;
  RawClient client(fixture.start());
  client.request("GET", "/hold");
  std::string want;
  for (int i = 0; i < 20'000; ++i) want += "data: " + std::to_string(i) + "\n\n";
  std::thread writer([responder = fixture.responder()] {
    responder->begin_stream(200, {});
    for (int i = 0; i < 20'000; ++i) ASSERT_TRUE(responder->write("data: " + std::to_string(i) + "\n\n"));
    responder->end();
  });
  EXPECT_EQ(client.read_answer(20s).body, want);
  writer.join();
}

TEST(HttpServerStreamTest, AnOldClientGetsTheEndByClosing) {
  ServerFixture fixture;
  RawClient client(fixture.start());
  client.send("GET /hold HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
  const auto responder = fixture.responder();
  responder->begin_stream(200, {});
  responder->write("a");
  responder->write("b");
  responder->end();
  const RawAnswer answer = client.read_answer();
  EXPECT_EQ(answer.body, "ab");
  EXPECT_EQ(answer.fields.find("Transfer-Encoding"), nullptr);
  EXPECT_EQ(*answer.fields.find("Connection"), "close");
}

TEST(HttpServerStreamTest, AHeadRequestGetsNoPieces) {
  ServerFixture fixture;
  RawClient client(fixture.start());
  client.request("HEAD", "/hold");
  const auto responder = fixture.responder();
  responder->begin_stream(200, {});
  EXPECT_TRUE(responder->write("a"));
  responder->end();
  EXPECT_EQ(client.read_answer(10s, true).status, 200);
  client.request("GET", "/hello");
  EXPECT_EQ(client.read_answer().body, "hello");
}

TEST(HttpServerStreamTest, AClientThatClosesIsNoticedWhileNothingIsWritten) {
  ServerFixture fixture;
  const int port = fixture.start();
  for (const bool streaming : {false, true}) {
    for (int how = 0; how < 3; ++how) {
      RawClient client(port);
      const auto before = size_t(fixture.gone);
      client.request("GET", "/hold");
      const auto responder = fixture.responder(before);
      if (streaming) {
        responder->begin_stream(200, {});
        EXPECT_TRUE(client.read_until("\r\n\r\n"));
      }
      const auto begin = std::chrono::steady_clock::now();
      how == 0 ? client.close() : how == 1 ? client.reset() : client.end_sending();
      EXPECT_TRUE(fixture.wait_gone(int(before) + 1)) << streaming << how;
      EXPECT_LT(std::chrono::steady_clock::now() - begin, 2s);
      EXPECT_TRUE(responder->gone());
      EXPECT_FALSE(responder->write("x"));
    }
  }
  EXPECT_EQ(fixture.gone, 6);
  EXPECT_EQ(fixture.server->counts().clients_gone, 6);
  EXPECT_TRUE(eventually([&] { return fixture.server->counts().connections == 0; }));
}

TEST(HttpServerStreamTest, AClientThatClosesBehindAPipelinedRequestIsNoticed) {
  ServerFixture fixture;
  RawClient client(fixture.start());
  client.request("GET", "/hold");
  client.request("GET", "/hello");
  const auto responder = fixture.responder();
  client.close();
  EXPECT_TRUE(fixture.wait_gone());
}

TEST(HttpServerStreamTest, AVanishedHostIsNoticedByTheProbes) {
  ServerFixture fixture;
  fixture.options.keepalive = 3s;
  RawClient client(fixture.start());
  client.request("GET", "/hold");
  const auto responder = fixture.responder();
  if (!client.vanish()) GTEST_SKIP() << "TCP_REPAIR is not permitted here";
  EXPECT_FALSE(fixture.wait_gone(1, 500ms)) << "no word came";
  EXPECT_TRUE(fixture.wait_gone(1, 20s));
}

TEST(HttpServerStreamTest, AReaderThatStopsReadingIsGivenUpWhenTooMuchWaits) {
  ServerFixture fixture;
  fixture.options.queued_bytes = 256 * 1024;
  RawClient client(fixture.start(), 4096);
  client.request("GET", "/hold");
  const auto responder = fixture.responder();
  responder->begin_stream(200, {});
  const std::string piece(16 * 1024, 'x');
  int written = 0;
  while (written < 10'000 && responder->write(piece)) {
    ++written;
    EXPECT_LE(responder->queued_bytes(), 256 * 1024);
    if (written % 16 == 0) std::this_thread::sleep_for(1ms);
  }
  EXPECT_LT(written, 10'000) << "160 MB are more than any socket holds";
  EXPECT_TRUE(fixture.wait_gone());
  EXPECT_EQ(fixture.server->counts().slow_readers_cut, 1);
  EXPECT_FALSE(client.read_answer(5s).whole) << "a half answer does not look whole";
}

TEST(HttpServerStreamTest, AReaderThatStopsReadingIsGivenUpAtTheDeadline) {
  ServerFixture fixture;
  fixture.options.write_deadline = 200ms;
  RawClient client(fixture.start(), 4096);
  client.request("GET", "/hold");
  fixture.responder()->respond(200, {}, std::string(50'000'000, 'x'));
  EXPECT_TRUE(fixture.wait_gone());
  EXPECT_EQ(fixture.server->counts().slow_readers_cut, 1);
}

TEST(HttpServerStreamTest, ASlowReaderThatGoesOnReadingGetsAll) {
  ServerFixture fixture;
  fixture.options.write_deadline = 500ms;
  RawClient client(fixture.start(), 4096);
  client.request("GET", "/large");
  std::this_thread::sleep_for(250ms);
  EXPECT_EQ(client.read_answer(30s).body.size(), 20'000'000u);
}

TEST(HttpServerStreamTest, AStreamThatIsDroppedOrAbortedLooksBroken) {
  ServerFixture fixture;
  const int port = fixture.start();
  for (const bool dropped : {false, true}) {
    RawClient client(port);
    client.request("GET", "/hold");
    auto responder = fixture.responder(0);
    {
      const std::lock_guard lock(fixture.mutex);
      fixture.held.clear();
    }
    responder->begin_stream(200, {});
    responder->write("half");
    EXPECT_TRUE(client.read_until("half"));
    if (!dropped) responder->abort();
    responder.reset();
    EXPECT_FALSE(client.read_answer().whole);
  }
}

TEST(HttpServerStreamTest, OnlyTheLastCallbackIsCalledAndNoneAfterTheEnd) {
  ServerFixture fixture;
  const int port = fixture.start();
  std::atomic<int> first = 0, second = 0;
  {
    RawClient client(port);
    client.request("GET", "/hold");
    fixture.responder(0)->on_gone([&] { ++first; });
    fixture.responder(0)->on_gone([&] { ++second; });
  }
  EXPECT_TRUE(eventually([&] { return second == 1; }));
  EXPECT_EQ(first, 0);
  {
    RawClient client(port);
    client.request("GET", "/hold");
    fixture.responder(1)->respond(200, {}, "");
    EXPECT_EQ(client.read_answer().status, 200);
    fixture.responder(1)->on_gone([&] { ++first; });
  }
  EXPECT_TRUE(eventually([&] { return fixture.server->counts().connections == 0; }));
  EXPECT_EQ(first, 0);
  EXPECT_EQ(fixture.gone, 0) << "the fixture's own were replaced or ended";
}

TEST(HttpServerStreamTest, WritersAndLeaversInDisorderLeaveNothingBehind) {
  ServerFixture fixture;
  fixture.options.threads = 2;
  const int port = fixture.start();
  constexpr int count = 60;
  std::vector<std::thread> writers;
  for (int i = 0; i < count; ++i) {
    RawClient client(port);
    client.request("GET", "/hold");
    writers.emplace_back([responder = fixture.responder(size_t(i))] {
      responder->begin_stream(200, {});
      for (int n = 0; n < 200 && responder->write("data: x\n\n"); ++n) std::this_thread::sleep_for(100us);
      responder->end();
    });
    if (i % 3 != 0) std::this_thread::sleep_for(std::chrono::milliseconds(i % 7));
    if (i % 2 == 0) client.reset();
  }
  for (std::thread& writer : writers) writer.join();
  fixture.held.clear();
  EXPECT_TRUE(eventually([&] { return fixture.server->counts().connections == 0; }));
  EXPECT_EQ(fixture.server->counts().requests_running, 0);
}

TEST(HttpServerStreamTest, ASinkGetsWhatAConnectionWould) {
  std::string said;
  const auto sink = [&] {
    return HttpSink{
        .respond = [&](HttpAnswer answer) { said += "respond " + std::to_string(answer.status) + answer.body + "\n"; },
        .begin_stream = [&](int status, HttpFields) { said += "begin " + std::to_string(status) + "\n"; },
        .write =
            [&](std::string_view bytes) { return (said += "write " + std::string(bytes) + "\n", bytes != "full"); },
        .end = [&] { said += "end\n"; },
        .abort = [&] { said += "abort\n"; }};
  };
  HttpResponder(sink()).respond(200, {}, "x");
  EXPECT_EQ(std::exchange(said, {}), "respond 200x\n");
  {
    HttpResponder responder(sink());
    responder.begin_stream(200, {});
    EXPECT_TRUE(responder.write("a"));
    responder.end();
    EXPECT_FALSE(responder.write("b"));
    responder.respond(500, {}, "");
  }
  EXPECT_EQ(std::exchange(said, {}), "begin 200\nwrite a\nend\n");
  {
    HttpResponder responder(sink());
    responder.begin_stream(200, {});
  }
  EXPECT_EQ(std::exchange(said, {}), "begin 200\nabort\n");
  int gone = 0;
  {
    HttpResponder responder(sink());
    responder.on_gone([&] { ++gone; });
    responder.begin_stream(200, {});
    EXPECT_FALSE(responder.write("full"));
    EXPECT_EQ(gone, 1);
    EXPECT_TRUE(responder.gone());
    responder.reader_gone();
    responder.on_gone([&] { ++gone; });
  }
  EXPECT_EQ(gone, 2);
}

}  // namespace
}  // namespace fathom::net
