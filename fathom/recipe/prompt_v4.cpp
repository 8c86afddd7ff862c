// The prompt of V4: one head that gathers all system texts, in front of it the effort. Source: spec/recipe.md 6.
#include "fathom/recipe/prompt_parts.h"

namespace fathom::recipe {
namespace {

void write_effort(PromptWriter& writer, const Conversation& conversation) {
  if (!conversation.thinking) return;
  switch (conversation.effort.value_or(Effort::high)) {
    case Effort::low: return;
    case Effort::high:
    case Effort::xhigh: writer.text(fixed::kEffortHigh); return;
    case Effort::max: writer.text(fixed::kEffortMax); return;
  }
}

}  // namespace

void write_v4(PromptWriter& writer, const Conversation& conversation) {
  write_effort(writer, conversation);
  bool first = true;
  for (const Message& message : conversation.messages) {
    if (message.role != Message::Role::system || message.content.empty()) continue;
    if (!std::exchange(first, false)) writer.text("\n\n");
    writer.content(message);
  }
  write_tools_and_format(writer, conversation);

  std::vector<const Message*> messages;
  for (const Message& message : conversation.messages) {
    if (message.role != Message::Role::system) messages.push_back(&message);
  }
  order_all_results(messages, ModelVersion::v4);
  const auto role_of = [&](size_t i) { return i < messages.size() ? messages[i]->role : Message::Role::system; };
  for (size_t i = 0; i < messages.size(); ++i) {
    const Message& message = *messages[i];
    const Message::Role before = i == 0 ? Message::Role::system : messages[i - 1]->role;
    switch (message.role) {
      case Message::Role::user: {  // one turn of all texts in a row; of empty ones, only a lonely one counts
        bool open = before == Message::Role::tool, said = false;
        for (; role_of(i) == Message::Role::user; ++i) {
          const bool last = role_of(i + 1) != Message::Role::user;
          if (messages[i]->content.empty() && (said || !last)) {
            writer.content(*messages[i]);  // its images, which have no place
          } else {
            write_user(writer, *messages[i], open);
            open = said = true;
          }
        }
        --i;
        break;
      }
      case Message::Role::tool: write_user(writer, message, before == Message::Role::tool); break;
      case Message::Role::assistant:
        write_assistant(writer, conversation, message,
                        message.reasoning && (message.prefix || conversation.tools_active()));
        break;
      case Message::Role::latest_reminder: write_reminder(writer, message); break;
      case Message::Role::system: break;
    }
  }
  write_generation_header(writer, conversation);
}

}  // namespace fathom::recipe
