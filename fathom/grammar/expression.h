// fathom/grammar/expression.h
// Regular expressions of schemas (`pattern`) and of response formats, read in the dialect of ECMA-262 and written in
// the small one that the compiler takes: characters, classes, groups, counted repetition. What is not regular or not
// exact is refused, never ignored: look-around, back-references, \b, \p{…}, flags, anchors in the middle.
#pragma once
#include <string>
#include <string_view>

#include "fathom/base/result.h"
#include "fathom/grammar/grammar_builder.h"
#include "fathom/grammar/limits.h"

namespace fathom::grammar {

struct ExpressionUse {
  bool search = false;       // it may match anywhere (`pattern`); else it describes the whole text
  bool json_string = false;  // as a JSON string, quotes included: characters are spelt as JSON does, each in one way
  CharacterSet excluded;     // never produced
};

/// `path` names the expression in errors. Under json_string control characters other than \b \f \n \r \t are left out.
/// An expression that is one set, counted (`^[a-z]{1,255}$`), may count as far as a schema's maxLength; such a set then
/// has no characters that JSON escapes, and outside JSON no `<`.
/// Errors: bad_input when it is no expression; unsupported when it cannot be enforced; out_of_range beyond the limits.
Result<GrammarBuilder::Expression> read_expression(GrammarBuilder& builder, std::string_view expression,
                                                   std::string_view path, const ExpressionUse& use,
                                                   const GrammarLimits& limits);

}  // namespace fathom::grammar
