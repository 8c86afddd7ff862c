#include "fathom/grammar/schema_rules.h"

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "fathom/grammar/expression.h"
#include "fathom/grammar/number_range.h"
#include "fathom/grammar/schema_keywords.h"
#include "fathom/grammar/string_format.h"

namespace fathom::grammar {
namespace {

using Expression = GrammarBuilder::Expression;
using Rule = GrammarBuilder::Rule;
constexpr int64_t kNoLimit = GrammarBuilder::kNoLimit;
constexpr size_t kLongestName = 1024;   // characters of a property's name
constexpr int64_t kMostSteps = 20'000;  // schemas that are looked at; alternatives may repeat what they share

std::string under(const std::string& path, std::string_view key) {
  std::string out = path;
  append_path_key(out, key);
  return out;
}
std::string at(const std::string& path, size_t index) { return path + '[' + std::to_string(index) + ']'; }

}  // namespace

struct SchemaRules::State {
  GrammarBuilder& b;
  JsonRules& json;
  const Json& root;
  std::string ending;
  const GrammarLimits& limits;
  std::optional<Error> error;
  std::map<std::pair<std::string, ValuePlace>, Rule> references;
  std::vector<std::pair<std::string, ValuePlace>> open;  // references entered since the last bracket
  int64_t steps = 0;
  int depth = 0;

  Expression refuse(ErrorCode code, std::string message, std::string where, std::string remedy) {
    if (!error) error = Error{code, std::move(message), std::move(where), std::move(remedy)};
    return b.never();
  }
  Expression refuse_keyword(std::string_view keyword, const std::string& path, std::string remedy) {
    return refuse(ErrorCode::unsupported, "schema keyword " + std::string(keyword) + " cannot be enforced here",
                  under(path, keyword), std::move(remedy));
  }
  Expression refuse_shape(std::string_view keyword, const std::string& path, std::string_view wanted) {
    return refuse(ErrorCode::bad_input, "schema keyword " + std::string(keyword) + " is not " + std::string(wanted),
                  under(path, keyword), "correct the schema");
  }

  // The rest beside a keyword that holds schemas; the root's name is of no use to it.
  Json rest_of(const Json& schema, std::string_view keyword) {
    Json out = without_field(schema, keyword);
    if (&schema == &root) out = without_field(out, "$id");
    return out;
  }

  bool charge_copy(const Json& schema, const std::string& path) {
    steps += parts_of(schema) / 4;
    if (steps <= kMostSteps) return true;
    refuse(ErrorCode::out_of_range, "the schema is too large", path, "its alternatives repeat too much");
    return false;
  }

  // A count keyword; `most` is kNoLimit when it cannot bind.
  std::optional<int64_t> count(const Json& schema, std::string_view keyword, const std::string& path, bool upper) {
    const Json* value = schema.find(keyword);
    if (!value) return upper ? kNoLimit : 0;
    const auto number = value->is_number() ? read_decimal(value->text) : std::nullopt;
    if (!number || number->negative || !number->fraction.empty()) {
      refuse_shape(keyword, path, "a count");
      return {};
    }
    const bool huge = number->whole.size() > 15;
    const int64_t counted = huge ? kLongestAnswerBytes : std::stoll(number->whole);
    if (upper && counted >= kLongestAnswerBytes) return kNoLimit;
    if (counted > limits.repetitions) {
      refuse(ErrorCode::out_of_range, "schema keyword " + std::string(keyword) + " is " + value->text,
             under(path, keyword), "at most " + std::to_string(limits.repetitions) + " can be enforced");
      return {};
    }
    return counted;
  }

  Expression value(const Json& schema, const std::string& path, ValuePlace place) {
    if (error) return b.never();
    if (++steps > kMostSteps || b.rules() > limits.rules) {
      return refuse(ErrorCode::out_of_range, "the schema is too large", path,
                    "fewer properties, alternatives or values are possible");
    }
    if (depth > limits.depth) {
      return refuse(ErrorCode::out_of_range, "the schema is nested deeper than " + std::to_string(limits.depth), path,
                    "flatten it");
    }
    ++depth;
    const Expression out = value_here(schema, path, place);
    --depth;
    return out;
  }

  Expression any(ValuePlace place) {
    switch (place) {
      case ValuePlace::json: return json.any();
      case ValuePlace::not_string: return json.not_string();
      case ValuePlace::verbatim: return b.text_without(ending);
    }
    return b.never();
  }

  Expression value_here(const Json& schema, const std::string& path, ValuePlace place) {
    if (schema.kind == Json::Kind::boolean) return schema.boolean ? any(place) : b.never();
    if (!schema.is_object()) {
      return refuse(ErrorCode::bad_input, "a schema is neither an object nor a boolean", path, "correct the schema");
    }
    if (const auto keyword = unsupported_keyword(schema)) {
      return refuse_keyword(*keyword, path, "leave it out, or say the same by other keywords");
    }
    if (schema.find("$id") && &schema != &root) return refuse_keyword("$id", path, "only the root may have one");
    if (schema.find("$ref")) return reference(schema, path, place);
    if (schema.find("allOf")) return all_of(schema, path, place);
    for (const std::string_view keyword : {"anyOf", "oneOf"}) {
      if (schema.find(keyword)) return alternatives(schema, keyword, path, place);
    }
    if (schema.find("const") || schema.find("enum")) return fixed_values(schema, path, place);
    std::vector<Expression> options;
    for (const std::string& type : types_of(schema)) options.push_back(of_type(schema, type, path, place));
    return b.choice(std::move(options));
  }

  Expression reference(const Json& schema, const std::string& path, ValuePlace place) {
    const Json& name = *schema.find("$ref");
    if (!name.is_string()) return refuse_shape("$ref", path, "a string");
    Json siblings = without_field(without_field(schema, "$ref"), "$id");
    if (restricts(siblings)) return refuse_keyword("$ref", path, "no other restriction may stand beside it");
    const auto key = std::pair(name.text, place);
    if (std::find(open.begin(), open.end(), key) != open.end()) {
      return refuse_keyword("$ref", path, "it leads back to itself without any content between");
    }
    if (const auto known = references.find(key); known != references.end()) return b.rule(known->second);
    const Json* target = resolve(root, name.text);
    if (!target) {
      return refuse_keyword("$ref", path, "only pointers into the schema (#/$defs/name) can be followed");
    }
    const Rule rule = references[key] = b.declare();
    open.push_back(key);
    // The path of what the reference names is clearer than the way there.
    std::string target_path = name.text;
    const Expression body = value(*target, target_path, place);
    open.pop_back();
    b.define(rule, body);
    return b.rule(rule);
  }

  // What stands behind references without anything between; nullptr after an error.
  const Json* behind_references(const Json* schema, const std::string& path) {
    for (int hops = 0; schema->find("$ref"); ++hops) {
      const Json* name = schema->find("$ref");
      const Json* target = name->is_string() ? resolve(root, name->text) : nullptr;
      if (!target || hops > limits.depth || restricts(without_field(*schema, "$ref"))) {
        refuse_keyword("$ref", path, "it cannot be followed here");
        return nullptr;
      }
      schema = target;
    }
    return schema;
  }

  std::optional<Json> merged(const Json& a, const Json& b_schema, const std::string& path) {
    const Json* other = behind_references(&b_schema, path);
    if (!other) return {};
    auto both = merge(a, *other, path);
    if (both) return std::move(*both);
    if (!error) error = both.error();
    return {};
  }

  std::optional<Json> all_together(const Json& schema, const std::string& path) {
    const Json& parts = *schema.find("allOf");
    if (!parts.is_array()) {
      refuse_shape("allOf", path, "an array");
      return {};
    }
    std::optional<Json> all = rest_of(schema, "allOf");
    for (size_t i = 0; i < parts.items.size() && all; ++i) {
      if (!charge_copy(*all, path)) return {};
      all = merged(*all, parts.items[i], at(under(path, "allOf"), i));
    }
    return all;
  }

  Expression all_of(const Json& schema, const std::string& path, ValuePlace place) {
    const Json& parts = *schema.find("allOf");
    if (parts.items.size() == 1 && !restricts(rest_of(schema, "allOf"))) {
      return value(parts.items[0], at(under(path, "allOf"), 0), place);
    }
    const auto all = all_together(schema, path);
    return all ? value(*all, path, place) : b.never();
  }

  Expression alternatives(const Json& schema, std::string_view keyword, const std::string& path, ValuePlace place) {
    const Json& parts = *schema.find(keyword);
    if (!parts.is_array()) return refuse_shape(keyword, path, "an array");
    if (keyword == "oneOf") {
      for (size_t i = 0; i < parts.items.size(); ++i) {
        for (size_t k = 0; k < i; ++k) {
          if (++steps > kMostSteps || !exclude_each_other(parts.items[i], parts.items[k], root)) {
            return refuse_keyword("oneOf", path,
                                  "its alternatives could hold at once: use anyOf, or a property with a const in each");
          }
        }
      }
    }
    const Json rest = rest_of(schema, keyword);
    const bool alone = !restricts(rest);
    std::vector<Expression> options;
    for (size_t i = 0; i < parts.items.size() && !error; ++i) {
      const std::string part_path = at(under(path, keyword), i);
      if (alone) {
        options.push_back(value(parts.items[i], part_path, place));
      } else if (!charge_copy(rest, path)) {
        break;
      } else if (const auto both = merged(rest, parts.items[i], part_path)) {
        options.push_back(value(*both, part_path, place));
      }
    }
    return b.choice(std::move(options));
  }

  Expression fixed_values(const Json& schema, const std::string& path, ValuePlace place) {
    const Json* single = schema.find("const");
    const Json* list = schema.find("enum");
    if (list && !list->is_array()) return refuse_shape("enum", path, "an array");
    for (const auto& [keyword, value] : schema.fields) {
      if (!is_annotation(keyword) && keyword != "const" && keyword != "enum" && keyword != "type" && keyword != "$id") {
        return refuse_keyword(keyword, path, "list only the values that it admits, and leave it out");
      }
    }
    std::vector<const Json*> values;
    if (single) values.push_back(single);
    if (!single) {
      for (const Json& item : list->items) values.push_back(&item);
    }
    std::vector<std::string> types = types_of(schema);
    std::vector<Expression> options;
    for (const Json* item : values) {
      if (single && list && std::none_of(list->items.begin(), list->items.end(), [&](const Json& other) {
            return same_value(other, *item);
          })) {
        continue;
      }
      const bool of_type =
          std::any_of(types.begin(), types.end(), [&](const std::string& type) { return has_type(*item, type); });
      if (!of_type) continue;
      if (++steps > kMostSteps)
        return refuse(ErrorCode::out_of_range, "the schema is too large", under(path, "enum"), "list fewer values");
      options.push_back(fixed_value(*item, path, place));
    }
    return b.choice(std::move(options));
  }

  Expression fixed_value(const Json& value, const std::string& path, ValuePlace place) {
    if (place == ValuePlace::json) return json.fixed(value);
    if (!value.is_string()) return place == ValuePlace::not_string ? json.fixed(value) : b.never();
    if (place == ValuePlace::not_string) return b.never();
    if (value.text.find(ending) != std::string::npos) {
      return refuse(ErrorCode::unsupported, "a fixed string contains the end of a parameter", path,
                    "it cannot be told from markup: leave it out");
    }
    return b.literal(value.text);
  }

  Expression of_type(const Json& schema, const std::string& type, const std::string& path, ValuePlace place) {
    if (type == "string") return place == ValuePlace::not_string ? b.never() : string(schema, path, place);
    if (place == ValuePlace::verbatim) return b.never();
    if (type == "null") return b.literal("null");
    if (type == "boolean") return b.choice({b.literal("true"), b.literal("false")});
    if (type == "number" || type == "integer") return number(schema, type == "integer", path);
    if (type != "array" && type != "object") return refuse_shape("type", path, "a type of JSON");
    // Between brackets a reference may lead back to where we are.
    auto outside = std::exchange(open, {});
    const Expression out = type == "array" ? array(schema, path) : object(schema, path);
    open = std::move(outside);
    return out;
  }

  Expression string(const Json& schema, const std::string& path, ValuePlace place) {
    const auto least = count(schema, "minLength", path, false), most = count(schema, "maxLength", path, true);
    if (!least || !most) return b.never();
    if (*most != kNoLimit && *most < *least) return b.never();
    const bool bounded = *least > 0 || *most != kNoLimit;
    const Json* pattern = schema.find("pattern");
    const Json* format = schema.find("format");
    if (pattern && !pattern->is_string()) return refuse_shape("pattern", path, "a string");
    if (format && !format->is_string()) return refuse_shape("format", path, "a string");
    if (pattern || format) {
      if (pattern && format) return refuse_keyword("format", path, "not together with pattern");
      if (bounded) {
        return refuse_keyword(*least > 0 ? "minLength" : "maxLength", path,
                              std::string("not together with ") + (pattern ? "pattern" : "format"));
      }
      const auto known = pattern ? std::optional(pattern->text) : expression_of_format(format->text);
      if (!known) return refuse_keyword("format", path, std::string(kFormats));
      const bool quoted = place == ValuePlace::json;
      const ExpressionUse use = {.search = true, .json_string = quoted, .excluded = json.escaped()};
      GrammarLimits trusted = limits;  // formats are our own
      if (format) trusted.expression_options = 1'000;
      const auto expression = read_expression(b, *known, under(path, pattern ? "pattern" : "format"), use, trusted);
      if (expression) return *expression;
      if (!error) error = expression.error();
      return b.never();
    }
    if (place == ValuePlace::json) return bounded ? json.string_of_length(*least, *most) : json.string();
    if (!bounded) return b.text_without(ending);
    // Without '<' it is certain where it ends, which makes counting fast.
    return b.repeat(b.characters(without(complement(json.escaped()), {{'<', '<'}})), *least, *most);
  }

  Expression number(const Json& schema, bool integer, const std::string& path) {
    NumberRange range;
    bool bad = false;
    const auto tighten = [&](std::string_view keyword, bool lower, bool included) {
      const Json* value = schema.find(keyword);
      if (!value || bad) return;
      const auto number = value->is_number() ? read_decimal(value->text) : std::nullopt;
      if (!number) {
        bad = true;
        refuse_shape(keyword, path, "a number of at most 60 digits");
        return;
      }
      std::optional<Bound>& bound = lower ? range.least : range.most;
      const int order = bound ? compare(*number, bound->value) : 0;
      if (!bound || (lower ? order > 0 : order < 0)) {
        bound = Bound{*number, included};
      } else if (order == 0 && !included) {
        bound->included = false;
      }
    };
    tighten("minimum", true, true);
    tighten("exclusiveMinimum", true, false);
    tighten("maximum", false, true);
    tighten("exclusiveMaximum", false, false);
    if (bad) return b.never();
    const bool bounded = range.least || range.most;
    if (const Json* divisor = schema.find("multipleOf")) return multiple(*divisor, integer, bounded, path);
    if (range.least && range.most && compare(range.least->value, range.most->value) > 0) return b.never();
    if (integer) return integers(b, range);
    return bounded ? numbers(b, range) : json.number();
  }

  Expression multiple(const Json& value, bool integer, bool bounded, const std::string& path) {
    const auto divisor = value.is_number() ? read_decimal(value.text) : std::nullopt;
    if (!divisor || divisor->negative || divisor->is_zero())
      return refuse_shape("multipleOf", path, "a positive number");
    if (integer && divisor->whole == "1" && divisor->fraction.empty()) {
      return bounded ? refuse_keyword("multipleOf", path, "an integer is one already: leave it out") : integers(b, {});
    }
    if (bounded) return refuse_keyword("multipleOf", path, "not together with a minimum or maximum");
    const bool small = divisor->fraction.empty() && divisor->whole.size() <= 3 && std::stoi(divisor->whole) <= 100;
    if (small) return divisor->whole == "1" ? integers(b, {}) : multiples(b, std::stoi(divisor->whole));
    const bool tenth = divisor->whole == "0" && divisor->fraction.size() <= 15 &&
                       divisor->fraction == std::string(divisor->fraction.size() - 1, '0') + '1';
    if (tenth) return integer ? integers(b, {}) : with_places(b, int(divisor->fraction.size()));
    return refuse_keyword("multipleOf", path, "integers up to 100 and 0.1, 0.01, 0.001, … can be enforced");
  }

  Expression array(const Json& schema, const std::string& path) {
    const auto least = count(schema, "minItems", path, false), most = count(schema, "maxItems", path, true);
    if (!least || !most) return b.never();
    if (*most != kNoLimit && *most < *least) return b.never();
    const Json* items = schema.find("items");
    const Json* heads = schema.find("prefixItems");
    if (items && items->is_array())
      return refuse_keyword("items", path, "an array of schemas is prefixItems since 2020-12");
    if (heads && !heads->is_array()) return refuse_shape("prefixItems", path, "an array");
    const Expression item = items ? b.rule(b.add(value(*items, under(path, "items"), ValuePlace::json))) : json.any();
    const auto fixed = int64_t(heads ? heads->items.size() : 0);
    const int64_t written = *most == kNoLimit ? fixed : std::min(fixed, *most);
    // Items from `i` on, the first with a comma unless it is the very first.
    const auto repeated = [&](int64_t from) {
      const int64_t low = std::max<int64_t>(0, *least - from);
      const int64_t high = *most == kNoLimit ? kNoLimit : std::max<int64_t>(0, *most - from);
      const Expression next = b.sequence({json.comma(), item});
      if (from > 0) return b.repeat(next, low, high);
      if (high == 0) return b.nothing();
      const Expression all =
          b.sequence({item, b.repeat(next, std::max<int64_t>(0, low - 1), high == kNoLimit ? kNoLimit : high - 1)});
      return low == 0 ? b.optional(all) : all;
    };
    Expression rest = repeated(written);
    for (int64_t i = written; i-- > 0;) {
      const Expression head =
          value(heads->items[size_t(i)], at(under(path, "prefixItems"), size_t(i)), ValuePlace::json);
      rest = b.sequence({i > 0 ? json.comma() : b.nothing(), head, b.rule(b.add(rest))});
      if (i >= *least) rest = b.optional(rest);
    }
    return b.sequence({b.literal("["), json.space(), rest, json.space(), b.literal("]")});
  }

  // The parts of an object, common to JSON and to the parameters of a call.
  struct Object {
    std::vector<std::string> names;
    std::vector<const Json*> schemas;
    std::vector<bool> required;
    const Json* extra = nullptr;  // nullptr: any
    bool closed = false;
    const Json* extra_names = nullptr;  // schema of other names
    int64_t least = 0, most = kNoLimit;
  };

  std::optional<Object> read_object(const Json& schema, const std::string& path) {
    Object out;
    const Json* properties = schema.find("properties");
    if (properties && !properties->is_object()) {
      refuse_shape("properties", path, "an object");
      return {};
    }
    if (properties && int64_t(properties->fields.size()) > limits.properties) {
      refuse(ErrorCode::out_of_range, "the schema is too large", under(path, "properties"), "declare fewer properties");
      return {};
    }
    for (size_t i = 0; properties && i < properties->fields.size(); ++i) {
      const std::string& name = properties->fields[i].first;
      if (name.size() > kLongestName) {
        refuse(ErrorCode::out_of_range, "a property's name has " + std::to_string(name.size()) + " bytes",
               under(path, "properties"), "at most " + std::to_string(kLongestName) + " are possible");
        return {};
      }
      out.names.push_back(name);
      out.schemas.push_back(&properties->fields[i].second);
    }
    out.required.assign(out.names.size(), false);
    if (const Json* extra = schema.find("additionalProperties")) {
      out.closed = extra->as_bool() == false;
      if (extra->as_bool() != true) out.extra = extra;
    }
    // Where properties are declared and nothing is said of others, others are allowed but never written: what was asked
    // for is what was declared, and telling other names apart is slow.
    const bool silent = !schema.find("additionalProperties") && !out.names.empty();
    static const Json kAnything = Json::of(true);
    if (const Json* required = schema.find("required")) {
      for (const Json& name : required->items) {
        const auto found = std::find(out.names.begin(), out.names.end(), name.text);
        if (!name.is_string()) {
          refuse_shape("required", path, "a list of names");
          return {};
        }
        if (found != out.names.end()) {
          out.required[size_t(found - out.names.begin())] = true;
        } else {  // declared by that alone: it comes behind the others
          out.names.push_back(name.text);
          out.schemas.push_back(out.extra ? out.extra : &kAnything);
          out.required.push_back(true);
        }
      }
    }
    out.closed = out.closed || silent;
    out.extra_names = schema.find("propertyNames");
    if (out.extra_names && out.extra_names->as_bool() == true) out.extra_names = nullptr;
    if (out.extra_names && !out.names.empty()) {
      refuse_keyword("propertyNames", path, "not together with properties or required");
      return {};
    }
    const auto least = count(schema, "minProperties", path, false), most = count(schema, "maxProperties", path, true);
    if (!least || !most) return {};
    out.least = *least;
    out.most = *most;
    const auto needed = std::count(out.required.begin(), out.required.end(), true);
    if (out.least <= needed) out.least = 0;
    if (out.closed && out.most >= int64_t(out.names.size())) out.most = kNoLimit;
    const bool list_only = out.names.empty();
    if (!list_only && out.most != kNoLimit) {
      refuse_keyword("maxProperties", path, "only where no property is declared");
      return {};
    }
    if (!list_only && out.least > 1) {
      refuse_keyword("minProperties", path, "1, or fewer than are required, where properties are declared");
      return {};
    }
    return out;
  }

  Expression object(const Json& schema, const std::string& path) {
    const auto parts = read_object(schema, path);
    if (!parts) return b.never();
    std::vector<Member> list;
    for (size_t i = 0; i < parts->names.size() && !error; ++i) {
      const std::string& name = parts->names[i];
      const Expression body = value(*parts->schemas[i], under(under(path, "properties"), name), ValuePlace::json);
      list.push_back({b.sequence({b.literal('"' + json_spelling(name, json.escaped()) + "\":"), json.space(), body}),
                      parts->required[i]});
    }
    Expression extra = b.never();
    if (!parts->closed && !error) {
      const Expression key =
          parts->extra_names ? value(string_only(*parts->extra_names), under(path, "propertyNames"), ValuePlace::json)
                             : json.key_without(parts->names);
      const Expression body =
          parts->extra ? value(*parts->extra, under(path, "additionalProperties"), ValuePlace::json) : json.any();
      extra = b.rule(b.add(b.sequence({key, b.literal(":"), json.space(), body})));
    }
    Expression inside;
    if (list.empty() && (parts->least > 1 || parts->most != kNoLimit)) {
      if (parts->most != kNoLimit && parts->most < parts->least) return b.never();
      const Expression more = b.repeat(b.sequence({json.comma(), extra}), std::max<int64_t>(0, parts->least - 1),
                                       parts->most == kNoLimit ? kNoLimit : std::max<int64_t>(0, parts->most - 1));
      inside = parts->most == 0 ? b.nothing() : b.sequence({extra, more});
      if (parts->least == 0) inside = b.optional(inside);
    } else {
      inside = members(b, list, extra, json.comma(), parts->least > 0);
    }
    return b.sequence({b.literal("{"), json.space(), inside, json.space(), b.literal("}")});
  }

  // Names are strings whatever their schema says of other types.
  static Json string_only(const Json& schema) {
    if (!schema.is_object() || schema.find("$ref")) return schema;
    Json out = schema;
    if (!out.find("const") && !out.find("enum")) out.set("type", Json::of("string"));
    return out;
  }
};

SchemaRules::SchemaRules(GrammarBuilder& builder, JsonRules& json, const Json& schema, std::string ending,
                         const GrammarLimits& limits)
    : state_(new State{builder, json, schema, std::move(ending), limits, {}, {}, {}}) {}
SchemaRules::~SchemaRules() = default;

Result<SchemaRules::Expression> SchemaRules::values(ValuePlace place, std::string_view path) {
  const Expression out = state_->value(state_->root, std::string(path), place);
  if (!state_->error) return out;
  if (state_->error->where.empty()) state_->error->where = "schema";  // its root
  return *state_->error;
}

Result<SchemaRules::Parameters> SchemaRules::parameters(std::string_view given_path) {
  State& s = *state_;
  const std::string path(given_path);
  const Json* schema = &s.root;
  std::optional<Json> all;
  if (schema->is_object()) schema = s.behind_references(schema, path);
  if (schema && schema->find("allOf")) {
    all = s.all_together(*schema, path);
    schema = all ? &*all : nullptr;
  }
  const auto stop = [&]() -> Result<Parameters> { return *s.error; };
  if (!schema || s.error) return stop();
  static const Json kEmpty = Json::object();
  if (schema->as_bool() == true) schema = &kEmpty;
  for (const char* keyword : {"anyOf", "oneOf", "const", "enum", "$ref"}) {
    if (schema->find(keyword)) s.refuse_keyword(keyword, path, "parameters of a call are one list: use properties");
  }
  if (!schema->is_object()) s.refuse(ErrorCode::bad_input, "parameters are no schema of an object", path, "correct it");
  if (s.error) return stop();
  if (const auto keyword = unsupported_keyword(*schema)) s.refuse_keyword(*keyword, path, "leave it out");
  const auto types = types_of(*schema);
  if (std::find(types.begin(), types.end(), "object") == types.end()) {
    s.refuse(ErrorCode::bad_input, "parameters are no schema of an object", path, "correct it");
  }
  if (s.error) return stop();
  const auto parts = s.read_object(*schema, path);
  if (s.error) return stop();
  for (const char* keyword : {"propertyNames", "minProperties", "maxProperties"}) {
    const bool used = keyword == std::string_view("propertyNames")   ? parts->extra_names != nullptr
                      : keyword == std::string_view("minProperties") ? parts->least > 0
                                                                     : parts->most != kNoLimit;
    if (used) s.refuse_keyword(keyword, path, "not for the parameters of a call");
  }
  Parameters out;
  const auto parameter = [&](std::string name, const Json& part, const std::string& part_path, bool required) {
    Parameter made{std::move(name), 0, 0, required};
    made.verbatim = s.value(part, part_path, ValuePlace::verbatim);
    made.not_string = s.value(part, part_path, ValuePlace::not_string);
    return made;
  };
  for (size_t i = 0; i < parts->names.size() && !s.error; ++i) {
    out.list.push_back(parameter(parts->names[i], *parts->schemas[i], under(under(path, "properties"), parts->names[i]),
                                 parts->required[i]));
  }
  if (!parts->closed && !s.error) {
    static const Json kAnything = Json::of(true);
    out.extra = parameter("", parts->extra ? *parts->extra : kAnything, under(path, "additionalProperties"), false);
  }
  if (s.error) return stop();
  return out;
}

}  // namespace fathom::grammar
