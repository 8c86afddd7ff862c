// fathom/base/toml.h
// A TOML file as a Json tree: tables become objects (keys in alphabetical order), dates their text. toml++ stays in
// toml.cpp. Used for --config and for the machine descriptions in bench/machines.
#pragma once
#include <string>
#include <string_view>

#include "fathom/base/json.h"

namespace fathom {

/// `where` names the source in errors. Errors: bad_input with what is wrong, line and column.
Result<Json> parse_toml(std::string_view text, std::string_view where);

}  // namespace fathom
