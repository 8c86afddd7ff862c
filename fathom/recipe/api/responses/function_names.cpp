#include "fathom/recipe/api/responses/function_names.h"

namespace fathom::recipe::responses {

const std::string& FunctionNames::declare(const std::string& name_space, const std::string& name) {
  std::string_view seam = "::";
  if (version_ == ModelVersion::v4) {
    seam = name_space.ends_with('_') || name.starts_with('_') ? "" : "__";
  }
  const std::string whole = name_space + std::string(seam) + name;
  std::string full = whole;
  for (int number = 1; taken_.contains(full); ++number) full = whole + '_' + std::to_string(number);
  first_.try_emplace({name_space, name}, full);
  return *taken_.insert(std::move(full)).first;
}

const std::string& FunctionNames::find(const std::string& name_space, const std::string& name) {
  const auto found = first_.find({name_space, name});
  return found != first_.end() ? found->second : declare(name_space, name);
}

}  // namespace fathom::recipe::responses
