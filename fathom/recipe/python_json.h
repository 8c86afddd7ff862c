// fathom/recipe/python_json.h
// JSON as prompts have it and as constraints have it. Source: spec/recipe.md 6 (JSON inside prompts).
#pragma once
#include <string>

#include "fathom/base/json.h"

namespace fathom::recipe {

/// `{"a": 1, "b": [2.5, true]}`: ", " and ": ", no ASCII escaping, integers as given when they fit 64 bits, other
/// numbers as Python's repr of the double: prompts of V4.1.
void append_python_json(std::string& out, const Json& value);

/// The same without blanks, for constraint strings and messages. Small numbers differ: 0.00001 and 1e-7, where Python
/// has 1e-05 and 1e-07.
void append_compact_json(std::string& out, const Json& value);

/// Python's blanks and the other form's numbers: prompts of V4, and the arguments of calls in a Messages history.
void append_spaced_json(std::string& out, const Json& value);

/// No number in it is beyond the range of a double: what serde_json takes for JSON.
bool fits_doubles(const Json& value);

}  // namespace fathom::recipe
