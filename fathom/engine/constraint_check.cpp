#include "fathom/engine/constraint_check.h"

#include "fathom/grammar/constraint_grammar.h"

namespace fathom {

Result<void> check_constraint(const grammar::Constraint& constraint) {
  if (auto grammar = grammar::grammar_of(constraint); !grammar) return grammar.error();
  return {};
}

}  // namespace fathom
