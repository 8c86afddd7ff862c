#include "fathom/recipe/conversation.h"

namespace fathom::recipe {

const char* name_of(Effort effort) {
  switch (effort) {
    case Effort::low: return "low";
    case Effort::high: return "high";
    case Effort::xhigh: return "xhigh";
    case Effort::max: return "max";
  }
  return "?";
}

const char* name_of(ToolChoice choice) {
  switch (choice) {
    case ToolChoice::automatic: return "auto";
    case ToolChoice::none: return "none";
    case ToolChoice::required: return "required";
  }
  return "?";
}

const char* name_of(ImageDetail detail) {
  switch (detail) {
    case ImageDetail::low: return "low";
    case ImageDetail::high: return "high";
    case ImageDetail::original: return "original";
    case ImageDetail::automatic: return "auto";
  }
  return "?";
}

const char* name_of(Message::Role role) {
  switch (role) {
    case Message::Role::system: return "system";
    case Message::Role::user: return "user";
    case Message::Role::assistant: return "assistant";
    case Message::Role::tool: return "tool";
    case Message::Role::latest_reminder: return "latest_reminder";
  }
  return "?";
}

const char* name_of(ResponseFormat::Kind kind) {
  switch (kind) {
    case ResponseFormat::Kind::text: return "text";
    case ResponseFormat::Kind::json_object: return "json_object";
    case ResponseFormat::Kind::json_schema: return "json_schema";
    case ResponseFormat::Kind::regex: return "regex";
  }
  return "?";
}

void place_images(Message& message, std::string_view image_token) {
  size_t from = 0;
  for (ImageSource& image : message.images) {
    const size_t at = from == std::string::npos ? from : message.content.find(image_token, from);
    image.offset = at == std::string::npos ? -1 : int64_t(at);
    from = at == std::string::npos ? at : at + image_token.size();
  }
}

}  // namespace fathom::recipe
