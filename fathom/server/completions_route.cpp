// POST /v1/completions: a plain continuation.
#include <utility>

#include "fathom/server/generate.h"
#include "fathom/server/model_names.h"
#include "fathom/server/route.h"

namespace fathom {

void answer_completions(Service& service, const SharedExchange& exchange) {
  auto request = read_text_completion(exchange->request.body, service.tokenizer(), service.engine().limits());
  if (!request) return service.refuse(*exchange, request.error());
  if (auto known = check_model(request->model, service.options().conversion); !known) {
    return service.refuse(*exchange, known.error());
  }

  AnswerPlan plan = plan_of(service, exchange);
  const TextCompletionForm form{
      {Service::new_id("cmpl-"), request->model, service.now()}, request->include_usage, &service.tokenizer()};
  if (request->stream) {
    plan.writer = TextCompletionWriter(form);
  } else {
    plan.body = TextCompletionBody(form);
  }
  plan.done_frame = true;
  generate(service, exchange, std::move(request->question), std::move(plan));
}

}  // namespace fathom
