// fathom/server/service_fixture.h
// For tests: a service over a fake engine, asked without a socket.
#pragma once
#include <gtest/gtest.h>

#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "fathom/base/json.h"
#include "fathom/net/server_sent_events.h"
#include "fathom/server/fake_engine.h"
#include "fathom/server/service.h"

namespace fathom {

/// An answer as it came, in pieces. A reader that went away sees `write` say false.
class Received {
 public:
  std::shared_ptr<net::HttpResponder> responder() {
    net::HttpSink sink;
    sink.respond = [this](net::HttpAnswer answer) {
      status = answer.status, fields = std::move(answer.fields), body = std::move(answer.body);
      finish(true);
    };
    sink.begin_stream = [this](int s, net::HttpFields f) {
      const std::lock_guard lock(mutex_);
      status = s, fields = std::move(f), streamed = true;
      changed_.notify_all();
    };
    sink.write = [this](std::string_view bytes) {
      const std::lock_guard lock(mutex_);
      if (gone_) return false;
      body += bytes;
      changed_.notify_all();
      return true;
    };
    sink.end = [this] { finish(true); };
    sink.abort = [this] { finish(false); };
    auto made = std::make_shared<net::HttpResponder>(std::move(sink));
    responder_ = made;
    return made;
  }

  /// False: it did not end within 20 s.
  bool wait() {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, std::chrono::seconds(20), [this] { return done_; });
  }
  bool wait_for_text(std::string_view text) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, std::chrono::seconds(20), [&] { return body.find(text) != std::string::npos; });
  }
  bool wait_for_header() {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, std::chrono::seconds(20), [this] { return status != 0; });
  }
  void go_away() {
    {
      const std::lock_guard lock(mutex_);
      gone_ = true;
    }
    if (const auto still = responder_.lock()) still->reader_gone();
  }

  Json json() const {
    const auto tree = parse_json(body, "answer");
    EXPECT_TRUE(tree.ok()) << body;
    return tree ? *tree : Json();
  }
  /// The value at a path of keys and numbers: at("choices", 0, "message").
  template <class... Steps>
  Json at(Steps... steps) const {
    Json value = json();
    (step(value, steps), ...);
    return value;
  }
  std::vector<net::ServerSentEvent> events() const {
    net::SseParser parser;
    EXPECT_TRUE(parser.feed(body).ok());
    std::vector<net::ServerSentEvent> all;
    while (auto event = parser.next()) all.push_back(std::move(*event));
    return all;
  }
  std::string field(std::string_view name) const {
    const std::string* value = fields.find(name);
    return value != nullptr ? *value : "";
  }

  int status = 0;
  net::HttpFields fields;
  std::string body;
  bool streamed = false, whole = false;

 private:
  static void step(Json& value, const char* key) {
    const Json* member = value.find(key);
    value = member != nullptr ? Json(*member) : Json();
  }
  static void step(Json& value, int index) {
    value = size_t(index) < value.items.size() ? Json(value.items[size_t(index)]) : Json();
  }
  void finish(bool well) {
    const std::lock_guard lock(mutex_);
    done_ = true, whole = well;
    changed_.notify_all();
  }
  std::mutex mutex_;
  std::condition_variable changed_;
  bool done_ = false, gone_ = false;
  std::weak_ptr<net::HttpResponder> responder_;
};

inline const Tokenizer& mini_tokenizer() {
  static const Tokenizer tokenizer = [] {
    auto opened = Tokenizer::open(FATHOM_SOURCE_DIR "/models/mini/tokenizer.json");
    check(opened.ok(), "the miniature's tokenizer opens");
    return std::move(*opened);
  }();
  return tokenizer;
}

class ServiceTest : public testing::Test {
 protected:
  ServiceTest() {
    fake.answer = [this](const Request&) { return says(answer_text); };
  }
  ~ServiceTest() override {
    if (service) service->stop();
    if (engine) engine->stop();
  }

  FakeEngine::Script says(std::string_view text, int64_t cached = 0) const {
    FakeEngine::Script script;
    script.ids = mini_tokenizer().encode(text);
    script.ids.push_back(fake.limits.eos_id);
    script.cached_tokens = cached;
    return script;
  }
  void start(EngineServiceOptions engine_options = {}) {
    options.conversion.models = {{"DeepSeek-V4.1-Flash", recipe::ModelVersion::v41}};
    engine = std::make_unique<EngineService>(fake.port(), std::move(engine_options));
    auto opened = Service::open(mini_tokenizer(), *engine, metrics, log, options);
    ASSERT_TRUE(opened) << to_string(opened.error());
    service = std::move(*opened);
  }

  net::HttpRequest request(const char* method, std::string target, std::string body = "",
                           net::HttpFields fields = {}) const {
    net::HttpRequest out;
    out.method = method;
    out.target = std::move(target);
    out.path = out.target.substr(0, out.target.find('?'));
    if (out.path.size() < out.target.size()) out.query = out.target.substr(out.path.size() + 1);
    out.body = std::move(body);
    out.fields = std::move(fields);
    out.peer = "127.0.0.1";
    return out;
  }
  /// Asks as a connection would: admit, then handle.
  void send(Received& received, net::HttpRequest asked) {
    if (!service) start();
    auto responder = received.responder();
    if (auto refused = service->admit(asked)) return responder->respond(std::move(*refused));
    service->handle(std::move(asked), std::move(responder));
  }
  std::unique_ptr<Received> ask(const char* method, std::string target, std::string body = "",
                                net::HttpFields fields = {}) {
    auto received = std::make_unique<Received>();
    send(*received, request(method, std::move(target), std::move(body), std::move(fields)));
    EXPECT_TRUE(received->wait());
    return received;
  }

  static std::string chat(std::string_view more = "") {
    return R"({"model":"DeepSeek-V4.1-Flash","thinking":{"type":"disabled"},"messages":[{"role":"user","content":"hi"}])" +
           std::string(more) + "}";
  }
  static std::string messages(std::string_view more = "") {
    return R"({"model":"DeepSeek-V4.1-Flash","max_tokens":100,"thinking":{"type":"disabled"},"messages":[{"role":"user","content":"hi"}])" +
           std::string(more) + "}";
  }
  static std::string responses(std::string_view more = "") {
    return R"({"model":"DeepSeek-V4.1-Flash","reasoning":{"effort":"none"},"input":"hi")" + std::string(more) + "}";
  }

  std::string answer_text = "Hello there";
  FakeEngine fake;
  Metrics metrics;
  std::mutex log_mutex;
  std::string log_text;
  Log log{{.level = LogLevel::debug, .times = false, .write = [this](std::string_view line) {
             const std::lock_guard lock(log_mutex);
             log_text += line;
           }}};
  ServiceOptions options;
  std::unique_ptr<EngineService> engine;
  std::unique_ptr<Service> service;

  std::string logged() {
    log.flush();
    const std::lock_guard lock(log_mutex);
    return log_text;
  }
  /// Whether this is logged within five seconds: a line may come after the answer that it is about.
  bool logs(const std::string& text) {
    for (int i = 0; i < 1'000; ++i) {
      if (logged().find(text) != std::string::npos) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    return false;
  }
};

}  // namespace fathom
