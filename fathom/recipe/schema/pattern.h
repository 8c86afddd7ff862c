// fathom/recipe/schema/pattern.h
// Is a text a regular expression? Only syntax is judged; nothing is built. One pass without recursion, so that neither
// length nor nesting can hurt. Source: spec/codec-policy.md 5.
#pragma once
#include <string_view>

namespace fathom::recipe::schema {

enum class Dialect {
  ecma,      // ECMA 262 with the u flag: what drafts up to 7 assert of the format "regex"
  extended,  // what `pattern` may be in every draft: also flags such as (?i), (?P<n>, possessive quantifiers, lone ]
};

bool valid_pattern(std::string_view pattern, Dialect dialect);

/// Is this a Unicode property as \p{…} may name it: a general category, a binary property, a script, `name=value`?
/// Spelling is loose: case, blanks, "-", "_" and a leading "is" do not matter.
bool known_property(std::string_view name);

}  // namespace fathom::recipe::schema
