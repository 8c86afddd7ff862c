// fathom/base/json.h
// JSON as an ordered tree. Keys keep their order of appearance, a repeated key keeps its first place and takes the last
// value, and a number keeps its text, so that nothing is lost between reading and writing. simdjson reads; it stays in
// json.cpp. Not for hot paths: a tree allocates a node a value.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "fathom/base/result.h"

namespace fathom {

/// A value type: copyable, comparable, owned by whoever holds it.
struct Json {
  enum class Kind { null, boolean, number, string, array, object };

  Kind kind = Kind::null;
  bool boolean = false;
  std::string text;                                  // string: its UTF-8 value; number: as it was spelt
  std::vector<Json> items;                           // array
  std::vector<std::pair<std::string, Json>> fields;  // object, in order of appearance

  bool is_null() const { return kind == Kind::null; }
  bool is_number() const { return kind == Kind::number; }
  bool is_string() const { return kind == Kind::string; }
  bool is_array() const { return kind == Kind::array; }
  bool is_object() const { return kind == Kind::object; }

  /// The field's value, or nullptr when there is none or this is no object. Linear in the number of fields.
  const Json* find(std::string_view key) const;

  /// The number as an integer, when it is one without loss (`3`, `3.0`, `3e0`), else nothing.
  std::optional<int64_t> as_int64() const;
  /// The number as the nearest double, else nothing.
  std::optional<double> as_double() const;
  std::optional<bool> as_bool() const;

  static Json of(std::string_view text);
  static Json of(const char* text) { return of(std::string_view(text)); }
  static Json of(int64_t number);
  static Json of(int number) { return of(int64_t(number)); }
  static Json of(double number);
  static Json of(bool value);
  static Json array() { return with_kind(Kind::array); }
  static Json object() { return with_kind(Kind::object); }
  static Json with_kind(Kind kind);

  /// Appends a field, or replaces the value of the field that is there.
  Json& set(std::string_view key, Json value);
  Json& push(Json value);

  friend bool operator==(const Json&, const Json&) = default;
};

struct JsonLimits {
  int64_t bytes = int64_t(1) << 30;  // longest text
  int depth = 127;                   // deepest nesting
  bool finite = false;               // refuse numbers beyond the range of a double (1e400)
};

/// Reads exactly one JSON value (RFC 8259, UTF-8). `where` names the source in errors.
/// Errors: bad_input with the kind of mistake and its byte offset where it is known; too long; too deep. A string that
/// is no valid text (an unpaired surrogate) is named by its path in the message. `path`, when given, gets the path of
/// the value or key at fault ("messages[0].content"), empty when it is the root or not known.
Result<Json> parse_json(std::string_view text, std::string_view where, JsonLimits limits = {},
                        std::string* path = nullptr);

/// Appends one step of a path: `.key`, or `["any key"]` when the key is no plain word; no dot at the beginning.
void append_path_key(std::string& path, std::string_view key);

/// Writes compactly, keys in their order, numbers as they were spelt, non-ASCII characters as they are.
std::string to_string(const Json& value);
void append_json(std::string& out, const Json& value);
/// Appends `text` as a quoted JSON string: control characters, quote and backslash escaped, nothing else.
void append_json_string(std::string& out, std::string_view text);
/// Shortest text that reads back as the same double; null for infinities and NaN.
void append_json_number(std::string& out, double value);

}  // namespace fathom
