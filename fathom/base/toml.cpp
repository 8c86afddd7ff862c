#include "fathom/base/toml.h"

#include <toml++/toml.h>

#include <sstream>

namespace fathom {
namespace {

template <class T>
std::string text_of(const T& value) {
  std::ostringstream out;
  out << value;
  return out.str();
}

Json to_json(const toml::node& node) {
  if (const auto* table = node.as_table()) {
    Json object = Json::object();
    for (const auto& [key, value] : *table) object.fields.emplace_back(std::string(key.str()), to_json(value));
    return object;
  }
  if (const auto* list = node.as_array()) {
    Json array = Json::array();
    for (const auto& item : *list) array.push(to_json(item));
    return array;
  }
  if (const auto* text = node.as_string()) return Json::of(std::string_view(text->get()));
  if (const auto* integer = node.as_integer()) return Json::of(int64_t(integer->get()));
  if (const auto* number = node.as_floating_point()) return Json::of(double(number->get()));
  if (const auto* truth = node.as_boolean()) return Json::of(bool(truth->get()));
  if (const auto* date = node.as_date()) return Json::of(text_of(date->get()));
  if (const auto* time = node.as_time()) return Json::of(text_of(time->get()));
  if (const auto* moment = node.as_date_time()) return Json::of(text_of(moment->get()));
  return {};
}

}  // namespace

Result<Json> parse_toml(std::string_view text, std::string_view where) {
  try {
    return to_json(toml::parse(text));
  } catch (const toml::parse_error& error) {
    const toml::source_position at = error.source().begin;
    return Error{ErrorCode::bad_input, "not TOML: " + std::string(error.description()),
                 std::string(where) + ", line " + std::to_string(at.line) + ", column " + std::to_string(at.column),
                 "mend this line"};
  }
}

}  // namespace fathom
