// fathom/base/json_values.h
// JSON of strangers: how many values it may have. A node of the tree takes a hundred bytes or more and its text perhaps
// two ("0,"), so a limit of the text's length alone would let a request of 128 MiB take 6 GB.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

#include "fathom/base/json.h"

namespace fathom {

/// As parse_json, of at most so many values, counted over all depths. Errors: also bad_input for more; reading stops
/// there.
Result<Json> parse_json_of(int64_t most_values, std::string_view text, std::string_view where, JsonLimits limits = {},
                           std::string* path = nullptr);

}  // namespace fathom
