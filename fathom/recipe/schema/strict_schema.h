// fathom/recipe/schema/strict_schema.h
// The normal form of a schema with `strict: true`: what the constraint, and for tools also the prompt, use.
// Source: spec/recipe.md 2 (strict:true normalises), spec/codec-policy.md D-8.
#pragma once
#include "fathom/base/json.h"
#include "fathom/base/result.h"
#include "fathom/recipe/policy.h"

namespace fathom::recipe {

enum class SchemaUse { tool_parameters, response };

/// Errors: usage with the normative text ("additionalProperties should not be true", …); `where` is a JSON pointer.
Result<Json> normalise_strict_schema(const Json& schema, SchemaUse use, Policy policy);

}  // namespace fathom::recipe
