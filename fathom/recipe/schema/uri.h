// fathom/recipe/schema/uri.h
// As much of RFC 3986 as references between the parts of one schema need.
#pragma once
#include <string>
#include <string_view>

namespace fathom::recipe::schema {

/// Only characters of the RFC, at places where they may be.
bool valid_uri_reference(std::string_view text);

/// The absolute form of a reference without fragment (section 5.2). `base` is absolute.
std::string resolve_uri(std::string_view base, std::string_view reference);

}  // namespace fathom::recipe::schema
