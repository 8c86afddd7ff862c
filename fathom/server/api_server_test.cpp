// The service on a socket: what is answered before there is a model, and what stands between the socket and the routes.
#include "fathom/server/api_server.h"

#include <tuple>

#include "fathom/net/http_client.h"
#include "fathom/server/service_fixture.h"
#include "fathom/server/web_page.h"

namespace fathom {
namespace {

struct ApiServerTest : ServiceTest {
  std::unique_ptr<ApiServer> server;
  std::string base;
  net::HttpClient client;

  void listen(PageOf page = web_page) {
    net::HttpServerOptions http;
    http.port = 0;
    auto opened = ApiServer::listen(http, log, std::move(page));
    ASSERT_TRUE(opened) << to_string(opened.error());
    server = std::move(*opened);
    base = "http://127.0.0.1:" + std::to_string(server->port());
  }
  void TearDown() override {
    if (server) server->stop();
  }
  net::EndpointAnswer get(const std::string& path, const char* method = "GET") {
    net::EndpointRequest request;
    request.method = method;
    request.url = base + path;
    auto answer = client.send(request);
    EXPECT_TRUE(answer) << (answer ? "" : to_string(answer.error()));
    return answer ? *answer : net::EndpointAnswer();
  }
};

TEST_F(ApiServerTest, WhileTheModelLoadsThePageIsThereAndSaysSo) {
  listen();
  const auto page = get("/");
  EXPECT_EQ(page.status, 200);
  EXPECT_EQ(*page.fields.find("content-type"), "text/html; charset=utf-8");
  EXPECT_EQ(get("/web/page.js").status, 200);
  EXPECT_EQ(get("/health").status, 200);
  const auto ready = get("/ready");
  EXPECT_EQ(ready.status, 503);
  EXPECT_NE(ready.body.find("the model is loading"), std::string::npos);
  EXPECT_TRUE(ready.fields.find("retry-after"));
  for (const char* path : {"/v1/models", "/metrics", "/nothing"}) {
    const auto answer = get(path);
    EXPECT_EQ(answer.status, 503) << path;
    EXPECT_NE(answer.body.find("the model is loading"), std::string::npos) << path;
    EXPECT_TRUE(answer.fields.find("retry-after")) << path;
  }
  start();
  server->serve(*service);
  EXPECT_EQ(get("/ready").status, 200);
  EXPECT_EQ(get("/v1/models").status, 200);
}

TEST_F(ApiServerTest, WithoutAPageThereIsNoneWhileTheModelLoadsEither) {
  listen({});
  EXPECT_EQ(get("/").status, 503);
}

// RFC 9110 9.1: a method that is known and that the path has not is 405, with those it has; an unknown one is 501.
TEST_F(ApiServerTest, AKnownMethodThatAPathHasNotIs405AndAnUnknownOneIs501) {
  options.page = web_page;
  start();
  listen();
  server->serve(*service);
  for (const auto& [method, path, allowed] :
       {std::tuple("TRACE", "/v1/messages", "OPTIONS, POST"), std::tuple("TRACE", "/health", "OPTIONS, GET, HEAD"),
        std::tuple("QUERY", "/v1/messages", "OPTIONS, POST"), std::tuple("QUERY", "/metrics", "OPTIONS, GET, HEAD"),
        std::tuple("PUT", "/v1/models", "OPTIONS, GET, HEAD"), std::tuple("TRACE", "/", "OPTIONS, GET, HEAD"),
        std::tuple("PATCH", "/v1/responses/resp_1", "OPTIONS, GET, HEAD, DELETE")}) {
    const auto answer = get(path, method);
    EXPECT_EQ(answer.status, 405) << method << path;
    ASSERT_TRUE(answer.fields.find("allow")) << method << path;
    EXPECT_EQ(*answer.fields.find("allow"), allowed) << method << path;
    EXPECT_TRUE(parse_json(answer.body, "answer")) << answer.body;
  }
  EXPECT_EQ(get("/v1/nothing", "TRACE").status, 404);
  EXPECT_EQ(get("/health", "BREW").status, 501);
}

TEST_F(ApiServerTest, AnEngineThatEndedIsToldByHealthAndEveryRequest) {
  start();
  listen();
  server->serve(*service);
  EXPECT_EQ(get("/health").status, 200);
  fake.lost = Error{ErrorCode::failed, "device 0 fell off the bus", "cuda", ""};
  const auto failed = ask("POST", "/v1/chat/completions", chat());
  EXPECT_EQ(failed->status, 503);
  EXPECT_NE(failed->at("error", "message").text.find("device 0 fell off the bus"), std::string::npos) << failed->body;
  for (const char* path : {"/health", "/ready"}) {
    const auto answer = get(path);
    EXPECT_EQ(answer.status, 503) << path;
    EXPECT_NE(answer.body.find("device 0 fell off the bus"), std::string::npos) << answer.body;
  }
  EXPECT_EQ(ask("POST", "/v1/messages", messages())->status, 503);
}

}  // namespace
}  // namespace fathom
