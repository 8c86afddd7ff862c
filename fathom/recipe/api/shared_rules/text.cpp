// What is looked for in texts.
#include <algorithm>

#include "fathom/recipe/api/shared_rules.h"

namespace fathom::recipe {
namespace {

// `lower_case` begins `text` at `at`; ASCII case of the text does not matter.
bool matches_at(std::string_view text, size_t at, std::string_view lower_case) {
  if (text.size() - at < lower_case.size()) return false;
  for (size_t i = 0; i < lower_case.size(); ++i) {
    const char c = text[at + i];
    if ((c >= 'A' && c <= 'Z' ? char(c + ('a' - 'A')) : c) != lower_case[i]) return false;
  }
  return true;
}

}  // namespace

bool strip_billing_lines(std::string& text) {
  size_t begin = 0;
  while (begin < text.size() && matches_at(text, begin, "x-anthropic-billing-header")) {
    begin = std::min(text.find('\n', begin), text.size());
    begin = std::min(text.find_first_not_of("\r\n", begin), text.size());
  }
  text.erase(0, begin);
  return begin > 0;
}

bool mentions_json(std::string_view text) {
  for (size_t at = text.find_first_of("jJ"); at != text.npos; at = text.find_first_of("jJ", at + 1)) {
    if (matches_at(text, at, "json")) return true;
  }
  return false;
}

}  // namespace fathom::recipe
