// fathom/grammar/constraint_grammar.h
// The grammar of a constraint as EBNF, with all that is refused refused: after it, compiling cannot surprise. Pure, and
// free of xgrammar: a server may call it while it reads a request.
#pragma once
#include <string>

#include "fathom/base/result.h"
#include "fathom/grammar/constraint.h"
#include "fathom/grammar/limits.h"

namespace fathom::grammar {

/// `starts_after` is not part of it. Errors name the keyword and its path in the schema (`where`), or the place in the
/// expression: unsupported (cannot be enforced), out_of_range (beyond a limit), bad_input (malformed).
///
/// json with an empty text is an array or an object: what JSON mode shows.
/// ebnf: the dialect of GBNF as xgrammar reads it, without macros and rule options, with a rule `root`.
Result<std::string> grammar_of(const Constraint& constraint, const GrammarLimits& limits = {});

}  // namespace fathom::grammar
