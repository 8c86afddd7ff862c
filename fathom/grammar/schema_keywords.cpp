#include "fathom/grammar/schema_keywords.h"

#include <algorithm>
#include <array>

#include "fathom/base/json_pointer.h"
#include "fathom/grammar/number_range.h"

namespace fathom::grammar {
namespace {

constexpr std::array<std::string_view, 27> kFollowed = {"type",
                                                        "enum",
                                                        "const",
                                                        "anyOf",
                                                        "oneOf",
                                                        "allOf",
                                                        "$ref",
                                                        "minLength",
                                                        "maxLength",
                                                        "pattern",
                                                        "format",
                                                        "minimum",
                                                        "maximum",
                                                        "exclusiveMinimum",
                                                        "exclusiveMaximum",
                                                        "multipleOf",
                                                        "items",
                                                        "prefixItems",
                                                        "minItems",
                                                        "maxItems",
                                                        "properties",
                                                        "required",
                                                        "additionalProperties",
                                                        "propertyNames",
                                                        "minProperties",
                                                        "maxProperties",
                                                        "$id"};
constexpr std::array<std::string_view, 18> kNotFollowed = {"patternProperties",
                                                           "unevaluatedProperties",
                                                           "unevaluatedItems",
                                                           "dependentRequired",
                                                           "dependentSchemas",
                                                           "dependencies",
                                                           "if",
                                                           "then",
                                                           "else",
                                                           "not",
                                                           "contains",
                                                           "minContains",
                                                           "maxContains",
                                                           "uniqueItems",
                                                           "additionalItems",
                                                           "$dynamicRef",
                                                           "$recursiveRef",
                                                           "$vocabulary"};

bool among(std::string_view word, const auto& list) { return std::find(list.begin(), list.end(), word) != list.end(); }

// A value with which an unsupported keyword says nothing.
bool says_nothing(std::string_view keyword, const Json& value) {
  if (keyword == "uniqueItems") return value.as_bool() == false;
  if (keyword == "unevaluatedProperties" || keyword == "unevaluatedItems" || keyword == "additionalItems") {
    return value.as_bool() == true;
  }
  if (keyword == "patternProperties" || keyword == "dependentRequired" || keyword == "dependentSchemas" ||
      keyword == "dependencies") {
    return value.is_object() && value.fields.empty();
  }
  return false;
}

const char* type_of(const Json& value) {
  switch (value.kind) {
    case Json::Kind::null: return "null";
    case Json::Kind::boolean: return "boolean";
    case Json::Kind::number: return value.as_int64() ? "integer" : "number";
    case Json::Kind::string: return "string";
    case Json::Kind::array: return "array";
    case Json::Kind::object: return "object";
  }
  return "";
}

Error conflict(std::string_view keyword, const std::string& path) {
  return Error{ErrorCode::unsupported, "two schemas that hold together differ in " + std::string(keyword), path,
               "put what both say into one schema"};
}

bool same_names(const Json* a, const Json* b) {
  const size_t count_a = a ? a->fields.size() : 0, count_b = b ? b->fields.size() : 0;
  if (count_a != count_b) return false;
  return !a || std::all_of(a->fields.begin(), a->fields.end(), [&](const auto& field) { return b->find(field.first); });
}

Json common_types(const Json& a, const Json& b) {
  const auto names = [](const Json& types) { return types.is_array() ? types.items : std::vector<Json>{types}; };
  Json out = Json::array();
  for (const Json& left : names(a)) {
    for (const Json& right : names(b)) {
      if (left.text == right.text) {
        out.push(left);
      } else if ((left.text == "integer" && right.text == "number") ||
                 (left.text == "number" && right.text == "integer")) {
        out.push(Json::of("integer"));
      }
    }
  }
  return out;
}

}  // namespace

bool is_annotation(std::string_view keyword) { return !among(keyword, kFollowed) && !among(keyword, kNotFollowed); }

std::optional<std::string> unsupported_keyword(const Json& schema) {
  for (const auto& [keyword, value] : schema.fields) {
    if (among(keyword, kNotFollowed) && !says_nothing(keyword, value)) return keyword;
  }
  return {};
}

bool same_value(const Json& a, const Json& b) {
  if (a.kind != b.kind) return false;
  switch (a.kind) {
    case Json::Kind::number:
      return a.text == b.text || (a.as_int64() && a.as_int64() == b.as_int64()) ||
             (!a.as_int64() && !b.as_int64() && a.as_double() == b.as_double());
    case Json::Kind::array:
      return a.items.size() == b.items.size() &&
             std::equal(a.items.begin(), a.items.end(), b.items.begin(), same_value);
    case Json::Kind::object:
      return a.fields.size() == b.fields.size() &&
             std::all_of(a.fields.begin(), a.fields.end(), [&](const auto& field) {
               const Json* other = b.find(field.first);
               return other && same_value(field.second, *other);
             });
    default: return a == b;
  }
}

std::vector<std::string> types_of(const Json& schema) {
  std::vector<std::string> types;
  const auto add = [&](std::string_view name) {
    if (!among(name, types)) types.emplace_back(name);
  };
  if (const Json* type = schema.find("type")) {
    if (type->is_string()) add(type->text);
    for (const Json& item : type->items) add(item.text);
  } else if (const Json* value = schema.find("const")) {
    add(type_of(*value));
  } else if (const Json* values = schema.find("enum")) {
    for (const Json& item : values->items) add(type_of(item));
  } else {
    types = {"object", "array", "string", "number", "boolean", "null"};
  }
  if (among("number", types)) std::erase(types, "integer");
  return types;
}

const Json* resolve(const Json& root, std::string_view reference) {
  if (reference.empty() || reference[0] != '#') return nullptr;
  reference.remove_prefix(1);
  const Json* at = &root;
  while (at && !reference.empty()) {
    if (reference[0] != '/') return nullptr;
    const size_t end = std::min(reference.find('/', 1), reference.size());
    const std::string step = key_of_step(percent_decoded(reference.substr(1, end - 1)));
    reference.remove_prefix(end);
    if (at->is_array()) {
      size_t index = 0;
      if (step.empty() || step.size() > 6) return nullptr;
      for (const char c : step) {
        if (c < '0' || c > '9') return nullptr;
        index = index * 10 + size_t(c - '0');
      }
      at = index < at->items.size() ? &at->items[index] : nullptr;
    } else {
      at = at->find(step);
    }
  }
  return at;
}

Result<Json> merge(const Json& a, const Json& b, const std::string& path) {
  if (a.kind == Json::Kind::boolean) return a.boolean ? b : a;
  if (b.kind == Json::Kind::boolean) return b.boolean ? a : b;
  if (!a.is_object() || !b.is_object()) return conflict("kind", path);
  const auto closed = [](const Json& schema) {
    const Json* extra = schema.find("additionalProperties");
    return extra && extra->as_bool() != true;
  };
  if ((closed(a) || closed(b)) && !same_names(a.find("properties"), b.find("properties"))) {
    return conflict("properties beside additionalProperties", path);
  }
  const auto tuple = [](const Json& schema) { return schema.find("prefixItems") != nullptr; };
  if ((tuple(a) && b.find("items")) || (tuple(b) && a.find("items"))) return conflict("items", path);
  Json out = a;
  for (const auto& [keyword, value] : b.fields) {
    const Json* mine = a.find(keyword);
    if (!mine || *mine == value) {
      out.set(keyword, value);
    } else if (is_annotation(keyword)) {
      continue;
    } else if (keyword == "type") {
      out.set(keyword, common_types(*mine, value));
    } else if (keyword == "required") {
      Json names = *mine;
      for (const Json& name : value.items) {
        if (std::find(names.items.begin(), names.items.end(), name) == names.items.end()) names.push(name);
      }
      out.set(keyword, std::move(names));
    } else if (keyword == "properties") {
      Json all = *mine;
      for (const auto& [name, schema] : value.fields) {
        const Json* other = mine->find(name);
        auto both = other ? merge(*other, schema, path) : Result<Json>(schema);
        if (!both) return both.error();
        all.set(name, std::move(*both));
      }
      out.set(keyword, std::move(all));
    } else if (keyword == "additionalProperties") {
      if (value.as_bool() == true) continue;
      if (mine->as_bool() != true) return conflict(keyword, path);
      out.set(keyword, value);
    } else {
      return conflict(keyword, path);
    }
  }
  return out;
}

bool exclude_each_other(const Json& a, const Json& b, const Json& root, int depth) {
  if (depth > 8) return false;
  if (a.as_bool() == false || b.as_bool() == false) return true;
  if (!a.is_object() || !b.is_object()) return false;
  for (const bool first : {true, false}) {
    const Json* reference = (first ? a : b).find("$ref");
    if (!reference || !reference->is_string()) continue;
    const Json* target = resolve(root, reference->text);
    return target && exclude_each_other(first ? *target : a, first ? b : *target, root, depth + 1);
  }
  const auto types_a = types_of(a), types_b = types_of(b);
  const auto shares = [&](std::string_view type) {
    return among(type, types_b) || (type == "integer" && among("number", types_b)) ||
           (type == "number" && among("integer", types_b));
  };
  if (std::none_of(types_a.begin(), types_a.end(), shares)) return true;
  const auto fixed = [](const Json& schema) -> std::optional<std::vector<Json>> {
    if (const Json* value = schema.find("const")) return std::vector<Json>{*value};
    if (const Json* values = schema.find("enum")) return values->items;
    return {};
  };
  const auto values_a = fixed(a), values_b = fixed(b);
  if (values_a && values_b) {
    if (values_a->size() * values_b->size() > 10'000) return false;
    return std::none_of(values_a->begin(), values_a->end(), [&](const Json& value) {
      return std::any_of(values_b->begin(), values_b->end(),
                         [&](const Json& other) { return same_value(value, other); });
    });
  }
  if (types_a != std::vector<std::string>{"object"} || types_b != types_a) return false;
  const Json *required_a = a.find("required"), *required_b = b.find("required");
  const Json *properties_a = a.find("properties"), *properties_b = b.find("properties");
  if (!required_a || !required_b || !properties_a || !properties_b) return false;
  return std::any_of(required_a->items.begin(), required_a->items.end(), [&](const Json& name) {
    if (std::find(required_b->items.begin(), required_b->items.end(), name) == required_b->items.end()) return false;
    const Json *one = properties_a->find(name.text), *other = properties_b->find(name.text);
    return one && other && exclude_each_other(*one, *other, root, depth + 1);
  });
}

Json without_field(const Json& schema, std::string_view key) {
  Json out = schema;
  std::erase_if(out.fields, [&](const auto& field) { return field.first == key; });
  return out;
}

bool restricts(const Json& schema) {
  return std::any_of(schema.fields.begin(), schema.fields.end(),
                     [](const auto& field) { return !is_annotation(field.first); });
}

int64_t parts_of(const Json& schema) {
  int64_t parts = 1;
  for (const Json& item : schema.items) parts += parts_of(item);
  for (const auto& field : schema.fields) parts += parts_of(field.second);
  return parts;
}
bool has_type(const Json& value, std::string_view type) {
  switch (value.kind) {
    case Json::Kind::null: return type == "null";
    case Json::Kind::boolean: return type == "boolean";
    case Json::Kind::number: {
      if (type == "number") return true;
      const auto number = read_decimal(value.text);
      return type == "integer" && number && number->fraction.empty();
    }
    case Json::Kind::string: return type == "string";
    case Json::Kind::array: return type == "array";
    case Json::Kind::object: return type == "object";
  }
  return false;
}

}  // namespace fathom::grammar
