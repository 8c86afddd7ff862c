// POST /v1/messages/count_tokens, /v1/tokenize, /v1/detokenize: text to tokens and back, without generating.
#include <limits>
#include <utility>

#include "fathom/base/json.h"
#include "fathom/recipe/api/field.h"
#include "fathom/recipe/codec.h"
#include "fathom/server/question.h"
#include "fathom/server/route.h"

namespace fathom {
namespace {

void append_ids(std::string& out, std::span<const int32_t> ids) {
  out += '[';
  for (size_t i = 0; i < ids.size(); ++i) out.append(i > 0 ? "," : "").append(std::to_string(ids[i]));
  out += ']';
}

/// The prompt's tokens of a request of one of the APIs, as the call would make them.
Result<std::vector<int32_t>> tokens_of_request(Service& service, recipe::Api api, Json body) {
  const recipe::ConversionOptions& conversion = service.options().conversion;
  auto request = recipe::read_request(api, std::move(body), conversion);
  if (!request) return request.error();
  if (auto answerable = check_answerable(*request); !answerable) return answerable.error();
  return recipe::encode(recipe::render(request->converted, conversion), service.tokenizer());
}

}  // namespace

void answer_count_tokens(Service& service, const SharedExchange& exchange) {
  auto tree = recipe::parse_body(exchange->request.body);
  auto ids = tree ? tokens_of_request(service, recipe::Api::messages, std::move(*tree)) : tree.error();
  if (!ids) return service.refuse(*exchange, refusal_of(ids.error(), 1));
  service.reply(*exchange, json_answer(R"({"input_tokens":)" + std::to_string(ids->size()) + "}"));
}

void answer_tokenize(Service& service, const SharedExchange& exchange) {
  auto tree = recipe::parse_body(exchange->request.body);
  if (!tree) return service.refuse(*exchange, refusal_of(tree.error(), 1));
  std::vector<int32_t> ids;
  if (const Json* messages = tree->find("messages"); messages != nullptr && !messages->is_null()) {
    auto read = tokens_of_request(service, recipe::Api::chat_completions, std::move(*tree));
    if (!read) return service.refuse(*exchange, refusal_of(read.error(), 1));
    ids = std::move(*read);
  } else {
    recipe::BodyFailure failure(*tree);
    const recipe::Field body(*tree, failure);
    const bool with_special = body["add_special_tokens"].optional_flag().value_or(true);
    const std::string text = body["prompt"].text();
    if (failure.noted()) return service.refuse(*exchange, refusal_of(failure.error(), 1));
    ids = service.tokenizer().encode(text);
    if (with_special && (ids.empty() || ids[0] != Tokenizer::kBegin)) ids.insert(ids.begin(), Tokenizer::kBegin);
  }
  std::string out = R"({"count":)" + std::to_string(ids.size()) + R"(,"max_model_len":)" +
                    std::to_string(service.engine().limits().context) + R"(,"tokens":)";
  append_ids(out, ids);
  service.reply(*exchange, json_answer(out + "}"));
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
