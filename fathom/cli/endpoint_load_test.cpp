// The load generator against a server of the same process that streams canned events at known times.
#include "fathom/cli/endpoint_load.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <mutex>
#include <thread>

#include "fathom/base/json.h"
#include "fathom/cli/bench_serve_report.h"
#include "fathom/net/http_server.h"
#include "fathom/net/server_sent_events.h"

namespace fathom::cli {
namespace {

using std::chrono::milliseconds;

/// Answers each request on a thread of its own, as `answer` says, which leaves the end of its stream to the server: a
/// request counts as running until then, not until after it, when the client may have asked the next one.
class CannedServer {
 public:
  using Answer = std::function<void(const Json& body, net::HttpResponder& to)>;
  explicit CannedServer(Answer answer)
      : answer_(std::move(answer)),
        server_(any_port(), [this](net::HttpRequest request, std::shared_ptr<net::HttpResponder> to) {
          const std::lock_guard lock(mutex_);
          threads_.emplace_back([this, request = std::move(request), to = std::move(to)] {
            if (request.path == "/v1/models") {
              to->respond(200, {}, R"({"data":[{"id":"first","context_length":4096},{"id":"second"}]})");
              return;
            }
            {
              const std::lock_guard guard(mutex_);
              if (const std::string* key = request.find("authorization")) key_ = *key;
              most_ = std::max(most_, ++running_);
            }
            answer_(*parse_json(request.body, "body"), *to);
            {
              const std::lock_guard guard(mutex_);
              --running_;
            }
            to->end();
          });
        }) {
    check(server_.start().ok(), "the test's server starts");
  }
  static net::HttpServerOptions any_port() {
    net::HttpServerOptions options;
    options.port = 0;
    return options;
  }
  ~CannedServer() {
    server_.stop();
    for (std::thread& thread : threads_) thread.join();
  }
  std::string url() const { return "http://127.0.0.1:" + std::to_string(server_.port()); }
  int most() {
    const std::lock_guard lock(mutex_);
    return most_;
  }
  std::string key() {
    const std::lock_guard lock(mutex_);
    return key_;
  }

 private:
  Answer answer_;
  std::mutex mutex_;
  std::vector<std::thread> threads_;
  std::string key_;
  int running_ = 0, most_ = 0;
  net::HttpServer server_;
};

bool say(net::HttpResponder& to, std::string_view data) {
  std::string event;
  net::append_sse_data(event, data);
  return to.write(event);
}

/// 60 ms to the first token, 20 ms between the five, with their end.
void whole_answer(const Json&, net::HttpResponder& to) {
  to.begin_stream(200, net::event_stream_fields());
  std::this_thread::sleep_for(milliseconds(60));
  for (int i = 0; i < 5; ++i) {
    if (i > 0) std::this_thread::sleep_for(milliseconds(20));
    say(to, R"({"choices":[{"delta":{"content":"x"}}]})");
  }
  say(to, R"({"choices":[{"delta":{},"finish_reason":"length"}]})");
  say(to,
      R"({"choices":[],"usage":{"prompt_tokens":11,"completion_tokens":9,"prompt_tokens_details":{"cached_tokens":4}}})");
  say(to, "[DONE]");
}

std::vector<TraceRequest> requests(int count, double apart = 0) {
  std::vector<TraceRequest> trace(static_cast<size_t>(count));
  for (int i = 0; i < count; ++i) {
    trace[size_t(i)].arrival = apart * i;
    trace[size_t(i)].prompt_tokens = 5;
    trace[size_t(i)].seed = uint64_t(i);
  }
  return trace;
}

EndpointLoadOptions options_for(const CannedServer& server) {
  EndpointLoadOptions options;
  options.url = server.url();
  options.model = "first";
  return options;
}

bool go_on(const EndpointProgress&) { return true; }

TEST(EndpointLoad, TimesAreThoseThatTheServerTook) {
  CannedServer server(whole_answer);
  EndpointLoadOptions options = options_for(server);
  options.back_to_back = true;
  options.streams = 2;
  options.api_key = "sk-test";
  const EndpointLoad load = run_endpoint_load(requests(6), options, go_on);
  EXPECT_EQ(load.load.finished, 6);
  EXPECT_TRUE(load.failures.empty());
  EXPECT_EQ(server.most(), 2);
  EXPECT_EQ(load.most_running, 2);
  EXPECT_EQ(server.key(), "Bearer sk-test");
  EXPECT_EQ(load.load.prompt_tokens, 6 * 11);
  EXPECT_EQ(load.load.cached_tokens, 6 * 4);
  EXPECT_EQ(load.load.output_tokens, 6 * 9);
  // A sleep never ends early; a busy machine makes all of them longer, so only the lower side is exact. 1 ms for
  // delays of one event that the next one does not have.
  EXPECT_GE(load.load.first_token.p50, 0.059);
  EXPECT_EQ(load.load.gap.count, 6 * 4);
  EXPECT_GE(load.load.gap.mean, 0.018);
  EXPECT_GE(load.load.total.p50, 0.139);
  EXPECT_LT(load.load.first_token.p50, load.load.total.p50);
  // Nine tokens came in five events: the usage says so.
  EXPECT_NEAR(load.load.per_token.mean, load.load.gap.mean * 4 / 8, load.load.gap.mean * 0.1);
}

TEST(EndpointLoad, AnOpenLoopDoesNotWaitForSlowAnswers) {
  CannedServer server(whole_answer);
  const EndpointLoad load = run_endpoint_load(requests(8, 0.01), options_for(server), go_on);
  EXPECT_EQ(load.load.finished, 8);
  // All are sent within 80 ms, none ends before 140.
  EXPECT_GE(load.most_running, 6);
}

TEST(EndpointLoad, WaitingForAStreamCounts) {
  CannedServer server(whole_answer);
  EndpointLoadOptions options = options_for(server);
  options.streams = 1;
  const EndpointLoad load = run_endpoint_load(requests(3), options, go_on);
  EXPECT_EQ(load.most_running, 1);
  EXPECT_GE(load.load.queue.most, 0.27);
  EXPECT_GE(load.load.first_token.most, 0.33);
}

TEST(EndpointLoad, FailuresAreCountedByKind) {
  std::atomic<int> number = 0;
  CannedServer server([&](const Json&, net::HttpResponder& to) {
    switch (number++) {
      case 0: to.respond(500, {}, R"({"error":{"message":"no device","type":"server_error"}})"); return;
      case 1: to.respond(429, {}, R"({"error":{"message":"too many"}})"); return;
      default: break;
    }
    to.begin_stream(200, net::event_stream_fields());
    say(to, R"({"choices":[{"delta":{"content":"x"}}]})");
    std::this_thread::sleep_for(milliseconds(30));
    switch (number) {
      case 3: say(to, R"({"error":{"message":"the engine failed","type":"server_error"}})"); break;
      case 4: to.abort(); return;
      case 5: say(to, "{broken"); break;
      default: break;
    }
  });
  EndpointLoadOptions options = options_for(server);
  options.back_to_back = true;
  options.streams = 1;
  const EndpointLoad load = run_endpoint_load(requests(6), options, go_on);
  EXPECT_EQ(load.load.finished, 0);
  EXPECT_EQ(load.load.rejected, 1);
  EXPECT_EQ(load.load.failed, 5);
  std::vector<std::string> kinds;
  for (const auto& [kind, one] : load.failures) {
    kinds.push_back(kind);
    EXPECT_EQ(one.count, 1) << kind;
  }
  EXPECT_EQ(kinds,
            (std::vector<std::string>{"HTTP 429", "HTTP 500", "broken answer", "error in the stream: server_error",
                                      "no end of the stream", "unreadable event"}));
  EXPECT_EQ(load.failures.at("HTTP 500").first, "no device");
  EXPECT_EQ(load.failures.at("error in the stream: server_error").first, "the engine failed");
}

TEST(EndpointLoad, ASessionGoesOnWithWhatWasAnswered) {
  std::mutex mutex;
  std::vector<Json> bodies;
  CannedServer server([&](const Json& body, net::HttpResponder& to) {
    {
      const std::lock_guard lock(mutex);
      bodies.push_back(body);
    }
    whole_answer(body, to);
  });
  std::vector<TraceRequest> trace = requests(2);
  for (TraceRequest& one : trace) one.session = "s";
  trace[0].output_seed = 77;
  trace[1].prefix = {{trace[0].seed, 3}, {77, 1}};
  trace[1].pause_seconds = 0.05;
  const EndpointLoad load = run_endpoint_load(trace, options_for(server), go_on);
  EXPECT_EQ(load.load.finished, 2);
  EXPECT_GE(load.load.seconds, 0.14 + 0.05 + 0.14 - 0.002);
  ASSERT_EQ(bodies.size(), 2u);
  const Json& messages = *bodies[1].find("messages");
  ASSERT_EQ(messages.items.size(), 3u);
  EXPECT_EQ(messages.items[1].find("content")->text, "xxxxx");
}

TEST(EndpointLoad, EndsAfterItsTimeAndWhenItIsTold) {
  CannedServer server(whole_answer);
  EndpointLoadOptions options = options_for(server);
  options.back_to_back = true;
  options.streams = 1;
  options.seconds = 0.2;
  const EndpointLoad timed = run_endpoint_load(requests(100), options, go_on);
  EXPECT_EQ(timed.load.finished, timed.load.answers);
  EXPECT_LE(timed.load.answers, 2);
  options.seconds = 0;
  const EndpointLoad told =
      run_endpoint_load(requests(100), options, [](const EndpointProgress& p) { return p.ended < 1; });
  EXPECT_TRUE(told.interrupted);
  EXPECT_LT(told.load.answers, 10);
  EXPECT_LE(told.load.cancelled, 1);
}

TEST(EndpointLoad, NobodyThereIsAFailureOfEachRequestAndNoModel) {
  std::string url;
  {
    CannedServer server(whole_answer);
    url = server.url();
    EXPECT_EQ(find_model(url, "", "")->name, "first");
    EXPECT_EQ(find_model(url, "", "")->context, 4096);
    EXPECT_EQ(find_model(url + "/v1/", "", "second")->name, "second");
    EXPECT_EQ(find_model(url, "", "else")->name, "else");
  }
  const auto gone = find_model(url, "", "");
  ASSERT_FALSE(gone.ok());
  EXPECT_EQ(gone.error().code, ErrorCode::bad_input);
  EndpointLoadOptions options;
  options.url = url;
  const EndpointLoad load = run_endpoint_load(requests(2), options, go_on);
  EXPECT_EQ(load.load.failed, 2);
  EXPECT_EQ(load.failures.at("no answer").count, 2);
}

TEST(EndpointLoad, TheFirstRequestsTellTheLengthOfAWord) {
  CannedServer server([](const Json& body, net::HttpResponder& to) {
    const std::string& text = body.find("messages")->items[0].find("content")->text;
    const int64_t tokens = 9 + 3 * std::count(text.begin(), text.end(), ' ');
    to.begin_stream(200, net::event_stream_fields());
    say(to, R"({"choices":[],"usage":{"completion_tokens":1,"prompt_tokens":)" + std::to_string(tokens) + "}}");
    say(to, "[DONE]");
  });
  EXPECT_EQ(*first_requests(options_for(server)), 3.0);
  CannedServer refuses(
      [](const Json&, net::HttpResponder& to) { to.respond(404, {}, R"({"error":{"message":"no such model"}})"); });
  const auto refused = first_requests(options_for(refuses));
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::bad_input);
  EXPECT_NE(refused.error().message.find("HTTP 404: no such model"), std::string::npos);
}

TEST(EndpointLoad, TheLiveTableIsNeverWiderThanTheTerminal) {
  EndpointProgress progress;
  progress.seconds = 12.5;
  progress.sent = progress.total = 1'000'000;
  const std::string text = live_text(progress, 40);
  for (size_t at = 0; at < text.size();) {
    const size_t end = text.find('\n', at);
    EXPECT_LT(end - at, 40u);
    at = end + 1;
  }
}

}  // namespace
}  // namespace fathom::cli
