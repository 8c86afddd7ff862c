// fathom/recipe/json_text.h
// Writing JSON text without a tree, spelt as deepseek-recipe 0.2.0 spells it: answers are appended piece by piece to a
// string that lives as long as the connection. Nothing here allocates beyond the growth of `out`.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

#include "fathom/base/json.h"
#include "fathom/recipe/policy.h"

namespace fathom::recipe {

/// The inside of a JSON string: quote, backslash and control characters are escaped (\b \f \n \r \t, else \u00xx),
/// everything else is copied, in runs. `text` is valid UTF-8.
void append_escaped(std::string& out, std::string_view text);
/// The same between quotes.
void append_quoted(std::string& out, std::string_view text);

void append_integer(std::string& out, int64_t value);
/// Shortest decimal that reads back as the same float: 1.0, 0.3, 0.000001, 1e-7, 1e+13. Infinities and NaN: null.
void append_number(std::string& out, float value);
/// The same of a double: fixed from 0.00001 to 1e15 (1000000000000000.0), else with an exponent.
void append_number(std::string& out, double value);

/// A JSON value, compactly. strict: a number is read (64-bit integer, else double) and spelt anew; lenient: it keeps
/// its digits.
void append_value(std::string& out, const Json& value, Policy policy);

/// Appends the arguments of a call as a JSON object. False, and nothing appended, when they are none: not JSON, more
/// than 127 levels deep, no object; strict also when a number is too large for a double.
bool append_argument_object(std::string& out, std::string_view arguments, Policy policy);

}  // namespace fathom::recipe
