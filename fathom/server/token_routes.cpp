// POST /v1/messages/count_tokens, /v1/tokenize, /v1/detokenize: text to tokens and back, without generating.
#include <functional>
#include <memory>
#include <span>
#include <utility>

#include "fathom/base/json.h"
#include "fathom/recipe/api/field.h"
#include "fathom/recipe/codec.h"
#include "fathom/server/question.h"
#include "fathom/server/question_images.h"
#include "fathom/server/route.h"

namespace fathom {
namespace {

void append_ids(std::string& out, std::span<const int32_t> ids) {
  out += '[';
  for (size_t i = 0; i < ids.size(); ++i) out.append(i > 0 ? "," : "").append(std::to_string(ids[i]));
  out += ']';
}

/// Calls `then` with the prompt's tokens of a request of one of the APIs, as the call would make them, or refuses it.
void tokens_of_request(Service& service, const SharedExchange& exchange, recipe::Api api, Json body,
                       std::function<void(const std::vector<int32_t>&)> then) {
  const auto refuse = [&service, exchange](const Error& error) { service.refuse(*exchange, refusal_of(error, 1)); };
  const recipe::ConversionOptions& conversion = service.options().conversion;
  const ImageParts parts = image_parts_of(body);
  auto request = recipe::read_request(api, std::move(body), conversion);
  if (!request) return refuse(request.error());
  if (auto answerable = check_answerable(*request, service.blind(), parts); !answerable) {
    return refuse(answerable.error());
  }
  const auto prompt = std::make_shared<recipe::Prompt>(recipe::render(request->converted, conversion));
  with_images(service, exchange, *prompt, parts, [&service, refuse, prompt, then](std::vector<ImageData> images) {
    Question question;
    const auto read = read_prompt(question, *prompt, std::move(images), service.options().see, service.tokenizer());
    if (!read) return refuse(read.error());
    then(question.request.ids);
  });
}

void answer_tokens(Service& service, Exchange& exchange, std::span<const int32_t> ids) {
  std::string out = R"({"count":)" + std::to_string(ids.size()) + R"(,"max_model_len":)" +
                    std::to_string(service.engine().limits().context) + R"(,"tokens":)";
  append_ids(out, ids);
  service.reply(exchange, json_answer(out + "}"));
}

}  // namespace

void answer_count_tokens(Service& service, const SharedExchange& exchange) {
  auto tree = recipe::parse_body(exchange->request.body);
  if (!tree) return service.refuse(*exchange, refusal_of(tree.error(), 1));
  tokens_of_request(service, exchange, recipe::Api::messages, std::move(*tree),
                    [&service, exchange](const std::vector<int32_t>& ids) {
                      service.reply(*exchange, json_answer(R"({"input_tokens":)" + std::to_string(ids.size()) + "}"));
                    });
}

void answer_tokenize(Service& service, const SharedExchange& exchange) {
  auto tree = recipe::parse_body(exchange->request.body);
  if (!tree) return service.refuse(*exchange, refusal_of(tree.error(), 1));
  if (const Json* messages = tree->find("messages"); messages != nullptr && !messages->is_null()) {
    return tokens_of_request(
        service, exchange, recipe::Api::chat_completions, std::move(*tree),
        [&service, exchange](const std::vector<int32_t>& ids) { answer_tokens(service, *exchange, ids); });
  }
  recipe::BodyFailure failure(*tree);
  const recipe::Field body(*tree, failure);
  const bool with_special = body["add_special_tokens"].optional_flag().value_or(true);
  const std::string text = body["prompt"].text();
  if (failure.noted()) return service.refuse(*exchange, refusal_of(failure.error(), 1));
  std::vector<int32_t> ids = service.tokenizer().encode(text);
  if (with_special && (ids.empty() || ids[0] != Tokenizer::kBegin)) ids.insert(ids.begin(), Tokenizer::kBegin);
  answer_tokens(service, *exchange, ids);
}

void answer_detokenize(Service& service, const SharedExchange& exchange) {
  auto tree = recipe::parse_body(exchange->request.body);
  if (!tree) return service.refuse(*exchange, refusal_of(tree.error(), 1));
  recipe::BodyFailure failure(*tree);
  const recipe::Field body(*tree, failure);
  std::vector<int32_t> ids;
  for (const recipe::Field& item : body["tokens"].required().list()) {
    const auto id = item.optional_count();
    if (!item.present()) item.refuse_type("a token id");
    if (id && int64_t(*id) >= service.engine().limits().vocabulary) {
      item.refuse("ids lie in 0 to " + std::to_string(service.engine().limits().vocabulary - 1));
    } else {
      ids.push_back(int32_t(id.value_or(0)));
    }
  }
  if (failure.noted()) return service.refuse(*exchange, refusal_of(failure.error(), 1));
  std::string out = R"({"prompt":)";
  append_json_string(out, service.tokenizer().decode(ids));
  service.reply(*exchange, json_answer(out + "}"));
}

}  // namespace fathom
