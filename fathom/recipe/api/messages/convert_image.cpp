#include "fathom/recipe/api/messages/convert_image.h"

#include <array>
#include <cstdio>

#include "fathom/recipe/request_error.h"

namespace fathom::recipe {
namespace {

constexpr std::string_view kAlphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

constexpr std::array<int8_t, 256> kValues = [] {
  std::array<int8_t, 256> values{};
  values.fill(-1);
  for (size_t i = 0; i < kAlphabet.size(); ++i) values[uint8_t(kAlphabet[i])] = int8_t(i);
  return values;
}();

// What a reader would not see, or not as what it is: control characters, joiners and marks of direction, combining
// marks. The oracle asks a table of all of Unicode; this is what URLs meet.
bool invisible(uint32_t c) {
  return c < 0x20 || (c >= 0x7f && c <= 0xa0) || c == 0xad || (c >= 0x300 && c <= 0x36f) || c == 0x61c ||
         (c >= 0x2000 && c <= 0x200f) || (c >= 0x2028 && c <= 0x202f) || (c >= 0x205f && c <= 0x206f) || c == 0x3000 ||
         (c >= 0xe000 && c <= 0xf8ff) || (c >= 0xfe00 && c <= 0xfe0f) || c == 0xfeff || c >= 0xe0000;
}

// The code point at `at`, which is moved behind it. The text is valid UTF-8: the JSON reader saw to that.
uint32_t next_code_point(std::string_view text, size_t& at) {
  const auto byte = [&](size_t i) { return uint32_t(uint8_t(text[i])); };
  const uint32_t first = byte(at);
  const size_t length = first < 0x80 ? 1 : first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
  uint32_t c = length == 1 ? first : first & (0xffu >> (length + 1));
  for (size_t i = 1; i < length && at + i < text.size(); ++i) c = c << 6 | (byte(at + i) & 0x3f);
  at += length;
  return c;
}

bool begins_with_http(std::string_view url) {
  constexpr std::string_view kHttp = "http";
  if (url.size() < kHttp.size()) return false;
  for (size_t i = 0; i < kHttp.size(); ++i) {
    if ((url[i] | 0x20) != kHttp[i]) return false;
  }
  return true;
}

}  // namespace

bool settle_base64(std::string& text) {
  const size_t end = text.find_last_not_of('=') + 1;  // npos + 1 == 0
  const size_t padding = text.size() - end;
  const size_t rest = end % 4;
  if (rest == 1 || (rest > 1 && padding == 0)) return false;
  for (size_t i = 0; i < end; ++i) {
    if (kValues[uint8_t(text[i])] < 0) return false;
  }
  const int unused = rest == 0 ? 0 : rest == 2 ? 0xf : 0x3;  // bits of the last character that carry nothing
  if (unused && (kValues[uint8_t(text[end - 1])] & unused)) return false;
  text.resize(end);
  text.append((4 - rest) % 4, '=');
  return true;
}

std::string quoted(std::string_view text) {
  std::string out = "\"";
  for (size_t at = 0; at < text.size();) {
    const size_t begin = at;
    const uint32_t c = next_code_point(text, at);
    switch (c) {
      case '"': out += "\\\""; continue;
      case '\\': out += "\\\\"; continue;
      case '\t': out += "\\t"; continue;
      case '\r': out += "\\r"; continue;
      case '\n': out += "\\n"; continue;
      case 0: out += "\\0"; continue;
      default: break;
    }
    if (invisible(c)) {
      char escaped[16];
      std::snprintf(escaped, sizeof escaped, "\\u{%x}", c);
      out += escaped;
    } else {
      out += text.substr(begin, at - begin);
    }
  }
  return out += '"';
}

Result<ImageSource> convert_image(MessagesImage image, const ImagePlace& place) {
  const auto refused = [&](const std::string& what) {
    return convert_error(place.in_errors + ": " + what, place.in_json);
  };
  ImageSource source;
  source.path = place.in_source;
  switch (image.kind) {
    case MessagesImage::Kind::base64:
      if (!settle_base64(image.data)) return refused("base64 decode error");
      source.kind = ImageSource::Kind::data_url;
      source.data = std::move(image.data.insert(0, "data:" + image.media_type + ";base64,"));
      return source;
    case MessagesImage::Kind::url:
      if (!begins_with_http(image.data)) return refused("invalid url: " + quoted(image.data));
      if (image.data.size() > kMostUrlBytes) {
        return refused("external link length " + std::to_string(image.data.size()) + " too long, max link length " +
                       std::to_string(kMostUrlBytes) +
                       ". Consider passing file data directly with base64 data url instead.");
      }
      source.kind = ImageSource::Kind::url;
      source.data = std::move(image.data);
      return source;
    case MessagesImage::Kind::file: break;
  }
  return refused("file_id is not supported. Pass the image as a base64 data url instead.");
}

}  // namespace fathom::recipe
