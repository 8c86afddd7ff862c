// For tests: random schemas of the keywords that we follow, random values near them, and whether a value is valid, told
// from JSON Schema 2020-12 and from nothing in the room.
#pragma once
#include <cmath>
#include <random>
#include <regex>
#include <string>

#include "fathom/base/json.h"

namespace fathom::grammar::testing {

inline int64_t length_of(std::string_view text) {
  int64_t characters = 0;
  for (const char c : text) characters += (uint8_t(c) & 0xc0) != 0x80;
  return characters;
}

inline bool is_type(const Json& value, std::string_view type) {
  switch (value.kind) {
    case Json::Kind::null: return type == "null";
    case Json::Kind::boolean: return type == "boolean";
    case Json::Kind::number: return type == "number" || (type == "integer" && value.as_int64());
    case Json::Kind::string: return type == "string";
    case Json::Kind::array: return type == "array";
    case Json::Kind::object: return type == "object";
  }
  return false;
}

inline bool valid(const Json& schema, const Json& value, const Json& root) {
  if (schema.kind == Json::Kind::boolean) return schema.boolean;
  const auto all = [](const auto& list, auto test) {
    for (const auto& item : list) {
      if (!test(item)) return false;
    }
    return true;
  };
  const auto count = [&](const Json& list) {
    int64_t n = 0;
    for (const Json& part : list.items) n += valid(part, value, root);
    return n;
  };
  return all(schema.fields, [&](const auto& field) {
    const auto& [keyword, says] = field;
    const double bound = says.as_double().value_or(0), number = value.as_double().value_or(0);
    const bool is_number = value.is_number();
    if (keyword == "type") {
      if (says.is_string()) return is_type(value, says.text);
      bool any = false;
      for (const Json& type : says.items) any = any || is_type(value, type.text);
      return any;
    }
    if (keyword == "$ref") return valid(*root.find("$defs")->find(says.text.substr(8)), value, root);
    if (keyword == "const") return says == value;
    if (keyword == "enum") return std::find(says.items.begin(), says.items.end(), value) != says.items.end();
    if (keyword == "anyOf") return count(says) > 0;
    if (keyword == "oneOf") return count(says) == 1;
    if (keyword == "allOf") return count(says) == int64_t(says.items.size());
    if (keyword == "minimum") return !is_number || number >= bound;
    if (keyword == "maximum") return !is_number || number <= bound;
    if (keyword == "exclusiveMinimum") return !is_number || number > bound;
    if (keyword == "exclusiveMaximum") return !is_number || number < bound;
    if (keyword == "multipleOf") return !is_number || std::fmod(number, bound) == 0;
    if (keyword == "minLength") return !value.is_string() || double(length_of(value.text)) >= bound;
    if (keyword == "maxLength") return !value.is_string() || double(length_of(value.text)) <= bound;
    if (keyword == "pattern") return !value.is_string() || std::regex_search(value.text, std::regex(says.text));
    if (keyword == "minItems") return !value.is_array() || double(value.items.size()) >= bound;
    if (keyword == "maxItems") return !value.is_array() || double(value.items.size()) <= bound;
    if (keyword == "prefixItems") {
      for (size_t i = 0; i < std::min(value.items.size(), says.items.size()); ++i) {
        if (!valid(says.items[i], value.items[i], root)) return false;
      }
      return true;
    }
    if (keyword == "items") {
      const Json* heads = schema.find("prefixItems");
      for (size_t i = heads ? heads->items.size() : 0; i < value.items.size(); ++i) {
        if (!valid(says, value.items[i], root)) return false;
      }
      return true;
    }
    if (keyword == "minProperties") return !value.is_object() || double(value.fields.size()) >= bound;
    if (keyword == "maxProperties") return !value.is_object() || double(value.fields.size()) <= bound;
    if (keyword == "required") {
      return !value.is_object() || all(says.items, [&](const Json& name) { return value.find(name.text) != nullptr; });
    }
    if (keyword == "properties") {
      return all(value.fields, [&](const auto& member) {
        const Json* part = says.find(member.first);
        return !part || valid(*part, member.second, root);
      });
    }
    if (keyword == "additionalProperties") {
      const Json* known = schema.find("properties");
      return all(value.fields, [&](const auto& member) {
        return (known && known->find(member.first)) || valid(says, member.second, root);
      });
    }
    return true;
  });
}

/// Small schemas and values, so that they meet.
class Draw {
 public:
  explicit Draw(uint32_t seed) : random_(seed) {}

  int below(int n) { return int(random_() % uint32_t(n)); }
  bool once_in(int n) { return below(n) == 0; }
  std::string word() {
    static const char* const kWords[] = {"a", "b", "ab", "", "é", "x\"y", "a\\", "\n", "｜", "abc"};
    return kWords[below(10)];
  }
  std::string name() {
    static const char* const kNames[] = {"a", "b", "ab", "c", "abc", "\"q"};
    return kNames[below(6)];
  }

  Json schema(int depth, bool defs = false) {
    if (once_in(20)) return Json::of(true);
    if (once_in(40)) return Json::of(false);
    Json out = Json::object();
    if (defs && once_in(6)) {
      out.set("$ref", Json::of("#/$defs/d"));
      return out;
    }
    if (depth > 0 && once_in(6)) {
      Json list = Json::array();
      for (int i = 0, n = 1 + below(3); i < n; ++i) list.push(schema(depth - 1, defs));
      out.set("anyOf", std::move(list));
      return out;
    }
    if (once_in(8)) {
      Json list = Json::array();
      for (int i = 0, n = 1 + below(3); i < n; ++i) list.push(value(1));
      out.set("enum", std::move(list));
      return out;
    }
    static const char* const kTypes[] = {"object", "array", "string", "integer", "number", "boolean", "null"};
    const std::string type = kTypes[below(depth > 0 ? 7 : 5) + (depth > 0 ? 0 : 2)];
    if (!once_in(5)) out.set("type", Json::of(type));
    if (type == "string" || once_in(8)) {
      if (once_in(3)) {
        static const char* const kPatterns[] = {"^a", "b$", "^(a|b)*$", "a.?b", "^[^a]", "^$|c"};
        out.set("pattern", Json::of(kPatterns[below(6)]));
      } else {
        if (once_in(2)) out.set("minLength", Json::of(below(3)));
        if (once_in(2)) out.set("maxLength", Json::of(below(4)));
      }
    }
    if (type == "integer" || type == "number") {
      if (once_in(6)) {
        out.set("multipleOf", Json::of(1 + below(7)));
        if (out.find("type")) out.set("type", Json::of("integer"));
        if (!out.find("type")) out = Json::object();
      } else {
        static const char* const kLow[] = {"minimum", "exclusiveMinimum"};
        static const char* const kHigh[] = {"maximum", "exclusiveMaximum"};
        if (once_in(2)) out.set(kLow[below(2)], number());
        if (once_in(2)) out.set(kHigh[below(2)], number());
      }
    }
    if (type == "array") {
      if (!once_in(3)) out.set("items", schema(depth - 1, defs));
      if (once_in(3)) {
        Json heads = Json::array();
        for (int i = 0, n = 1 + below(2); i < n; ++i) heads.push(schema(depth - 1, defs));
        out.set("prefixItems", std::move(heads));
      }
      if (once_in(2)) out.set("minItems", Json::of(below(3)));
      if (once_in(2)) out.set("maxItems", Json::of(below(4)));
    }
    if (type == "object") object_keywords(out, depth, defs);
    return out;
  }

  Json number() {
    if (once_in(2)) return Json::of(below(41) - 20);
    Json out = Json::of(0);
    out.text = std::to_string(below(5) - 2 < 0 ? -1 : below(3)) + "." + std::to_string(below(100));
    return out;
  }

  Json value(int depth) {
    switch (below(depth > 0 ? 8 : 6)) {
      case 0: return Json{};
      case 1: return Json::of(once_in(2));
      case 2: return Json::of(below(61) - 30);
      case 3: return number();
      case 4:
      case 5: return Json::of(word());
      case 6: {
        Json out = Json::array();
        for (int i = 0, n = below(4); i < n; ++i) out.push(value(depth - 1));
        return out;
      }
      default: {
        Json out = Json::object();
        for (int i = 0, n = below(4); i < n; ++i) out.set(name(), value(depth - 1));
        return out;
      }
    }
  }

  /// Mostly valid: what the schema asks for, now and then something else.
  Json near(const Json& schema, const Json& root, int depth) {
    if (depth <= 0 || once_in(12) || !schema.is_object()) return value(1);
    if (const Json* name = schema.find("$ref"))
      return near(*root.find("$defs")->find(name->text.substr(8)), root, depth - 1);
    if (const Json* list = schema.find("anyOf"))
      return near(list->items[size_t(below(int(list->items.size())))], root, depth - 1);
    if (const Json* list = schema.find("enum")) return list->items[size_t(below(int(list->items.size())))];
    const Json* type = schema.find("type");
    if (!type) return value(2);
    if (type->text == "array") {
      Json out = Json::array();
      const Json *items = schema.find("items"), *heads = schema.find("prefixItems");
      for (size_t i = 0, n = size_t(below(4)); i < n; ++i) {
        const Json* part = heads && i < heads->items.size() ? &heads->items[i] : items;
        out.push(part ? near(*part, root, depth - 1) : value(1));
      }
      return out;
    }
    if (type->text == "object") {
      Json out = Json::object();
      if (const Json* properties = schema.find("properties")) {
        const Json* required = schema.find("required");
        for (const auto& [name, part] : properties->fields) {
          bool needed = false;
          for (const Json& item : required ? required->items : std::vector<Json>{})
            needed = needed || item.text == name;
          if (once_in(2) || (needed && !once_in(10))) out.set(name, near(part, root, depth - 1));
        }
      }
      if (once_in(2)) {
        const Json* extra = schema.find("additionalProperties");
        const std::string key = name();
        if (!out.find(key)) out.set(key, extra ? near(*extra, root, depth - 1) : value(1));
      }
      return out;
    }
    for (int tries = 0; tries < 8; ++tries) {
      Json out = type->text == "number" ? number() : value(0);
      if (is_type(out, type->text)) return out;
    }
    return value(1);
  }

 private:
  void object_keywords(Json& out, int depth, bool defs) {
    Json properties = Json::object(), required = Json::array();
    for (int i = 0, n = below(4); i < n; ++i) {
      const std::string key = name();
      if (properties.find(key)) continue;
      properties.set(key, schema(depth - 1, defs));
      if (once_in(2)) required.push(Json::of(key));
    }
    const bool declares = !properties.fields.empty();
    if (declares) out.set("properties", std::move(properties));
    if (!required.items.empty()) out.set("required", std::move(required));
    if (once_in(3)) out.set("additionalProperties", Json::of(false));
    if (once_in(4)) out.set("additionalProperties", schema(depth - 1, defs));
    if (!declares && once_in(2)) out.set("minProperties", Json::of(below(3)));
    if (!declares && once_in(2)) out.set("maxProperties", Json::of(below(4)));
  }

  std::mt19937 random_;
};

}  // namespace fathom::grammar::testing
