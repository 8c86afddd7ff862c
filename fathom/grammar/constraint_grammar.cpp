#include "fathom/grammar/constraint_grammar.h"

#include <cmath>

#include "fathom/grammar/call_rules.h"
#include "fathom/grammar/compile_cost.h"
#include "fathom/grammar/ebnf_check.h"
#include "fathom/grammar/expression.h"
#include "fathom/grammar/grammar_builder.h"
#include "fathom/grammar/json_rules.h"
#include "fathom/grammar/schema_rules.h"

namespace fathom::grammar {
namespace {

using Rule = GrammarBuilder::Rule;

Result<Rule> schema_rule(GrammarBuilder& builder, const Constraint& constraint, const GrammarLimits& limits) {
  JsonRules json(builder, {});
  if (constraint.text.empty()) return builder.add(builder.choice({json.array(), json.object()}));
  // Depth beyond the limit is refused by path below; this keeps the reader itself safe.
  const auto schema = parse_json(constraint.text, "schema", {.bytes = limits.text_bytes, .depth = 400});
  if (!schema) {
    Error error = schema.error();
    const bool limit = int64_t(constraint.text.size()) > limits.text_bytes || error.code == ErrorCode::out_of_range;
    error.code = limit ? ErrorCode::out_of_range : ErrorCode::bad_input;
    return error;
  }
  SchemaRules rules(builder, json, *schema, {}, limits);
  const auto root = rules.values(ValuePlace::json, "");
  if (!root) return root.error();
  return builder.add(*root);
}

Result<Rule> expression_rule(GrammarBuilder& builder, const Constraint& constraint, const GrammarLimits& limits) {
  const auto expression = read_expression(builder, constraint.text, "regex", {}, limits);
  if (!expression) return expression.error();
  return builder.add(*expression);
}

Result<void> check_cost(std::string_view grammar, const char* where, const GrammarLimits& limits) {
  const double cost = compile_milliseconds(grammar);
  if (cost <= limits.compile_milliseconds) return {};
  const std::string found = std::isinf(cost) ? "hours" : std::to_string(int64_t(cost / 1000)) + " s";
  return Error{ErrorCode::out_of_range, "compiling the grammar would take about " + found, where,
               "at most " + std::to_string(int64_t(limits.compile_milliseconds / 1000)) +
                   " s are possible: make it smaller, or let fewer alternatives begin alike"};
}

}  // namespace

Result<std::string> grammar_of(const Constraint& constraint, const GrammarLimits& limits) {
  if (constraint.kind == Constraint::Kind::ebnf) {
    if (auto safe = check_ebnf(constraint.text, limits); !safe) return safe.error();
    if (auto quick = check_cost(constraint.text, "ebnf", limits); !quick) return quick.error();
    return constraint.text;
  }
  GrammarBuilder builder;
  Result<Rule> root = constraint.kind == Constraint::Kind::json    ? schema_rule(builder, constraint, limits)
                      : constraint.kind == Constraint::Kind::regex ? expression_rule(builder, constraint, limits)
                                                                   : call_rules(builder, constraint, limits);
  if (!root) return root.error();
  if (builder.rules() > limits.rules) {
    return Error{ErrorCode::out_of_range, "the grammar has " + std::to_string(builder.rules()) + " rules", "schema",
                 "at most " + std::to_string(limits.rules) + " are possible"};
  }
  if (!builder.productive(builder.rule(*root))) {
    return Error{ErrorCode::unsupported, "no value follows the schema", "schema",
                 "remove what contradicts or never ends"};
  }
  std::string text = builder.text(*root);
  if (int64_t(text.size()) > limits.grammar_bytes) {
    return Error{ErrorCode::out_of_range, "the grammar has " + std::to_string(text.size()) + " bytes", "schema",
                 "at most " + std::to_string(limits.grammar_bytes) + " are possible"};
  }
  const bool calls =
      constraint.kind == Constraint::Kind::tool_call || constraint.kind == Constraint::Kind::tool_call_required;
  if (auto quick = check_cost(text, calls ? "tools" : name_of(constraint.kind), limits); !quick) return quick.error();
  return text;
}

}  // namespace fathom::grammar
