// RFC 9112; the ways to smuggle a request are those of its section 11.2 and of published attacks.
#include "fathom/net/http/request_reader.h"

#include <gtest/gtest.h>

namespace fathom::net {
namespace {

using State = RequestReader::State;

/// Feeds `bytes` in pieces as a connection does: what was not taken comes again with the next piece behind it.
State feed_all(RequestReader& reader, std::string_view bytes, size_t piece = std::string_view::npos) {
  size_t begin = 0, end = 0;
  while (reader.state() != State::done && reader.state() != State::failed) {
    const size_t taken = reader.feed(bytes.substr(begin, end - begin));
    begin += taken;
    if (taken > 0) continue;
    if (end == bytes.size()) break;
    end = piece > bytes.size() - end ? bytes.size() : end + piece;
  }
  return reader.state();
}

int status_of(std::string_view bytes, RequestLimits limits = {}) {
  RequestReader reader(limits);
  const State state = feed_all(reader, bytes);
  return state == State::done ? 200 : state == State::failed ? reader.status() : 0;
}

TEST(RequestReaderTest, ARequestIsReadWholeHoweverItIsCut) {
  const std::string bytes =
      "\r\nPOST /v1/chat/completions?a=b HTTP/1.1\r\nHost: x\r\nContent-Type:  application/json \r\nContent-Length: "
      "5\r\n\r\nhello";
  for (size_t piece = 1; piece <= bytes.size(); ++piece) {
    RequestReader reader({});
    ASSERT_EQ(feed_all(reader, bytes, piece), State::done) << piece;
    EXPECT_TRUE(reader.keep_alive());
    EXPECT_EQ(reader.content_length(), 5);
    const HttpRequest request = reader.take();
    EXPECT_EQ(request.method, "POST");
    EXPECT_EQ(request.target, "/v1/chat/completions?a=b");
    EXPECT_EQ(request.path, "/v1/chat/completions");
    EXPECT_EQ(request.query, "a=b");
    EXPECT_EQ(*request.find("content-type"), "application/json");
    EXPECT_EQ(request.body, "hello");
    EXPECT_EQ(reader.state(), State::nothing);
  }
}

TEST(RequestReaderTest, ChunksAreJoinedAndTrailersDropped) {
  const std::string bytes =
      "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: "
      "chunked\r\n\r\n3\r\nabc\r\n8;x=\"y\"\r\ndefghijk\r\n0\r\nX-Key: "
      "evil\r\n\r\n";
  for (size_t piece = 1; piece <= bytes.size(); ++piece) {
    RequestReader reader({});
    ASSERT_EQ(feed_all(reader, bytes, piece), State::done) << piece;
    EXPECT_EQ(reader.content_length(), std::nullopt);
    const HttpRequest request = reader.take();
    EXPECT_EQ(request.body, "abcdefghijk");
    EXPECT_EQ(request.find("X-Key"), nullptr);
  }
}

// A body of "0\r\n\r\n" alone, sent byte by byte, made Beast 1.81 abort: any client could have ended the server.
TEST(RequestReaderTest, AnEmptyChunkedBodyMayComeInAnyPieces) {
  for (const std::string end : {"0\r\n\r\n", "000;x\r\n\r\n", "0\r\nA: b\r\n\r\n"}) {
    const std::string bytes = "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n" + end;
    for (size_t piece = 1; piece <= bytes.size(); ++piece) {
      RequestReader reader({});
      ASSERT_EQ(feed_all(reader, bytes, piece), State::done) << end << piece;
      EXPECT_EQ(reader.take().body, "");
    }
  }
}

TEST(RequestReaderTest, PipelinedRequestsAreReadOneByOne) {
  std::string bytes = "GET /1 HTTP/1.1\r\nHost: x\r\n\r\nGET /2 HTTP/1.1\r\nHost: x\r\n\r\n";
  RequestReader reader({});
  const size_t taken = reader.feed(bytes);
  ASSERT_EQ(reader.state(), State::done);
  EXPECT_EQ(taken, bytes.size() / 2);
  EXPECT_EQ(reader.feed(std::string_view(bytes).substr(taken)), 0u) << "nothing before it was taken";
  EXPECT_EQ(reader.take().path, "/1");
  reader.feed(std::string_view(bytes).substr(taken));
  EXPECT_EQ(reader.take().path, "/2");
}

TEST(RequestReaderTest, TheHeaderIsShownBeforeTheBody) {
  RequestReader reader({});
  const std::string_view bytes = "POST /x HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\nabc";
  EXPECT_EQ(reader.feed(bytes), bytes.size() - 3);
  EXPECT_EQ(reader.state(), State::body);
  EXPECT_TRUE(reader.expects_continue());
  EXPECT_EQ(reader.request().path, "/x");
  EXPECT_EQ(reader.feed("abc"), 3u);
  EXPECT_EQ(reader.state(), State::done);
}

TEST(RequestReaderTest, KeepAliveFollowsVersionAndConnection) {
  const auto keeps = [](std::string_view bytes) {
    RequestReader reader({});
    EXPECT_EQ(feed_all(reader, bytes), State::done);
    return reader.keep_alive();
  };
  EXPECT_TRUE(keeps("GET / HTTP/1.1\r\nHost: x\r\n\r\n"));
  EXPECT_FALSE(keeps("GET / HTTP/1.1\r\nHost: x\r\nConnection: Close\r\n\r\n"));
  EXPECT_FALSE(keeps("GET / HTTP/1.0\r\n\r\n"));
  EXPECT_TRUE(keeps("GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n"));
}

TEST(RequestReaderTest, AnAbsoluteTargetLosesItsSchemeAndHost) {
  const auto target = [](std::string_view form) {
    RequestReader reader({});
    EXPECT_EQ(feed_all(reader, "OPTIONS " + std::string(form) + " HTTP/1.1\r\nHost: x\r\n\r\n"), State::done) << form;
    return reader.take().target;
  };
  EXPECT_EQ(target("http://host:80/a?b"), "/a?b");
  EXPECT_EQ(target("HTTPS://host"), "/");
  EXPECT_EQ(target("http://host?b"), "/?b");
  EXPECT_EQ(target("*"), "*");
}

TEST(RequestReaderTest, EveryMistakeHasItsStatus) {
  const std::string host = "Host: x\r\n";
  EXPECT_EQ(status_of("GET / HTTP/1.1\r\n" + host + "\r\n"), 200);
  EXPECT_EQ(status_of("QUERY / HTTP/1.1\r\n" + host + "\r\n"), 200);
  EXPECT_EQ(status_of("GET / HTTP/1.1\r\n\r\n"), 400) << "no Host";
  EXPECT_EQ(status_of("GET / HTTP/1.1\r\n" + host + host + "\r\n"), 400) << "two Hosts";
  EXPECT_EQ(status_of("GET / HTTP/2.0\r\n" + host + "\r\n"), 505);
  EXPECT_EQ(status_of("GET / HTTP/1.2\r\n" + host + "\r\n"), 505);
  EXPECT_EQ(status_of("GET / HTTP/0.9\r\n" + host + "\r\n"), 505);
  EXPECT_EQ(status_of("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), 505);
  EXPECT_EQ(status_of("GET / HTTQ/1.1\r\n" + host + "\r\n"), 400);
  EXPECT_EQ(status_of("GET /\r\n\r\n"), 400) << "HTTP/0.9";
  EXPECT_EQ(status_of("\x16\x03\x01\x02\x01\x01\xfc\x03\x03"), 400) << "a TLS hello";
  EXPECT_EQ(status_of("BREW / HTTP/1.1\r\n" + host + "\r\n"), 501);
  EXPECT_EQ(status_of("CONNECT example.org:443 HTTP/1.1\r\n" + host + "\r\n"), 501);
  EXPECT_EQ(status_of("GET a HTTP/1.1\r\n" + host + "\r\n"), 400);
  EXPECT_EQ(status_of("GET * HTTP/1.1\r\n" + host + "\r\n"), 400);
  EXPECT_EQ(status_of("GET /a\x01 HTTP/1.1\r\n" + host + "\r\n"), 400);
  EXPECT_EQ(status_of("GET / HTTP/1.1\r\n" + host + "Na me: x\r\n\r\n"), 400);
  EXPECT_EQ(status_of("GET / HTTP/1.1\r\n" + host + "Name : x\r\n\r\n"), 400);
  EXPECT_EQ(status_of("GET / HTTP/1.1\r\n" + host + "Name: x\x01y\r\n\r\n"), 400);
  EXPECT_EQ(status_of("POST / HTTP/1.1\r\n" + host + "Expect: magic\r\n\r\n"), 417);
}

TEST(RequestReaderTest, NothingThatTwoServersCouldReadDifferentlyPasses) {
  const auto post = [](std::string fields) { return status_of("POST / HTTP/1.1\r\nHost: x\r\n" + fields + "\r\n"); };
  EXPECT_EQ(post("Content-Length: 0\r\nTransfer-Encoding: chunked\r\n"), 400);
  EXPECT_EQ(post("Transfer-Encoding: chunked\r\nContent-Length: 0\r\n"), 400);
  EXPECT_EQ(post("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n"), 400);
  EXPECT_EQ(post("Transfer-Encoding: chunked, chunked\r\n"), 501);
  EXPECT_EQ(post("Transfer-Encoding: gzip, chunked\r\n"), 501);
  EXPECT_EQ(post("Transfer-Encoding: identity\r\n"), 501);
  EXPECT_EQ(post("Transfer-Encoding: xchunked\r\n"), 501);
  EXPECT_EQ(post("Transfer-Encoding : chunked\r\n"), 400);
  EXPECT_EQ(post("Content-Length: 0\r\nContent-Length: 0\r\n"), 400);
  EXPECT_EQ(post("Content-Length: 0, 0\r\n"), 400);
  for (const char* length : {"+0", "-1", "0x0", "1e1", " ", "", "99999999999999999999", "0 0", "1\t1"}) {
    EXPECT_EQ(post("Content-Length: " + std::string(length) + "\r\n"), 400) << length;
  }
  EXPECT_EQ(status_of("POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"), 400);
  for (const char* chunks :
       {"x\r\nabc", "-1\r\nabc", "3\r\nabcd\r\n", "3\nabc\r\n0\r\n\r\n", "10000000000000000\r\n", "0x3\r\nabc\r\n"}) {
    EXPECT_EQ(post("Transfer-Encoding: chunked\r\n\r\n" + std::string(chunks)), 400) << chunks;
  }
  EXPECT_EQ(status_of("GET / HTTP/1.1\nHost: x\n\n"), 400) << "bare line feeds";
}

TEST(RequestReaderTest, LimitsHoldToTheByte) {
  // Beast's own limit let a header pass or not by how it was cut.
  const std::string exact = "GET /" + std::string(2000, 'a') + " HTTP/1.1\r\nHost: x\r\n\r\n";
  for (size_t piece = 1; piece <= exact.size(); piece = piece * 3 + 1) {
    RequestReader fits({.header_bytes = int64_t(exact.size())}), too_long({.header_bytes = int64_t(exact.size()) - 1});
    EXPECT_EQ(feed_all(fits, exact, piece), State::done) << piece;
    EXPECT_EQ(feed_all(too_long, exact, piece), State::failed) << piece;
  }
  const auto line = [](size_t path) { return "GET /" + std::string(path, 'a') + " HTTP/1.1\r\nHost: x\r\n\r\n"; };
  EXPECT_EQ(status_of(line(200), {.header_bytes = 1000}), 200);
  EXPECT_EQ(status_of(line(2000), {.header_bytes = 1000}), 414);
  EXPECT_EQ(status_of("GET /" + std::string(2000, 'a'), {.header_bytes = 1000}), 414) << "an unfinished one as well";
  EXPECT_EQ(status_of("GET / HTTP/1.1\r\nHost: x\r\nA: " + std::string(2000, 'a') + "\r\n\r\n", {.header_bytes = 1000}),
            431);
  EXPECT_EQ(status_of("GET / HTTP/1.1\r\nHost: x\r\nA: " + std::string(2000, 'a'), {.header_bytes = 1000}), 431);
  const std::string trailers =
      "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nA: " + std::string(2000, 'a') + "\r\n\r\n";
  for (const size_t piece : {1, 100, 10'000}) {
    RequestReader reader({.header_bytes = 1000});
    EXPECT_EQ(feed_all(reader, trailers, piece), State::failed) << "whole ones as well, however they are cut";
  }
  const auto body = [](size_t length) {
    return "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: " + std::to_string(length) + "\r\n\r\n" +
           std::string(length, 'b');
  };
  EXPECT_EQ(status_of(body(1000), {.body_bytes = 1000}), 200);
  EXPECT_EQ(status_of(body(1001), {.body_bytes = 1000}), 413);
  EXPECT_EQ(status_of("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1001\r\n\r\n", {.body_bytes = 1000}), 413)
      << "before the body";
  const std::string chunked = "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n";
  EXPECT_EQ(status_of(chunked + "2\r\nab\r\n1\r\nc\r\n0\r\n\r\n", {.body_bytes = 3}), 200);
  EXPECT_EQ(status_of(chunked + "2\r\nab\r\n2\r\n", {.body_bytes = 3}), 413);
  EXPECT_EQ(status_of(chunked + "1;" + std::string(3000, 'x'), {.header_bytes = 1000}), 431) << "an endless extension";
  EXPECT_EQ(status_of(chunked + "0\r\nA: " + std::string(3000, 'x'), {.header_bytes = 1000}), 431)
      << "endless trailers";
}

}  // namespace
}  // namespace fathom::net
