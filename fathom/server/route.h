// fathom/server/route.h
// The table of all routes; one line each. The OpenAPI document (docs/openapi.json) has the same ones, which a test
// checks.
#pragma once
#include <span>
#include <string>

#include "fathom/server/service.h"

namespace fathom {

struct Route {
  const char* method;
  const char* path;  // ends with "/{id}" when the last step is free
  enum class Where { io_thread, worker } where = Where::worker;
  bool needs_key = true;
  bool limited = false;  // counts against the limits of the key
  bool debug = false;    // only with --debug-routes
  /// Answers, now or later, through Service::reply or an Answer.
  void (*run)(Service&, const SharedExchange&) = nullptr;
};

std::span<const Route> routes();
/// The route of a method and a path; HEAD asks for what GET would give. nullptr: none, and then `other_method` says
/// whether the path exists.
const Route* find_route(std::string_view method, std::string_view path, bool debug_routes, bool* other_method);
/// What stands where the route says {id}.
std::string_view id_of(const Route& route, std::string_view path);

void answer_chat_completions(Service&, const SharedExchange&);  // generate_route.cpp
void answer_responses(Service&, const SharedExchange&);
void answer_messages(Service&, const SharedExchange&);
void answer_completions(Service&, const SharedExchange&);   // completions_route.cpp
void answer_count_tokens(Service&, const SharedExchange&);  // token_routes.cpp
void answer_tokenize(Service&, const SharedExchange&);
void answer_detokenize(Service&, const SharedExchange&);
void answer_models(Service&, const SharedExchange&);  // model_routes.cpp
void answer_model(Service&, const SharedExchange&);
void answer_stored_response(Service&, const SharedExchange&);  // stored_response_routes.cpp
void delete_stored_response(Service&, const SharedExchange&);
void answer_health(Service&, const SharedExchange&);  // status_routes.cpp
void answer_ready(Service&, const SharedExchange&);
void answer_metrics(Service&, const SharedExchange&);
void answer_version(Service&, const SharedExchange&);
void answer_openapi(Service&, const SharedExchange&);
void answer_state(Service&, const SharedExchange&);

/// 200 with a JSON body.
net::HttpAnswer json_answer(std::string body);

}  // namespace fathom
