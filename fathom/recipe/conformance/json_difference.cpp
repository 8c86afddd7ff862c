#include "fathom/recipe/conformance/json_difference.h"

#include <algorithm>

#include "fathom/base/json_pointer.h"

namespace fathom::recipe {
namespace {

constexpr size_t kBefore = 30, kShown = 100;

/// Backs up from a place inside a character to its first byte.
size_t character_start(std::string_view text, size_t at) {
  while (at > 0 && at < text.size() && (uint8_t(text[at]) & 0xC0) == 0x80) --at;
  return std::min(at, text.size());
}

std::string excerpt(std::string_view text, size_t at) {
  const size_t begin = character_start(text, at > kBefore ? at - kBefore : 0);
  const size_t end = character_start(text, std::min(text.size(), begin + kShown));
  return (begin > 0 ? "…" : "") + std::string(text.substr(begin, end - begin)) + (end < text.size() ? "…" : "");
}

JsonDifference difference(std::string pointer, const Json* expected, const Json* found) {
  const std::string a = expected ? to_string(*expected) : "(nothing)", b = found ? to_string(*found) : "(nothing)";
  const size_t at = size_t(std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first - a.begin());
  return {std::move(pointer), excerpt(a, at), excerpt(b, at)};
}

bool same_number(const Json& a, const Json& b) {
  if (a.text == b.text) return true;
  const auto x = a.as_double(), y = b.as_double();
  return x && y && *x == *y;
}

std::optional<JsonDifference> compare(const Json& a, const Json& b, KeyOrder order, const std::string& pointer) {
  if (a.kind != b.kind) return difference(pointer, &a, &b);
  switch (a.kind) {
    case Json::Kind::null: return {};
    case Json::Kind::boolean: return a.boolean == b.boolean ? std::nullopt : std::optional(difference(pointer, &a, &b));
    case Json::Kind::number: return same_number(a, b) ? std::nullopt : std::optional(difference(pointer, &a, &b));
    case Json::Kind::string: return a.text == b.text ? std::nullopt : std::optional(difference(pointer, &a, &b));
    case Json::Kind::array:
      for (size_t i = 0; i < std::max(a.items.size(), b.items.size()); ++i) {
        const std::string at = pointer + "/" + std::to_string(i);
        if (i >= a.items.size()) return difference(at, nullptr, &b.items[i]);
        if (i >= b.items.size()) return difference(at, &a.items[i], nullptr);
        if (auto found = compare(a.items[i], b.items[i], order, at)) return found;
      }
      return {};
    case Json::Kind::object:
      for (const auto& [key, value] : a.fields) {
        const Json* other = b.find(key);
        const std::string at = pointer + "/" + pointer_step(key);
        if (other == nullptr) return difference(at, &value, nullptr);
        if (auto found = compare(value, *other, order, at)) return found;
      }
      for (const auto& [key, value] : b.fields) {
        if (a.find(key) == nullptr) return difference(pointer + "/" + pointer_step(key), nullptr, &value);
      }
      if (order == KeyOrder::matters) {
        const auto same_key = [](const auto& x, const auto& y) { return x.first == y.first; };
        if (!std::equal(a.fields.begin(), a.fields.end(), b.fields.begin(), same_key)) {
          return difference(pointer + " (order of keys)", &a, &b);
        }
      }
      return {};
  }
  return {};
}

bool same_keys(const Json& a, const Json& b) {
  const auto same = [](const auto& x, const auto& y) { return x.first == y.first; };
  return std::equal(a.fields.begin(), a.fields.end(), b.fields.begin(), b.fields.end(), same);
}

void collect(const Json& from, const Json& to, const std::string& pointer, std::vector<JsonChange>& out) {
  if (from == to) return;
  if (from.is_object() && to.is_object() && same_keys(from, to)) {
    for (size_t i = 0; i < from.fields.size(); ++i) {
      collect(from.fields[i].second, to.fields[i].second, pointer + "/" + pointer_step(from.fields[i].first), out);
    }
  } else if (from.is_array() && to.is_array() && from.items.size() == to.items.size()) {
    for (size_t i = 0; i < from.items.size(); ++i) {
      collect(from.items[i], to.items[i], pointer + "/" + std::to_string(i), out);
    }
  } else {
    out.push_back({pointer, to});
  }
}

/// The value that a pointer names, or nullptr.
Json* at_pointer(Json& root, std::string_view pointer) {
  Json* at = &root;
  while (!pointer.empty()) {
    const size_t end = std::min(pointer.find('/', 1), pointer.size());
    const std::string part = key_of_step(pointer.substr(1, end - 1));
    pointer.remove_prefix(end);
    Json* next = nullptr;
    if (at->is_array()) {
      const size_t index =
          part.find_first_not_of("0123456789") == part.npos && !part.empty() ? std::stoul(part) : SIZE_MAX;
      if (index < at->items.size()) next = &at->items[index];
    }
    for (auto& [key, member] : at->fields) {
      if (key == part) next = &member;
    }
    if (next == nullptr) return nullptr;
    at = next;
  }
  return at;
}

}  // namespace

std::vector<JsonChange> changes_between(const Json& from, const Json& to) {
  std::vector<JsonChange> out;
  collect(from, to, "", out);
  return out;
}

bool apply_changes(Json& value, const std::vector<JsonChange>& changes) {
  for (const JsonChange& change : changes) {
    Json* at = at_pointer(value, change.pointer);
    if (at == nullptr) return false;
    *at = change.value;
  }
  return true;
}

std::optional<JsonDifference> first_difference(const Json& expected, const Json& found, KeyOrder order) {
  return compare(expected, found, order, "");
}

}  // namespace fathom::recipe
