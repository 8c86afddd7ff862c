// fathom/server/image_data.h
// An image of a request as bytes: fetched or decoded from its data URL, recognised by how it begins, and not looked at
// any further. This is what the service hands to a model that sees images (ServiceOptions::see), which decodes it,
// decides its size with recipe/image_layout.h, repeats its one token in the prompt (recipe::expand_images) and puts the
// embeddings beside the request (design/architecture.md: the room `vision`).
#pragma once
#include <optional>
#include <string>
#include <string_view>

#include "fathom/recipe/conversation.h"

namespace fathom {

enum class ImageFormat { png, jpeg, gif, webp };
/// "png", "jpeg", "gif", "webp".
const char* name_of(ImageFormat format);

/// By the first bytes, whatever a Content-Type or a data URL says; nothing: none of the four.
std::optional<ImageFormat> image_format_of(std::string_view bytes);

/// An image that somebody asks about, before its bytes are there.
struct ImageWanted {
  recipe::ImageSource source;
  std::string part;  // as ImageData::part
};

struct ImageData {
  ImageFormat format = ImageFormat::png;
  std::string bytes;  // as it was encoded by whoever made it
  recipe::ImageDetail detail = recipe::ImageDetail::high;
  std::string source;  // before the text of an error about it: ".messages[0].image[1]"
  std::string part;    // the JSON path of its part of the request: "messages[0].content[2]"
};

}  // namespace fathom
