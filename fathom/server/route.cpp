#include "fathom/server/route.h"

#include <array>

namespace fathom {
namespace {

constexpr auto kIo = Route::Where::io_thread;
constexpr auto kWorker = Route::Where::worker;

//                     method    path                          where    key    limits debug
constexpr Route kRoutes[] = {
    {"POST", "/v1/chat/completions", kWorker, true, true, false, answer_chat_completions},
    {"POST", "/v1/responses", kWorker, true, true, false, answer_responses},
    {"GET", "/v1/responses/{id}", kWorker, true, false, false, answer_stored_response},
    {"DELETE", "/v1/responses/{id}", kWorker, true, false, false, delete_stored_response},
    {"POST", "/v1/messages", kWorker, true, true, false, answer_messages},
    {"POST", "/v1/messages/count_tokens", kWorker, true, false, false, answer_count_tokens},
    {"POST", "/v1/completions", kWorker, true, true, false, answer_completions},
    {"POST", "/v1/tokenize", kWorker, true, false, false, answer_tokenize},
    {"POST", "/v1/detokenize", kWorker, true, false, false, answer_detokenize},
    {"GET", "/v1/models", kIo, true, false, false, answer_models},
    {"GET", "/v1/models/{id}", kIo, true, false, false, answer_model},
    {"GET", "/health", kIo, false, false, false, answer_health},
    {"GET", "/ready", kIo, false, false, false, answer_ready},
    {"GET", "/metrics", kIo, false, false, false, answer_metrics},
    {"GET", "/version", kIo, false, false, false, answer_version},
    {"GET", "/openapi.json", kIo, false, false, false, answer_openapi},
    {"GET", "/debug/state", kIo, true, false, true, answer_state},
};

constexpr std::string_view kFree = "{id}";

bool matches(std::string_view pattern, std::string_view path) {
  if (!pattern.ends_with(kFree)) return pattern == path;
  pattern.remove_suffix(kFree.size());
  return path.size() > pattern.size() && path.starts_with(pattern) &&
         path.find('/', pattern.size()) == std::string_view::npos;
}

}  // namespace

std::span<const Route> routes() { return kRoutes; }

const Route* find_route(std::string_view method, std::string_view path, bool debug_routes, bool* other_method) {
  if (method == "HEAD") method = "GET";
  *other_method = false;
  for (const Route& route : kRoutes) {
    if ((route.debug && !debug_routes) || !matches(route.path, path)) continue;
    if (method == route.method) return &route;
    *other_method = true;
  }
  return nullptr;
}

std::string_view id_of(const Route& route, std::string_view path) {
  return path.substr(std::string_view(route.path).size() - kFree.size());
}

net::HttpAnswer json_answer(std::string body) {
  net::HttpAnswer answer;
  answer.fields.add("Content-Type", "application/json");
  answer.body = std::move(body);
  return answer;
}

}  // namespace fathom
