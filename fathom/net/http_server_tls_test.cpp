// TLS with certificates made in the test; the other side is libcurl and OpenSSL itself.
#include <openssl/ssl.h>

#include <filesystem>

#include "fathom/net/http/server_fixture.h"
#include "fathom/net/http/test_certificate.h"
#include "fathom/net/http_client.h"

namespace fathom::net {
namespace {

struct HttpServerTlsTest : testing::Test {
  std::filesystem::path folder = std::filesystem::temp_directory_path() / ("fathom_tls_" + std::to_string(getpid()));
  ServerFixture fixture;
  HttpClient client;
  EndpointRequest request;

  void SetUp() override {
    std::filesystem::create_directories(folder);
    write_test_certificate(folder / "certificate.pem", folder / "key.pem", "first");
    fixture.options.tls_certificate_file = folder / "certificate.pem";
    fixture.options.tls_key_file = folder / "key.pem";
    request.ca_file = fixture.options.tls_certificate_file;
    request.method = "GET";
  }
  void TearDown() override { std::filesystem::remove_all(folder); }
  void start() { request.url = "https://localhost:" + std::to_string(fixture.start()); }
  EndpointRequest to(const std::string& path, std::string body = {}) const {
    EndpointRequest copy = request;
    copy.url += path;
    copy.method = body.empty() ? "GET" : "POST";
    copy.body = std::move(body);
    return copy;
  }

  /// The common name of the certificate that a new connection is shown; empty when the handshake fails.
  std::string name_shown(int highest_version = TLS1_3_VERSION) {
    SSL_CTX* context = SSL_CTX_new(TLS_client_method());
    SSL_CTX_set_security_level(context, 0);
    SSL_CTX_set_min_proto_version(context, 0);
    SSL_CTX_set_max_proto_version(context, highest_version);
    RawClient raw(fixture.server->port());
    SSL* tls = SSL_new(context);
    SSL_set_fd(tls, raw.socket());
    char name[64] = {};
    if (SSL_connect(tls) == 1) {
      X509* certificate = SSL_get1_peer_certificate(tls);
      X509_NAME_get_text_by_NID(X509_get_subject_name(certificate), NID_commonName, name, sizeof name);
      X509_free(certificate);
    }
    SSL_free(tls);
    SSL_CTX_free(context);
    return name;
  }
};

TEST_F(HttpServerTlsTest, RequestsAndLargeBodiesGoBothWays) {
  start();
  for (int i = 0; i < 10; ++i) {
    const auto answer = client.send(to("/hello"));
    ASSERT_TRUE(answer.ok()) << to_string(answer.error());
    EXPECT_EQ(answer->body, "hello");
  }
  EXPECT_TRUE(fixture.requests[0].secure);
  EXPECT_EQ(fixture.server->counts().connections_accepted, 1);
  const std::string body(3'000'000, 'b');
  EXPECT_EQ(client.send(to("/echo", body))->body, body);
  EXPECT_EQ(client.send(to("/large"))->body.size(), 20'000'000u);
}

TEST_F(HttpServerTlsTest, StreamsFlowAndAClientThatLeavesIsNoticed) {
  start();
  std::thread writer([&] {
    const auto responder = fixture.responder();
    responder->begin_stream(200, {});
    for (int i = 0; i < 100'000 && responder->write("data: x\n\n"); ++i) std::this_thread::sleep_for(1ms);
  });
  int pieces = 0;
  EXPECT_EQ(client.send(to("/hold"), [&](std::string_view) { return ++pieces < 5; }).error().code,
            ErrorCode::interrupted);
  writer.join();
  EXPECT_TRUE(fixture.wait_gone());
}

TEST_F(HttpServerTlsTest, AConnectionThatClosesBehindTheAnswerEndsProperly) {
  start();
  EndpointRequest closing = to("/hello");
  closing.fields = {{"Connection", "close"}};
  EXPECT_EQ(client.send(closing)->body, "hello");
  EXPECT_TRUE(eventually([&] { return fixture.server->counts().connections == 0; }));
}

TEST_F(HttpServerTlsTest, ReloadShowsTheNewCertificateToNewConnections) {
  start();
  EXPECT_EQ(name_shown(), "first");
  EXPECT_TRUE(client.send(to("/hello")).ok());
  write_test_certificate(folder / "certificate.pem", folder / "key.pem", "second");
  EXPECT_EQ(name_shown(), "first");
  ASSERT_TRUE(fixture.server->reload().ok());
  EXPECT_EQ(name_shown(), "second");
  EXPECT_TRUE(client.send(to("/hello")).ok()) << "a connection from before goes on";

  write_test_certificate(folder / "other.pem", folder / "key.pem", "other");
  const auto mismatch = fixture.server->reload();
  ASSERT_FALSE(mismatch.ok());
  EXPECT_EQ(mismatch.error().code, ErrorCode::bad_input);
  std::filesystem::remove(folder / "certificate.pem");
  EXPECT_FALSE(fixture.server->reload().ok());
  EXPECT_EQ(name_shown(), "second") << "what was good stays";
}

TEST_F(HttpServerTlsTest, OldProtocolsAndNoiseFailTheHandshakeOnly) {
  fixture.options.header_deadline = 300ms;
  start();
  EXPECT_EQ(name_shown(TLS1_1_VERSION), "");
  EXPECT_EQ(name_shown(TLS1_2_VERSION), "first");
  RawClient plain(fixture.server->port()), silent(fixture.server->port());
  plain.send("GET /hello HTTP/1.1\r\nHost: x\r\n\r\n");
  EXPECT_TRUE(plain.closed_by_server());
  EXPECT_TRUE(silent.closed_by_server());
  EXPECT_TRUE(eventually([&] { return fixture.server->counts().tls_handshakes_failed == 3; }));
  EXPECT_TRUE(client.send(to("/hello")).ok());
}

TEST_F(HttpServerTlsTest, ManyWritersOverTlsLeaveNothingBehind) {
  start();
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([this, i] {
      HttpClient own;
      int pieces = 0;
      (void)own.send(to("/hold"), [&](std::string_view) { return ++pieces < 3 * i; });
    });
  }
  for (size_t i = 0; i < 8; ++i) {
    threads.emplace_back([responder = fixture.responder(i)] {
      responder->begin_stream(200, {});
      for (int n = 0; n < 100 && responder->write(std::string(2000, 'x')); ++n) std::this_thread::sleep_for(1ms);
      responder->end();
    });
  }
  for (std::thread& thread : threads) thread.join();
  fixture.held.clear();
  EXPECT_TRUE(eventually([&] { return fixture.server->counts().connections == 0; }));
}

TEST_F(HttpServerTlsTest, FilesThatAreNoneOrIncompleteAreNamed) {
  HttpServerOptions options = fixture.options;
  options.port = 0;
  options.tls_key_file.clear();
  EXPECT_EQ(HttpServer(options, {}).start().error().code, ErrorCode::bad_input);
  options.tls_key_file = folder / "missing.pem";
  const auto started = HttpServer(options, {}).start();
  ASSERT_FALSE(started.ok());
  EXPECT_NE(to_string(started.error()).find("missing.pem"), std::string::npos);
}

}  // namespace
}  // namespace fathom::net
