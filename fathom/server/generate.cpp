#include "fathom/server/generate.h"

#include <atomic>
#include <random>
#include <utility>

namespace fathom {
namespace {

/// Of ids of calls: no two answers of a process share one, and a restart begins elsewhere.
uint64_t next_seed() {
  static std::atomic<uint64_t> next = [] {
    std::random_device random;
    return uint64_t(random()) << 32 | random();
  }();
  return next++;
}

}  // namespace

AnswerPlan plan_of(Service& service, const SharedExchange& exchange) {
  AnswerPlan plan;
  plan.dialect = exchange->dialect;
  plan.policy = service.options().conversion.policy;
  plan.request_id = exchange->id;
  plan.fields = service.common_fields(*exchange);
  plan.begun = exchange->begun;
  plan.header_delay = service.options().header_delay;
  plan.silence = service.options().silence;
  plan.fingerprint = "fathom-" + service.options().version;
  const std::string* receipt = exchange->request.find("x-fathom-receipt");
  plan.receipt = receipt != nullptr && *receipt == "1";
  plan.retry_after_seconds = [&service] { return service.engine().retry_after_seconds(); };
  return plan;
}

void generate(Service& service, const SharedExchange& exchange, Question question, AnswerPlan plan) {
  const auto prompt_tokens = int64_t(question.request.ids.size());
  exchange->place.charge(prompt_tokens);
  question.request.priority = exchange->key.priority;
  question.request.tenant = exchange->key.tenant;
  question.request.cache_salt = exchange->key.salt;
  if (!service.options().log_prompts) exchange->request.drop_body();  // it may be large, and the answer long

  exchange->submitted_at = std::chrono::system_clock::now();
  const bool stream = plan.writer.has_value();
  plan.parsing = std::move(question.parsing);
  plan.end_ids = std::move(question.end_ids);
  plan.prompt_tokens = prompt_tokens;
  // Who has the whole answer may ask again at once.
  plan.on_complete = [exchange](int64_t completion_tokens) {
    exchange->place.charge(completion_tokens);
    exchange->place = {};
  };
  plan.on_end = [&service, exchange, stream](AnswerOutcome outcome) { service.finished(*exchange, outcome, stream); };
  const std::shared_ptr<net::HttpResponder> responder = exchange->responder;
  auto answer =
      std::make_shared<Answer>(std::move(plan), responder, service.engine(), &service.tokenizer(), next_seed());
  const auto ticket = service.engine().submit(std::move(question.request), sink_of(std::move(answer)));
  if (!ticket) {
    return service.refuse(*exchange, told_to_client(ticket.error()));
  }
  responder->on_gone([&engine = service.engine(), ticket = *ticket] { engine.cancel(ticket); });
}

}  // namespace fathom
