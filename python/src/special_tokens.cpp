// SpecialToken and SpecialTokens.
#include <nanobind/stl/string.h>

#include <string>

#include "fathom/recipe/token_spellings.h"
#include "python/src/json_object.h"
#include "python/src/module.h"

namespace fathom::python {
namespace {

using recipe::SpecialToken;
using recipe::TokenSpellings;

TokenSpellings spellings_of(const nb::kwargs& given) {
  TokenSpellings out;
  for (const auto& [key, value] : given) {
    const std::string_view name = utf8_of(key);
    int token = 0;
    while (token < recipe::kSpecialTokens && recipe::name_of(SpecialToken(token)) != name) ++token;
    const std::string argument = "SpecialTokens: argument '" + std::string(name) + "'";
    if (token == recipe::kSpecialTokens) throw nb::type_error((argument + " is not known").c_str());
    if (value.is_none()) continue;
    if (!PyUnicode_Check(value.ptr())) throw nb::type_error((argument + " must be str or None").c_str());
    out[SpecialToken(token)] = utf8_of(value);
  }
  return out;
}

/// "thinking_start" -> "ThinkingStart"
std::string class_name(std::string_view words) {
  std::string out;
  bool upper = true;
  for (const char c : words) {
    if (c != '_') out += upper ? char(c - 'a' + 'A') : c;
    upper = c == '_';
  }
  return out;
}

}  // namespace

void bind_special_tokens(nb::module_& module) {
  nb::enum_<SpecialToken> tokens(module, "SpecialToken");
  for (int i = 0; i < recipe::kSpecialTokens; ++i) {
    tokens.value(class_name(recipe::name_of(SpecialToken(i))).c_str(), SpecialToken(i));
  }
  tokens.def("default_str", [](SpecialToken token) { return TokenSpellings()[token]; });

  nb::class_<TokenSpellings>(module, "SpecialTokens")
      .def("__init__",
           [](TokenSpellings* self, const nb::kwargs& given) { new (self) TokenSpellings(spellings_of(given)); })
      .def(
          "token", [](const TokenSpellings& self, SpecialToken token) { return self[token]; }, "token"_a);
}

}  // namespace fathom::python
