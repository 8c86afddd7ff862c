// fathom/recipe/prompt_parts.h
// What the prompts of both versions have in common; how each begins is its own file. Source: spec/recipe.md 6.1, 6.2.
#pragma once
#include <vector>

#include "fathom/recipe/prompt_writer.h"

namespace fathom::recipe {

/// The calls of one message as the prompt has them: V4 sorts them by their ids.
std::vector<const ToolCall*> ordered_calls(const std::vector<ToolCall>& calls, ModelVersion version);
/// Behind each message with calls, its results come into the order of the calls; other messages keep their places.
void order_all_results(std::vector<const Message*>& messages, ModelVersion version);

/// A head is needed even without a system message: tools or a format have to be said.
bool needs_head(const Conversation& conversation);
/// Tools and format, each with its leading line breaks.
void write_tools_and_format(PromptWriter& writer, const Conversation& conversation);

/// A user or tool message: begins a turn, or goes on with the one that is open.
void write_user(PromptWriter& writer, const Message& message, bool continues);
void write_reminder(PromptWriter& writer, const Message& message);
/// A finished assistant turn, or, for the prefix of one, its beginning. `reasoning`: with thinking start and reasoning.
void write_assistant(PromptWriter& writer, const Conversation& conversation, const Message& message, bool reasoning);
/// What stands before the answer, unless a prefix has begun it.
void write_generation_header(PromptWriter& writer, const Conversation& conversation);

void write_v4(PromptWriter& writer, const Conversation& conversation);
void write_v41(PromptWriter& writer, const Conversation& conversation);

}  // namespace fathom::recipe
