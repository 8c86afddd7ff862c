#include "fathom/grammar/constraint.h"

namespace fathom::grammar {

const char* name_of(Constraint::Kind kind) {
  switch (kind) {
    case Constraint::Kind::json: return "json";
    case Constraint::Kind::regex: return "regex";
    case Constraint::Kind::ebnf: return "ebnf";
    case Constraint::Kind::tool_call: return "tool_call";
    case Constraint::Kind::tool_call_required: return "tool_call_required";
  }
  return "?";
}

}  // namespace fathom::grammar
