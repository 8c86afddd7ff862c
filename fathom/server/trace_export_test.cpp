#include "fathom/server/trace_export.h"

#include <mutex>
#include <set>

#include "fathom/net/http_server.h"
#include "fathom/server/service_fixture.h"

namespace fathom {
namespace {

constexpr const char* kParent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

/// A collector: keeps what it gets.
struct Collector {
  std::mutex mutex;
  std::vector<net::HttpRequest> got;
  int status = 200;
  std::vector<std::shared_ptr<net::HttpResponder>> held;
  bool hangs = false;
  net::HttpServer server;

  Collector()
      : server(options(), [this](net::HttpRequest request, std::shared_ptr<net::HttpResponder> responder) {
          const std::lock_guard lock(mutex);
          got.push_back(std::move(request));
          if (hangs) {
            held.push_back(std::move(responder));
          } else {
            responder->respond(status, {}, "{}");
          }
        }) {
    EXPECT_TRUE(server.start());
  }
  static net::HttpServerOptions options() {
    net::HttpServerOptions options;
    options.port = 0;
    return options;
  }
  std::string url() const { return "http://127.0.0.1:" + std::to_string(server.port()); }
  std::vector<Json> spans() {
    const std::lock_guard lock(mutex);
    std::vector<Json> all;
    for (const net::HttpRequest& request : got) {
      const auto body = parse_json(request.body, "spans");
      EXPECT_TRUE(body) << request.body;
      const Json& group = body->find("resourceSpans")->items.at(0);
      for (const Json& span : group.find("scopeSpans")->items.at(0).find("spans")->items) all.push_back(span);
    }
    return all;
  }
};

std::string text(const Json& object, const char* key) {
  const Json* value = object.find(key);
  return value != nullptr ? value->text : "";
}
std::string attribute(const Json& span, const std::string& key) {
  for (const Json& one : span.find("attributes")->items) {
    if (text(one, "key") == key) return one.find("value")->fields.at(0).second.text;
  }
  return "";
}
Span span(const std::string& name) {
  Span out;
  out.context = new_span({});
  out.name = name;
  return out;
}

TEST(TraceContextTest, ATraceparentIsReadAsTheRecommendationSays) {
  const auto read = read_traceparent(kParent);
  ASSERT_TRUE(read);
  EXPECT_EQ(read->trace_id, "4bf92f3577b34da6a3ce929d0e0e4736");
  EXPECT_EQ(read->span_id, "00f067aa0ba902b7");
  EXPECT_TRUE(read->sampled);
  EXPECT_EQ(traceparent_of(*read), kParent);
  EXPECT_FALSE(read_traceparent("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-02")->sampled);
  // A later version: what 00 has is read, more may follow.
  EXPECT_TRUE(read_traceparent("01-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-more"));
  for (const char* wrong : {"", "junk", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7",
                            "ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
                            "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
                            "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01",
                            "00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01",
                            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-0x",
                            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-more",
                            "00-4bf92f3577b34da6a3ce929d0e0e473600f067aa0ba902b7--01"}) {
    EXPECT_FALSE(read_traceparent(wrong)) << wrong;
  }
  const TraceContext child = new_span(read);
  EXPECT_EQ(child.trace_id, read->trace_id);
  EXPECT_NE(child.span_id, read->span_id);
  std::set<std::string> ids;
  for (int i = 0; i < 1000; ++i) ids.insert(new_span({}).trace_id);
  EXPECT_EQ(ids.size(), 1000u);
}

struct TraceExportTest : testing::Test {
  std::mutex mutex;
  std::string logged;
  Log log{{.times = false, .write = [this](std::string_view line) {
             const std::lock_guard lock(mutex);
             logged += line;
           }}};
  std::unique_ptr<TraceExport> open(TraceExportOptions options) {
    options.wait = std::chrono::milliseconds(1);
    auto opened = TraceExport::open(options, log);
    EXPECT_TRUE(opened) << to_string(opened.error());
    return opened ? std::move(*opened) : nullptr;
  }
};

TEST_F(TraceExportTest, SpansGoToTheCollectorsPathInTheFormOfOtlp) {
  Collector collector;
  for (const auto& [endpoint, path] :
       {std::pair(collector.url(), "/v1/traces"), std::pair(collector.url() + "/", "/v1/traces"),
        std::pair(collector.url() + "/my/own", "/my/own")}) {
    auto traces = open({.endpoint = endpoint, .version = "1.2"});
    Span one = span("POST /x");
    one.parent_id = "00f067aa0ba902b7";
    one.server = one.failed = true;
    one.begin = std::chrono::system_clock::time_point(std::chrono::seconds(1'700'000'000));
    one.end = one.begin + std::chrono::milliseconds(250);
    one.attributes = {{"http.response.status_code", int64_t(503)}, {"url.path", std::string("/x")}};
    traces->add({one});
    traces.reset();
    const net::HttpRequest& request = collector.got.back();
    EXPECT_EQ(request.path, path);
    EXPECT_EQ(request.method, "POST");
    EXPECT_EQ(*request.find("content-type"), "application/json");
    const Json sent = collector.spans().back();
    EXPECT_EQ(text(sent, "traceId"), one.context.trace_id);
    EXPECT_EQ(text(sent, "spanId"), one.context.span_id);
    EXPECT_EQ(text(sent, "parentSpanId"), "00f067aa0ba902b7");
    EXPECT_EQ(text(sent, "startTimeUnixNano"), "1700000000000000000");
    EXPECT_EQ(text(sent, "endTimeUnixNano"), "1700000000250000000");
    EXPECT_EQ(text(sent, "kind"), "2");
    EXPECT_EQ(text(*sent.find("status"), "code"), "2");
    EXPECT_EQ(attribute(sent, "http.response.status_code"), "503");
    EXPECT_EQ(attribute(sent, "url.path"), "/x");
    EXPECT_NE(request.body.find(R"("service.name")"), std::string::npos);
  }
  for (const char* wrong : {"", "collector:4318", "ftp://x", "http://", "http:///", "http://:4318", "http://x y:1"}) {
    EXPECT_EQ(TraceExport::open({.endpoint = wrong}, log).error().code, ErrorCode::usage) << wrong;
  }
}

TEST_F(TraceExportTest, ACollectorThatFailsCostsSpansAndOneWarning) {
  Collector collector;
  collector.status = 500;
  auto traces = open({.endpoint = collector.url(), .most_sent = 1});
  for (int i = 0; i < 3; ++i) traces->add({span("x")});
  for (int i = 0; i < 5000 && traces->dropped() < 3; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  EXPECT_EQ(traces->dropped(), 3);
  EXPECT_EQ(traces->sent(), 0);
  log.flush();
  const std::lock_guard lock(mutex);
  EXPECT_NE(logged.find("the collector takes no spans"), std::string::npos);
  EXPECT_EQ(logged.find("the collector takes no spans"), logged.rfind("the collector takes no spans"));
}

TEST_F(TraceExportTest, ACollectorThatHangsHoldsUpNothingForLong) {
  Collector collector;
  collector.hangs = true;
  auto traces = open({.endpoint = collector.url(), .most_waiting = 4});
  traces->add({span("x")});
  for (int i = 0; i < 5000 && collector.spans().empty(); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  const auto begin = std::chrono::steady_clock::now();
  traces->add(std::vector<Span>(10, span("y")));
  EXPECT_EQ(traces->dropped(), 6);
  traces.reset();
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(8));
}

struct TracesTest : ServiceTest {
  Collector collector;
  void SetUp() override {
    options.traces = TraceExportOptions{};
    options.traces->endpoint = collector.url();
    options.traces->wait = std::chrono::milliseconds(1);
  }
  std::vector<Json> spans(size_t count) {
    for (int i = 0; i < 5000 && collector.spans().size() < count; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return collector.spans();
  }
};

TEST_F(TracesTest, AnAnswerIsASpanOfItsClientsTraceWithItsParts) {
  fake.answer = [this](const Request&) { return says("Hello there", 4); };
  const auto answer = ask("POST", "/v1/chat/completions", chat(), {{"traceparent", kParent}, {"x-request-id", "abc"}});
  const auto all = spans(4);
  ASSERT_EQ(all.size(), 4u);
  const Json& whole = all[0];
  EXPECT_EQ(text(whole, "name"), "POST /v1/chat/completions");
  EXPECT_EQ(text(whole, "parentSpanId"), "00f067aa0ba902b7");
  EXPECT_EQ(attribute(whole, "http.response.status_code"), "200");
  EXPECT_EQ(attribute(whole, "fathom.request_id"), "abc");
  EXPECT_EQ(attribute(whole, "fathom.cached_tokens"), "4");
  EXPECT_EQ(attribute(whole, "gen_ai.usage.input_tokens"), "5");
  EXPECT_EQ(attribute(whole, "gen_ai.response.finish_reasons"), "stop");
  EXPECT_EQ(answer->field("traceparent"), "00-4bf92f3577b34da6a3ce929d0e0e4736-" + text(whole, "spanId") + "-01");
  EXPECT_TRUE(logs("trace=" + answer->field("traceparent")));
  std::vector<std::string> names;
  for (size_t i = 0; i < all.size(); ++i) {
    EXPECT_EQ(text(all[i], "traceId"), "4bf92f3577b34da6a3ce929d0e0e4736");
    EXPECT_LE(text(all[i], "startTimeUnixNano"), text(all[i], "endTimeUnixNano"));
    EXPECT_LE(text(whole, "startTimeUnixNano"), text(all[i], "startTimeUnixNano"));
    if (i == 0) continue;
    names.push_back(text(all[i], "name"));
    EXPECT_EQ(text(all[i], "parentSpanId"), text(whole, "spanId"));
  }
  EXPECT_EQ(names, (std::vector<std::string>{"queue", "prefill", "decode"}));
  EXPECT_EQ(text(all[1], "endTimeUnixNano"), text(all[2], "startTimeUnixNano"));
  EXPECT_EQ(text(all[2], "endTimeUnixNano"), text(all[3], "startTimeUnixNano"));
}

TEST_F(TracesTest, ARequestWithoutATraceBeginsOneAndOneThatIsNotSampledIsLeftAlone) {
  const auto refused = ask("POST", "/v1/messages", "{}");
  ask("GET", "/health");  // probes are no work, nor is what has no route
  EXPECT_EQ(ask("GET", "/nothing")->status, 404);
  EXPECT_EQ(ask("GET", "/health", "", {{"traceparent", kParent}})->field("traceparent"), kParent) << "no span of ours";
  ask("OPTIONS", "/v1/models");
  ask("GET", "/v1/models", "", {{"traceparent", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00"}});
  ask("GET", "/v1/models");
  const auto all = spans(2);
  ASSERT_EQ(all.size(), 2u);
  EXPECT_EQ(text(all[0], "name"), "POST /v1/messages");
  EXPECT_EQ(text(all[0], "parentSpanId"), "");
  EXPECT_EQ(attribute(all[0], "http.response.status_code"), "400");
  EXPECT_NE(refused->field("traceparent").find(text(all[0], "traceId")), std::string::npos);
  EXPECT_EQ(text(all[1], "name"), "GET /v1/models");
  EXPECT_NE(text(all[0], "traceId"), text(all[1], "traceId"));
}

}  // namespace
}  // namespace fathom
