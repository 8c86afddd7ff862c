// For tests: a vocabulary of every byte and some longer tokens, and whether a text follows a constraint.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "fathom/base/check.h"
#include "fathom/grammar/compile/matcher.h"

namespace fathom::grammar::testing {

/// Ids 0 to 255 are the bytes, 256 ends an answer, then the longer ones.
inline constexpr int32_t kStop = 256;

inline Vocabulary byte_vocabulary(const std::vector<std::string>& longer = {}) {
  std::vector<std::string> tokens;
  for (int byte = 0; byte < 256; ++byte) tokens.emplace_back(1, char(byte));
  tokens.emplace_back("<end>");
  tokens.insert(tokens.end(), longer.begin(), longer.end());
  auto vocabulary = Vocabulary::make(std::move(tokens), {kStop});
  check(vocabulary.ok(), "byte_vocabulary");
  return *vocabulary;
}

/// Whether `text`, byte by byte, is accepted; `whole`: and may end there.
inline bool accepts(const CompiledGrammar& grammar, std::string_view text, bool whole = true) {
  Matcher matcher(grammar);
  for (const char c : text) {
    if (!matcher.accept(int32_t(uint8_t(c)))) return false;
  }
  return !whole || matcher.accept(kStop);
}

inline Constraint json_constraint(std::string schema) {
  Constraint constraint;
  constraint.text = std::move(schema);
  return constraint;
}

inline Constraint regex_constraint(std::string expression) {
  Constraint constraint;
  constraint.kind = Constraint::Kind::regex;
  constraint.text = std::move(expression);
  return constraint;
}

}  // namespace fathom::grammar::testing
