#include "fathom/server/trace_export.h"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <new>
#include <stop_token>
#include <thread>

#include "fathom/base/json.h"
#include "fathom/net/http_client.h"
#include "fathom/net/public_address.h"

namespace fathom {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::seconds kBetweenWarnings{60};
constexpr std::chrono::seconds kAtTheEnd{2};
constexpr int kServer = 2, kInternal = 1;  // enum SpanKind
constexpr int kFailed = 2;                 // enum StatusCode

std::string nanoseconds(std::chrono::system_clock::time_point time) {
  return std::to_string(std::chrono::nanoseconds(time.time_since_epoch()).count());
}

Json attribute(const std::string& key, const std::variant<std::string, int64_t>& value) {
  Json inner = Json::object();
  if (const auto* number = std::get_if<int64_t>(&value)) {
    inner.set("intValue", Json::of(std::to_string(*number)));  // 64 bits are text in Protobuf's JSON
  } else {
    inner.set("stringValue", Json::of(std::get<std::string>(value)));
  }
  Json out = Json::object();
  out.set("key", Json::of(key));
  out.set("value", std::move(inner));
  return out;
}

Json span_json(const Span& span) {
  Json out = Json::object();
  out.set("traceId", Json::of(span.context.trace_id));
  out.set("spanId", Json::of(span.context.span_id));
  if (!span.parent_id.empty()) out.set("parentSpanId", Json::of(span.parent_id));
  out.set("name", Json::of(span.name));
  out.set("kind", Json::of(span.server ? kServer : kInternal));
  out.set("startTimeUnixNano", Json::of(nanoseconds(span.begin)));
  out.set("endTimeUnixNano", Json::of(nanoseconds(std::max(span.begin, span.end))));
  Json attributes = Json::array();
  for (const auto& [key, value] : span.attributes) attributes.push(attribute(key, value));
  out.set("attributes", std::move(attributes));
  Json status = Json::object();
  if (span.failed) status.set("code", Json::of(kFailed));
  out.set("status", std::move(status));
  return out;
}

template <class... Items>
Json list_of(Items... items) {
  Json list = Json::array();
  (list.push(std::move(items)), ...);
  return list;
}

}  // namespace

Result<std::string> traces_url(const std::string& endpoint) {
  if ((!endpoint.starts_with("http://") && !endpoint.starts_with("https://")) || net::host_of(endpoint).empty()) {
    return Error{ErrorCode::usage, "\"" + endpoint + "\" is no URL", "--trace-endpoint",
                 "pass the collector's address, as in http://127.0.0.1:4318"};
  }
  const size_t path = endpoint.find('/', endpoint.find("://") + 3);
  if (path == std::string::npos) return endpoint + "/v1/traces";
  return path + 1 == endpoint.size() ? endpoint + "v1/traces" : endpoint;
}

std::string otlp_json(const std::vector<Span>& spans, const std::string& version) {
  Json list = Json::array();
  for (const Span& span : spans) list.push(span_json(span));
  Json scope = Json::object();
  scope.set("name", Json::of("fathom"));
  scope.set("version", Json::of(version));
  Json scoped = Json::object();
  scoped.set("scope", std::move(scope));
  scoped.set("spans", std::move(list));
  Json resource = Json::object();
  resource.set("attributes", list_of(attribute("service.name", "fathom"), attribute("service.version", version)));
  Json group = Json::object();
  group.set("resource", std::move(resource));
  group.set("scopeSpans", list_of(std::move(scoped)));
  Json body = Json::object();
  body.set("resourceSpans", list_of(std::move(group)));
  return to_string(body);
}

struct TraceExport::State {
  const TraceExportOptions options;
  const std::string url;
  Log& log;
  std::mutex mutex;
  std::condition_variable wakes;
  std::deque<Span> waiting;
  bool ending = false, ended = false;
  Clock::time_point last_warning;  // of the sending thread
  std::atomic<int64_t> sent = 0, dropped = 0;
  std::stop_source stop;
  std::thread thread;

  State(TraceExportOptions o, std::string u, Log& l) : options(std::move(o)), url(std::move(u)), log(l) {}
  void run();
  void send(net::HttpClient& client, const std::vector<Span>& spans);
};

void TraceExport::State::send(net::HttpClient& client, const std::vector<Span>& spans) {
  net::EndpointRequest request;
  request.url = url;
  request.body = otlp_json(spans, options.version);
  request.connect = std::chrono::seconds(5);
  request.silence = std::chrono::seconds(10);
  request.body_bytes = 1 << 20;
  const auto answer = client.send(request, {}, stop.get_token());
  if (answer && answer->status >= 200 && answer->status < 300) {
    sent += int64_t(spans.size());
    return;
  }
  dropped += int64_t(spans.size());
  const auto now = Clock::now();
  if (last_warning != Clock::time_point() && now - last_warning < kBetweenWarnings) return;
  last_warning = now;
  const std::string why = answer ? "status " + std::to_string(answer->status) : to_string(answer.error());
  log.write(LogLevel::warn, "the collector takes no spans", {{"error", why}, {"dropped", dropped.load()}});
}

void TraceExport::State::run() {
  net::HttpClient client;
  std::unique_lock lock(mutex);
  while (true) {
    wakes.wait(lock, [&] { return ending || !waiting.empty(); });
    // More of them make one message.
    wakes.wait_for(lock, options.wait, [&] { return ending || int64_t(waiting.size()) >= options.most_sent; });
    if (waiting.empty()) break;
    const auto count = std::min(waiting.size(), size_t(options.most_sent));
    std::vector<Span> spans(std::make_move_iterator(waiting.begin()),
                            std::make_move_iterator(waiting.begin() + ptrdiff_t(count)));
    waiting.erase(waiting.begin(), waiting.begin() + ptrdiff_t(count));
    lock.unlock();
    try {
      send(client, spans);
    } catch (const std::bad_alloc&) {
      dropped += int64_t(spans.size());
    }
    lock.lock();
  }
  ended = true;
  wakes.notify_all();
}

TraceExport::TraceExport(std::unique_ptr<State> state) : state_(std::move(state)) {
  state_->thread = std::thread([s = state_.get()] { s->run(); });
}

Result<std::unique_ptr<TraceExport>> TraceExport::open(TraceExportOptions options, Log& log) {
  auto url = traces_url(options.endpoint);
  if (!url) return url.error();
  return std::unique_ptr<TraceExport>(
      new TraceExport(std::make_unique<State>(std::move(options), std::move(*url), log)));
}

TraceExport::~TraceExport() {
  State& s = *state_;
  {
    std::unique_lock lock(s.mutex);
    s.ending = true;
    s.wakes.notify_all();
    // A collector that does not answer must not hold up the end.
    if (!s.wakes.wait_for(lock, kAtTheEnd, [&] { return s.ended; })) s.stop.request_stop();
  }
  s.thread.join();
}

void TraceExport::add(std::vector<Span> spans) {
  State& s = *state_;
  const std::lock_guard lock(s.mutex);
  for (Span& span : spans) {
    if (int64_t(s.waiting.size()) >= s.options.most_waiting) {
      ++s.dropped;
    } else {
      s.waiting.push_back(std::move(span));
    }
  }
  s.wakes.notify_one();
}

int64_t TraceExport::sent() const { return state_->sent; }
int64_t TraceExport::dropped() const { return state_->dropped; }

}  // namespace fathom
