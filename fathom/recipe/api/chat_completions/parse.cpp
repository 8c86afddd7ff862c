// The shape of a Chat Completions request: what is there and of which type. Nothing is judged beyond that.
#include "fathom/recipe/api/chat_completions/body.h"
#include "fathom/recipe/api/chat_completions/request.h"
#include "fathom/recipe/api/field.h"

namespace fathom::recipe {
namespace {

using Role = Message::Role;

ImageDetail read_detail(const Field& field) {
  const auto word = field.optional_choice({"low", "high", "original", "auto"});
  return word ? ImageDetail(*word) : ImageDetail::high;
}

ChatPart read_part(const Field& field) {
  ChatPart part;
  part.kind = ChatPart::Kind(field["type"].choice({"text", "image_url", "file"}));
  switch (part.kind) {
    case ChatPart::Kind::text: part.text = field["text"].text(); break;
    case ChatPart::Kind::image_url: {
      const Field image = field["image_url"].required();
      part.text = image["url"].text();
      part.detail = read_detail(image["detail"]);
      break;
    }
    case ChatPart::Kind::file:
      part.has_file_id = field["file_id"].optional_text().has_value();
      part.file_data = field["file_data"].optional_text();
      break;
  }
  return part;
}

ChatContent read_content(const Field& field) {
  ChatContent content;
  if (!field.present()) return content;
  content.given = true;
  if (field.is(Json::Kind::array)) {
    const auto parts = field.list();
    content.parts.reserve(parts.size());
    for (const Field& part : parts) content.parts.push_back(read_part(part));
  } else if (field.is(Json::Kind::string)) {
    content.text = field.text();
  } else {
    field.refuse_type("a string or an array of parts");
  }
  return content;
}

ToolCall read_call(const Field& field) {
  ToolCall call;
  call.id = field["id"].text();
  field["type"].choice({"function"});
  const Field function = field["function"].required();
  call.name = function["name"].text();
  call.arguments = function["arguments"].text();
  return call;
}

Role read_role(const Field& field, Policy policy) {
  if (policy == Policy::strict) {
    return Role(field.choice({"system", "user", "assistant", "tool", "latest_reminder"}));
  }
  const int word = field.choice({"system", "user", "assistant", "tool", "latest_reminder", "developer"});
  return word == 5 ? Role::system : Role(word);  // D-4
}

ChatMessage read_message(const Field& field, Policy policy) {
  ChatMessage message;
  message.role = read_role(field["role"], policy);
  switch (message.role) {
    case Role::latest_reminder:
      message.content.given = true;
      message.content.text = field["content"].text();
      break;
    case Role::assistant: {
      message.content = read_content(field["content"]);
      message.reasoning = field["reasoning_content"].optional_text();
      message.prefix = field["prefix"].optional_flag().value_or(false);
      if (const Field calls = field["tool_calls"]; calls.present()) {
        message.calls.emplace();
        for (const Field& call : calls.list()) message.calls->push_back(read_call(call));
      }
      break;
    }
    case Role::tool: message.call_id = field["tool_call_id"].text(); [[fallthrough]];
    case Role::system:
    case Role::user: message.content = read_content(field["content"].required()); break;
  }
  if (message.role != Role::tool && message.role != Role::latest_reminder) {
    (void)field["name"].optional_text();  // judged, then ignored
  }
  return message;
}

ToolDefinition read_tool(const Field& field) {
  ToolDefinition tool;
  field["type"].choice({"function"});
  const Field function = field["function"].required();
  tool.name = function["name"].text();
  tool.description = function["description"].optional_text();
  tool.parameters = function["parameters"].optional_json().value_or(Json());
  tool.strict = function["strict"].optional_flag();
  return tool;
}

ChatToolChoice read_tool_choice(const Field& field) {
  ChatToolChoice result;
  if (field.is(Json::Kind::object)) {
    field["type"].choice({"function"});
    result.choice = ToolChoice::required;
    result.name = field["function"].required()["name"].text();
  } else if (const auto word = field.optional_choice({"auto", "none", "required"})) {
    result.choice = ToolChoice(*word);
  }
  return result;
}

ResponseFormat read_format(const Field& field) {
  ResponseFormat format;
  if (!field.present()) return format;
  format.kind = ResponseFormat::Kind(field["type"].choice({"text", "json_object", "json_schema", "regex"}));
  if (format.kind == ResponseFormat::Kind::regex) format.regex = field["regex"].text();
  if (format.kind == ResponseFormat::Kind::json_schema) {
    const Field described = field["json_schema"].required();
    (void)described["name"].optional_text();  // judged, then ignored
    format.strict = described["strict"].optional_flag().value_or(false);
    const Field schema = described["schema"];
    if (!schema.given()) schema.required();  // null passes here and fails as a schema
    format.schema = schema.optional_json().value_or(Json());
  }
  return format;
}

void read_stop(const Field& field, ChatCompletionsRequestBody& body) {
  if (field.is(Json::Kind::string)) {
    body.stop.push_back(field.text());
    body.stop_is_string = true;
  } else if (field.present() && !field.is(Json::Kind::array)) {
    field.refuse_type("a string or an array of strings");
  } else {
    for (const Field& item : field.list()) body.stop.push_back(item.text());
  }
}

void read_max_tokens(const Field& root, Policy policy, ChatCompletionsRequestBody& body) {
  body.max_tokens = root["max_tokens"].optional_count();
  if (policy == Policy::strict) return;
  const auto other = root["max_completion_tokens"].optional_count();  // D-5
  if (body.max_tokens || !other) return;
  body.max_tokens = other;
  body.max_tokens_field = "max_completion_tokens";
}

void read_body(const Field& root, Policy policy, ChatCompletionsRequestBody& body) {
  body.model = root["model"].text();
  const auto messages = root["messages"].required().list();
  body.messages.reserve(messages.size());
  for (const Field& message : messages) body.messages.push_back(read_message(message, policy));
  body.thinking = read_thinking(root["thinking"]);
  body.effort = read_effort(root["reasoning_effort"], policy);
  body.temperature = root["temperature"].optional_float();
  body.top_p = root["top_p"].optional_float();
  read_max_tokens(root, policy, body);
  read_stop(root["stop"], body);
  body.stream = root["stream"].optional_flag().value_or(false);
  const Field stream_options = root["stream_options"];
  body.has_stream_options = stream_options.present();
  body.include_usage = stream_options["include_usage"].optional_flag().value_or(false);
  body.seed = root["seed"].optional_long_count();
  body.n = root["n"].optional_count();
  body.logprobs = root["logprobs"].optional_flag().value_or(false);
  body.top_logprobs = root["top_logprobs"].optional_count();
  body.frequency_penalty = root["frequency_penalty"].optional_float();
  body.presence_penalty = root["presence_penalty"].optional_float();
  body.has_format = root["response_format"].present();
  body.format = read_format(root["response_format"]);
  for (const Field& tool : root["tools"].list()) body.tools.push_back(read_tool(tool));
  body.tool_choice = read_tool_choice(root["tool_choice"]);
  (void)root["parallel_tool_calls"].optional_flag();  // judged, then ignored
}

}  // namespace

Result<ChatCompletionsRequest> ChatCompletionsRequest::parse(std::string_view body, Policy policy) {
  auto json = parse_body(body);
  if (!json) return json.error();
  return parse(std::move(*json), policy);
}

Result<ChatCompletionsRequest> ChatCompletionsRequest::parse(Json body, Policy policy) {
  BodyFailure failure(body);
  const Field root(body, failure);
  if (!root.is(Json::Kind::object)) root.refuse_type("an object");
  auto typed = std::make_unique<ChatCompletionsRequestBody>();
  if (!failure.noted()) read_body(root, policy, *typed);
  if (failure.noted()) return failure.error();
  return ChatCompletionsRequest(std::move(typed));
}

ChatCompletionsRequest::ChatCompletionsRequest(std::unique_ptr<ChatCompletionsRequestBody> body)
    : body_(std::move(body)) {}
ChatCompletionsRequest::ChatCompletionsRequest(ChatCompletionsRequest&&) noexcept = default;
ChatCompletionsRequest& ChatCompletionsRequest::operator=(ChatCompletionsRequest&&) noexcept = default;
ChatCompletionsRequest::~ChatCompletionsRequest() = default;

const std::string& ChatCompletionsRequest::model() const { return body_->model; }
bool ChatCompletionsRequest::include_usage() const { return body_->include_usage; }

}  // namespace fathom::recipe
