// fathom/grammar/constraint.h
// What an answer may look like, as a value. The codec makes it from a request, the engine compiles and enforces it.
// Source: spec/recipe.md 2 (output constraint), 6.3 (markup); spec/engine.md 10.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "fathom/base/json.h"

namespace fathom::grammar {

/// How tool calls are spelt: `<D{block}>`, `<D{separator}invoke name="…">`, `<D{separator}parameter name="…"
/// string="…">`.
struct CallMarkup {
  std::string dsml;       // D: "｜DSML｜"
  std::string block;      // " calls" or "tool_calls"
  std::string separator;  // " " or ""

  friend bool operator==(const CallMarkup&, const CallMarkup&) = default;
};

/// One function that may be called. `strict`: its arguments must follow `parameters`, else any arguments are allowed.
struct CallableTool {
  std::string name;
  Json parameters;  // JSON Schema of an object; {} when the request gave none
  bool strict = false;

  friend bool operator==(const CallableTool&, const CallableTool&) = default;
};

struct Constraint {
  enum class Kind {
    json,                // `text` is a JSON Schema, compact; empty: any array or object
    regex,               // `text` is the expression
    ebnf,                // `text` is a grammar
    tool_call,           // free text, in which a block of calls may come
    tool_call_required,  // the answer begins inside a block of calls that the prompt opened
  };
  Kind kind = Kind::json;
  std::string text;                         // for calls: the tools as a compact JSON array, as other engines take it
  std::optional<std::string> starts_after;  // the constraint holds after this text ("</think>"); none: from the start
  CallMarkup markup;                        // calls only
  std::vector<CallableTool> tools;          // calls only

  friend bool operator==(const Constraint&, const Constraint&) = default;
};

/// "json", "regex", "ebnf", "tool_call", "tool_call_required".
const char* name_of(Constraint::Kind kind);

}  // namespace fathom::grammar
