// fathom/recipe/api/chat_completions/body.h
// The typed fields of a Chat Completions request, as the client sent them. Private to this folder.
// Source: spec/recipe.md 2.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "fathom/base/json.h"
#include "fathom/recipe/api/shared_rules.h"
#include "fathom/recipe/conversation.h"

namespace fathom::recipe {

struct ChatPart {
  enum class Kind { text, image_url, file };
  Kind kind = Kind::text;
  std::string text;  // the text or the image's URL
  ImageDetail detail = ImageDetail::high;
  bool has_file_id = false;              // file
  std::optional<std::string> file_data;  // file
};

/// A string, or a list of parts; `given` is false when there is neither.
struct ChatContent {
  bool given = false;
  std::string text;
  std::vector<ChatPart> parts;
};

struct ChatMessage {
  Message::Role role = Message::Role::user;
  ChatContent content;
  std::optional<std::string> reasoning;        // assistant
  std::optional<std::vector<ToolCall>> calls;  // assistant
  bool prefix = false;                         // assistant
  std::string call_id;                         // tool
};

struct ChatToolChoice {
  ToolChoice choice = ToolChoice::automatic;  // `required` for a named one
  std::optional<std::string> name;
};

struct ChatCompletionsRequestBody {
  std::string model;
  std::vector<ChatMessage> messages;
  ThinkingSwitch thinking = ThinkingSwitch::unspecified;
  std::optional<RequestedEffort> effort;
  std::optional<float> temperature, top_p, frequency_penalty, presence_penalty;
  std::optional<uint32_t> max_tokens, n, top_logprobs;
  const char* max_tokens_field = "max_tokens";  // or "max_completion_tokens" (D-5)
  std::optional<uint64_t> seed;
  std::vector<std::string> stop;
  bool stop_is_string = false;
  bool stream = false, logprobs = false;
  bool has_stream_options = false, include_usage = false;
  std::vector<ToolDefinition> tools;  // absent parameters are null
  ChatToolChoice tool_choice;
  ResponseFormat format;
  bool has_format = false;  // the request says something about it, if only "text"
};

/// The messages of the body as a conversation has them, tool outputs where they stood. Moves texts out of `body`.
/// Errors: convert stage.
Result<std::vector<Message>> convert_messages(ChatCompletionsRequestBody& body, bool thinking, ModelVersion version,
                                              const ConversionOptions& options);

}  // namespace fathom::recipe
