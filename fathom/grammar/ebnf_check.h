// fathom/grammar/ebnf_check.h
// Grammars that users write go to xgrammar's own reader. This looks at them first: sizes, depth and counts within the
// limits, and nothing but what describes text (no macros, rule options or look-ahead).
#pragma once
#include <string_view>

#include "fathom/base/result.h"
#include "fathom/grammar/limits.h"

namespace fathom::grammar {

/// Errors: out_of_range, unsupported, bad_input, with the character's number. What passes may still be no grammar; then
/// compiling says so.
Result<void> check_ebnf(std::string_view text, const GrammarLimits& limits);

}  // namespace fathom::grammar
