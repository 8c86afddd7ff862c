// The prompt of V4.1: system messages are turns of their own, the first also says the effort. Source: spec/recipe.md 6.
#include "fathom/recipe/prompt_parts.h"
#include "fathom/recipe/tool_markup.h"

namespace fathom::recipe {
namespace {

int effort_number(const Conversation& conversation) {
  if (conversation.effort_number) return *conversation.effort_number;
  switch (conversation.effort.value_or(Effort::high)) {
    case Effort::low: return 50;
    case Effort::high:
    case Effort::xhigh: return 75;
    case Effort::max: return 100;
  }
  return 75;
}

void write_updated_tools(PromptWriter& writer, const Message& message) {
  if (!message.tools || message.tools->empty()) return;
  writer.text(fixed::kUpdatedTools);
  write_tool_lines(writer, *message.tools, true);
}

}  // namespace

void write_v41(PromptWriter& writer, const Conversation& conversation) {
  const bool head = needs_head(conversation);
  size_t first = 0;
  const auto& all = conversation.messages;
  if (!all.empty() || head) {
    const bool system = !all.empty() && all[0].role == Message::Role::system;
    if (conversation.thinking || system || head) writer.token(SpecialToken::system);
    if (conversation.thinking) {
      writer.fixed_text(fixed::kEffortLine, [&] { writer.text(std::to_string(effort_number(conversation))); });
    }
    if (system) writer.content(all[0]);
    write_tools_and_format(writer, conversation);
    if (system) write_updated_tools(writer, all[0]);
    first = system;
  }

  std::vector<const Message*> messages;
  messages.reserve(all.size());
  for (size_t i = first; i < all.size(); ++i) messages.push_back(&all[i]);
  order_all_results(messages, ModelVersion::v41);
  bool open = false;  // a user turn that goes on
  for (size_t i = 0; i < messages.size(); ++i) {
    const Message& message = *messages[i];
    switch (message.role) {
      case Message::Role::user:
      case Message::Role::tool: write_user(writer, message, open); break;
      case Message::Role::assistant:
        // The one quirk: a prefix that is the first message begins behind the reasoning.
        write_assistant(
            writer, conversation, message,
            conversation.thinking && (message.prefix ? head || &message != &all[0] : conversation.tools_active()));
        break;
      case Message::Role::latest_reminder:  // of several in a row, the first counts
        if (i == 0 || messages[i - 1]->role != Message::Role::latest_reminder) write_reminder(writer, message);
        break;
      case Message::Role::system:
        writer.token(SpecialToken::system);
        writer.content(message);
        write_updated_tools(writer, message);
        break;
    }
    open = message.role == Message::Role::user || message.role == Message::Role::tool;
  }
  write_generation_header(writer, conversation);
}

}  // namespace fathom::recipe
