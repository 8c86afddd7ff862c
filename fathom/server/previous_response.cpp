#include "fathom/server/previous_response.h"

#include <utility>

namespace fathom {
namespace {

Json message_of(Json text) {
  Json message = Json::object();
  message.set("type", Json::of("message"));
  message.set("role", Json::of("user"));
  message.set("content", std::move(text));
  return message;
}

/// Only what an input item may have: what the answer says about itself is dropped.
void append_output(Json& items, const Json& response) {
  const Json* output = response.find("output");
  if (output == nullptr) return;
  for (const Json& item : output->items) {
    const Json* status = item.find("status");
    const Json* type = item.find("type");
    const bool call = type != nullptr && type->text.ends_with("_call");
    // Nobody can run a call that was cut off, so nobody can answer it either.
    if (call && status != nullptr && status->text == "incomplete") continue;
    items.push(item);
  }
}

}  // namespace

Result<std::string> join_previous(Json& body, ResponseStore* store, const std::string& tenant) {
  if (!body.is_object()) return std::string();
  const Json* previous = body.find("previous_response_id");
  const bool continues = previous != nullptr && previous->is_string();
  if (store == nullptr) {
    if (!continues) return std::string();
    return Error{ErrorCode::usage,
                 "previous_response_id: this server keeps no responses; send the whole conversation as input, or start "
                 "it with --response-store",
                 "previous_response_id", ""};
  }
  Json items = Json::array();
  if (continues) {
    const auto stored = store->get(previous->text, tenant);
    const auto before = stored ? parse_json(stored->input, "stored input") : Result<Json>(Json());
    const auto response = stored ? parse_json(stored->response, "stored response") : Result<Json>(Json());
    if (!stored || !before || !response) {
      return Error{ErrorCode::usage, "Previous response with id '" + previous->text + "' not found.",
                   "previous_response_id", ""};
    }
    items = *before;
    append_output(items, *response);
  }
  if (const Json* input = body.find("input"); input != nullptr && input->is_array()) {
    for (const Json& item : input->items) items.push(item);
  } else if (input != nullptr && input->is_string()) {
    items.push(message_of(*input));
  } else if (input != nullptr && !input->is_null()) {
    return std::string();  // the codec says what is wrong with it
  }
  if (continues) body.set("input", items);
  const Json* keep = body.find("store");
  if (keep != nullptr && keep->as_bool() == std::optional<bool>(false)) return std::string();
  return to_string(items);
}

}  // namespace fathom
