#include "fathom/recipe/request_error.h"

#include "fathom/base/json.h"

namespace fathom::recipe {
namespace {

constexpr std::string_view kType = "invalid_request_error";

void append_member(std::string& out, std::string_view key, std::string_view value, bool null = false) {
  if (out.back() != '{') out += ',';
  append_json_string(out, key);
  out += ':';
  if (null) {
    out += "null";
  } else {
    append_json_string(out, value);
  }
}

}  // namespace

Error parse_error(std::string path, std::string message) {
  return Error{ErrorCode::bad_input, "invalid request body: " + std::move(message), std::move(path), ""};
}

Error convert_error(std::string message, std::string path) {
  return Error{ErrorCode::usage, std::move(message), std::move(path), ""};
}

int status_of(const Error& error) {
  switch (error.code) {
    case ErrorCode::bad_input:
    case ErrorCode::usage:
    case ErrorCode::out_of_range: return 400;
    default: return 500;
  }
}

std::string error_body(const Error& error, Api api, Policy policy, std::string_view request_id) {
  const bool lenient = policy == Policy::lenient;
  std::string out;
  if (lenient && api == Api::messages) {
    out = R"({"type":"error","error":{)";
    append_member(out, "type", kType);
    append_member(out, "message", error.message);
    out += '}';
    append_member(out, "request_id", request_id, request_id.empty());
    return out += '}';
  }
  const bool context = lenient && error.code == ErrorCode::out_of_range;
  out = R"({"error":{)";
  append_member(out, "message", error.message);
  append_member(out, "type", kType);
  append_member(out, "param", error.where, !lenient || error.where.empty());
  append_member(out, "code", context ? "context_length_exceeded" : kType);
  return out += "}}";
}

}  // namespace fathom::recipe
