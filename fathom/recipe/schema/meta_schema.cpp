#include "fathom/recipe/schema/meta_schema.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <unordered_set>

#include "fathom/recipe/schema/pattern.h"
#include "fathom/recipe/schema/uri.h"

namespace fathom::recipe::schema {
namespace {

constexpr uint8_t kAll = 31, kFrom6 = 30, kFrom7 = 28, kFrom2019 = 24, kOnly4 = 1, kOnly6And7 = 6, kUpTo7 = 7,
                  kUpTo2019 = 15, k2019 = 8, k2020 = 16;

// In the order in which validators of the drafts since 2019-09 come to them; before, there was but one. `root`: what
// the meta-schema itself says of keywords of older drafts.
enum Vocabulary : uint8_t { root, core, applicator, unevaluated, validation, meta_data, format, content };

struct Row {
  std::string_view keyword;
  uint8_t drafts;
  Vocabulary vocabulary;
  Rule rule;
};
constexpr Row kRows[] = {
    {"$anchor", kFrom2019, core, Rule::anchor},
    {"$comment", kFrom7, core, Rule::string},
    {"$defs", kFrom2019, core, Rule::schema_map},
    {"$dynamicAnchor", k2020, core, Rule::anchor},
    {"$dynamicRef", k2020, core, Rule::string},
    {"$id", kOnly6And7, core, Rule::uri_reference},
    {"$id", kFrom2019, core, Rule::identifier},
    {"$recursiveAnchor", k2019, core, Rule::boolean},
    {"$recursiveAnchor", k2020, root, Rule::anchor},
    {"$recursiveRef", k2019, core, Rule::string},
    {"$recursiveRef", k2020, root, Rule::string},
    {"$ref", kOnly6And7, core, Rule::uri_reference},
    {"$ref", kFrom2019, core, Rule::string},
    {"$schema", kOnly6And7, core, Rule::uri},
    {"$schema", uint8_t(kAll & ~kOnly6And7), core, Rule::string},
    {"$vocabulary", kFrom2019, core, Rule::vocabulary},
    {"additionalItems", kOnly4, core, Rule::boolean_or_schema},
    {"additionalItems", uint8_t(kUpTo2019 & ~kOnly4), applicator, Rule::schema},
    {"additionalProperties", kOnly4, core, Rule::boolean_or_schema},
    {"additionalProperties", kFrom6, applicator, Rule::schema},
    {"allOf", kAll, applicator, Rule::schema_array},
    {"anyOf", kAll, applicator, Rule::schema_array},
    {"contains", kFrom6, applicator, Rule::schema},
    {"contentEncoding", kFrom7, content, Rule::string},
    {"contentMediaType", kFrom7, content, Rule::string},
    {"contentSchema", kFrom2019, content, Rule::schema},
    {"definitions", kUpTo7, core, Rule::schema_map},
    {"definitions", kFrom2019, root, Rule::schema_map},
    {"dependencies", kUpTo7, core, Rule::dependencies},
    {"dependencies", kFrom2019, root, Rule::dependencies},
    {"dependentRequired", kFrom2019, validation, Rule::names_map},
    {"dependentSchemas", kFrom2019, applicator, Rule::schema_map},
    {"deprecated", kFrom2019, meta_data, Rule::boolean},
    {"description", kAll, meta_data, Rule::string},
    {"else", kFrom7, applicator, Rule::schema},
    {"enum", kAll, validation, Rule::array},
    {"examples", kFrom6, meta_data, Rule::array},
    {"exclusiveMaximum", kOnly4, validation, Rule::boolean},
    {"exclusiveMaximum", kFrom6, validation, Rule::number},
    {"exclusiveMinimum", kOnly4, validation, Rule::boolean},
    {"exclusiveMinimum", kFrom6, validation, Rule::number},
    {"format", kAll, format, Rule::string},
    {"id", kOnly4, core, Rule::string},
    {"if", kFrom7, applicator, Rule::schema},
    {"items", kUpTo2019, applicator, Rule::schema_or_array},
    {"items", k2020, applicator, Rule::schema},
    {"maxContains", kFrom2019, validation, Rule::count},
    {"maxItems", kAll, validation, Rule::count},
    {"maxLength", kAll, validation, Rule::count},
    {"maxProperties", kAll, validation, Rule::count},
    {"maximum", kAll, validation, Rule::number},
    {"minContains", kFrom2019, validation, Rule::count},
    {"minItems", kAll, validation, Rule::count},
    {"minLength", kAll, validation, Rule::count},
    {"minProperties", kAll, validation, Rule::count},
    {"minimum", kAll, validation, Rule::number},
    {"multipleOf", kAll, validation, Rule::positive},
    {"not", kAll, applicator, Rule::schema},
    {"oneOf", kAll, applicator, Rule::schema_array},
    {"pattern", kAll, validation, Rule::pattern},
    {"patternProperties", kAll, applicator, Rule::pattern_map},
    {"prefixItems", k2020, applicator, Rule::schema_array},
    {"properties", kAll, applicator, Rule::schema_map},
    {"propertyNames", kFrom6, applicator, Rule::schema},
    {"readOnly", kFrom7, meta_data, Rule::boolean},
    {"required", kAll, validation, Rule::names},
    {"then", kFrom7, applicator, Rule::schema},
    {"title", kAll, meta_data, Rule::string},
    {"type", kAll, validation, Rule::type},
    {"unevaluatedItems", k2019, applicator, Rule::schema},
    {"unevaluatedItems", k2020, unevaluated, Rule::schema},
    {"unevaluatedProperties", k2019, applicator, Rule::schema},
    {"unevaluatedProperties", k2020, unevaluated, Rule::schema},
    {"uniqueItems", kAll, validation, Rule::boolean},
    {"writeOnly", kFrom7, meta_data, Rule::boolean},
};
static_assert(std::is_sorted(std::begin(kRows), std::end(kRows),
                             [](const Row& a, const Row& b) { return a.keyword < b.keyword; }));

// Where the rows of a keyword begin, by a hash of its length and three of its letters: a search for every key of every
// schema was a quarter of a request's conversion. 0: no keyword has this place.
constexpr size_t kPlaces = 512;
constexpr size_t place_of(std::string_view keyword) {
  return (keyword.size() * 67 + uint8_t(keyword.front()) * 5 + uint8_t(keyword[keyword.size() / 2]) * 29 +
          uint8_t(keyword.back()) * 11) %
         kPlaces;
}
constexpr auto kFirstRow = [] {
  std::array<uint8_t, kPlaces> first = {};
  for (size_t i = std::size(kRows); i-- > 0;) {
    size_t place = place_of(kRows[i].keyword);
    while (first[place] != 0 && kRows[first[place] - 1].keyword != kRows[i].keyword) place = (place + 1) % kPlaces;
    first[place] = uint8_t(i + 1);
  }
  return first;
}();

const Row* row_of(std::string_view keyword, Draft draft) {
  if (keyword.empty()) return nullptr;
  size_t place = place_of(keyword);
  while (kFirstRow[place] != 0 && kRows[kFirstRow[place] - 1].keyword != keyword) place = (place + 1) % kPlaces;
  if (kFirstRow[place] == 0) return nullptr;
  for (const Row* row = &kRows[kFirstRow[place] - 1]; row != std::end(kRows) && row->keyword == keyword; ++row) {
    if (row->drafts & uint8_t(draft)) return row;
  }
  return nullptr;
}

using Found = std::optional<Fault>;

Found fault(const Json& value, const char* phrase) { return Fault{&value, phrase, {}, false}; }

constexpr const char* kNoArray = " is not of type \"array\"";
constexpr const char* kNoObject = " is not of type \"object\"";
constexpr const char* kNoString = " is not of type \"string\"";
constexpr const char* kNoBoolean = " is not of type \"boolean\"";
constexpr const char* kNoneOf = " is not valid under any of the schemas listed in the 'anyOf' keyword";

bool is_type_word(const Json& value) {
  static constexpr std::string_view kWords[] = {"array", "boolean", "integer", "null", "number", "object", "string"};
  return value.is_string() && std::find(std::begin(kWords), std::end(kWords), value.text) != std::end(kWords);
}

bool all_different(const std::vector<Json>& items) {
  std::unordered_set<std::string> seen;
  seen.reserve(items.size());
  for (const Json& item : items) {
    if (!seen.insert(item.is_string() ? '"' + item.text : to_string(item)).second) return false;
  }
  return true;
}

bool is_integer(const Json& value, Draft draft) {
  if (!value.is_number()) return false;
  const bool plain = value.text.find_first_of(".eE") == std::string::npos;
  if (plain || draft == Draft::d4) return plain;  // draft 4 judges the spelling: 1.0 is none
  const auto real = value.as_double();
  return real && std::trunc(*real) == *real;
}

bool is_negative(const Json& number) { return number.text.front() == '-' && number.as_double().value_or(-1) < 0; }

bool matches_anchor(std::string_view text, Draft draft) {
  const auto letter = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); };
  if (text.empty() || !(letter(text[0]) || (text[0] == '_' && draft == Draft::d2020))) return false;
  return std::all_of(text.begin(), text.end(), [&](char c) {
    return letter(c) || (c >= '0' && c <= '9') || c == '-' || c == '.' || c == '_' ||
           (c == ':' && draft == Draft::d2019);
  });
}

struct Checker {
  Draft draft;
  // Drafts up to 7 assert the formats of their meta-schemas, in the strict reading of ECMA 262.
  bool formats = uint8_t(draft) & kOnly6And7;
  bool regex_format = uint8_t(draft) & kUpTo7;

  Found schema(const Json& value) const {
    if (!value.is_object()) {
      if (draft == Draft::d4) return fault(value, kNoObject);
      return value.kind == Json::Kind::boolean ? Found() : fault(value, " is not of types \"boolean\", \"object\"");
    }
    const bool split = uint8_t(draft) & kFrom2019;
    unsigned used = split ? 0 : 1;
    if (split) {
      for (const auto& [key, child] : value.fields) {
        if (const Row* row = row_of(key, draft)) used |= 1u << row->vocabulary;
      }
    }
    for (int vocabulary = 0; used >> vocabulary != 0; ++vocabulary) {
      if ((used >> vocabulary & 1) == 0) continue;
      for (const auto& [key, child] : value.fields) {
        const Row* row = row_of(key, draft);
        if (!row || (split && row->vocabulary != vocabulary)) continue;
        if (Found found = check_rule(row->rule, child)) return found;
      }
    }
    if (draft == Draft::d4) {
      for (const char* bound : {"maximum", "minimum"}) {
        const char* exclusive = bound[1] == 'a' ? "exclusiveMaximum" : "exclusiveMinimum";
        if (value.find(exclusive) && !value.find(bound)) {
          return Fault{&value, std::string(exclusive) + " needs " + bound + " beside it", {}, true};
        }
      }
    }
    return {};
  }

  Found schema_array(const Json& value) const {
    if (!value.is_array()) return fault(value, kNoArray);
    if (value.items.empty()) return fault(value, " has no item, but needs one at least");
    for (const Json& item : value.items) {
      if (Found found = schema(item)) return found;
    }
    return {};
  }

  Found names(const Json& value) const {
    if (!value.is_array()) return fault(value, kNoArray);
    if (draft == Draft::d4 && value.items.empty()) return fault(value, " has no item, but needs one at least");
    if (!all_different(value.items)) return fault(value, " has non-unique elements");
    for (const Json& item : value.items) {
      if (!item.is_string()) return fault(item, kNoString);
    }
    return {};
  }

  Found string(const Json& value, bool fits, const char* phrase) const {
    if (!value.is_string()) return fault(value, kNoString);
    return fits ? Found() : fault(value, phrase);
  }

  // `one(child)` for each member.
  template <class One>
  Found map(const Json& value, One one) const {
    if (!value.is_object()) return fault(value, kNoObject);
    for (const auto& [key, child] : value.fields) {
      if (Found found = one(child)) return found;
    }
    return {};
  }

  Found check_rule(Rule rule, const Json& value) const {
    switch (rule) {
      case Rule::schema: return schema(value);
      case Rule::schema_map: return map(value, [&](const Json& child) { return schema(child); });
      case Rule::pattern_map: {
        Found found = map(value, [&](const Json& child) { return schema(child); });
        if (found || !formats) return found;
        for (const auto& [key, child] : value.fields) {
          if (!valid_pattern(key, Dialect::ecma)) return Fault{&child, " is not a \"regex\"", key, false};
        }
        return {};
      }
      case Rule::schema_array: return schema_array(value);
      // The alternatives differ by type, so each value is looked at once: nested ones stay linear.
      case Rule::schema_or_array:
        return (value.is_array() ? schema_array(value) : schema(value)) ? fault(value, kNoneOf) : Found();
      case Rule::boolean_or_schema:
        return value.kind != Json::Kind::boolean && schema(value) ? fault(value, kNoneOf) : Found();
      case Rule::dependencies:
        return map(value, [&](const Json& child) {
          return (child.is_array() ? names(child) : schema(child)) ? fault(child, kNoneOf) : Found();
        });
      case Rule::string: return string(value, true, "");
      case Rule::pattern:
        return string(value, !regex_format || valid_pattern(value.text, Dialect::ecma), " is not a \"regex\"");
      case Rule::uri_reference: return string(value, valid_uri_reference(value.text), " is not a \"uri-reference\"");
      case Rule::uri: return string(value, value.text.find(':') != std::string::npos, " is not a \"uri\"");
      case Rule::identifier:
        return string(value, value.text.find('#') >= std::max<size_t>(value.text.size(), 1) - 1,
                      " has a fragment, which an identifier must not have");
      case Rule::anchor: return string(value, matches_anchor(value.text, draft), " is not a plain name");
      case Rule::boolean: return value.kind == Json::Kind::boolean ? Found() : fault(value, kNoBoolean);
      case Rule::number: return value.is_number() ? Found() : fault(value, " is not of type \"number\"");
      case Rule::positive:
        if (!value.is_number()) return fault(value, " is not of type \"number\"");
        return value.as_double().value_or(1) > 0 && value.text.front() != '-' ? Found()
                                                                              : fault(value, " is not greater than 0");
      case Rule::count:
        if (!is_integer(value, draft)) return fault(value, " is not of type \"integer\"");
        return is_negative(value) ? fault(value, " is less than the minimum of 0") : Found();
      case Rule::names: return names(value);
      case Rule::names_map: return map(value, [&](const Json& child) { return names(child); });
      case Rule::type: {
        const bool list = value.is_array() && !value.items.empty() &&
                          std::all_of(value.items.begin(), value.items.end(), is_type_word) &&
                          all_different(value.items);
        return list || is_type_word(value) ? Found() : fault(value, kNoneOf);
      }
      case Rule::array: return value.is_array() ? Found() : fault(value, kNoArray);
      case Rule::vocabulary:
        return map(value, [&](const Json& child) {
          return child.kind == Json::Kind::boolean ? Found() : fault(child, kNoBoolean);
        });
    }
    return {};
  }
};

}  // namespace

std::optional<Draft> draft_of(std::string_view uri) {
  if (uri.ends_with('#')) uri.remove_suffix(1);
  for (const std::string_view scheme : {"http://json-schema.org/", "https://json-schema.org/"}) {
    if (!uri.starts_with(scheme)) continue;
    const std::string_view name = uri.substr(scheme.size());
    if (name == "draft-04/schema") return Draft::d4;
    if (name == "draft-06/schema") return Draft::d6;
    if (name == "draft-07/schema") return Draft::d7;
    if (name == "draft/2019-09/schema") return Draft::d2019;
    if (name == "draft/2020-12/schema" || name == "schema") return Draft::d2020;
  }
  return {};
}

std::optional<Rule> rule_of(std::string_view keyword, Draft draft) {
  const Row* row = row_of(keyword, draft);
  return row ? std::optional(row->rule) : std::nullopt;
}

std::optional<Fault> find_meta_fault(const Json& value, Draft draft) { return Checker{draft}.schema(value); }

}  // namespace fathom::recipe::schema
