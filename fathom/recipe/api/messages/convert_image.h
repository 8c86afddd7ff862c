// fathom/recipe/api/messages/convert_image.h
// An image block becomes an ImageSource. Nothing is fetched or decoded. Source: spec/recipe.md 5 (Messages column).
#pragma once
#include <string>
#include <string_view>

#include "fathom/base/result.h"
#include "fathom/recipe/api/messages/body.h"
#include "fathom/recipe/conversation.h"

namespace fathom::recipe {

/// Where an image stands, in the three spellings that are needed.
struct ImagePlace {
  std::string in_errors;  // "messages.0.content[1]": before the error's text
  std::string in_source;  // ImageSource::path: what later errors about its bytes say
  std::string in_json;    // "messages[0].content[1]": D-9
};

/// Errors: convert stage. `offset` of the result is not set.
Result<ImageSource> convert_image(MessagesImage image, const ImagePlace& place);

/// Standard alphabet, zero trailing bits, padding where it is needed; padding in excess is taken out. False: it is no
/// base64.
bool settle_base64(std::string& text);

/// Quoted and escaped as error texts show what somebody sent: `"x\n"`, other invisible characters as `\u{200b}`.
std::string quoted(std::string_view text);

}  // namespace fathom::recipe
