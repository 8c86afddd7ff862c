// fathom/grammar/schema_keywords.h
// What the keywords of a schema say, apart from any grammar: which are known, which only describe, what two schemas say
// together, and whether two schemas can hold for one value.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "fathom/base/json.h"
#include "fathom/base/result.h"

namespace fathom::grammar {

/// title, description, $defs, … and every word that is no keyword of JSON Schema: they restrict nothing.
bool is_annotation(std::string_view keyword);

/// The keyword of this schema that cannot be followed, if any; one whose value restricts nothing can.
std::optional<std::string> unsupported_keyword(const Json& schema);

/// "null", "boolean", "object", "array", "integer", "number", "string" that `schema` allows by `type`, `const` and
/// `enum`; "integer" is left out beside "number".
std::vector<std::string> types_of(const Json& schema);

/// The value that a local reference ("#/$defs/a") names in `root`; nullptr when there is none.
const Json* resolve(const Json& root, std::string_view reference);

/// `a` and `b` as one schema. Errors: unsupported with the keyword (in `message`) on which they differ; `where` is set.
Result<Json> merge(const Json& a, const Json& b, const std::string& path);

/// Proves that no value follows both; `false` when it does not know.
bool exclude_each_other(const Json& a, const Json& b, const Json& root, int depth = 0);

/// Whether any keyword of it says more than an annotation.
bool restricts(const Json& schema);

/// The schema but for one keyword.
Json without_field(const Json& schema, std::string_view key);

/// Values in it, itself among them: what a copy costs.
int64_t parts_of(const Json& schema);

/// Whether `value` is of a `type` of JSON Schema.
bool has_type(const Json& value, std::string_view type);

/// Equal as JSON values: 1 and 1.0 are.
bool same_value(const Json& a, const Json& b);

}  // namespace fathom::grammar
