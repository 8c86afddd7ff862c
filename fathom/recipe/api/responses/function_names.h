// fathom/recipe/api/responses/function_names.h
// How the functions of namespaces are called in the prompt, in V4.1 `space::name`. V4 has no such names: there it is
// `space__name`, or `space` and `name` as they are when one of them brings an underscore to the seam, and a name that
// is taken gets `_1`, `_2`, … Source: spec/recipe.md 3; docs/recipe-findings.md (responses).
#pragma once
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "fathom/recipe/policy.h"

namespace fathom::recipe::responses {

class FunctionNames {
 public:
  explicit FunctionNames(ModelVersion version) : version_(version) {}

  /// A function outside of namespaces: its name is taken. All of them come before the first declare().
  void reserve(const std::string& name) { taken_.insert(name); }
  /// A new full name for this function.
  const std::string& declare(const std::string& name_space, const std::string& name);
  /// The full name of a function that a call in the history names: the first one declared, else a new one.
  const std::string& find(const std::string& name_space, const std::string& name);

 private:
  ModelVersion version_;
  std::set<std::string> taken_;
  std::map<std::pair<std::string, std::string>, std::string> first_;
};

}  // namespace fathom::recipe::responses
