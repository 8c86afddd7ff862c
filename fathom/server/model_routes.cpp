// GET /v1/models and /v1/models/{id}, in one form that OpenAI's and Anthropic's clients both read.
#include <ctime>

#include "fathom/base/json.h"
#include "fathom/server/model_names.h"
#include "fathom/server/route.h"

namespace fathom {
namespace {

std::string rfc3339(int64_t unix_seconds) {
  const auto time = std::time_t(unix_seconds);
  std::tm parts{};
  ::gmtime_r(&time, &parts);
  char text[32];
  const size_t length = std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &parts);
  return {text, length};
}

Json model_json(Service& service, const std::string& name) {
  Json model = Json::object();
  model.set("id", Json::of(name));
  model.set("object", Json::of("model"));
  model.set("type", Json::of("model"));
  model.set("created", Json::of(service.started()));
  model.set("created_at", Json::of(rfc3339(service.started())));
  model.set("display_name", Json::of(name));
  model.set("owned_by", Json::of("deepseek"));
  model.set("context_length", Json::of(service.engine().limits().context));
  Json inputs = Json::array();
  inputs.push(Json::of("text"));
  if (service.blind().empty()) inputs.push(Json::of("image"));
  model.set("input_modalities", std::move(inputs));
  return model;
}

}  // namespace

void answer_models(Service& service, const SharedExchange& exchange) {
  Json list = Json::array();
  const std::vector<std::string> names = model_names(service.options().conversion);
  for (const std::string& name : names) list.push(model_json(service, name));
  Json body = Json::object();
  body.set("object", Json::of("list"));
  body.set("data", std::move(list));
  body.set("has_more", Json::of(false));
  body.set("first_id", Json::of(names.front()));
  body.set("last_id", Json::of(names.back()));
  service.reply(*exchange, json_answer(to_string(body)));
}

void answer_model(Service& service, const SharedExchange& exchange) {
  const std::string name = net::percent_decoded(id_of(*exchange->route, exchange->request.path), false);
  if (is_model(name, service.options().conversion)) {
    return service.reply(*exchange, json_answer(to_string(model_json(service, name))));
  }
  service.refuse(
      *exchange,
      {404, {ErrorCode::not_found, "The model '" + name + "' does not exist: GET /v1/models lists them", "", ""}, 0});
}

}  // namespace fathom
