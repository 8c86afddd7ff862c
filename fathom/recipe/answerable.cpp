#include "fathom/recipe/answerable.h"

#include <algorithm>

namespace fathom::recipe {
namespace {

using ConstraintKind = grammar::Constraint::Kind;

/// The member of the request that asked for the constraint, and the path behind it.
void place(Error& error, const grammar::Constraint& constraint, Api api) {
  if (constraint.kind == ConstraintKind::tool_call || constraint.kind == ConstraintKind::tool_call_required)
    return;  // a path in "tools"
  const std::string inner = std::move(error.where);
  const bool responses = api == Api::responses;
  error.where = responses ? "text.format" : "response_format";
  if (constraint.kind == ConstraintKind::json) error.where += responses ? ".schema" : ".json_schema.schema";
  if (constraint.kind == ConstraintKind::regex) error.where += ".regex";
  if (inner.empty()) return;
  if (constraint.kind == ConstraintKind::json && !inner.starts_with('#')) {
    error.where += (inner.starts_with('[') ? "" : ".") + inner;
  } else {
    error.message += " (" + inner + ")";
  }
}

}  // namespace

bool is_promise(const grammar::Constraint& constraint) {
  return constraint.kind != ConstraintKind::tool_call ||
         std::any_of(constraint.tools.begin(), constraint.tools.end(), [](const auto& tool) { return tool.strict; });
}

Result<void> check_promise(const CodecRequest& request, const ConstraintCheck& check) {
  const auto& constraint = request.converted.inference.constraint;
  if (!constraint || !is_promise(*constraint)) return {};
  const Result<void> possible = check(*constraint);
  if (possible) return {};
  Error error = possible.error();
  error.code = ErrorCode::usage;
  return error;
}

Result<void> check_constraint(const CodecRequest& request, const ConstraintCheck& check) {
  const Result<void> kept = check_promise(request, check);
  if (kept) return {};
  Error error = kept.error();
  place(error, *request.converted.inference.constraint, request.api);
  return error;
}

Result<void> check_images(const CodecRequest& request) {
  for (const Message& message : request.converted.conversation.messages) {
    if (message.images.empty()) continue;
    const std::string& path = message.images[0].path;
    return Error{ErrorCode::usage, "this build cannot see images", path.starts_with('.') ? path.substr(1) : path,
                 "leave the image out"};
  }
  return {};
}

}  // namespace fathom::recipe
