// fathom/engine/record_fields.h
// Reads the fields of one object of a record, with limits, and keeps the first thing that is wrong. Every value that
// comes out lies within its limits, also after an error. Private to the records.
#pragma once
#include <optional>
#include <string>
#include <string_view>

#include "fathom/base/json.h"

namespace fathom {

class RecordFields {
 public:
  /// `json` outlives it. `where`: file and line.
  RecordFields(const Json& json, std::string_view where, std::string path = "")
      : json_(&json), where_(where), path_(std::move(path)) {
    if (!json.is_object()) fail("", "is no object");
  }

  bool ok() const { return !error_; }
  const Error& error() const { return *error_; }
  bool has(std::string_view key) const { return json_->find(key) != nullptr; }

  int64_t whole(std::string_view key, int64_t least, int64_t most) {
    return whole_of(json_->find(key), key, least, most);
  }
  int64_t whole(std::string_view key, int64_t least, int64_t most, int64_t fallback) {
    return has(key) ? whole(key, least, most) : fallback;
  }
  int64_t whole_of(const Json* value, std::string_view key, int64_t least, int64_t most) {
    const auto number = value ? value->as_int64() : std::nullopt;
    if (number && *number >= least && *number <= most) return *number;
    fail(key,
         value ? "is no whole number from " + std::to_string(least) + " to " + std::to_string(most) : "is missing");
    return least;
  }
  double number(std::string_view key, double least, double most) {
    const Json* value = json_->find(key);
    const auto number = value ? value->as_double() : std::nullopt;
    if (number && *number >= least && *number <= most) return *number;
    fail(key, value ? "is no number within its limits" : "is missing");
    return least;
  }
  std::optional<double> optional_number(std::string_view key, double least, double most) {
    return has(key) ? std::optional(number(key, least, most)) : std::nullopt;
  }
  bool boolean(std::string_view key, bool fallback) {
    const Json* value = json_->find(key);
    if (value == nullptr) return fallback;
    if (const auto out = value->as_bool()) return *out;
    fail(key, "is neither true nor false");
    return fallback;
  }
  std::string_view text(std::string_view key) {
    const Json* value = json_->find(key);
    if (value && value->is_string()) return value->text;
    fail(key, value ? "is no text" : "is missing");
    return {};
  }
  /// Its items; none when it is missing.
  const std::vector<Json>& list(std::string_view key) {
    static const std::vector<Json> kNone;
    const Json* value = json_->find(key);
    if (value && value->is_array()) return value->items;
    if (value) fail(key, "is no list");
    return kNone;
  }
  RecordFields inner(std::string_view key) {
    static const Json kEmpty = Json::object();
    const Json* value = json_->find(key);
    if (value == nullptr) fail(key, "is missing");
    return RecordFields(value ? *value : kEmpty, where_, name_of_field(key));
  }
  void fail(std::string_view key, std::string_view what) {
    if (error_) return;
    error_ = Error{ErrorCode::bad_input, name_of_field(key) + " " + std::string(what), where_,
                   "the file is damaged, or no record of this version"};
  }

 private:
  std::string name_of_field(std::string_view key) const {
    if (key.empty()) return path_.empty() ? "the line" : path_;
    return path_.empty() ? std::string(key) : path_ + "." + std::string(key);
  }

  const Json* json_;
  std::string where_, path_;
  std::optional<Error> error_;
};

}  // namespace fathom
