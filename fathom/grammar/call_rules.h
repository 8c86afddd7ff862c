// fathom/grammar/call_rules.h
// The grammar of calls: a block of `invoke`s, each with the parameters that its tool takes. Source: spec/recipe.md 6.3
// for the markup, 8.1 for how it is read.
#pragma once
#include "fathom/base/result.h"
#include "fathom/grammar/constraint.h"
#include "fathom/grammar/grammar_builder.h"
#include "fathom/grammar/limits.h"

namespace fathom::grammar {

/// tool_call: free text (reasoning, `</think>` and all) until `<` and D, which only a block of calls may follow, and
/// the end of the answer after it. tool_call_required: the rest of a block whose opening line the prompt wrote.
///
/// A strict tool takes its schema's parameters in their order, `string="true"` where the value is a string. Others take
/// any parameters in well-formed markup. A value ends at the first `</` and D, so no string contains that; in strings
/// within JSON the first character of D is spelt \uXXXX.
/// Errors: those of SchemaRules, their paths below `tools[i].parameters`; bad_input for a name that cannot be written.
Result<GrammarBuilder::Rule> call_rules(GrammarBuilder& builder, const Constraint& constraint,
                                        const GrammarLimits& limits);

}  // namespace fathom::grammar
