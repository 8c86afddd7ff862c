// fathom/server/previous_response.h
// `previous_response_id` of Responses: the items that a response was given to, and those it gave, come before the new
// input. Instructions and settings are not inherited, as in OpenAI's service.
#pragma once
#include <string>

#include "fathom/base/json.h"
#include "fathom/server/response_store.h"

namespace fathom {

/// Puts the earlier items in front of `body`'s input. The result is the whole input as a JSON array when the answer
/// shall be kept (there is a store, and `store` is not false), else empty. A body that is no object is left to the
/// codec. Errors: usage, when there is no store or no such response of this tenant.
Result<std::string> join_previous(Json& body, ResponseStore* store, const std::string& tenant);

}  // namespace fathom
