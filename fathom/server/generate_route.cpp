// POST /v1/chat/completions, /v1/responses, /v1/messages: the three APIs of the codec.
#include <utility>

#include "fathom/recipe/api/field.h"
#include "fathom/recipe/codec.h"
#include "fathom/server/generate.h"
#include "fathom/server/previous_response.h"
#include "fathom/server/route.h"

namespace fathom {
namespace {

const char* id_prefix(recipe::Api api) {
  switch (api) {
    case recipe::Api::chat_completions: return "chatcmpl-";
    case recipe::Api::responses: return "resp_";
    case recipe::Api::messages: return "msg_";
  }
  return "";
}

// The codec's variants are parts of ours.
template <class To, class From>
To widened(From from) {
  return std::visit([](auto&& one) { return To(std::move(one)); }, std::move(from));
}

void answer_request(Service& service, const SharedExchange& exchange, recipe::Api api) {
  const auto refuse = [&](Error error) {
    service.refuse(*exchange, refusal_of(std::move(error), service.engine().retry_after_seconds()));
  };
  const recipe::ConversionOptions& conversion = service.options().conversion;
  auto tree = recipe::parse_body(exchange->request.body);
  if (!tree) return refuse(tree.error());
  std::string input;  // Responses that are kept: the items so far, as JSON
  if (api == recipe::Api::responses) {
    auto joined = join_previous(*tree, service.store(), exchange->key.tenant);
    if (!joined) return refuse(joined.error());
    input = std::move(*joined);
  }
  auto request = recipe::read_request(api, std::move(*tree), conversion);
  if (!request) return refuse(request.error());
  auto question = question_of(*request, conversion, service.tokenizer(), service.engine().limits());
  if (!question) return refuse(question.error());

  AnswerPlan plan = plan_of(service, exchange);
  const recipe::AnswerIdentity identity{Service::new_id(id_prefix(api)), request->model, service.now()};
  const bool stream = request->converted.stream;
  if (stream) plan.writer = widened<StreamWriter>(recipe::make_writer(*request, identity, &service.tokenizer()));
  if (!stream || !input.empty()) {
    plan.body = widened<BodyWriter>(recipe::make_body(*request, identity, &service.tokenizer()));
  }
  if (!input.empty()) {
    plan.keep = [store = service.store(), id = identity.id, tenant = exchange->key.tenant,
                 input = std::move(input)](const std::string& body) {
      store->put(id, {tenant, input, body});
    };
  }
  plan.starts_early = api != recipe::Api::chat_completions;
  plan.done_frame = api == recipe::Api::chat_completions;
  generate(service, exchange, std::move(*question), std::move(plan));
}

}  // namespace

void answer_chat_completions(Service& service, const SharedExchange& exchange) {
  answer_request(service, exchange, recipe::Api::chat_completions);
}
void answer_responses(Service& service, const SharedExchange& exchange) {
  answer_request(service, exchange, recipe::Api::responses);
}
void answer_messages(Service& service, const SharedExchange& exchange) {
  answer_request(service, exchange, recipe::Api::messages);
}

}  // namespace fathom
