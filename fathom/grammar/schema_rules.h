// fathom/grammar/schema_rules.h
// JSON Schema -> grammar. What the grammar produces is valid; a schema that it cannot follow exactly is refused with
// the keyword and its path, never followed in part (spec/codec-policy.md 5). Not every valid text is produced:
// properties come in the order of their declaration, and spellings are those of json_rules.h. Supported and refused
// keywords, and why: docs/decisions/0010.
#pragma once
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "fathom/base/json.h"
#include "fathom/base/result.h"
#include "fathom/grammar/grammar_builder.h"
#include "fathom/grammar/json_rules.h"
#include "fathom/grammar/limits.h"

namespace fathom::grammar {

/// Where a value stands: in JSON text; as a parameter of a call that is marked as no string; or as one that is, where
/// its characters stand verbatim.
enum class ValuePlace { json, not_string, verbatim };

/// The rules of one schema. The builder, the schema and the limits must outlive it.
class SchemaRules {
 public:
  using Expression = GrammarBuilder::Expression;

  /// `ending`: what a verbatim string may not contain; empty when there is no such place.
  SchemaRules(GrammarBuilder& builder, JsonRules& json, const Json& schema, std::string ending,
              const GrammarLimits& limits);
  ~SchemaRules();

  /// Values of the schema. `path` begins the paths of errors ("tools[0].parameters"; empty: the schema is the root).
  /// Errors: unsupported with keyword and path; out_of_range beyond a limit; bad_input when the schema is none.
  Result<Expression> values(ValuePlace place, std::string_view path);

  /// One parameter of a call: `text` makes it from its name and the two forms of its value (never(): not that form).
  /// Objects only; the schema must allow nothing else.
  struct Parameter {
    std::string name;
    Expression verbatim, not_string;
    bool required = false;
  };
  struct Parameters {
    std::vector<Parameter> list;
    std::optional<Parameter> extra;  // any other name
  };
  /// Errors: as above, and unsupported when an object with alternatives cannot be written as one list of parameters.
  Result<Parameters> parameters(std::string_view path);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace fathom::grammar
