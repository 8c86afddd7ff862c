// fathom/recipe/testing/conversation_json.h
// For tests: conversations as the vectors write them (`expect.conversation` in requests.jsonl).
#pragma once
#include <string_view>

#include "fathom/base/check.h"
#include "fathom/base/json.h"
#include "fathom/recipe/conversation.h"

namespace fathom::recipe::vectors {

inline const Json* given(const Json& object, std::string_view key) {
  const Json* value = object.find(key);
  return value && !value->is_null() ? value : nullptr;
}

inline std::string text_of(const Json& object, std::string_view key) {
  const Json* value = given(object, key);
  return value ? value->text : std::string();
}

template <class Enum>
Enum named(std::string_view name, Enum last) {
  for (int i = 0; i <= int(last); ++i) {
    if (name_of(Enum(i)) == name) return Enum(i);
  }
  check(false, "a vector has an unknown word");
  return last;
}

inline std::vector<ToolDefinition> tools_from(const Json& array) {
  std::vector<ToolDefinition> tools;
  for (const Json& item : array.items) {
    ToolDefinition tool;
    tool.name = text_of(item, "name");
    if (const Json* description = given(item, "description")) tool.description = description->text;
    tool.parameters = *item.find("parameters");
    if (const Json* strict = given(item, "strict")) tool.strict = strict->boolean;
    tool.defer_loading = given(item, "defer_loading") && item.find("defer_loading")->boolean;
    tools.push_back(std::move(tool));
  }
  return tools;
}

inline Message message_from(const Json& json, std::string_view image_token) {
  Message message;
  message.role = named(text_of(json, "role"), Message::Role::latest_reminder);
  message.content = text_of(json, "content");
  if (const Json* images = given(json, "image_sources")) {
    for (const Json& item : images->items) {
      ImageSource image;
      const std::string kind = text_of(item, "kind");
      image.kind = kind == "url"     ? ImageSource::Kind::url
                   : kind == "bytes" ? ImageSource::Kind::bytes
                                     : ImageSource::Kind::data_url;
      image.detail = named(text_of(item, "detail"), ImageDetail::automatic);
      image.data = text_of(item, kind == "bytes" ? "data" : kind);
      image.path = text_of(item, "path");
      message.images.push_back(std::move(image));
    }
  }
  place_images(message, image_token);
  if (const Json* reasoning = given(json, "reasoning_content")) message.reasoning = reasoning->text;
  if (const Json* calls = given(json, "tool_calls")) {
    message.calls.emplace();
    for (const Json& call : calls->items) {
      message.calls->push_back({text_of(call, "id"), text_of(call, "name"), text_of(call, "arguments")});
    }
  }
  message.prefix = given(json, "prefix") && json.find("prefix")->boolean;
  if (const Json* id = given(json, "tool_call_id")) message.call_id = id->text;
  if (const Json* tools = given(json, "tools")) message.tools = tools_from(*tools);
  return message;
}

/// Images stand where `image_token` is first found. A row whose user spells the token before the real one has to
/// correct that.
inline Conversation conversation_from(const Json& json, std::string_view image_token) {
  Conversation conversation;
  for (const Json& message : json.find("messages")->items) {
    conversation.messages.push_back(message_from(message, image_token));
  }
  conversation.thinking = json.find("thinking_mode")->boolean;
  conversation.tools = tools_from(*json.find("tools"));
  conversation.tool_choice = named(text_of(json, "tool_choice"), ToolChoice::required);
  if (const Json* effort = given(json, "reasoning_effort")) conversation.effort = named(effort->text, Effort::max);
  conversation.format.kind = named(text_of(json, "response_format"), ResponseFormat::Kind::regex);
  if (const Json* schema = json.find("response_schema")) conversation.format.schema = *schema;
  conversation.format.regex = text_of(json, "response_regex");
  return conversation;
}

}  // namespace fathom::recipe::vectors
