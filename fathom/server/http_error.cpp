#include "fathom/server/http_error.h"

#include "fathom/base/json.h"
#include "fathom/recipe/request_error.h"

namespace fathom {
namespace {

std::string_view error_code(int status) {
  switch (status) {
    case 401: return "invalid_api_key";
    case 403: return "permission_denied";
    case 404: return "not_found";
    case 405: return "method_not_allowed";
    case 413: return "request_too_large";
    case 415: return "unsupported_encoding";
    case 429: return "rate_limit_exceeded";
    case 503: return "overloaded";
    default: return status < 500 ? "invalid_request_error" : "server_error";
  }
}

std::string body_of(const Refusal& refusal, Dialect dialect, recipe::Policy policy, std::string_view request_id) {
  const recipe::Api api = dialect == Dialect::messages ? recipe::Api::messages : recipe::Api::chat_completions;
  if (refusal.status == 400) return recipe::error_body(refusal.error, api, policy, request_id);
  const std::string_view type = error_type(refusal.status, dialect);
  std::string out;
  if (dialect == Dialect::messages) {
    out = R"({"type":"error","error":{"type":)";
    append_json_string(out, type);
    out += R"(,"message":)";
    append_json_string(out, refusal.error.message);
    out += R"(},"request_id":)";
    append_json_string(out, request_id);
    return out += '}';
  }
  out = R"({"error":{"message":)";
  append_json_string(out, refusal.error.message);
  out += R"(,"type":)";
  append_json_string(out, type);
  out += R"(,"param":)";
  if (refusal.error.where.empty()) {
    out += "null";
  } else {
    append_json_string(out, refusal.error.where);
  }
  out += R"(,"code":)";
  append_json_string(out, error_code(refusal.status));
  return out += "}}";
}

}  // namespace

Dialect dialect_of(const net::HttpRequest& request) {
  if (request.path.starts_with("/v1/messages")) return Dialect::messages;
  return request.find("anthropic-version") != nullptr ? Dialect::messages : Dialect::openai;
}

Refusal refusal_of(Error error, int retry_after_seconds) {
  switch (error.code) {
    case ErrorCode::usage:
    case ErrorCode::bad_input:
    case ErrorCode::out_of_range: return {400, std::move(error), 0};
    case ErrorCode::out_of_memory: return {429, std::move(error), retry_after_seconds};
    default: return {503, std::move(error), retry_after_seconds};
  }
}

Error told_to_client(Error error) {
  if (!error.remedy.empty()) error.message += ": " + error.remedy;
  error.remedy.clear();
  return error;
}

std::string_view error_type(int status, Dialect dialect) {
  const bool messages = dialect == Dialect::messages;
  switch (status) {
    case 401: return "authentication_error";
    case 403: return "permission_error";
    case 404: return "not_found_error";
    case 413: return "request_too_large";
    case 429: return "rate_limit_error";
    case 503: return messages ? "overloaded_error" : "server_error";
    default: break;
  }
  if (status < 500) return "invalid_request_error";
  return messages ? "api_error" : "server_error";
}

net::HttpAnswer error_answer(const Refusal& refusal, Dialect dialect, recipe::Policy policy,
                             std::string_view request_id) {
  net::HttpAnswer answer;
  answer.status = refusal.status;
  answer.fields.add("Content-Type", "application/json");
  if (refusal.retry_after_seconds > 0) answer.fields.add("Retry-After", std::to_string(refusal.retry_after_seconds));
  if (refusal.status == 401) answer.fields.add("WWW-Authenticate", "Bearer");
  answer.body = body_of(refusal, dialect, policy, request_id);
  return answer;
}

}  // namespace fathom
