// fathom/recipe/conformance/json_difference.h
// The first place where two JSON values differ, for people to read. Pure.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "fathom/base/json.h"

namespace fathom::recipe {

struct JsonDifference {
  std::string pointer;          // RFC 6901: "/events/2/0/data/choices/0/delta/content"
  std::string expected, found;  // JSON texts, shortened around the place where they part; "(nothing)"
};

enum class KeyOrder { matters, ignored };

/// Numbers are equal when their texts are, or the doubles that they name. Strings are shown from a little before the
/// first byte that differs.
std::optional<JsonDifference> first_difference(const Json& expected, const Json& found, KeyOrder order);

/// One step from a value to another: what stands at `pointer` becomes `value`.
struct JsonChange {
  std::string pointer;
  Json value;
};

/// Few changes that make `to` of `from`. Arrays of another length and objects with other keys are replaced as a whole.
std::vector<JsonChange> changes_between(const Json& from, const Json& to);
/// Makes the changes. False: a pointer leads nowhere.
bool apply_changes(Json& value, const std::vector<JsonChange>& changes);

}  // namespace fathom::recipe
