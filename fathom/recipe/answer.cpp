#include "fathom/recipe/answer.h"

namespace fathom::recipe {

void append_sse(std::string& out, const WireEvents& events) {
  for (const WireEvents::Event& event : events.events) {
    if (event.comment) {
      out += ": keep-alive\n\n";
      continue;
    }
    if (!event.name.empty()) out.append("event: ").append(event.name).append("\n");
    out.append("data: ").append(events.json(event)).append("\n\n");
  }
}

std::string_view failure_type(ErrorCode code, Api api) {
  switch (code) {
    case ErrorCode::usage:
    case ErrorCode::bad_input:
    case ErrorCode::out_of_range: return "invalid_request_error";
    case ErrorCode::out_of_memory:
    case ErrorCode::interrupted: return api == Api::messages ? "overloaded_error" : "server_error";
    default: return api == Api::messages ? "api_error" : "server_error";
  }
}

}  // namespace fathom::recipe
