// fathom/recipe/api/messages/body.h
// The fields of a Messages request, typed but not yet understood. Made by parse.cpp, consumed by convert.cpp.
// Source: spec/recipe.md 4; docs/recipe-findings.md (messages).
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "fathom/base/json.h"
#include "fathom/recipe/api/shared_rules.h"

namespace fathom::recipe {

struct MessagesImage {
  enum class Kind { base64, url, file };
  Kind kind = Kind::base64;
  std::string media_type;  // base64: "image/png"; jpg is jpeg
  std::string data;        // the base64 text, the URL, or the file id
};

/// A part of a tool result.
struct MessagesResultPart {
  enum class Kind { text, image, document, tool_reference };
  Kind kind = Kind::text;
  std::string text;  // text; document: its media type; tool_reference: the tool's name
  MessagesImage image;
};

struct MessagesBlock {
  enum class Kind {
    text,
    image,
    document,
    thinking,
    server_tool_use,
    tool_use,
    tool_result,
    web_search_tool_result,
    tool_addition,
  };
  Kind kind = Kind::text;
  std::string text;  // text, thinking; document: its media type; tool_use, tool_addition: the tool's name
  std::string id;    // tool_use: its own; tool_result: that of the call
  Json input;        // tool_use: any value
  MessagesImage image;
  std::vector<MessagesResultPart> parts;  // tool_result; a plain string is one text
};

/// `content` as a plain string is one text block.
struct MessagesTurn {
  enum class Role { user, assistant, system };
  Role role = Role::user;
  std::vector<MessagesBlock> blocks;
};

struct MessagesTool {
  std::optional<std::string> type;  // set: a server tool
  std::string name;                 // of a server tool perhaps empty
  std::optional<std::string> description;
  Json input_schema;  // null when absent
  bool defer_loading = false;
};

struct MessagesToolChoice {
  enum class Kind { automatic, any, tool, none };
  Kind kind = Kind::automatic;
  std::string name;  // tool
};

struct MessagesRequestBody {
  std::string model;
  std::vector<MessagesTurn> turns;
  std::optional<std::vector<std::string>> system;
  bool system_is_list = false;
  std::optional<uint32_t> max_tokens;
  std::optional<float> temperature, top_p;
  std::vector<std::string> stop_sequences;
  bool stream = false;
  ThinkingSwitch thinking = ThinkingSwitch::unspecified;
  std::optional<RequestedEffort> effort;
  std::vector<MessagesTool> tools;
  MessagesToolChoice tool_choice;
};

}  // namespace fathom::recipe
