// One pass over the messages. Between an assistant message with calls and the message behind it, the calls are open:
// that message must begin with their results.
#include "fathom/recipe/api/messages/convert_history.h"

#include <algorithm>

#include "fathom/recipe/api/messages/convert_image.h"
#include "fathom/recipe/python_json.h"
#include "fathom/recipe/request_error.h"

namespace fathom::recipe {
namespace {

using Kind = MessagesBlock::Kind;

// fixed:placeholders
constexpr std::string_view kImageInV4 = "[Unsupported Image]";

std::string document_text(const std::string& media_type) { return "[Unsupported document type: " + media_type + "]"; }

// Joins texts with blank lines, empty ones too.
class Joined {
 public:
  explicit Joined(std::string& out) : out_(&out) {}
  /// Where the next text begins; the separator is placed.
  std::string& next() {
    if (!std::exchange(first_, false)) *out_ += "\n\n";
    return *out_;
  }

 private:
  std::string* out_;
  bool first_ = true;
};

// `call_NN_ET_…`: the id itself says that the turn had no reasoning (spec 8.5).
bool says_no_reasoning(std::string_view id) {
  return id.size() >= 11 && id.substr(0, 5) == "call_" && id.substr(7, 4) == "_ET_";
}

struct OpenCall {
  std::string id;
  bool answered = false;
};

class Converter {
 public:
  Converter(const std::vector<ToolDefinition>& tools, ModelVersion version, bool thinking,
            const ConversionOptions& options, History& history)
      : tools_(tools), v4_(version == ModelVersion::v4), thinking_(thinking), options_(options), history_(history) {}

  Result<void> convert(std::vector<MessagesTurn>& turns) {
    for (MessagesTurn& turn : turns) {
      Result<void> done;
      switch (turn.role) {
        case MessagesTurn::Role::user: done = user(turn.blocks); break;
        case MessagesTurn::Role::assistant: done = assistant(turn.blocks); break;
        case MessagesTurn::Role::system: done = system(turn.blocks); break;
      }
      if (!done) return done;
      ++turn_;
    }
    if (any_open()) {
      --turn_;
      return unanswered(place() + ":");
    }
    return {};
  }

 private:
  std::string place() const { return "messages." + std::to_string(turn_); }
  std::string place(size_t block) const { return place() + ".content." + std::to_string(block); }
  std::string json_place() const { return "messages[" + std::to_string(turn_) + "]"; }
  std::string json_place(size_t block) const { return json_place() + ".content[" + std::to_string(block) + "]"; }

  bool any_open() const {
    return std::any_of(open_.begin(), open_.end(), [](const OpenCall& call) { return !call.answered; });
  }
  Error unanswered(const std::string& where) const {
    std::vector<std::string_view> names;
    for (const OpenCall& call : open_) {
      if (!call.answered) names.push_back(call.id);
    }
    std::sort(names.begin(), names.end());
    std::string ids;
    for (size_t i = 0; i < names.size(); ++i) {
      if (i > 0) ids += ", ";
      ids += names[i];
    }
    return convert_error(where + "`tool_use` ids were found without `tool_result` blocks immediately after: " + ids +
                             ". Each `tool_use` block must have a corresponding `tool_result` block in the next "
                             "message.",
                         json_place());
  }

  Error empty_content() const {
    return convert_error(place() + ": all messages must have non-empty content", json_place() + ".content");
  }

  // A block that the role of its message does not allow.
  Error misplaced(size_t j, Kind kind) const {
    const auto error = [&](std::string_view block, std::string_view role) {
      return convert_error(
          place() + ": `" + std::string(block) + "` blocks can only be in `" + std::string(role) + "` messages",
          json_place(j));
    };
    switch (kind) {
      case Kind::server_tool_use:
      case Kind::tool_use: return error("tool_use", "assistant");
      case Kind::web_search_tool_result: return error("web_search_tool_result", "assistant");
      case Kind::tool_result: return error("tool_result", "user");
      case Kind::tool_addition: return error("tool_addition", "system");
      default:
        return convert_error(place() + ".content: thinking blocks may only be in `assistant` messages", json_place(j));
    }
  }

  bool declared(std::string_view name) const {
    return std::any_of(tools_.begin(), tools_.end(), [&](const ToolDefinition& tool) { return tool.name == name; });
  }

  // Appends the image's placeholder to the message and the image to its images.
  Result<void> add_image(MessagesImage& image, const ImagePlace& where, std::string& content,
                         std::vector<ImageSource>& images) {
    if (v4_) {
      content += kImageInV4;
      return {};
    }
    Result<ImageSource> source = convert_image(std::move(image), where);
    if (!source) return source.error();
    source->offset = int64_t(content.size());
    content += options_.spellings[SpecialToken::image];
    images.push_back(std::move(*source));
    return {};
  }

  Message& add(Message::Role role) {
    Message& message = history_.messages.emplace_back();
    message.role = role;
    if (role == Message::Role::user) history_.without_thinking = history_.calls_without_thinking = -1;
    return message;
  }

  // -- user: results first, then texts, each a message of its own ---------------------------------------------------

  Result<void> user(std::vector<MessagesBlock>& blocks) {
    if (blocks.empty()) return empty_content();
    std::vector<std::string> references;
    for (size_t j = 0; j < blocks.size(); ++j) {
      MessagesBlock& block = blocks[j];
      switch (block.kind) {
        case Kind::tool_result: {
          if (auto done = result(j, block, references); !done) return done;
          break;
        }
        case Kind::text:
        case Kind::document: {
          if (any_open()) return unanswered(place() + ": ");
          Message& message = add(Message::Role::user);
          message.content = block.kind == Kind::text ? std::move(block.text) : document_text(block.text);
          break;
        }
        case Kind::image: {
          if (any_open()) return unanswered(place() + ": ");
          Message& message = add(Message::Role::user);
          const std::string where = place() + ".content[" + std::to_string(j) + "]";
          auto done = add_image(block.image, {where, where, json_place(j)}, message.content, message.images);
          if (!done) return done;
          break;
        }
        default: return misplaced(j, block.kind);
      }
    }
    if (any_open()) {
      --turn_;  // this text is about the message with the calls
      return unanswered(place() + ":");
    }
    open_.clear();
    if (!references.empty() && !v4_) {
      add(Message::Role::system);
      history_.announcements.push_back({history_.messages.size() - 1, std::move(references)});
    }
    return {};
  }

  Result<void> result(size_t j, MessagesBlock& block, std::vector<std::string>& references) {
    const auto call = std::find_if(open_.begin(), open_.end(), [&](const OpenCall& c) { return c.id == block.id; });
    if (call == open_.end()) {
      return convert_error("unexpected `" + place(j) + ": tool_use_id` found in `tool_result` blocks: " + block.id +
                               ". Each `tool_result` block must have a corresponding `tool_use` block in the previous "
                               "message.",
                           json_place(j) + ".tool_use_id");
    }
    if (call->answered) {
      return convert_error(place(j) +
                               ": each tool_use must have a single result. Found multiple `tool_result` blocks "
                               "with id: " +
                               block.id,
                           json_place(j) + ".tool_use_id");
    }
    call->answered = true;
    for (const MessagesResultPart& part : block.parts) {
      if (part.kind != MessagesResultPart::Kind::tool_reference) continue;
      if (!declared(part.text)) {
        return convert_error(place(j) + ": tool reference '" + part.text + "' not found in available tools",
                             json_place(j));
      }
      references.push_back(part.text);
    }
    Message& message = add(Message::Role::tool);
    message.call_id = std::move(block.id);
    Joined content(message.content);
    for (size_t k = 0; k < block.parts.size(); ++k) {
      MessagesResultPart& part = block.parts[k];
      std::string& text = content.next();
      switch (part.kind) {
        case MessagesResultPart::Kind::text:
        case MessagesResultPart::Kind::tool_reference: append(text, std::move(part.text)); break;
        case MessagesResultPart::Kind::document: text += document_text(part.text); break;
        case MessagesResultPart::Kind::image: {
          const std::string source = place(j) + ".tool_result", at = ".content[" + std::to_string(k) + "]";
          auto done = add_image(part.image, {source + at, source, json_place(j) + at}, text, message.images);
          if (!done) return done;
          break;
        }
      }
    }
    return {};
  }

  // -- assistant: one message ---------------------------------------------------------------------------------------

  Result<void> assistant(std::vector<MessagesBlock>& blocks) {
    if (any_open()) return unanswered(place() + ": ");
    if (blocks.empty()) return empty_content();
    open_.clear();
    Message& message = add(Message::Role::assistant);
    std::string reasoning;
    Joined thoughts(reasoning);
    bool thought = false;
    for (size_t j = 0; j < blocks.size(); ++j) {
      MessagesBlock& block = blocks[j];
      switch (block.kind) {
        case Kind::text:
        case Kind::document:
        case Kind::image: {
          // Nothing may stand between a call and its result.
          if (!open_.empty()) return unanswered(place() + "." + std::to_string(j) + ": ");
          if (!message.content.empty()) message.content += "\n\n";
          if (block.kind == Kind::text) {
            append(message.content, std::move(block.text));
          } else if (block.kind == Kind::document) {
            message.content += document_text(block.text);
          } else {
            const std::string where = place() + ".content[" + std::to_string(j) + "]";
            auto done = add_image(block.image, {where, where, json_place(j)}, message.content, message.images);
            if (!done) return done;
            if (!v4_) return convert_error("Image in assistant message is unsupported", json_place(j));
          }
          break;
        }
        case Kind::thinking:
          append(thoughts.next(), std::move(block.text));
          thought = true;
          break;
        case Kind::tool_use: {
          if (auto done = call(j, block, message); !done) return done;
          break;
        }
        case Kind::server_tool_use:
        case Kind::web_search_tool_result:
          if (options_.messages_web_search == ConversionOptions::WebSearch::reject) {
            return convert_error("Unsupported content block: server tools are not supported", json_place(j));
          }
          break;
        default: return misplaced(j, block.kind);
      }
    }
    if (thinking_) message.reasoning = std::move(reasoning);
    const auto excused = [](const OpenCall& call) { return says_no_reasoning(call.id); };
    if (!thought && std::none_of(open_.begin(), open_.end(), excused)) {
      int64_t& first = open_.empty() ? history_.without_thinking : history_.calls_without_thinking;
      if (first < 0) first = int64_t(turn_);
    }
    return {};
  }

  Result<void> call(size_t j, MessagesBlock& block, Message& message) {
    for (const OpenCall& earlier : open_) {
      if (earlier.id != block.id) continue;
      return convert_error(place(j) + ": `tool_use` ids must be unique", json_place(j) + ".id");
    }
    open_.push_back({block.id});
    if (!message.calls) message.calls.emplace();
    ToolCall& call = message.calls->emplace_back();
    call.id = std::move(block.id);
    call.name = std::move(block.text);
    append_spaced_json(call.arguments, block.input);
    return {};
  }

  // -- system: one message; in V4 a note in the user's turn -----------------------------------------------------------

  Result<void> system(std::vector<MessagesBlock>& blocks) {
    if (any_open()) return unanswered(place() + ": ");
    open_.clear();
    Message message;
    message.role = Message::Role::system;
    std::vector<std::string> additions;
    Joined content(message.content);
    bool stripped = false, any_text = false;
    for (size_t j = 0; j < blocks.size(); ++j) {
      MessagesBlock& block = blocks[j];
      switch (block.kind) {
        case Kind::text:
          if (options_.policy == Policy::lenient && strip_billing_lines(block.text) && block.text.empty()) {
            stripped = true;  // D-3: what is empty by this is not there
            break;
          }
          append(content.next(), std::move(block.text));
          any_text = true;
          break;
        case Kind::document:
          content.next() += document_text(block.text);
          any_text = true;
          break;
        case Kind::image: {
          const std::string where = place() + ".content[" + std::to_string(j) + "]";
          std::string& text = content.next();
          auto done = add_image(block.image, {where, place(), json_place(j)}, text, message.images);
          if (!done) return done;
          any_text = true;
          break;
        }
        case Kind::tool_addition:
          if (!declared(block.text)) {
            return convert_error(place(j) + ": `tool_addition` references unknown tool '" + block.text + "'",
                                 json_place(j) + ".tool.name");
          }
          additions.push_back(std::move(block.text));
          break;
        default: return misplaced(j, block.kind);
      }
    }
    if (v4_) {
      if (message.content.empty()) return {};
      // fixed:v4.mid_system_wrapper_messages_api
      add(Message::Role::user).content = "<system-reminder>\n" + message.content + "\n</system-reminder>";
      return {};
    }
    if (stripped && !any_text && additions.empty()) return {};
    history_.messages.push_back(std::move(message));
    if (!additions.empty()) {
      history_.announcements.push_back({history_.messages.size() - 1, std::move(additions)});
    }
    return {};
  }

  // The first of several texts, mostly the only one, is not copied.
  static void append(std::string& out, std::string&& text) {
    if (out.empty()) {
      out = std::move(text);
    } else {
      out += text;
    }
  }

  const std::vector<ToolDefinition>& tools_;
  const bool v4_, thinking_;
  const ConversionOptions& options_;
  History& history_;
  size_t turn_ = 0;
  std::vector<OpenCall> open_;  // calls of the assistant message directly before, or of the one being read
};

}  // namespace

Result<void> convert_history(std::vector<MessagesTurn> turns, const std::vector<ToolDefinition>& tools,
                             ModelVersion version, bool thinking, const ConversionOptions& options, History& history) {
  return Converter(tools, version, thinking, options, history).convert(turns);
}

void announce_tools(History& history, const std::vector<ToolDefinition>& tools) {
  for (size_t a = history.announcements.size(); a-- > 0;) {  // from the end: erasing moves what is behind
    const History::Announcement& announcement = history.announcements[a];
    Message& message = history.messages[announcement.message];
    message.tools.emplace();
    for (const std::string& name : announcement.names) {
      const auto tool = std::find_if(tools.begin(), tools.end(), [&](const auto& t) { return t.name == name; });
      if (tool != tools.end()) message.tools->push_back(*tool);
    }
    if (message.tools->empty() && message.content.empty()) {
      history.messages.erase(history.messages.begin() + std::ptrdiff_t(announcement.message));
    }
  }
  history.announcements.clear();
}

}  // namespace fathom::recipe
