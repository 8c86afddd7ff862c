#include "fathom/server/request_spans.h"

#include "fathom/server/route.h"

namespace fathom {
namespace {

using Time = std::chrono::system_clock::time_point;

Time after(Time begin, double seconds) {
  return begin + std::chrono::duration_cast<Time::duration>(std::chrono::duration<double>(seconds));
}

void describe(Span& span, const AnswerOutcome& outcome) {
  const Usage& usage = outcome.usage;
  int64_t offered = 0, accepted = 0;
  for (size_t i = 0; i < usage.offered.size(); ++i) offered += usage.offered[i], accepted += usage.accepted[i];
  span.attributes.emplace_back("gen_ai.response.finish_reasons", outcome.finish_reason);
  span.attributes.emplace_back("gen_ai.usage.input_tokens", outcome.told.prompt_tokens);
  span.attributes.emplace_back("gen_ai.usage.output_tokens", outcome.told.completion_tokens);
  span.attributes.emplace_back("fathom.cached_tokens", usage.cached_tokens);
  span.attributes.emplace_back("fathom.replayed_tokens", usage.replayed_tokens);
  span.attributes.emplace_back("fathom.drafts", offered);
  span.attributes.emplace_back("fathom.drafts_accepted", accepted);
  span.attributes.emplace_back("fathom.preemptions", usage.preemptions);
  if (outcome.error) span.attributes.emplace_back("error.type", std::string(name_of(outcome.error->code)));
}

}  // namespace

std::vector<Span> spans_of(const Exchange& exchange, int status, const AnswerOutcome* outcome, Time end) {
  const std::string route = exchange.route != nullptr ? exchange.route->path : "";
  Span whole;
  whole.context = *exchange.span;
  if (exchange.parent) whole.parent_id = exchange.parent->span_id;
  whole.name = exchange.request.method + (route.empty() ? "" : " " + route);
  whole.server = true;
  whole.failed = status >= 500;
  whole.begin = exchange.begun_at;
  whole.end = end;
  whole.attributes = {{"http.request.method", exchange.request.method},
                      {"url.path", exchange.request.path},
                      {"http.response.status_code", int64_t(status)},
                      {"client.address", exchange.request.peer},
                      {"fathom.request_id", exchange.id}};
  if (!route.empty()) whole.attributes.emplace_back("http.route", route);
  if (!exchange.key.tenant.empty()) whole.attributes.emplace_back("fathom.tenant", exchange.key.tenant);
  if (outcome != nullptr) describe(whole, *outcome);
  std::vector<Span> spans;
  spans.push_back(std::move(whole));
  if (outcome == nullptr) return spans;

  const auto part = [&](const char* name, double from, double to) {
    Span span;
    span.context = new_span(exchange.span);
    span.parent_id = exchange.span->span_id;
    span.name = name;
    span.begin = after(exchange.submitted_at, from);
    span.end = after(exchange.submitted_at, to);
    spans.push_back(std::move(span));
  };
  const Usage& usage = outcome->usage;
  const double total = usage.total_seconds;
  if (total <= 0) return spans;
  const bool began = usage.encoder_rows > 0 || usage.cached_tokens > 0 || usage.generated_tokens > 0;
  part("queue", 0, began ? usage.queue_seconds : total);
  if (!began) return spans;
  part("prefill", usage.queue_seconds, usage.generated_tokens > 0 ? usage.first_token_seconds : total);
  if (usage.generated_tokens > 0) part("decode", usage.first_token_seconds, total);
  return spans;
}

}  // namespace fathom
