// fathom/recipe/schema/check_schema.h
// Is this JSON value a valid JSON Schema? Against the 2020-12 meta-schema or the draft that `$schema` names; `$ref`
// must resolve inside the schema; `pattern` must be a regular expression. Pure. Source: spec/codec-policy.md 5.
#pragma once
#include <optional>
#include <string>
#include <string_view>

#include "fathom/base/json.h"

namespace fathom::recipe {

/// What is wrong with it first, in the words of the policy's table ("5 is not of type \"string\""); none: it is valid.
struct SchemaFault {
  std::string message;
  std::string path;  // JSON pointer inside the schema
};
std::optional<SchemaFault> find_schema_fault(const Json& schema);

/// Is the text a regular expression as ECMA 262 has them (with the extensions that the policy lists)?
bool valid_pattern(std::string_view pattern);

}  // namespace fathom::recipe
