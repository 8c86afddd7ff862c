// Names and schemas: tools and response formats.
#include <algorithm>
#include <iterator>
#include <unordered_set>

#include "fathom/recipe/api/shared_rules.h"
#include "fathom/recipe/python_json.h"
#include "fathom/recipe/request_error.h"
#include "fathom/recipe/schema/check_schema.h"
#include "fathom/recipe/schema/strict_schema.h"

namespace fathom::recipe {
namespace {

// The normaliser names a place inside the schema; the client is told which schema it is.
Error at_path(Error error, const std::string& path) {
  error.where = path;
  return error;
}

bool is_strict(const ToolDefinition& tool) { return tool.strict.value_or(false); }

}  // namespace

Result<void> check_tool_name(std::string_view name, const std::string& where) {
  if (name.empty()) {
    return convert_error("Invalid '" + where +
                             "': empty string. Expected a string with minimum length 1, but got an empty string "
                             "instead.",
                         where);
  }
  const bool plain = std::all_of(name.begin(), name.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-';
  });
  if (plain) return {};
  return convert_error("Invalid '" + where +
                           "': string does not match pattern. Expected a string that matches the pattern "
                           "'^[a-zA-Z0-9_-]+$'.",
                       where);
}

Result<void> check_unique_names(const std::vector<ToolDefinition>& tools) {
  std::unordered_set<std::string_view> names;
  for (const ToolDefinition& tool : tools) {
    if (!names.insert(tool.name).second) return convert_error("Tool names must be unique.", "tools");
  }
  return {};
}

Result<void> check_strict_mix(const std::vector<ToolDefinition>& tools) {
  const auto strict = std::count_if(tools.begin(), tools.end(), is_strict);
  if (strict == 0 || size_t(strict) == tools.size()) return {};
  return convert_error("Cannot use strict tool with non-strict tool in the same request", "tools");
}

Result<void> check_format_with_tools(const Conversation& conversation, bool given) {
  const auto& tools = conversation.tools;
  if (!given || !conversation.tools_active() || std::none_of(tools.begin(), tools.end(), is_strict)) return {};
  return convert_error("response_format should not be used with tools", "response_format");
}

Result<void> settle_parameters(ToolDefinition& tool, Policy policy, const std::string& path) {
  Json& parameters = tool.parameters;
  const bool strict = is_strict(tool);
  if (parameters.is_null()) {
    parameters = Json::object();
    if (!strict) return {};
    parameters.set("type", Json::of("object"));
  }
  const auto check_schema = [&]() -> Result<void> {
    if (const auto fault = find_schema_fault(parameters)) {
      return convert_error("Invalid schema for function '" + tool.name + "': " + fault->message, path);
    }
    return {};
  };
  if (strict) {
    auto normal = normalise_strict_schema(parameters, SchemaUse::tool_parameters, policy);
    if (!normal) return at_path(normal.error(), path);
    // deepseek-recipe looks at a strict schema no further, so a bad pattern passes there.
    if (policy == Policy::lenient) {
      if (auto checked = check_schema(); !checked) return checked;
    }
    parameters = std::move(*normal);
    return {};
  }
  if (auto checked = check_schema(); !checked) return checked;
  const Json* type = parameters.find("type");
  if (type && type->is_string() && type->text == "object") return {};
  std::string found;
  append_compact_json(found, type ? *type : Json());
  return convert_error("Invalid schema for function '" + tool.name +
                           "': schema must be a JSON Schema of 'type: \"object\"', got 'type: " + found + "'.",
                       path);
}

Result<void> check_response_format(const ResponseFormat& format, Policy policy, const std::string& path) {
  if (format.kind != ResponseFormat::Kind::json_schema) return {};
  if (format.strict) {
    const auto normal = normalise_strict_schema(format.schema, SchemaUse::response, policy);
    if (!normal) return at_path(normal.error(), path);
    if (policy == Policy::strict) return {};
  }
  if (const auto fault = find_schema_fault(format.schema)) {
    return convert_error("Invalid json schema: " + fault->message, path);
  }
  return {};
}

}  // namespace fathom::recipe
