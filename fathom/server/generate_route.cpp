// POST /v1/chat/completions, /v1/responses, /v1/messages: the three APIs of the codec.
#include <memory>
#include <utility>

#include "fathom/recipe/api/field.h"
#include "fathom/recipe/codec.h"
#include "fathom/server/generate.h"
#include "fathom/server/previous_response.h"
#include "fathom/server/question_images.h"
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

/// What was read of a request, while its images are on their way.
struct Asked {
  recipe::CodecRequest request;
  recipe::Prompt prompt;
  std::string input;  // Responses that are kept: the items so far, as JSON
};

void ask(Service& service, const SharedExchange& exchange, Asked& asked, std::vector<ImageData> images) {
  const recipe::CodecRequest& request = asked.request;
  auto question = question_of(request, asked.prompt, std::move(images), service.options().see, service.tokenizer(),
                              service.engine().limits());
  if (!question) return service.refuse(*exchange, question.error());
  AnswerPlan plan = plan_of(service, exchange);
  const recipe::AnswerIdentity identity{Service::new_id(id_prefix(request.api)), request.model, service.now()};
  const bool stream = request.converted.stream;
  if (stream) plan.writer = widened<StreamWriter>(recipe::make_writer(request, identity, &service.tokenizer()));
  if (!stream || !asked.input.empty()) {
    plan.body = widened<BodyWriter>(recipe::make_body(request, identity, &service.tokenizer()));
  }
  if (!asked.input.empty()) {
    plan.keep = [store = service.store(), id = identity.id, tenant = exchange->key.tenant,
                 input = std::move(asked.input)](const std::string& body) {
      store->put(id, {tenant, input, body});
    };
  }
  plan.starts_early = request.api != recipe::Api::chat_completions;
  plan.done_frame = request.api == recipe::Api::chat_completions;
  generate(service, exchange, std::move(*question), std::move(plan));
}

void answer_request(Service& service, const SharedExchange& exchange, recipe::Api api) {
  const recipe::ConversionOptions& conversion = service.options().conversion;
  auto tree = recipe::parse_body(exchange->request.body);
  if (!tree) return service.refuse(*exchange, tree.error());
  std::string input;
  if (api == recipe::Api::responses) {
    auto joined = join_previous(*tree, service.store(), exchange->key.tenant);
    if (!joined) return service.refuse(*exchange, joined.error());
    input = std::move(*joined);
  }
  const ImageParts parts = image_parts_of(*tree);
  auto request = recipe::read_request(api, std::move(*tree), conversion);
  if (!request) return service.refuse(*exchange, request.error());
  if (auto answerable = check_answerable(*request, service.blind(), parts); !answerable) {
    return service.refuse(*exchange, answerable.error());
  }
  const auto asked = std::make_shared<Asked>(Asked{std::move(*request), {}, std::move(input)});
  asked->prompt = recipe::render(asked->request.converted, conversion);
  // The prompt has them; they may be large.
  for (recipe::Message& message : asked->request.converted.conversation.messages) message.images.clear();
  with_images(service, exchange, asked->prompt, parts, [&service, exchange, asked](std::vector<ImageData> images) {
    ask(service, exchange, *asked, std::move(images));
  });
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
