#include "fathom/recipe/schema/strict_schema.h"

#include <algorithm>
#include <charconv>
#include <string>
#include <string_view>
#include <unordered_set>

#include "fathom/base/json_pointer.h"

namespace fathom::recipe {
namespace {

constexpr std::string_view kScalars[] = {"string", "number", "integer", "boolean", "null"};
constexpr std::string_view kFormats[] = {"email", "hostname", "ipv4", "ipv6", "uuid"};
constexpr std::string_view kNumberKeys[] = {
    "const", "default", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"};

template <size_t N>
bool among(const std::string_view (&words)[N], std::string_view word) {
  return std::find(std::begin(words), std::end(words), word) != std::end(words);
}

template <size_t N>
std::string listed(const std::string_view (&words)[N]) {
  std::string out;
  for (const std::string_view word : words) out += (out.empty() ? "`" : ", `") + std::string(word) + "`";
  return out;
}

// A 64-bit integer by its spelling: 1.0 is none.
bool is_integer(const Json& value) {
  int64_t integer = 0;
  const char* const end = value.text.data() + value.text.size();
  const auto [stop, error] = std::from_chars(value.text.data(), end, integer);
  return value.is_number() && error == std::errc() && stop == end;
}

Error mistake(std::string message) { return Error{ErrorCode::usage, std::move(message), "", ""}; }

// Fails in the child: the place is built up on the way out.
Error inside(std::string_view step, Error error) {
  error.where = '/' + pointer_step(step) + error.where;
  return error;
}

void keep(Json& out, std::string_view key, Json value) { out.fields.emplace_back(key, std::move(value)); }

// First every part is read, which judges types and missing fields in the whole schema, and only then the rules about
// properties are applied: a schema with a mistake of both kinds is refused for the first.
class Normaliser {
 public:
  Normaliser(SchemaUse use, Policy policy) : use_(use), policy_(policy) {}

  Result<Json> run(const Json& schema) const {
    if (use_ == SchemaUse::tool_parameters && schema.is_null()) {
      return run(Json::object().set("type", Json::of("object")));
    }
    auto read = node(schema, true);
    if (!read) return read;
    if (auto ruled = apply_rules(*read, use_ == SchemaUse::tool_parameters); !ruled) return ruled.error();
    const Json* type = read->find("type");
    if (!type || !type->is_string() || type->text != "object") {
      return mistake(use_ == SchemaUse::tool_parameters
                         ? "The top level of the function parameters schema must be an object."
                         : "The top level of the json schema must be an object.");
    }
    return read;
  }

 private:
  SchemaUse use_;
  Policy policy_;

  std::string_view prefix() const {
    return use_ == SchemaUse::tool_parameters ? "Invalid tool parameters schema : " : "Invalid json schema: ";
  }

  Error unreadable(const std::string& what) const { return mistake(std::string(prefix()) + what); }

  Error in_choice(size_t number, Error error) const {
    error.message.insert(prefix().size(), "field `anyOf`: ");
    return inside("anyOf", inside(std::to_string(number), std::move(error)));
  }

  // A member that is there and not null.
  static const Json* given(const Json& schema, std::string_view key) {
    const Json* value = schema.find(key);
    return value && !value->is_null() ? value : nullptr;
  }

  Result<void> copy_text(const Json& schema, const char* key, Json& out) const {
    const Json* value = given(schema, key);
    if (!value) return {};
    if (!value->is_string()) return inside(key, unreadable("`" + std::string(key) + "` must be a string"));
    keep(out, key, *value);
    return {};
  }

  Result<Json> node(const Json& schema, bool root = false) const {
    Json out = Json::object();
    if (const Json* type = schema.find("type")) {
      if (type->is_array()) return type_list(schema, *type);
      if (!type->is_string()) return inside("type", unreadable("`type` must be a string or a list of strings"));
      keep(out, "type", *type);
      const std::string_view name = type->text;
      if (name == "object") return object(schema, std::move(out), root);
      if (name == "array") return array(schema, std::move(out));
      if (!among(kScalars, name)) {
        return inside("type", unreadable("unknown variant `" + type->text +
                                         "`, expected one of `object`, `string`, `number`, `integer`, `boolean`, "
                                         "`array`, `null`"));
      }
      if (auto done = copy_text(schema, "description", out); !done) return done.error();
      if (name == "string") return string(schema, std::move(out));
      if (name == "number" || name == "integer") return number(schema, name == "integer", std::move(out));
      return out;
    }
    if (const Json* choices = schema.find("anyOf")) {
      if (!choices->is_array()) return inside("anyOf", unreadable("`anyOf` must be an array"));
      Json list = Json::array();
      for (size_t i = 0; i < choices->items.size(); ++i) {
        const Json* type = choices->items[i].find("type");
        if (!type || !type->is_string()) {  // neither references nor lists of types nor further choices
          return in_choice(i, unreadable(type ? "`type` must be a string" : "missing field `type`"));
        }
        auto choice = node(choices->items[i]);
        if (!choice) return in_choice(i, choice.error());
        list.push(std::move(*choice));
      }
      keep(out, "anyOf", std::move(list));
      if (auto done = copy_text(schema, "description", out); !done) return done.error();
      return out;
    }
    if (const Json* reference = schema.find("$ref")) {
      if (!reference->is_string()) return inside("$ref", unreadable("`$ref` must be a string"));
      keep(out, "$ref", *reference);
      return out;
    }
    return unreadable("one of `type`, `anyOf`, `$ref` field is required");
  }

  Result<Json> type_list(const Json& schema, const Json& types) const {
    for (const Json& type : types.items) {
      if (!type.is_string() || !among(kScalars, type.text)) {
        return inside("type", unreadable(type.is_string() ? "field `type`: unknown variant `" + type.text +
                                                                "`, expected one of " + listed(kScalars)
                                                          : "a list in `type` holds only " + listed(kScalars)));
      }
    }
    Json out = Json::object();
    keep(out, "type", types);
    if (auto done = copy_text(schema, "description", out); !done) return done.error();
    return out;
  }

  Result<Json> map(const Json& schema, const char* key) const {
    const Json* members = given(schema, key);
    Json out = Json::object();
    if (!members) return out;
    if (!members->is_object()) return inside(key, unreadable("`" + std::string(key) + "` must be an object"));
    for (const auto& [name, member] : members->fields) {
      auto child = node(member);
      if (!child) return inside(key, inside(name, child.error()));
      keep(out, name, std::move(*child));
    }
    return out;
  }

  Result<Json> object(const Json& schema, Json out, bool root) const {
    auto properties = map(schema, "properties");
    if (!properties) return properties;
    keep(out, "properties", std::move(*properties));
    const Json* additional = given(schema, "additionalProperties");
    if (additional && additional->kind != Json::Kind::boolean) {
      return inside("additionalProperties", unreadable("`additionalProperties` must be false"));
    }
    keep(out, "additionalProperties", Json::of(additional && additional->boolean));
    const Json* required = given(schema, "required");
    if (required && !(required->is_array() && std::all_of(required->items.begin(), required->items.end(),
                                                          [](const Json& name) { return name.is_string(); }))) {
      return inside("required", unreadable("`required` must be a list of strings"));
    }
    keep(out, "required", required ? *required : Json());
    if (auto done = copy_text(schema, "description", out); !done) return done.error();
    if (root && policy_ == Policy::lenient) {  // D-8: so that references resolve
      for (const char* key : {"$defs", "definitions"}) {
        if (!given(schema, key)) continue;
        auto definitions = map(schema, key);
        if (!definitions) return definitions;
        keep(out, key, std::move(*definitions));
      }
    }
    return out;
  }

  Result<Json> array(const Json& schema, Json out) const {
    const Json* items = schema.find("items");
    if (!items) return unreadable("missing field `items`");
    auto child = node(*items);
    if (!child) return inside("items", child.error());
    keep(out, "items", std::move(*child));
    if (auto done = copy_text(schema, "description", out); !done) return done.error();
    return out;
  }

  Result<Json> string(const Json& schema, Json out) const {
    if (auto done = copy_text(schema, "pattern", out); !done) return done.error();
    if (auto done = copy_text(schema, "format", out); !done) return done.error();
    if (const Json* format = given(schema, "format"); format && !among(kFormats, format->text)) {
      // These words are those of a vector (chat/strict-format).
      return inside("format",
                    unreadable("unknown variant `" + format->text + "`, expected one of " + listed(kFormats)));
    }
    if (const Json* choices = given(schema, "enum")) {
      const bool strings = choices->is_array() && std::all_of(choices->items.begin(), choices->items.end(),
                                                              [](const Json& item) { return item.is_string(); });
      if (!strings) return inside("enum", unreadable("`enum` of a string must be a list of strings"));
      keep(out, "enum", *choices);
    }
    return out;
  }

  Result<Json> number(const Json& schema, bool integer, Json out) const {
    for (const std::string_view key : kNumberKeys) {
      const Json* value = given(schema, key);
      if (!value) continue;
      if (integer ? !is_integer(*value) : !value->is_number()) {
        return inside(
            key, unreadable("`" + std::string(key) + "` must be " + (integer ? "an integer of 64 bits" : "a number")));
      }
      keep(out, key, *value);
    }
    if (const Json* choices = given(schema, "enum"); choices && policy_ == Policy::lenient) {  // D-8
      keep(out, "enum", *choices);
    }
    return out;
  }

  // On what node() made: `required` becomes all property names, `additionalProperties` false.
  Result<void> apply_rules(Json& schema, bool may_be_empty) const {
    for (auto& [key, value] : schema.fields) {
      if (key == "anyOf") {
        for (size_t i = 0; i < value.items.size(); ++i) {
          if (auto done = apply_rules(value.items[i], may_be_empty); !done) {
            return inside("anyOf", inside(std::to_string(i), done.error()));
          }
        }
      } else if (key == "items") {
        if (auto done = apply_rules(value, false); !done) return inside("items", done.error());
      } else if (key == "properties" || key == "$defs" || key == "definitions") {
        if (key == "properties" && value.fields.empty() && !may_be_empty) {
          return mistake("An object with no properties is not allowed.");
        }
        for (auto& [name, child] : value.fields) {
          if (auto done = apply_rules(child, false); !done) return inside(key, inside(name, done.error()));
        }
        if (key == "properties") {
          if (auto done = require_all(schema, value); !done) return done;
        }
      }
    }
    return {};
  }

  static Result<void> require_all(Json& schema, const Json& properties) {
    Json& additional = schema.fields[2].second;  // as object() laid them out
    Json& required = schema.fields[3].second;
    std::unordered_set<std::string_view> names, seen;
    for (const auto& [name, child] : properties.fields) names.insert(name);
    for (const Json& name : required.items) {
      if (!names.contains(name.text)) {
        return inside("required", mistake("Required property '" + name.text + "' not found in object"));
      }
      if (!seen.insert(name.text).second) {
        return inside("required", mistake("Duplicate required property '" + name.text + "'"));
      }
    }
    if (required.is_array() && seen.size() != names.size()) {
      return inside("required", mistake("Required properties must match all properties in the object"));
    }
    if (additional.boolean) return inside("additionalProperties", mistake("additionalProperties should not be true"));
    required = Json::array();
    for (const auto& [name, child] : properties.fields) required.push(Json::of(name));
    return {};
  }
};

}  // namespace

Result<Json> normalise_strict_schema(const Json& schema, SchemaUse use, Policy policy) {
  return Normaliser(use, policy).run(schema);
}

}  // namespace fathom::recipe
