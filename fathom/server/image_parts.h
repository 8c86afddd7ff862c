// fathom/server/image_parts.h
// Where the images of a request stand in it. The codec says which message an image belongs to, in the words of its
// error texts; clients want the path of the part itself.
#pragma once
#include <map>
#include <string>
#include <vector>

#include "fathom/base/json.h"
#include "fathom/recipe/conversation.h"

namespace fathom {

/// By the number of the message (Chat, Messages) or item (Responses): the JSON paths of its parts that hold images, in
/// their order ("messages[0].content[1]").
using ImageParts = std::map<size_t, std::vector<std::string>>;
ImageParts image_parts_of(const Json& body);

/// The part of each image, which are in the order of the conversation; where none is known, what the codec says.
std::vector<std::string> parts_of(const std::vector<recipe::ImageSource>& images, const ImageParts& parts);

}  // namespace fathom
