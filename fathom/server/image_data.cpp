#include "fathom/server/image_data.h"

namespace fathom {

const char* name_of(ImageFormat format) {
  switch (format) {
    case ImageFormat::png: return "png";
    case ImageFormat::jpeg: return "jpeg";
    case ImageFormat::gif: return "gif";
    case ImageFormat::webp: return "webp";
  }
  return "";
}

std::optional<ImageFormat> image_format_of(std::string_view bytes) {
  using namespace std::string_view_literals;
  if (bytes.starts_with("\x89PNG\r\n\x1a\n"sv)) return ImageFormat::png;
  if (bytes.starts_with("\xff\xd8\xff"sv)) return ImageFormat::jpeg;
  if (bytes.starts_with("GIF87a"sv) || bytes.starts_with("GIF89a"sv)) return ImageFormat::gif;
  if (bytes.starts_with("RIFF"sv) && bytes.substr(0, 12).ends_with("WEBP"sv) && bytes.size() >= 12) {
    return ImageFormat::webp;
  }
  return {};
}

}  // namespace fathom
