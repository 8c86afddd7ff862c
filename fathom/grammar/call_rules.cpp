#include "fathom/grammar/call_rules.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "fathom/grammar/json_rules.h"
#include "fathom/grammar/schema_rules.h"
#include "fathom/tokenizer/tokenizer.h"

namespace fathom::grammar {
namespace {

using Expression = GrammarBuilder::Expression;
using Rule = GrammarBuilder::Rule;

// Quotes end an attribute, brackets confuse readers of markup, and control characters nobody writes.
const CharacterSet kNotInNames = {{0, 0x1f}, {'"', '"'}, {'<', '<'}, {'>', '>'}, {0x7f, 0x7f}};

class Calls {
 public:
  Calls(GrammarBuilder& builder, const Constraint& constraint, const GrammarLimits& limits)
      : b_(builder),
        markup_(constraint.markup),
        limits_(limits),
        marker_({{characters_of(markup_.dsml)[0], characters_of(markup_.dsml)[0]}}),
        json_(builder, marker_) {}

  // What may follow `<D{block}>\n`: calls, each on lines of its own, and the block's end.
  Result<Expression> rest_of_block(const std::vector<CallableTool>& tools) {
    std::vector<Expression> calls;
    for (size_t i = 0; i < tools.size(); ++i) {
      const std::string where = "tools[" + std::to_string(i) + "]";
      if (!is_name(tools[i].name)) {
        return Error{ErrorCode::bad_input, "the tool's name cannot be written in a call", where + ".name",
                     "no quotes, angle brackets or control characters, and not empty"};
      }
      auto call = call_of(tools[i], where + ".parameters");
      if (!call) return call.error();
      calls.push_back(*call);
      if (b_.rules() > limits_.rules) {
        return Error{ErrorCode::out_of_range, "the tools' schemas are too large together", where,
                     "fewer or smaller tools are possible"};
      }
    }
    const Rule call = b_.add(b_.choice(std::move(calls)));
    return b_.sequence({b_.repeat(b_.sequence({b_.rule(call), b_.literal("\n")}), 1, GrammarBuilder::kNoLimit),
                        b_.literal("</" + markup_.dsml + markup_.block + ">")});
  }

 private:
  bool is_name(std::string_view name) const {
    if (name.empty() || name.size() > 1024 || valid_utf8_prefix(name) != name.size()) return false;
    const auto characters = characters_of(name);
    return std::none_of(characters.begin(), characters.end(),
                        [&](uint32_t c) { return contains(kNotInNames, c) || contains(marker_, c); });
  }

  std::string open(std::string_view word) const { return "<" + markup_.dsml + markup_.separator + std::string(word); }
  std::string close(std::string_view word) const {
    return "</" + markup_.dsml + markup_.separator + std::string(word) + ">";
  }

  // The line break before the closing tag comes with the last parameter; without any, V4.1 keeps an empty line.
  Expression call(std::string_view name, Expression parameters) {
    const Expression lines = b_.choice({b_.sequence({parameters, b_.literal("\n")}), b_.literal("\n"), b_.nothing()});
    return b_.sequence(
        {b_.literal(open("invoke name=\"") + std::string(name) + "\">\n"), lines, b_.literal(close("invoke"))});
  }
  Expression call_without_choice(std::string_view name, Expression parameters) {
    return b_.sequence({b_.literal(open("invoke name=\"") + std::string(name) + "\">\n"), parameters,
                        b_.literal("\n" + close("invoke"))});
  }

  Expression parameter(Expression name, Expression verbatim, Expression not_string) {
    return b_.sequence(
        {b_.literal(open("parameter name=\"")), name, b_.literal("\" string=\""),
         b_.choice({b_.sequence({b_.literal("true\">"), verbatim}), b_.sequence({b_.literal("false\">"), not_string})}),
         b_.literal(close("parameter"))});
  }

  Expression other_name(const std::vector<std::string>& names) {
    KeyAlphabet alphabet;
    alphabet.plain = without(complement(kNotInNames), marker_);
    if (names.empty()) return b_.repeat(b_.characters(alphabet.plain), 1, GrammarBuilder::kNoLimit);
    std::vector<std::string> taken = names;
    taken.push_back("");  // a name is not empty
    return text_other_than(b_, taken, alphabet, "");
  }

  Result<Expression> call_of(const CallableTool& tool, const std::string& path) {
    const std::string ending = "</" + markup_.dsml;
    if (!tool.strict) {
      if (!any_parameters_) {
        const Expression one = b_.rule(b_.add(parameter(other_name({}), b_.text_without(ending), json_.any())));
        any_parameters_ = b_.add(members(b_, {}, one, b_.literal("\n"), true));
      }
      return call(tool.name, b_.rule(*any_parameters_));
    }
    SchemaRules schema(b_, json_, tool.parameters, ending, limits_);
    const auto parts = schema.parameters(path);
    if (!parts) return parts.error();
    std::vector<Member> list;
    std::vector<std::string> names;
    bool required = false;
    for (const SchemaRules::Parameter& part : parts->list) {
      if (!is_name(part.name)) {
        return Error{ErrorCode::bad_input, "the parameter's name cannot be written in a call", path + ".properties",
                     "no quotes, angle brackets or control characters, and not empty"};
      }
      names.push_back(part.name);
      required = required || part.required;
      list.push_back({parameter(b_.literal(part.name), part.verbatim, part.not_string), part.required});
    }
    Expression extra = b_.never();
    if (parts->extra) {
      extra = b_.rule(b_.add(parameter(other_name(names), parts->extra->verbatim, parts->extra->not_string)));
    }
    const Expression all = b_.rule(b_.add(members(b_, list, extra, b_.literal("\n"), true)));
    const Expression out = required ? call_without_choice(tool.name, all) : call(tool.name, all);
    if (!b_.productive(out)) {
      return Error{ErrorCode::unsupported, "no value follows the schema", path, "remove what contradicts"};
    }
    return out;
  }

  GrammarBuilder& b_;
  const CallMarkup& markup_;
  const GrammarLimits& limits_;
  CharacterSet marker_;  // the first character of D
  JsonRules json_;
  std::optional<Rule> any_parameters_;
};

}  // namespace

Result<Rule> call_rules(GrammarBuilder& builder, const Constraint& constraint, const GrammarLimits& limits) {
  const CallMarkup& markup = constraint.markup;
  if (markup.dsml.empty() || valid_utf8_prefix(markup.dsml) != markup.dsml.size()) {
    return Error{ErrorCode::bad_input, "the markup of calls has no marker", "markup.dsml", "give its spelling"};
  }
  if (constraint.tools.empty()) {
    return Error{ErrorCode::bad_input, "there is no tool to call", "tools", "declare one, or leave the constraint out"};
  }
  Calls calls(builder, constraint, limits);
  const auto rest = calls.rest_of_block(constraint.tools);
  if (!rest) return rest.error();
  if (constraint.kind == Constraint::Kind::tool_call_required) return builder.add(*rest);
  const Rule block = builder.add(builder.sequence({builder.literal(markup.block + ">\n"), *rest}));
  return builder.add(builder.text_until("<" + markup.dsml, block));
}

}  // namespace fathom::grammar
