#include "fathom/server/image_parts.h"

#include <algorithm>
#include <charconv>
#include <string_view>

namespace fathom {
namespace {

bool is_image(const Json& part) {
  const Json* type = part.find("type");
  if (type == nullptr || !type->is_string()) return false;
  return type->text == "image_url" || type->text == "input_image" || type->text == "image" || type->text == "file";
}

/// `path` leads to `value`; one string for all paths, since most parts of long conversations are no images.
void collect(const Json& value, std::string& path, std::vector<std::string>& out) {
  const size_t length = path.size();
  for (const char* list : {"content", "output"}) {  // results of tools have parts as well
    const Json* parts = value.find(list);
    if (parts == nullptr || !parts->is_array()) continue;
    for (size_t i = 0; i < parts->items.size(); ++i) {
      path.append(1, '.').append(list).append(1, '[').append(std::to_string(i)).append(1, ']');
      if (is_image(parts->items[i])) {
        out.push_back(path);
      } else {
        collect(parts->items[i], path, out);
      }
      path.resize(length);
    }
  }
}

/// Of ".messages[12]", "messages.12.content[1]", "input[12]".
size_t number_in(std::string_view path) {
  size_t number = 0;
  const size_t begin = std::min(path.find_first_of("0123456789"), path.size());
  std::from_chars(path.data() + begin, path.data() + path.size(), number);
  return number;
}

}  // namespace

ImageParts image_parts_of(const Json& body) {
  ImageParts parts;
  std::string path;
  for (const char* list : {"messages", "input"}) {
    const Json* messages = body.find(list);
    if (messages == nullptr || !messages->is_array()) continue;
    for (size_t i = 0; i < messages->items.size(); ++i) {
      std::vector<std::string> found;
      path.assign(list).append(1, '[').append(std::to_string(i)).append(1, ']');
      collect(messages->items[i], path, found);
      if (!found.empty()) parts.emplace(i, std::move(found));
    }
  }
  return parts;
}

std::vector<std::string> parts_of(const std::vector<recipe::ImageSource>& images, const ImageParts& parts) {
  std::vector<std::string> out;
  std::map<size_t, size_t> seen;  // of each message
  for (const recipe::ImageSource& image : images) {
    const size_t message = number_in(image.path);
    const size_t place = seen[message]++;
    const auto found = parts.find(message);
    if (found != parts.end() && place < found->second.size()) {
      out.push_back(found->second[place]);
    } else {
      out.push_back(image.path.starts_with('.') ? image.path.substr(1) : image.path);
    }
  }
  return out;
}

}  // namespace fathom
