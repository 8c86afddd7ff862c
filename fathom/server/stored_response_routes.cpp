// GET and DELETE /v1/responses/{id}: what the store keeps.
#include "fathom/base/json.h"
#include "fathom/server/route.h"

namespace fathom {
namespace {

Refusal not_found(std::string_view id) {
  return {404, {ErrorCode::not_found, "Response with id '" + std::string(id) + "' not found.", "", ""}, 0};
}

}  // namespace

void answer_stored_response(Service& service, const SharedExchange& exchange) {
  const std::string id(id_of(*exchange->route, exchange->request.path));
  auto stored = service.store() != nullptr ? service.store()->get(id, exchange->key.tenant) : std::nullopt;
  if (!stored) return service.refuse(*exchange, not_found(id));
  service.reply(*exchange, json_answer(std::move(stored->response)));
}

void delete_stored_response(Service& service, const SharedExchange& exchange) {
  const std::string id(id_of(*exchange->route, exchange->request.path));
  if (service.store() == nullptr || !service.store()->remove(id, exchange->key.tenant)) {
    return service.refuse(*exchange, not_found(id));
  }
  std::string body = R"({"id":)";
  append_json_string(body, id);
  service.reply(*exchange, json_answer(body + R"(,"object":"response","deleted":true})"));
}

}  // namespace fathom
