// fathom/recipe/conformance/random_request.h
// Random request bodies for the three APIs. About two thirds are valid; the others break one rule, or have a value of
// the wrong type somewhere. For tests, `codec fuzz` and the comparison with deepseek-recipe.
#pragma once
#include <cstdint>

#include "fathom/base/json.h"
#include "fathom/recipe/policy.h"

namespace fathom::recipe {

Json random_request(Api api, uint64_t seed);

}  // namespace fathom::recipe
