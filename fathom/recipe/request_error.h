// fathom/recipe/request_error.h
// A refused request as its client sees it. Inside the codec a refusal is an ordinary Error: `message` is the whole text
// for the client, `where` the JSON path of the value at fault (empty when no single value is), and the code tells the
// stage: bad_input = not JSON or not of the documented shape (parse stage), usage = a shape that makes no sense
// (convert stage), out_of_range = the context is too small. Source: spec/recipe.md 1, spec/codec-policy.md D-9 and 5.
#pragma once
#include <string>
#include <string_view>

#include "fathom/base/result.h"
#include "fathom/recipe/policy.h"

namespace fathom::recipe {

/// A refusal at the parse stage; `message` gets the prefix "invalid request body: ".
Error parse_error(std::string path, std::string message);
/// A refusal at the convert stage, with its normative text.
Error convert_error(std::string message, std::string path = "");

/// The HTTP status: 400 for all three codes.
int status_of(const Error& error);

/// The JSON body. strict: one flat form for all APIs. lenient: `param` and `code` are filled, Messages has its own
/// envelope with `request_id` (null when empty).
std::string error_body(const Error& error, Api api, Policy policy, std::string_view request_id = "");

}  // namespace fathom::recipe
