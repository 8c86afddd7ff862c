#include "fathom/server/service_metrics.h"

#include <algorithm>

namespace fathom {
namespace {

std::vector<double> answer_times() { return {0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 25, 60, 180, 600}; }
std::vector<double> token_times() { return {0.001, 0.0025, 0.005, 0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28}; }

}  // namespace

ServiceMetrics::ServiceMetrics(Metrics& m)
    : metrics_(m),
      prompt_tokens_(m.counter("fathom_server_prompt_tokens_total", "Tokens of prompts that were answered.")),
      cached_tokens_(m.counter("fathom_server_cached_tokens_total", "Of these, tokens found in the prefix cache.")),
      answer_tokens_(m.counter("fathom_server_answer_tokens_total", "Tokens of answers, as usage tells.")),
      reasoning_tokens_(m.counter("fathom_server_reasoning_tokens_total", "Of these, tokens of reasoning.")),
      calls_dropped_(m.counter("fathom_codec_calls_dropped_total", "Tool calls that the end of an answer cut off.",
                               {{"reason", "cut"}})),
      arguments_repaired_(m.counter("fathom_codec_arguments_repaired_total",
                                    "Values of tool calls that were no JSON and became strings.")),
      queue_seconds_(m.histogram("fathom_server_queue_seconds", "From a request to its first row.", answer_times())),
      first_token_seconds_(
          m.histogram("fathom_server_first_token_seconds", "From a request to its first token.", answer_times())),
      token_seconds_(m.histogram("fathom_server_token_seconds",
                                 "Mean time of a token after the first, one value an answer.", token_times())),
      answer_seconds_(m.histogram("fathom_server_answer_seconds", "From a request to its last token.", answer_times())),
      open_(m.gauge("fathom_server_open_requests", "Requests in the engine, running or waiting.")),
      waiting_(m.gauge("fathom_server_waiting_requests", "Of these, more than can run at once.")),
      ready_(m.gauge("fathom_server_ready_ratio", "1: /ready says 200; 0: it does not.")),
      connections_(m.gauge("fathom_server_connections", "Open connections.")),
      slow_readers_(
          m.gauge("fathom_server_slow_readers_cut", "Connections cut because their client read too slowly, so far.")),
      clients_gone_(
          m.gauge("fathom_server_clients_gone", "Clients that went away before the end of their answer, so far.")),
      store_failures_(m.gauge("fathom_server_store_failures", "Responses that could not be kept, so far.")),
      step_age_(m.gauge("fathom_server_step_age_seconds",
                        "Since the last step of the engine while requests are open; else 0.")) {}

void ServiceMetrics::count_request(const std::string& route, int status, double seconds) {
  const std::lock_guard lock(mutex_);
  Family& family = families_[route];
  Counter*& counter = family.by_status[status];
  if (counter == nullptr) {
    counter =
        &metrics_.counter("fathom_server_requests_total", "Requests by route and status; 499: the client went away.",
                          {{"route", route}, {"status", std::to_string(status)}});
  }
  if (family.seconds == nullptr) {
    family.seconds =
        &metrics_.histogram("fathom_server_request_seconds", "From a request's last byte to the end of its answer.",
                            answer_times(), {{"route", route}});
  }
  counter->add(1);
  family.seconds->observe(seconds);
}

void ServiceMetrics::count_refusal(int status) {
  metrics_
      .counter("fathom_server_refused_total",
               "Requests refused for their key (401), their limits or a full queue (429).",
               {{"status", std::to_string(status)}})
      .add(1);
}

void ServiceMetrics::count_answer(const AnswerOutcome& outcome) {
  const Usage& usage = outcome.usage;
  calls_dropped_.add(outcome.calls_dropped);
  arguments_repaired_.add(outcome.arguments_repaired);
  if (usage.generated_tokens == 0) return;
  prompt_tokens_.add(usage.prompt_tokens);
  cached_tokens_.add(usage.cached_tokens);
  answer_tokens_.add(outcome.told.completion_tokens);
  reasoning_tokens_.add(outcome.told.reasoning_tokens);
  queue_seconds_.observe(usage.queue_seconds);
  first_token_seconds_.observe(usage.first_token_seconds);
  answer_seconds_.observe(usage.total_seconds);
  if (usage.generated_tokens > 1) {
    token_seconds_.observe((usage.total_seconds - usage.first_token_seconds) / double(usage.generated_tokens - 1));
  }
}

void ServiceMetrics::set(const EngineHealth& health, const net::HttpServerCounts& counts, int64_t store_failures) {
  open_.set(health.open);
  waiting_.set(health.waiting);
  ready_.set(health.ready ? 1 : 0);
  step_age_.set(health.step_age.value_or(0));
  connections_.set(counts.connections);
  slow_readers_.set(counts.slow_readers_cut);
  clients_gone_.set(counts.clients_gone);
  store_failures_.set(store_failures);
}

}  // namespace fathom
