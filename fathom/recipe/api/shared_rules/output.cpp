// What the answer may look like and how it is to be read, once the conversation is settled.
#include "fathom/base/check.h"
#include "fathom/recipe/api/shared_rules.h"
#include "fathom/recipe/python_json.h"
#include "fathom/recipe/schema/strict_schema.h"

namespace fathom::recipe {
namespace {

using grammar::Constraint;

void append_tool(std::string& out, const ToolDefinition& tool) {
  out += R"({"type":"function","function":{"name":)";
  append_json_string(out, tool.name);
  out += R"(,"description":)";
  if (tool.description) {
    append_json_string(out, *tool.description);
  } else {
    out += "null";
  }
  out += R"(,"parameters":)";
  append_compact_json(out, tool.parameters);
  out += R"(,"strict":)";
  out += !tool.strict ? "null" : *tool.strict ? "true" : "false";
  out += '}';
  if (tool.defer_loading) out += R"(,"defer_loading":true)";
  out += '}';
}

Constraint constrain_calls(const Conversation& conversation, ModelVersion version, const TokenSpellings& spellings) {
  Constraint constraint;
  const bool required = conversation.tool_choice == ToolChoice::required;
  constraint.kind = required ? Constraint::Kind::tool_call_required : Constraint::Kind::tool_call;
  constraint.markup.dsml = spellings[SpecialToken::dsml];
  constraint.markup.block = version == ModelVersion::v41 ? " calls" : "tool_calls";
  constraint.markup.separator = version == ModelVersion::v41 ? " " : "";
  constraint.text = "[";
  for (const ToolDefinition& tool : conversation.tools) {
    if (constraint.text.size() > 1) constraint.text += ',';
    append_tool(constraint.text, tool);
    constraint.tools.push_back(
        {.name = tool.name, .parameters = tool.parameters, .strict = tool.strict.value_or(false)});
  }
  constraint.text += ']';
  return constraint;
}

std::optional<Constraint> constrain(const Conversation& conversation, ModelVersion version,
                                    const ConversionOptions& options) {
  if (conversation.tools_active()) return constrain_calls(conversation, version, options.spellings);
  Constraint constraint;
  const ResponseFormat& format = conversation.format;
  switch (format.kind) {
    case ResponseFormat::Kind::text: return {};
    case ResponseFormat::Kind::json_object: break;
    case ResponseFormat::Kind::json_schema: {
      if (format.strict) {
        const auto normal = normalise_strict_schema(format.schema, SchemaUse::response, options.policy);
        check(normal.ok(), "settle_output: the format has passed check_response_format");
        append_compact_json(constraint.text, *normal);
      } else {
        append_compact_json(constraint.text, format.schema);
      }
      break;
    }
    case ResponseFormat::Kind::regex:
      constraint.kind = Constraint::Kind::regex;
      constraint.text = format.regex;
      break;
  }
  return constraint;
}

std::optional<ThinkingStage> initial_stage(const Conversation& conversation) {
  if (!conversation.thinking) return {};
  if (!conversation.messages.empty() && conversation.messages.back().prefix) {
    const Message& prefix = conversation.messages.back();
    if (!prefix.content.empty()) return ThinkingStage::content_continuation;
    if (prefix.reasoning && !prefix.reasoning->empty()) return ThinkingStage::reasoning_continuation;
  }
  return ThinkingStage::reasoning_start;
}

// Names of the parameters that a call needs to be complete (D-12).
std::vector<std::string> required_names(const Json& parameters) {
  std::vector<std::string> names;
  if (const Json* required = parameters.find("required")) {
    for (const Json& name : required->items) {
      if (name.is_string()) names.push_back(name.text);
    }
  }
  return names;
}

}  // namespace

void settle_output(ConvertedRequest& request, std::vector<std::string> stop_sequences,
                   const ConversionOptions& options) {
  const Conversation& conversation = request.conversation;
  Parsing& parsing = request.parsing;
  parsing.policy = options.policy;
  parsing.tool_calls = conversation.tools_active();
  parsing.starts_in_tool_calls = parsing.tool_calls && conversation.tool_choice == ToolChoice::required;
  parsing.json_output = conversation.format.kind == ResponseFormat::Kind::json_object;
  parsing.stage = initial_stage(conversation);
  parsing.stop_sequences = std::move(stop_sequences);
  parsing.spellings = options.spellings;
  if (parsing.tool_calls && options.policy == Policy::lenient) {
    for (const ToolDefinition& tool : conversation.tools) {
      auto names = required_names(tool.parameters);
      if (!names.empty()) parsing.required_parameters.emplace(tool.name, std::move(names));
    }
  }
  request.inference.constraint = constrain(conversation, request.version, options);
  const bool thinks_first = parsing.stage && *parsing.stage != ThinkingStage::content_continuation;
  if (request.inference.constraint && thinks_first) {
    request.inference.constraint->starts_after = options.spellings[SpecialToken::thinking_end];
  }
}

}  // namespace fathom::recipe
