// fathom/recipe/api/field.h
// Typed reading of a request body. A Field is a JSON value (or its absence) that knows its path; a value of the wrong
// type is noted once, with path, what was expected and what was found, and reading goes on with a default, so that a
// reader of a whole request is a list of plain lines and tests for failure once, at its end. null is absence.
//
//   BodyFailure failure(json);
//   Field body(json, failure);
//   request.model = body["model"].text();                         // required
//   request.temperature = body["temperature"].optional_float();   // optional
//   for (Field message : body["messages"].list()) …
//   if (failure.noted()) return failure.error();
//
// Strings and subtrees are moved out of the JSON tree: each value may be read once. Source: spec/recipe.md 1.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "fathom/base/json.h"
#include "fathom/base/result.h"

namespace fathom::recipe {

/// The first mistake of a body. Knows the root, so that a path is only worked out when there is something to say.
class BodyFailure {
 public:
  explicit BodyFailure(const Json& root) : root_(&root) {}
  bool noted() const { return error_.has_value(); }
  const Error& error() const { return *error_; }
  void note(std::string path, std::string message);
  /// Where in the tree this value stands: "messages[2].content".
  std::string path_of(const Json* value) const;

 private:
  const Json* root_;
  std::optional<Error> error_;
};

/// Cheap to copy; refers to the tree and to the failure, which must outlive it. Keys are literals.
class Field {
 public:
  Field(Json& root, BodyFailure& failure) : value_(&root), failure_(&failure) {}

  /// There is a value and it is not null.
  bool present() const { return value_ != nullptr && !value_->is_null(); }
  /// There is a value, perhaps null: for the few members whose null is not absence.
  bool given() const { return value_ != nullptr; }
  bool is(Json::Kind kind) const { return present() && value_->kind == kind; }

  /// A member. Of an absent value everything is absent; of a value that is no object it is a noted mistake.
  Field operator[](std::string_view key) const;
  /// The items of an array; empty when absent; a noted mistake when it is something else.
  std::vector<Field> list() const;

  /// Required values: absence is a mistake.
  std::string text() const;
  Json take() const;              // any value, moved out
  const Field& required() const;  // notes absence, gives itself

  /// Optional values.
  std::optional<std::string> optional_text() const;
  std::optional<bool> optional_flag() const;
  std::optional<float> optional_float() const;     // the 32-bit value nearest to the number
  std::optional<uint32_t> optional_count() const;  // 0 to 2^32 - 1, no fraction, no exponent
  std::optional<uint64_t> optional_long_count() const;
  std::optional<Json> optional_json() const;

  /// One of the words: its index. Required form and optional form. Other words are a mistake that lists the choices.
  int choice(std::initializer_list<std::string_view> words) const;
  std::optional<int> optional_choice(std::initializer_list<std::string_view> words) const;

  /// Looks without moving: the text of a string, else nothing.
  std::optional<std::string_view> peek_text() const;

  /// Notes a mistake at this value: "messages[2].content: expected WHAT, found a number".
  void refuse_type(std::string_view expected) const;
  /// Notes a mistake in our words: "messages[2].type: MESSAGE".
  void refuse(std::string message) const;

  /// "messages[2].content[0].text"; "" for the root.
  std::string path() const;

 private:
  Field(Json* value, BodyFailure* failure, const Json* parent, std::string_view key)
      : value_(value), failure_(failure), parent_(parent), key_(key) {}

  Json* value_;  // nullptr: absent
  BodyFailure* failure_;
  const Json* parent_ = nullptr;  // of an absent member, which is called
  std::string_view key_;
};

/// A prompt of a million token ids has room; a body of 128 MiB that is all brackets would take 6 GB as a tree.
inline constexpr int64_t kMostBodyValues = 1'500'000;

/// Reads a request body: exactly one JSON object, at most 127 levels deep and of kMostBodyValues values, no number
/// beyond a double. Errors: parse stage, "invalid JSON request: …"; an unpaired surrogate names its path.
Result<Json> parse_body(std::string_view body);

}  // namespace fathom::recipe
