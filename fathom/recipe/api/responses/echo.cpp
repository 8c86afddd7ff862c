// The settings that a response repeats, and the tools in that form.
#include "fathom/recipe/api/responses/echo.h"

#include "fathom/recipe/api/responses/body.h"
#include "fathom/recipe/python_json.h"
#include "fathom/recipe/request_error.h"

namespace fathom::recipe {
namespace responses {
namespace {

Json or_null(const std::optional<std::string>& text) { return text ? Json::of(*text) : Json(); }
Json or_null(const std::optional<bool>& flag) { return flag ? Json::of(*flag) : Json(); }
Json or_null(const std::optional<Json>& value) { return value ? *value : Json(); }

Json with_type(std::string_view type) {
  Json value = Json::object();
  value.set("type", Json::of(type));
  return value;
}

Json function_as_json(const Tool& tool) {
  Json json = with_type("function");
  json.set("name", Json::of(tool.name));
  json.set("description", or_null(tool.description));
  json.set("parameters", or_null(tool.parameters));
  json.set("strict", or_null(tool.strict));
  return json;
}

Json location_as_json(const std::optional<Tool::Location>& location) {
  if (!location) return {};
  Json json = Json::object();
  json.set("city", or_null(location->city));
  json.set("country", or_null(location->country));
  json.set("region", or_null(location->region));
  json.set("timezone", or_null(location->timezone));
  return json;
}

constexpr const char* kEffortWords[] = {"none", "minimal", "low", "medium", "high", "xhigh", "ultra", "max"};

Json reasoning_as_json(const ResponsesRequestBody& body) {
  Json effort;
  if (body.effort && body.effort->word) effort = Json::of(kEffortWords[size_t(*body.effort->word)]);
  if (body.effort && body.effort->number) effort = Json::of(*body.effort->number);
  Json json = Json::object();
  json.set("effort", std::move(effort));
  json.set("summary", or_null(body.summary));
  return json;
}

Json format_as_json(const Format& format) {
  switch (format.kind) {
    case Format::Kind::text: return with_type("text");
    case Format::Kind::json_object: return with_type("json_object");
    case Format::Kind::json_schema: break;
  }
  Json json = with_type("json_schema");
  json.set("name", Json::of(format.name));
  json.set("schema", format.schema);
  json.set("description", or_null(format.description));
  json.set("strict", or_null(format.strict));
  return json;
}

Json choice_as_json(const Choice& choice) {
  switch (choice.kind) {
    case Choice::Kind::automatic: return Json::of("auto");
    case Choice::Kind::none: return Json::of("none");
    case Choice::Kind::required: return Json::of("required");
    case Choice::Kind::named:
    case Choice::Kind::web_search: break;
  }
  Json json = with_type(choice.type);
  if (choice.kind == Choice::Kind::named) json.set("name", Json::of(choice.name));
  return json;
}

}  // namespace

Json tool_as_json(const Tool& tool) {
  Json json;
  switch (tool.kind) {
    case Tool::Kind::function: return function_as_json(tool);
    case Tool::Kind::custom:
      json = with_type("custom");
      json.set("name", Json::of(tool.name));
      break;
    case Tool::Kind::name_space: {
      Json members = Json::array();
      for (const Tool& member : tool.members) members.push(tool_as_json(member));
      json = with_type("namespace");
      json.set("name", Json::of(tool.name));
      json.set("description", or_null(tool.description));
      json.set("tools", std::move(members));
      break;
    }
    case Tool::Kind::tool_search:
      json = with_type("tool_search");
      json.set("execution", or_null(tool.execution));
      json.set("description", or_null(tool.description));
      json.set("parameters", or_null(tool.parameters));
      break;
    case Tool::Kind::web_search:
      json = with_type(tool.type);
      json.set("search_context_size", or_null(tool.search_context));
      json.set("user_location", location_as_json(tool.location));
      break;
    case Tool::Kind::unsupported: break;
  }
  return json;
}

Result<std::string> found_tools_text(const Item& search_output) {
  Json list = Json::array();
  for (const Tool& tool : search_output.tools) {
    if (tool.kind == Tool::Kind::unsupported) {
      const std::string item = "input[" + std::to_string(search_output.index) + "]";
      // The wording is deepseek-recipe's, a fault of its serialiser that clients can see.
      return convert_error(item + ": the enum variant ResponsesTool::Unsupported cannot be serialized", item);
    }
    if (tool.kind != Tool::Kind::name_space) {
      list.push(tool_as_json(tool));
      continue;
    }
    for (const Tool& member : tool.members) {
      Json origin = Json::object();
      origin.set("name", Json::of(tool.name));
      origin.set("description", Json::of(tool.description.value_or("")));
      list.push(tool_as_json(member)).items.back().set("namespace", std::move(origin));
    }
  }
  std::string text;
  append_compact_json(text, list);
  return text;
}

}  // namespace responses

ResponsesEcho ResponsesRequest::echo() const {
  const ResponsesRequestBody& body = *body_;
  ResponsesEcho echo;
  echo.instructions = body.instructions;
  echo.max_output_tokens = body.max_output_tokens;
  echo.temperature = body.temperature.value_or(1.0f);
  echo.top_p = body.top_p.value_or(1.0f);
  echo.top_logprobs = body.top_logprobs.value_or(0);
  echo.user = body.user;
  echo.reasoning = responses::reasoning_as_json(body);
  echo.text = Json::object();
  echo.text.set("format", responses::format_as_json(body.format));
  echo.text.set("verbosity", responses::or_null(body.verbosity));
  echo.tool_choice = responses::choice_as_json(body.tool_choice);
  echo.tools = Json::array();
  for (const responses::Tool& tool : body.tools) {
    if (tool.kind == responses::Tool::Kind::unsupported) continue;
    echo.tools.push(responses::tool_as_json(tool));
  }
  return echo;
}

}  // namespace fathom::recipe
