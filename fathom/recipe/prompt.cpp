#include "fathom/recipe/prompt.h"

#include <algorithm>
#include <unordered_map>

#include "fathom/recipe/prompt_parts.h"
#include "fathom/recipe/tool_markup.h"

namespace fathom::recipe {
namespace {

size_t estimated_bytes(const Conversation& conversation) {
  size_t bytes = 2048;
  for (const Message& message : conversation.messages) {
    bytes += message.content.size() + 64;
    if (message.reasoning) bytes += message.reasoning->size();
    if (message.calls) {
      for (const ToolCall& call : *message.calls) bytes += call.arguments.size() * 5 / 4 + 256;
    }
  }
  for (const ToolDefinition& tool : conversation.tools) {
    bytes += 1024 + (tool.description ? tool.description->size() : 0);
  }
  return bytes;
}

// Puts the results among messages[begin, end) in the order of the calls; what answers none of them counts as the first.
void order_results(std::vector<const Message*>& messages, size_t begin, size_t end,
                   const std::vector<const ToolCall*>& calls) {
  std::unordered_map<std::string_view, size_t> places;
  for (size_t i = 0; i < calls.size(); ++i) places.emplace(calls[i]->id, i);
  std::vector<std::pair<size_t, const Message*>> results;
  for (size_t i = begin; i < end; ++i) {
    if (messages[i]->role != Message::Role::tool) continue;
    const auto place = messages[i]->call_id ? places.find(*messages[i]->call_id) : places.end();
    results.emplace_back(place == places.end() ? 0 : place->second, messages[i]);
  }
  std::stable_sort(results.begin(), results.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  auto next = results.begin();
  for (size_t i = begin; i < end; ++i) {
    if (messages[i]->role == Message::Role::tool) messages[i] = (next++)->second;
  }
}

}  // namespace

std::vector<const ToolCall*> ordered_calls(const std::vector<ToolCall>& calls, ModelVersion version) {
  std::vector<const ToolCall*> ordered;
  for (const ToolCall& call : calls) ordered.push_back(&call);
  if (version == ModelVersion::v4) {
    std::stable_sort(ordered.begin(), ordered.end(),
                     [](const ToolCall* a, const ToolCall* b) { return a->id < b->id; });
  }
  return ordered;
}

void order_all_results(std::vector<const Message*>& messages, ModelVersion version) {
  for (size_t i = 0; i < messages.size(); ++i) {
    if (messages[i]->role != Message::Role::assistant || !messages[i]->calls) continue;
    size_t end = i + 1;
    while (end < messages.size() && (messages[end]->role == Message::Role::tool ||
                                     (version == ModelVersion::v41 && messages[end]->role == Message::Role::user))) {
      ++end;
    }
    if (end > i + 2) order_results(messages, i + 1, end, ordered_calls(*messages[i]->calls, version));
  }
}

bool needs_head(const Conversation& conversation) {
  return conversation.tools_active() || conversation.format.kind == ResponseFormat::Kind::json_object ||
         conversation.format.kind == ResponseFormat::Kind::json_schema;
}

void write_tools_and_format(PromptWriter& writer, const Conversation& conversation) {
  if (conversation.tools_active()) {
    writer.text("\n\n");
    write_tools_block(writer, conversation.tools);
  }
  if (conversation.format.kind == ResponseFormat::Kind::json_object) {
    writer.text(fixed::json_object_format(writer.version()));
  } else if (conversation.format.kind == ResponseFormat::Kind::json_schema) {
    writer.text(fixed::kJsonSchemaFormat);
    writer.json(conversation.format.schema);
  }
}

void write_user(PromptWriter& writer, const Message& message, bool continues) {
  if (continues) {
    writer.text("\n\n");
  } else {
    writer.token(SpecialToken::user);
  }
  const bool result = message.role == Message::Role::tool;
  if (result) writer.text(fixed::kToolResult);
  writer.content(message);
  if (result) writer.text(fixed::kToolResultEnd);
}

void write_reminder(PromptWriter& writer, const Message& message) {
  writer.token(SpecialToken::latest_reminder);
  writer.text(message.content);
}

void write_assistant(PromptWriter& writer, const Conversation& conversation, const Message& message, bool reasoning) {
  writer.token(SpecialToken::assistant);
  if (reasoning) {
    writer.token(SpecialToken::thinking_start);
    if (message.reasoning) writer.text(*message.reasoning);
  }
  // A prefix without content leaves it open whether the reasoning has ended.
  const bool open = message.prefix && message.content.empty() && conversation.thinking &&
                    (reasoning || writer.version() == ModelVersion::v4);
  if (!open) writer.token(SpecialToken::thinking_end);
  writer.text(message.content);
  if (message.prefix) return;
  if (message.calls) {
    writer.text("\n\n");
    write_calls(writer, ordered_calls(*message.calls, writer.version()));
  }
  writer.token(SpecialToken::eos);
}

void write_generation_header(PromptWriter& writer, const Conversation& conversation) {
  const auto& messages = conversation.messages;
  const bool begun = !messages.empty() && messages.back().role == Message::Role::assistant && messages.back().prefix;
  if (!begun) {
    writer.token(SpecialToken::assistant);
    writer.token(conversation.thinking ? SpecialToken::thinking_start : SpecialToken::thinking_end);
  }
  if (conversation.tools_active() && conversation.tool_choice == ToolChoice::required) {
    writer.text("\n\n");
    write_calls_opening(writer);
  }
}

Prompt render(const Conversation& conversation, ModelVersion version, const TokenSpellings& spellings) {
  PromptWriter writer(version, spellings, estimated_bytes(conversation));
  writer.token(SpecialToken::bos);
  if (version == ModelVersion::v4) {
    write_v4(writer, conversation);
  } else {
    write_v41(writer, conversation);
  }
  return writer.take();
}

Result<std::vector<int32_t>> encode(const Prompt& prompt, const Tokenizer& tokenizer) {
  return tokenizer.encode(prompt.text, prompt.special);
}

Result<std::vector<int32_t>> expand_images(std::span<const int32_t> ids, int32_t image_id,
                                           std::span<const int> tokens_per_image) {
  size_t images = 0, tokens = ids.size();
  for (const int32_t id : ids) images += id == image_id;
  if (images != tokens_per_image.size()) {
    return Error{ErrorCode::usage,
                 std::to_string(images) + " image tokens stand in the prompt for " +
                     std::to_string(tokens_per_image.size()) + " images",
                 "", "each image needs one token"};
  }
  for (const int count : tokens_per_image) tokens += size_t(std::max(count, 0));
  std::vector<int32_t> expanded;
  expanded.reserve(tokens - images);
  auto count = tokens_per_image.begin();
  for (const int32_t id : ids) expanded.insert(expanded.end(), id == image_id ? size_t(std::max(*count++, 0)) : 1, id);
  return expanded;
}

}  // namespace fathom::recipe
