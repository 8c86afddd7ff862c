// fathom/recipe/conversation.h
// What the three request formats have in common: who said what, which tools there are, how the answer shall look.
// Plain values; made by api/*, read by the renderer. Source: spec/recipe.md 2 to 6.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "fathom/base/json.h"

namespace fathom::recipe {

enum class Effort { low, high, xhigh, max };
enum class ToolChoice { automatic, none, required };
enum class ImageDetail { low, high, original, automatic };

/// "low", "high", "xhigh", "max".
const char* name_of(Effort effort);
/// "auto", "none", "required".
const char* name_of(ToolChoice choice);
/// "low", "high", "original", "auto".
const char* name_of(ImageDetail detail);

/// A call in the history. `arguments` is the caller's text, expected to be a JSON object but not checked.
struct ToolCall {
  std::string id;
  std::string name;
  std::string arguments;

  friend bool operator==(const ToolCall&, const ToolCall&) = default;
};

struct ToolDefinition {
  std::string name;
  std::optional<std::string> description;
  Json parameters = Json::object();  // JSON Schema; normalised when `strict` (schema/strict_schema.h)
  std::optional<bool> strict;
  bool defer_loading = false;  // known and callable, but not listed in the head of the prompt (V4.1)

  friend bool operator==(const ToolDefinition&, const ToolDefinition&) = default;
};

/// An image that a message refers to. Nobody has looked at its bytes yet.
struct ImageSource {
  enum class Kind { data_url, url, bytes };
  Kind kind = Kind::data_url;
  ImageDetail detail = ImageDetail::high;
  std::string data;    // the data URL, the URL, or the encoded bytes
  std::string path;    // where the request had it, as errors say it: ".messages[0]"
  int64_t offset = 0;  // byte offset in Message::content of the image token that stands for it

  friend bool operator==(const ImageSource&, const ImageSource&) = default;
};

struct Message {
  enum class Role { system, user, assistant, tool, latest_reminder };
  Role role = Role::user;
  std::string content;
  std::vector<ImageSource> images;                   // user, tool, system: ascending by offset
  std::optional<std::string> reasoning;              // assistant
  std::optional<std::vector<ToolCall>> calls;        // assistant
  bool prefix = false;                               // assistant: to be continued instead of closed
  std::optional<std::string> call_id;                // tool: the call that it answers
  std::optional<std::vector<ToolDefinition>> tools;  // system: tools that become known here (spec 6.4)

  friend bool operator==(const Message&, const Message&) = default;
};

/// "system", "user", "assistant", "tool", "latest_reminder".
const char* name_of(Message::Role role);

struct ResponseFormat {
  enum class Kind { text, json_object, json_schema, regex };
  Kind kind = Kind::text;
  Json schema;          // json_schema: as the request gave it (the prompt shows this one)
  bool strict = false;  // json_schema: the constraint uses the normalised schema
  std::string regex;

  friend bool operator==(const ResponseFormat&, const ResponseFormat&) = default;
};

/// "text", "json_object", "json_schema", "regex".
const char* name_of(ResponseFormat::Kind kind);

struct Conversation {
  std::vector<Message> messages;
  bool thinking = true;
  std::vector<ToolDefinition> tools;
  ToolChoice tool_choice = ToolChoice::automatic;
  std::optional<Effort> effort;      // set when thinking is on (by conversion)
  std::optional<int> effort_number;  // 1 to 100, instead of the number of `effort` in the V4.1 line (D-6)
  ResponseFormat format;

  /// At least one tool and not switched off: tools are listed, constrained and parsed.
  bool tools_active() const { return !tools.empty() && tool_choice != ToolChoice::none; }

  friend bool operator==(const Conversation&, const Conversation&) = default;
};

/// Sets the offsets of directly built messages: the first occurrences of `image_token` in `content`, one for each
/// image, stand for the images; an image without an occurrence gets offset -1 and no place in the prompt.
void place_images(Message& message, std::string_view image_token);

}  // namespace fathom::recipe
