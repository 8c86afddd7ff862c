// fathom/recipe/api/messages/convert_history.h
// The messages of a Messages request become those of a Conversation; calls and their results are paired.
// Source: spec/recipe.md 4; docs/recipe-findings.md (messages).
#pragma once
#include <string>
#include <vector>

#include "fathom/base/result.h"
#include "fathom/recipe/api/messages/body.h"
#include "fathom/recipe/conversation.h"
#include "fathom/recipe/settings.h"

namespace fathom::recipe {

struct History {
  /// A system message that makes tools known (V4.1). Which of them are, is known when tool_choice is settled.
  struct Announcement {
    size_t message;  // in `messages`
    std::vector<std::string> names;
  };
  std::vector<Message> messages;
  std::vector<Announcement> announcements;  // ascending by message
  /// Behind the last user message, the first assistant message that lacks its thinking: without calls, with calls.
  /// Index in the request, -1: none.
  int64_t without_thinking = -1, calls_without_thinking = -1;
};

/// Appends the turns to history.messages. `tools`: all that the request declares. Errors: convert stage.
Result<void> convert_history(std::vector<MessagesTurn> turns, const std::vector<ToolDefinition>& tools,
                             ModelVersion version, bool thinking, const ConversionOptions& options, History& history);

/// Fills in the announcements from the tools that tool_choice left; those that say nothing vanish.
void announce_tools(History& history, const std::vector<ToolDefinition>& tools);

}  // namespace fathom::recipe
