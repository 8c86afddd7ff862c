// fathom/recipe/schema/references.h
// The second look at a schema that follows its meta-schema: does every reference lead somewhere inside of it, and is
// every pattern that counts a regular expression? "Counts" means reachable from the root by validation: what lies
// unused in $defs is not looked at. No recursion along references; cost linear in the schema.
// Source: spec/codec-policy.md 5.
#pragma once
#include <optional>

#include "fathom/base/json.h"
#include "fathom/recipe/schema/meta_schema.h"

namespace fathom::recipe::schema {

std::optional<Fault> find_reference_fault(const Json& root, Draft draft);

}  // namespace fathom::recipe::schema
