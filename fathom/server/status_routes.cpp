// GET /health, /ready, /metrics, /version, /openapi.json, /debug/state.
//
// /health says that the process can serve some time: restart it when it says 503 (the engine has ended) or nothing at
// all. /ready says whether a request would be served now: 503 also while the server drains, and when a step takes so
// long that the device must be taken for dead. /ready?deep=1 has the engine generate one token first.
#include <algorithm>
#include <charconv>
#include <memory>
#include <utility>

#include "fathom/base/json.h"
#include "fathom/server/openapi_document.h"
#include "fathom/server/route.h"

namespace fathom {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::seconds kDeepDeadline{10};
constexpr int kRetryAfter = 5;

net::HttpAnswer ready_answer(const EngineHealth& health) {
  Json body = Json::object();
  body.set("status", Json::of(health.ready ? "ready" : "not ready"));
  if (!health.problem.empty()) body.set("reason", Json::of(health.problem));
  body.set("open_requests", Json::of(health.open));
  body.set("waiting_requests", Json::of(health.waiting));
  body.set("steps", Json::of(int64_t(health.steps)));
  body.set("step_age_seconds", health.step_age ? Json::of(*health.step_age) : Json());
  net::HttpAnswer answer = json_answer(to_string(body));
  answer.fields.add("Cache-Control", "no-store");
  if (!health.ready) {
    answer.status = 503;
    answer.fields.add("Retry-After", std::to_string(kRetryAfter));
  }
  return answer;
}

/// Not ready, for a reason that the service does not know by itself.
net::HttpAnswer not_ready(Service& service, std::string reason) {
  EngineHealth health = service.engine().health();
  health.ready = false;
  health.problem = std::move(reason);
  return ready_answer(health);
}

// Runs a step for real: the begin token asks for one more.
void run_deep(Service& service, const SharedExchange& exchange) {
  Request request;
  request.ids = {Tokenizer::kBegin};
  request.sampling.max_tokens = 1;
  request.use_cache = false;
  request.priority = 1000;
  const auto answered = std::make_shared<bool>(false);
  RequestSink sink;
  sink.on_event = [&service, exchange, answered](const Event& event) {
    if (!event.finish || std::exchange(*answered, true)) return;
    const bool well = event.finish->reason == FinishReason::stop || event.finish->reason == FinishReason::length;
    service.reply(*exchange,
                  well ? ready_answer(service.engine().health()) : not_ready(service, "a step for one token failed"));
  };
  sink.on_tick = [&service, exchange, answered](Ticket ticket) {
    if (*answered || Clock::now() - exchange->begun < kDeepDeadline) return;
    *answered = true;
    service.engine().cancel(ticket);
    service.reply(*exchange, not_ready(service, "no token within 10 s"));
  };
  const auto ticket = service.engine().submit(std::move(request), std::move(sink));
  if (!ticket) service.reply(*exchange, not_ready(service, ticket.error().message));
}

}  // namespace

void answer_health(Service& service, const SharedExchange& exchange) {
  const EngineHealth health = service.engine().health();
  if (!health.dead) return service.reply(*exchange, json_answer(R"({"status":"ok"})"));
  Json body = Json::object();
  body.set("status", Json::of("failed"));
  body.set("reason", Json::of(health.problem));
  net::HttpAnswer answer = json_answer(to_string(body));
  answer.status = 503;
  service.reply(*exchange, std::move(answer));
}

void answer_ready(Service& service, const SharedExchange& exchange) {
  const EngineHealth health = service.engine().health();
  if (health.ready && exchange->request.query_value("deep") == "1") return run_deep(service, exchange);
  service.reply(*exchange, ready_answer(health));
}

void answer_metrics(Service& service, const SharedExchange& exchange) {
  service.refresh_metrics();
  net::HttpAnswer answer;
  answer.fields.add("Content-Type", "text/plain; version=0.0.4; charset=utf-8");
  answer.body = service.metrics().prometheus_text();
  service.reply(*exchange, std::move(answer));
}

void answer_version(Service& service, const SharedExchange& exchange) {
  const ServiceOptions& options = service.options();
  Json body = Json::object();
  body.set("version", Json::of(options.version));
  body.set("commit", Json::of(options.commit));
  body.set("backend", Json::of(options.backend));
  body.set("model", Json::of(options.model_id));
  body.set("context", Json::of(service.engine().limits().context));
  service.reply(*exchange, json_answer(to_string(body)));
}

void answer_openapi(Service& service, const SharedExchange& exchange) {
  service.reply(*exchange, json_answer(std::string(openapi_document())));
}

// ?steps=N: with the last N steps (at most 10,000). An engine that is stuck in a step cannot be looked at; what stands
// outside of it is told.
void answer_state(Service& service, const SharedExchange& exchange) {
  service.refresh_metrics();
  const EngineHealth health = service.engine().health();
  Json body = Json::object();
  body.set("now", Json::of(service.now()));
  body.set("started", Json::of(service.started()));
  body.set("ready", Json::of(health.ready));
  body.set("problem", Json::of(health.problem));
  body.set("retry_after_seconds", Json::of(service.engine().retry_after_seconds()));
  body.set("log_lines_dropped", Json::of(service.log().dropped()));
  body.set("metrics", service.metrics().json());
  std::string text = to_string(body);
  const std::string steps = exchange->request.query_value("steps").value_or("100");
  size_t most_steps = 0;
  std::from_chars(steps.data(), steps.data() + steps.size(), most_steps);
  const auto answer = [&service, exchange, text](const std::string& engine) {
    service.reply(*exchange, json_answer(text.substr(0, text.size() - 1) + R"(,"engine":)" + engine + "}"));
  };
  if (health.stuck || !service.engine().look(std::min<size_t>(most_steps, 10'000), answer)) answer("null");
}

}  // namespace fathom
