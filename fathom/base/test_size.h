// fathom/base/test_size.h
// For tests that repeat themselves: how often. Usual: what every change runs. FATHOM_LONG=1: the numbers of a case or
// an issue. FATHOM_BRIEF=1: for builds with sanitizers, which look for another kind of fault in the same code and are
// ten times slower. scripts/test sets them.
#pragma once
#include <cstdlib>
#include <string_view>

namespace fathom {

inline bool is_set(const char* variable) {
  const char* value = std::getenv(variable);
  return value != nullptr && std::string_view(value) == "1";
}

template <class T>
T by_test_size(T brief, T usual, T full) {
  return is_set("FATHOM_LONG") ? full : is_set("FATHOM_BRIEF") ? brief : usual;
}

}  // namespace fathom
