// fathom/engine/constraint_check.h
// Whether the engine can keep a constraint, before anything is queued: a server tells its client at once what is wrong
// with a schema, and where.
#pragma once
#include "fathom/base/result.h"
#include "fathom/grammar/constraint.h"

namespace fathom {

/// Pure text work, linear in the constraint. What passes can be compiled within the engine's limits. Errors: usage,
/// bad_input or out_of_range; `where` is the path inside of the schema, the place in the expression, or the path in the
/// list of tools. Source: spec/codec-policy.md 5 ("cannot be compiled").
Result<void> check_constraint(const grammar::Constraint& constraint);

}  // namespace fathom
