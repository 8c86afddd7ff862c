// fathom/server/openapi_document.h
#pragma once
#include <string_view>

namespace fathom {

/// docs/openapi.json, compiled in by fathom/server/CMakeLists.txt.
std::string_view openapi_document();

}  // namespace fathom
