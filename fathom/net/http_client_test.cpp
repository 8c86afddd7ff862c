// Against our own server, over TLS where a stranger's URL is fetched: the rules for addresses are the real ones where a
// refusal is tested, and let this machine in where a transfer is.
#include "fathom/net/http_client.h"

#include <filesystem>

#include "fathom/net/http/fetch.h"
#include "fathom/net/http/server_fixture.h"
#include "fathom/net/http/test_certificate.h"
#include "fathom/net/public_address.h"

namespace fathom::net {
namespace {

/// A TLS server with redirects and bodies of all sizes.
struct FetchTest : testing::Test {
  std::filesystem::path folder = std::filesystem::temp_directory_path() / ("fathom_fetch_" + std::to_string(getpid()));
  std::unique_ptr<HttpServer> server;
  FetchPolicy policy;
  std::string base;
  std::vector<std::string> asked;  // addresses
  std::vector<std::shared_ptr<HttpResponder>> held;

  void SetUp() override {
    std::filesystem::create_directories(folder);
    policy.ca_file = folder / "certificate.pem";
    write_test_certificate(policy.ca_file, folder / "key.pem", "fetch");
    HttpServerOptions options;
    options.port = 0;
    options.tls_certificate_file = policy.ca_file;
    options.tls_key_file = folder / "key.pem";
    server =
        std::make_unique<HttpServer>(options, [this](HttpRequest request, std::shared_ptr<HttpResponder> responder) {
          const std::string number = request.path.substr(request.path.rfind('/') + 1);
          if (request.path == "/image") responder->respond(200, {{"Content-Type", "image/png"}}, "pixels");
          if (request.path == "/missing") responder->respond(404, {}, "");
          if (request.path.starts_with("/bytes/")) responder->respond(200, {}, std::string(std::stoul(number), 'x'));
          if (request.path.starts_with("/chunks/")) {
            responder->begin_stream(200, {});
            responder->write(std::string(std::stoul(number), 'x'));
            responder->end();
          }
          if (request.path.starts_with("/again/")) {
            const int left = std::stoi(number);
            responder->respond(302, {{"Location", left == 0 ? "/image" : "/again/" + std::to_string(left - 1)}}, "");
          }
          if (request.path == "/to") responder->respond(302, {{"Location", *request.query_value("url")}}, "");
          if (request.path == "/nowhere") responder->respond(302, {}, "");
          if (request.path == "/hang") held.push_back(std::move(responder));
        });
    ASSERT_TRUE(server->start().ok());
    base = "https://localhost:" + std::to_string(server->port());
    policy.url_allowed = [this](const std::string& url) -> Result<void> {
      if (url.starts_with(base)) return {};
      return check_public_url(url);
    };
    policy.address_allowed = [this](std::string_view address) {
      asked.emplace_back(address);
      return address == "127.0.0.1" || address == "::1";
    };
  }
  void TearDown() override {
    server->stop();
    std::filesystem::remove_all(folder);
  }
  Result<FetchedContent> get(const std::string& path, FetchLimits limits = {}) {
    return fetch(base + path, limits, policy, {});
  }
};

TEST_F(FetchTest, ContentIsFetchedWithItsType) {
  const auto content = get("/image");
  ASSERT_TRUE(content.ok()) << to_string(content.error());
  EXPECT_EQ(content->bytes, "pixels");
  EXPECT_EQ(content->content_type, "image/png");
  EXPECT_FALSE(asked.empty()) << "every address passes the callback";
}

TEST_F(FetchTest, AnAddressThatIsNotPublicIsRefusedAfterItsNameWasResolved) {
  policy.address_allowed = nullptr;  // the real rule; the name is an innocent one
  const auto content = get("/image");
  ASSERT_FALSE(content.ok());
  EXPECT_EQ(content.error().code, ErrorCode::failed);
  EXPECT_NE(to_string(content.error()).find("not a public one"), std::string::npos);
  EXPECT_EQ(server->counts().connections_accepted, 0) << "nothing was connected";
}

TEST_F(FetchTest, RedirectsAreFollowedAndCountedAndCheckedAnew) {
  EXPECT_EQ(get("/again/2")->url, base + "/image");
  EXPECT_EQ(get("/again/3").error().code, ErrorCode::out_of_range);
  const int64_t before = server->counts().connections_accepted;
  for (const char* url :
       {"http://example.org/", "https://127.0.0.1/", "https://[::1]/", "https://169.254.169.254/latest/meta-data/",
        "file:///etc/passwd", "gopher://x/", "https://user@example.org/", "https://example.org:8443/"}) {
    const auto content = get("/to?url=" + std::string(url));
    ASSERT_FALSE(content.ok()) << url;
    EXPECT_EQ(content.error().code, ErrorCode::bad_input) << url;
  }
  EXPECT_EQ(server->counts().connections_accepted, before + 8) << "one each, for the redirect itself";
  EXPECT_EQ(get("/nowhere").error().code, ErrorCode::bad_input);
}

TEST_F(FetchTest, ContentIsCutAtItsLimitAnnouncedOrNot) {
  const FetchLimits limits{.bytes = 10'000};
  EXPECT_EQ(get("/bytes/10000", limits)->bytes.size(), 10'000u);
  EXPECT_EQ(get("/bytes/10001", limits).error().code, ErrorCode::out_of_range);
  EXPECT_EQ(get("/chunks/10000", limits)->bytes.size(), 10'000u);
  EXPECT_EQ(get("/chunks/10001", limits).error().code, ErrorCode::out_of_range);
}

TEST_F(FetchTest, AStatusOtherThan200IsAnError) { EXPECT_EQ(get("/missing").error().code, ErrorCode::bad_input); }

TEST_F(FetchTest, ADownloadThatHangsEndsAtItsDeadlineOrWhenStopped) {
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_EQ(get("/hang", {.total = 200ms}).error().code, ErrorCode::failed);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 5s);
  std::stop_source source;
  std::thread stopper([&] {
    std::this_thread::sleep_for(100ms);
    source.request_stop();
  });
  EXPECT_EQ(fetch(base + "/hang", {}, policy, source.get_token()).error().code, ErrorCode::interrupted);
  stopper.join();
}

TEST_F(FetchTest, AnUnknownCertificateIsRefused) {
  policy.ca_file.clear();
  EXPECT_EQ(get("/image").error().code, ErrorCode::failed);
}

TEST(FetchPublicTest, WhatIsNotPublicIsNotEvenLookedUp) {
  for (const char* url : {"http://example.org/a.png", "https://127.0.0.1/", "https://user:word@example.org/",
                          "https://example.org:81/"}) {
    EXPECT_EQ(fetch_public(url).error().code, ErrorCode::bad_input) << url;
  }
  // A name that resolves to this machine.
  EXPECT_EQ(fetch_public("https://localhost/").error().code, ErrorCode::failed);
}

TEST(HttpClientTest, AnAnswerIsCollectedOrStreamed) {
  ServerFixture fixture;
  EndpointRequest request;
  request.url = "http://127.0.0.1:" + std::to_string(fixture.start()) + "/echo";
  request.body = R"({"a":1})";
  request.fields = {{"Authorization", "Bearer x"}};
  HttpClient client;
  for (int i = 0; i < 3; ++i) {
    const auto answer = client.send(request);
    ASSERT_TRUE(answer.ok()) << to_string(answer.error());
    EXPECT_EQ(answer->status, 200);
    EXPECT_EQ(answer->body, request.body);
    EXPECT_GT(answer->until_header.count(), 0);
    EXPECT_EQ(*answer->fields.find("content-length"), "7");
  }
  EXPECT_EQ(fixture.server->counts().connections_accepted, 1) << "the connection is kept";
  EXPECT_EQ(*fixture.requests[0].find("Authorization"), "Bearer x");
  EXPECT_EQ(*fixture.requests[0].find("Content-Type"), "application/json");

  request.url = request.url.substr(0, request.url.rfind('/')) + "/hold";
  std::string seen;
  std::thread writer([&] {
    const auto responder = fixture.responder();
    responder->begin_stream(200, {});
    for (int i = 0; i < 5; ++i) {
      responder->write("data: " + std::to_string(i) + "\n\n");
      std::this_thread::sleep_for(5ms);
    }
    responder->end();
  });
  const auto answer = client.send(request, [&](std::string_view bytes) {
    seen += bytes;
    return true;
  });
  writer.join();
  EXPECT_EQ(answer->status, 200);
  EXPECT_EQ(answer->body, "");
  EXPECT_EQ(seen, "data: 0\n\ndata: 1\n\ndata: 2\n\ndata: 3\n\ndata: 4\n\n");
}

TEST(HttpClientTest, AStatusThatIsNoSuccessIsCollectedEvenWithACallback) {
  ServerFixture fixture;
  EndpointRequest request;
  request.url = "http://127.0.0.1:" + std::to_string(fixture.start()) + "/drop";
  HttpClient client;
  const auto answer = client.send(request, [](std::string_view) { return false; });
  ASSERT_TRUE(answer.ok());
  EXPECT_EQ(answer->status, 500);
  EXPECT_NE(answer->body.find("error"), std::string::npos);
}

TEST(HttpClientTest, ATransferStopsWhenTheCallbackOrTheTokenSays) {
  ServerFixture fixture;
  EndpointRequest request;
  request.url = "http://127.0.0.1:" + std::to_string(fixture.start()) + "/hold";
  HttpClient client;
  std::thread writer([&] {
    const auto responder = fixture.responder(0);
    responder->begin_stream(200, {});
    responder->write("x");
  });
  EXPECT_EQ(client.send(request, [](std::string_view) { return false; }).error().code, ErrorCode::interrupted);
  writer.join();
  EXPECT_TRUE(fixture.wait_gone(1));
  std::stop_source source;
  std::thread stopper([&] {
    fixture.responder(1);
    source.request_stop();
  });
  EXPECT_EQ(client.send(request, {}, source.get_token()).error().code, ErrorCode::interrupted);
  stopper.join();
  EXPECT_TRUE(fixture.wait_gone(2));
}

TEST(HttpClientTest, SilenceAndBrokenAnswersAreErrors) {
  ServerFixture fixture;
  EndpointRequest request;
  const int port = fixture.start();
  request.url = "http://127.0.0.1:" + std::to_string(port) + "/hold";
  request.silence = 1s;
  HttpClient client;
  EXPECT_EQ(client.send(request).error().code, ErrorCode::failed);
  std::thread cutter([&] {
    const auto responder = fixture.responder(1);
    responder->begin_stream(200, {});
    responder->write("half");
    std::this_thread::sleep_for(20ms);
    responder->abort();
  });
  EXPECT_EQ(client.send(request).error().code, ErrorCode::failed);
  cutter.join();
  request.url = "nonsense://x";
  EXPECT_EQ(client.send(request).error().code, ErrorCode::bad_input);
  fixture.server->stop();
  request.url = "http://127.0.0.1:" + std::to_string(port) + "/hello";
  EXPECT_EQ(client.send(request).error().code, ErrorCode::failed);
}

}  // namespace
}  // namespace fathom::net
