#include "fathom/recipe/api/field.h"

#include <charconv>

#include "fathom/base/json_values.h"
#include "fathom/recipe/request_error.h"

namespace fathom::recipe {
namespace {

std::string_view kind_in_words(const Json& value) {
  switch (value.kind) {
    case Json::Kind::null: return "null";
    case Json::Kind::boolean: return "a boolean";
    case Json::Kind::number: return "a number";
    case Json::Kind::string: return "a string";
    case Json::Kind::array: return "an array";
    case Json::Kind::object: return "an object";
  }
  return "something else";
}

// Steps from `at` down to `value`, appended innermost last. Depth is limited by the reader of the body.
bool find_path(const Json& at, const Json* value, std::string& path) {
  if (&at == value) return true;
  const size_t length = path.size();
  for (size_t i = 0; i < at.items.size(); ++i) {
    path += '[' + std::to_string(i) + ']';
    if (find_path(at.items[i], value, path)) return true;
    path.resize(length);
  }
  for (const auto& [key, member] : at.fields) {
    append_path_key(path, key);
    if (find_path(member, value, path)) return true;
    path.resize(length);
  }
  return false;
}

// A number whose text is an unsigned integer of this type: no sign, fraction or exponent.
template <class Integer>
std::optional<Integer> exact_count(std::string_view text) {
  Integer value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return {};
  return value;
}

std::string listed(std::initializer_list<std::string_view> words) {
  std::string out;
  size_t left = words.size();
  for (const std::string_view word : words) {
    out += '"';
    out += word;
    out += '"';
    if (--left > 0) out += left == 1 ? " or " : ", ";
  }
  return out;
}

}  // namespace

void BodyFailure::note(std::string path, std::string message) {
  if (error_) return;
  if (!path.empty()) message = path + ": " + message;
  error_ = parse_error(std::move(path), std::move(message));
}

std::string BodyFailure::path_of(const Json* value) const {
  std::string path;
  if (!find_path(*root_, value, path)) path.clear();
  return path;
}

Field Field::operator[](std::string_view key) const {
  if (!present()) return Field(nullptr, failure_, nullptr, key);
  if (!value_->is_object()) {
    refuse_type("an object");
    return Field(nullptr, failure_, nullptr, key);
  }
  for (auto& [name, value] : value_->fields) {
    if (name == key) return Field(&value, failure_, value_, key);
  }
  return Field(nullptr, failure_, value_, key);
}

std::vector<Field> Field::list() const {
  std::vector<Field> fields;
  if (!present()) return fields;
  if (!value_->is_array()) {
    refuse_type("an array");
    return fields;
  }
  fields.reserve(value_->items.size());
  for (Json& item : value_->items) fields.push_back(Field(&item, failure_, value_, {}));
  return fields;
}

std::string Field::text() const {
  auto text = required().optional_text();
  return text ? std::move(*text) : std::string();
}

Json Field::take() const {
  required();
  return present() ? std::move(*value_) : Json();
}

const Field& Field::required() const {
  if (!present()) refuse(value_ ? "is null, but required" : "is required");
  return *this;
}

std::optional<std::string> Field::optional_text() const {
  if (!present()) return {};
  if (!value_->is_string()) {
    refuse_type("a string");
    return {};
  }
  return std::move(value_->text);
}

std::optional<bool> Field::optional_flag() const {
  if (!present()) return {};
  if (value_->kind != Json::Kind::boolean) refuse_type("a boolean");
  return value_->as_bool();
}

std::optional<float> Field::optional_float() const {
  if (!present()) return {};
  const auto value = value_->as_double();
  if (!value) {
    refuse_type("a number");
    return {};
  }
  return float(*value);
}

std::optional<uint32_t> Field::optional_count() const {
  if (!present()) return {};
  const auto value = value_->is_number() ? exact_count<uint32_t>(value_->text) : std::nullopt;
  if (!value) refuse_type("an integer from 0 to 4294967295");
  return value;
}

std::optional<uint64_t> Field::optional_long_count() const {
  if (!present()) return {};
  const auto value = value_->is_number() ? exact_count<uint64_t>(value_->text) : std::nullopt;
  if (!value) refuse_type("an integer from 0 to 18446744073709551615");
  return value;
}

std::optional<Json> Field::optional_json() const {
  if (!present()) return {};
  return std::move(*value_);
}

int Field::choice(std::initializer_list<std::string_view> words) const {
  return required().optional_choice(words).value_or(0);
}

std::optional<int> Field::optional_choice(std::initializer_list<std::string_view> words) const {
  if (!present()) return {};
  if (!value_->is_string()) {
    refuse_type(listed(words));
    return {};
  }
  int index = 0;
  for (const std::string_view word : words) {
    if (word == value_->text) return index;
    ++index;
  }
  std::string found;
  append_json_string(found, std::string_view(value_->text).substr(0, 64));
  refuse("expected " + listed(words) + ", found " + found);
  return {};
}

std::optional<std::string_view> Field::peek_text() const {
  if (!is(Json::Kind::string)) return {};
  return std::string_view(value_->text);
}

void Field::refuse_type(std::string_view expected) const {
  if (failure_->noted()) return;  // spares the walk that the path costs
  std::string found = "nothing";
  if (value_) {
    found = kind_in_words(*value_);
    if (value_->is_number()) found = value_->text.substr(0, 40);
  }
  refuse("expected " + std::string(expected) + ", found " + found);
}

void Field::refuse(std::string message) const {
  if (failure_->noted()) return;
  failure_->note(path(), std::move(message));
}

std::string Field::path() const {
  if (value_) return failure_->path_of(value_);
  std::string path = parent_ ? failure_->path_of(parent_) : std::string();
  append_path_key(path, key_);
  return path;
}

Result<Json> parse_body(std::string_view body) {
  std::string path;
  auto json = parse_json_of(kMostBodyValues, body, "", JsonLimits{.finite = true}, &path);
  if (json) {
    if (!json->is_object()) {
      return Error{ErrorCode::bad_input,
                   "invalid request body: expected an object, found " + std::string(kind_in_words(*json)), "", ""};
    }
    return json;
  }
  Error error = json.error();
  error.message = "invalid JSON request: " + error.message;
  if (!error.remedy.empty()) error.message += "; " + std::move(error.remedy);
  error.where = std::move(path);
  error.remedy.clear();
  return error;
}

}  // namespace fathom::recipe
