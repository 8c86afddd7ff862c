// python/src/json_object.h
// Between Python's values and the codec's JSON tree, without JSON text in between.
#pragma once
#include "fathom/base/json.h"
#include "python/src/module.h"

namespace fathom::python {

/// dict, list, tuple, str, int, float, bool and None, key order kept. Raises TypeError for any other type and for keys
/// that are not str, ValueError for NaN, infinities and more than 127 levels, OverflowError for integers beyond the
/// range of a double, UnicodeEncodeError for a lone surrogate.
Json json_of(nb::handle value);

/// Numbers with fraction or exponent become float, others int.
nb::object object_of(const Json& value);

/// The UTF-8 of a str; valid while the object lives. Raises UnicodeEncodeError.
std::string_view utf8_of(nb::handle text);

}  // namespace fathom::python
