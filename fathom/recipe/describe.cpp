#include "fathom/recipe/describe.h"

#include <charconv>

namespace fathom::recipe {
namespace {

Json text_or_null(const std::optional<std::string>& text) { return text ? Json::of(*text) : Json(); }

template <class Integer>
Json number_or_null(const std::optional<Integer>& number) {
  if (!number) return {};
  Json json = Json::with_kind(Json::Kind::number);
  json.text = std::to_string(*number);
  return json;
}

// The shortest decimal that reads back as the same 32-bit value, always with a fraction or an exponent.
Json float_number(float value) {
  char text[32];
  const auto end = std::to_chars(text, text + sizeof text, value).ptr;
  Json json = Json::with_kind(Json::Kind::number);
  json.text.assign(text, end);
  if (json.text.find_first_of(".e") == std::string::npos) json.text += ".0";
  return json;
}

Json describe(const ToolCall& call) {
  Json json = Json::object();
  json.set("id", Json::of(call.id));
  json.set("name", Json::of(call.name));
  json.set("arguments", Json::of(call.arguments));
  return json;
}

// An array of the descriptions of the values.
template <class Values>
Json list(const Values& values) {
  Json json = Json::array();
  for (const auto& value : values) json.push(describe(value));
  return json;
}

Json strings(const std::vector<std::string>& texts) {
  Json json = Json::array();
  for (const std::string& text : texts) json.push(Json::of(text));
  return json;
}

}  // namespace

const char* name_of(ModelVersion version) { return version == ModelVersion::v4 ? "v4" : "v4.1"; }

const char* name_of(ThinkingStage stage) {
  switch (stage) {
    case ThinkingStage::reasoning_start: return "ReasoningStart";
    case ThinkingStage::reasoning_continuation: return "ReasoningContinuation";
    case ThinkingStage::content_continuation: return "ContentContinuation";
  }
  return "?";
}

Json describe(const ImageSource& image) {
  Json json = Json::object();
  json.set("kind", Json::of(image.kind == ImageSource::Kind::data_url ? "data_url"
                            : image.kind == ImageSource::Kind::url    ? "url"
                                                                      : "bytes"));
  json.set("detail", Json::of(name_of(image.detail)));
  json.set("path", Json::of(image.path));
  // Raw bytes are no text, so they are left out.
  if (image.kind == ImageSource::Kind::data_url) json.set("data_url", Json::of(image.data));
  if (image.kind == ImageSource::Kind::url) json.set("url", Json::of(image.data));
  return json;
}

Json describe(const ToolDefinition& tool) {
  Json json = Json::object();
  json.set("name", Json::of(tool.name));
  json.set("description", text_or_null(tool.description));
  json.set("parameters", tool.parameters);
  json.set("strict", tool.strict ? Json::of(*tool.strict) : Json());
  json.set("defer_loading", Json::of(tool.defer_loading));
  return json;
}

Json describe(const Message& message) {
  Json json = Json::object();
  json.set("role", Json::of(name_of(message.role)));
  json.set("content", Json::of(message.content));
  if (message.role == Message::Role::assistant) {
    json.set("reasoning_content", text_or_null(message.reasoning));
    json.set("tool_calls", message.calls ? list(*message.calls) : Json());
    json.set("prefix", Json::of(message.prefix));
  }
  if (message.role == Message::Role::tool) json.set("tool_call_id", text_or_null(message.call_id));
  if (message.tools) json.set("tools", list(*message.tools));
  if (!message.images.empty()) json.set("image_sources", list(message.images));
  return json;
}

Json describe(const Conversation& conversation) {
  Json json = Json::object();
  json.set("messages", list(conversation.messages));
  json.set("thinking_mode", Json::of(conversation.thinking));
  json.set("tools", list(conversation.tools));
  json.set("tool_choice", Json::of(name_of(conversation.tool_choice)));
  json.set("reasoning_effort", conversation.effort ? Json::of(name_of(*conversation.effort)) : Json());
  if (conversation.effort_number) json.set("effort_number", Json::of(*conversation.effort_number));
  const ResponseFormat& format = conversation.format;
  json.set("response_format", Json::of(name_of(format.kind)));
  json.set("response_schema", format.kind == ResponseFormat::Kind::json_schema ? format.schema : Json());
  json.set("response_regex", format.kind == ResponseFormat::Kind::regex ? Json::of(format.regex) : Json());
  return json;
}

Json describe(const Inference& inference) {
  Json json = Json::object();
  json.set("max_tokens", number_or_null(inference.max_tokens));
  json.set("temperature", float_number(inference.temperature));
  json.set("top_p", float_number(inference.top_p));
  if (inference.frequency_penalty != 0) json.set("frequency_penalty", float_number(inference.frequency_penalty));
  if (inference.presence_penalty != 0) json.set("presence_penalty", float_number(inference.presence_penalty));
  json.set("logprobs", Json::of(inference.logprobs));
  json.set("top_logprobs", number_or_null(inference.top_logprobs));
  json.set("seed", number_or_null(inference.seed));
  Json constraint;
  if (inference.constraint) {
    constraint.set("kind", Json::of(grammar::name_of(inference.constraint->kind)));
    constraint.set("schema", Json::of(inference.constraint->text));
  }
  json.set("output_constraint", std::move(constraint));
  return json;
}

Json describe(const Parsing& parsing) {
  Json json = Json::object();
  json.set("parse_tool_calls", Json::of(parsing.tool_calls));
  json.set("starts_in_tool_calls", Json::of(parsing.starts_in_tool_calls));
  json.set("parse_json_output", Json::of(parsing.json_output));
  json.set("thinking_initial_stage", parsing.stage ? Json::of(name_of(*parsing.stage)) : Json());
  json.set("stop_sequences", strings(parsing.stop_sequences));
  return json;
}

Json describe(const NamespaceMap& namespaces) {
  Json json = Json::object();
  for (const auto& [name, parts] : namespaces) {
    Json pair = Json::array();
    pair.push(Json::of(parts.first));
    pair.push(Json::of(parts.second));
    json.set(name, std::move(pair));
  }
  return json;
}

Json describe(const ConvertedRequest& request) {
  Json images = Json::array();
  for (const Message& message : request.conversation.messages) {
    for (const ImageSource& image : message.images) images.push(describe(image));
  }
  Json json = Json::object();
  json.set("model_version", Json::of(name_of(request.version)));
  json.set("stream", Json::of(request.stream));
  json.set("conversation", describe(request.conversation));
  json.set("image_sources", std::move(images));
  json.set("inference", describe(request.inference));
  json.set("parsing", describe(request.parsing));
  return json;
}

}  // namespace fathom::recipe
