// The messages of a Chat Completions request: contents joined, images judged, calls and their outputs paired.
#include <algorithm>
#include <unordered_map>
#include <utility>

#include "fathom/recipe/api/chat_completions/body.h"
#include "fathom/recipe/request_error.h"

namespace fathom::recipe {
namespace {

using Role = Message::Role;

constexpr std::string_view kUnsupportedImage = "[Unsupported Image]";  // stands for every image under V4
constexpr std::string_view kBetweenParts = "\n\n";
constexpr std::string_view kPairing =
    "An assistant message with 'tool_calls' must be followed by tool messages responding to each 'tool_call_id'";

std::string path_of(size_t message, std::string_view member) {
  return "messages[" + std::to_string(message) + "]." + std::string(member);
}

// -- images ---------------------------------------------------------------------------------------------------------

Error image_error(size_t message, size_t part, std::string text) {
  return convert_error(".messages[" + std::to_string(message) + "]: " + std::move(text),
                       path_of(message, "content[" + std::to_string(part) + "]"));
}

std::string unsupported(std::string_view what) {
  return "You have uploaded an unsupported " + std::string(what) + ". Please make sure your " + std::string(what) +
         " is valid and has one of the following formats: webp, png, jpeg, and gif.";
}

// The images of a message are judged in two passes, as in deepseek-recipe: first files and the lengths of URLs, then,
// when the role may have images at all, how their data are spelt.
Result<void> check_file(const ChatPart& part, size_t message, size_t index) {
  if (part.has_file_id && part.file_data) {
    return image_error(message, index, "file cannot have both file_id and file_data");
  }
  if (part.has_file_id) {
    return image_error(message, index, "file_id is not supported. Pass the image as a base64 data url instead.");
  }
  if (!part.file_data) return image_error(message, index, "file must have a file_id or file_data");
  switch (judge_data_url(*part.file_data)) {
    case ImageUrl::bad_type: return image_error(message, index, unsupported("file"));
    case ImageUrl::bad_format:
    case ImageUrl::bad_base64: return image_error(message, index, "file_data is not a valid base64 data url");
    default: return {};
  }
}

Result<void> check_url_length(const ChatPart& part, size_t message, size_t index) {
  if (part.text.size() <= kMostUrlBytes || !is_web_url(part.text)) return {};
  return convert_error(".messages[" + std::to_string(message) + "].image_url.url[" + std::to_string(index) +
                           "]: image_url.url external link length " + std::to_string(part.text.size()) +
                           " too long, max link length " + std::to_string(kMostUrlBytes) +
                           ". Consider passing file data directly with base64 data url instead.",
                       path_of(message, "content[" + std::to_string(index) + "].image_url.url"));
}

// Whether any part is an image, once each has passed what is judged first.
Result<bool> check_parts(const std::vector<ChatPart>& parts, size_t message) {
  bool image = false;
  for (size_t i = 0; i < parts.size(); ++i) {
    if (parts[i].kind == ChatPart::Kind::text) continue;
    image = true;
    const bool file = parts[i].kind == ChatPart::Kind::file;
    const auto checked = file ? check_file(parts[i], message, i) : check_url_length(parts[i], message, i);
    if (!checked) return checked.error();
  }
  return image;
}

Result<void> check_data(ImageUrl judgement, size_t message, size_t index) {
  switch (judgement) {
    case ImageUrl::bad_format: return image_error(message, index, "Unsupported image_url format");
    case ImageUrl::bad_type: return image_error(message, index, unsupported("image"));
    case ImageUrl::bad_base64: return image_error(message, index, "Invalid base64 data");
    default: return {};
  }
}

// -- contents -------------------------------------------------------------------------------------------------------

struct Context {
  ModelVersion version;
  const ConversionOptions& options;
};

// Joins the parts into `message`; an image leaves its token there and itself in `images`.
Result<void> join_parts(std::vector<ChatPart>& parts, size_t index, const Context& context, Message& message) {
  const std::string& token = context.options.spellings[SpecialToken::image];
  size_t length = 0;
  for (const ChatPart& part : parts) {
    length += kBetweenParts.size() +
              (part.kind == ChatPart::Kind::text ? part.text.size() : std::max(token.size(), kUnsupportedImage.size()));
  }
  message.content.reserve(length);
  for (size_t i = 0; i < parts.size(); ++i) {
    ChatPart& part = parts[i];
    if (i > 0) message.content += kBetweenParts;
    if (part.kind == ChatPart::Kind::text) {
      message.content += part.text;
      continue;
    }
    if (context.version == ModelVersion::v4) {
      message.content += kUnsupportedImage;
      continue;
    }
    const bool file = part.kind == ChatPart::Kind::file;
    const std::string& data = file ? *part.file_data : part.text;
    const ImageUrl judgement = judge_image_url(data);
    if (const auto checked = check_data(judgement, index, i); !checked) return checked;
    ImageSource image;
    image.data = file ? std::move(*part.file_data) : std::move(part.text);
    image.kind = judgement == ImageUrl::web ? ImageSource::Kind::url : ImageSource::Kind::data_url;
    image.detail = part.detail;
    image.path = ".messages[" + std::to_string(index) + "]";
    image.offset = int64_t(message.content.size());
    message.images.push_back(std::move(image));
    message.content += token;
  }
  return {};
}

Result<void> convert_content(ChatContent& content, size_t index, const Context& context, Message& message) {
  if (content.parts.empty()) {
    message.content = std::move(content.text);
    return {};
  }
  if (context.version == ModelVersion::v41) {
    const auto image = check_parts(content.parts, index);
    if (!image) return image.error();
    if (*image && message.role == Role::assistant) {
      return convert_error("Image in assistant message is not supported", path_of(index, "content"));
    }
  }
  return join_parts(content.parts, index, context, message);
}

// The length of the white space (Unicode White_Space, UTF-8) at the beginning of a text.
size_t leading_white_space(std::string_view text) {
  constexpr std::string_view kSpaces[] = {" ",      "\t",     "\n",     "\v",     "\f",     "\r",     "\u0085",
                                          "\u00a0", "\u1680", "\u2000", "\u2001", "\u2002", "\u2003", "\u2004",
                                          "\u2005", "\u2006", "\u2007", "\u2008", "\u2009", "\u200a", "\u2028",
                                          "\u2029", "\u202f", "\u205f", "\u3000"};
  size_t length = 0;
  for (bool more = true; more;) {
    more = false;
    for (const std::string_view space : kSpaces) {
      if (text.substr(length).starts_with(space)) {
        length += space.size();
        more = true;
        break;
      }
    }
  }
  return length;
}

// D-3. Under strict: one line, in this spelling only, and all white space behind it.
void strip_billing(Message& message, Policy policy) {
  std::string& text = message.content;
  const size_t before = text.size();
  if (policy == Policy::lenient) {
    strip_billing_lines(text);
  } else if (text.starts_with("x-anthropic-billing-header")) {
    text.erase(0, std::min(text.find('\n'), text.size()));
    text.erase(0, leading_white_space(text));
  }
  for (ImageSource& image : message.images) image.offset -= int64_t(before - text.size());
}

// -- calls and their outputs ----------------------------------------------------------------------------------------

// The calls that wait for their outputs. Ids live in the messages, which do not move meanwhile.
class OpenCalls {
 public:
  bool any() const { return waiting_ > 0; }

  Result<void> open(const std::vector<ToolCall>& calls, size_t message) {
    answered_.clear();
    if (calls.empty()) {
      const std::string path = "messages[" + std::to_string(message) + "].tool_calls";
      return convert_error(
          "Invalid '" + path +
              "': empty array. Expected an array with minimum length 1, but got an empty array instead.",
          path);
    }
    for (const ToolCall& call : calls) {
      if (!answered_.emplace(call.id, false).second) return duplicate(call.id, message, "tool_calls");
    }
    waiting_ = calls.size();
    return {};
  }

  Result<void> answer(const std::string& id, size_t message) {
    if (waiting_ == 0) {
      return convert_error("Messages with role 'tool' must be a response to a preceding message with 'tool_calls'",
                           "messages[" + std::to_string(message) + "]");
    }
    const auto call = answered_.find(id);
    if (call == answered_.end()) {
      return convert_error(
          std::string(kPairing) + ", The following tool_call_ids did not have response messages: " + id,
          path_of(message, "tool_call_id"));
    }
    if (call->second) return duplicate(id, message, "tool_call_id");
    call->second = true;
    --waiting_;
    return {};
  }

 private:
  static Error duplicate(const std::string& id, size_t message, std::string_view member) {
    return convert_error("Duplicate value for 'tool_call_id' of " + id + " in message[" + std::to_string(message) + "]",
                         path_of(message, member));
  }

  std::unordered_map<std::string_view, bool> answered_;
  size_t waiting_ = 0;
};

Error unanswered() {
  return convert_error(std::string(kPairing) + ". (insufficient tool messages following tool_calls message)",
                       "messages");
}

// -- one message ----------------------------------------------------------------------------------------------------

Result<void> convert_assistant(ChatMessage& from, size_t index, bool thinking, const Context& context,
                               Message& message) {
  if (!from.content.given && !from.calls) {
    return convert_error("Invalid assistant message: content or tool_calls must be set",
                         "messages[" + std::to_string(index) + "]");
  }
  if (auto done = convert_content(from.content, index, context, message); !done) return done;
  message.calls = std::move(from.calls);
  message.prefix = from.prefix;
  if (thinking) message.reasoning = from.reasoning ? std::move(*from.reasoning) : std::string();
  return {};
}

// Calls made with reasoning that was empty are marked so in their ids: call_NN_ET_…
bool made_without_reasoning(const std::vector<ToolCall>& calls) {
  return std::any_of(calls.begin(), calls.end(), [](const ToolCall& call) {
    const std::string_view id = call.id;
    return id.starts_with("call_") && id.size() >= 11 && uint8_t(id[5]) < 0x80 && uint8_t(id[6]) < 0x80 &&
           id.substr(7, 4) == "_ET_";
  });
}

// Policy Reject: since the last user message, what the model thought must be there, for calls in any case, for plain
// answers when the request declares tools.
Result<void> check_reasoning(const ChatCompletionsRequestBody& body) {
  size_t begin = body.messages.size();
  while (begin > 0 && body.messages[begin - 1].role != Role::user) --begin;
  for (size_t i = begin; i < body.messages.size(); ++i) {
    const ChatMessage& message = body.messages[i];
    if (message.role != Role::assistant || message.reasoning) continue;
    const bool needed = message.calls ? !made_without_reasoning(*message.calls) : !body.tools.empty();
    if (needed) {
      return convert_error("The `reasoning_content` in the thinking mode must be passed back to the API.",
                           path_of(i, "reasoning_content"));
    }
  }
  return {};
}

// `last`: the last message that has not vanished.
Result<void> check_prefix_place(const ChatCompletionsRequestBody& body, size_t last) {
  for (size_t i = 0; i < last; ++i) {
    if (!body.messages[i].prefix) continue;
    return convert_error(
        "Invalid completion message: prefix set true with message which is not final message or message role is not "
        "assistant",
        path_of(i, "prefix"));
  }
  return {};
}

}  // namespace

Result<std::vector<Message>> convert_messages(ChatCompletionsRequestBody& body, bool thinking, ModelVersion version,
                                              const ConversionOptions& options) {
  if (body.messages.empty()) return convert_error("Empty input messages", "messages");
  // Judged before the texts move, told after what is wrong with single messages.
  const Result<void> reasoning = thinking && options.reject_missing_reasoning ? check_reasoning(body) : Result<void>();
  const Context context{version, options};
  std::vector<Message> messages;
  messages.reserve(body.messages.size());  // OpenCalls points into it
  OpenCalls open;
  size_t last = 0;  // of the messages that stay
  for (size_t i = 0; i < body.messages.size(); ++i) {
    ChatMessage& from = body.messages[i];
    const size_t last_before = std::exchange(last, i);
    if (from.role != Role::tool && open.any()) return unanswered();
    Message& message = messages.emplace_back();
    message.role = from.role;
    if (from.role == Role::assistant) {
      if (auto done = convert_assistant(from, i, thinking, context, message); !done) return done.error();
      if (message.calls) {
        if (auto opened = open.open(*message.calls, i); !opened) return opened.error();
      }
      continue;
    }
    if (from.role == Role::tool) {
      if (auto answered = open.answer(from.call_id, i); !answered) return answered.error();
      message.call_id = std::move(from.call_id);
    }
    if (auto done = convert_content(from.content, i, context, message); !done) return done.error();
    if (from.role != Role::system) continue;
    strip_billing(message, options.policy);
    if (message.content.empty()) {
      messages.pop_back();
      last = last_before;
    }
  }
  if (open.any()) return unanswered();
  if (!reasoning) return reasoning.error();
  if (const auto placed = check_prefix_place(body, last); !placed) return placed.error();
  return messages;
}

}  // namespace fathom::recipe
